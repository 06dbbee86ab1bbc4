"""Mutation runs: the source is changed in one place at a time, and the tests must notice."""
