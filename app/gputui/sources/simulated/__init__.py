"""Simulated boxes: for `--demo`, for tests, for screenshots. Each box is described once, in boxes.toml."""
