"""gputui: see which GPUs are free, select and order them, and start on exactly those."""

__version__ = "0.1.0"
