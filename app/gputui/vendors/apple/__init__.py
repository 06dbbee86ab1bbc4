"""The GPU of a Mac with Apple silicon, as ioreg tells it."""
