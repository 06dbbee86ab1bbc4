"""Mutation runs: each changes the source in one place, and the tests must notice."""
