"""Experiments: one command in variants or tasks; a record, a runner, a table (`compare`, `each`)."""
