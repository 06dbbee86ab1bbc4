"""gputui as a library: read, pick, hold, launch. Public is what `gputui/__init__.py` offers."""
