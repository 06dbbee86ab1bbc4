"""Claims as a source of facts: where they are kept, which are alive, and who holds them."""
