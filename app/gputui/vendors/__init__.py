"""Makers of accelerators: the port that each stands behind, and one folder for each that gputui brings."""
