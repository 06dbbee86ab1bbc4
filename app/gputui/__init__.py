"""gputui: see which GPUs are free, choose and order them, and start on exactly those."""

__version__ = "0.1.0"
