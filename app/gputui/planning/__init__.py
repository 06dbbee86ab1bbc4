"""What a training run needs, and with which parallelism it fits. Pure."""
