"""Abuse of the screen with random keys, clicks, sizes and boxes: run by hand, not part of the suite."""
