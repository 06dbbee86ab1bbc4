"""Experiments (`compare`, `each`): one command in variants or tasks, with a record, a runner and a table."""
