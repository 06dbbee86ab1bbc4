"""gputui as a library: read, pick, hold, launch. The public names are those of `gputui/__init__.py`."""
