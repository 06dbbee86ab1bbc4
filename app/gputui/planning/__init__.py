"""What a training needs, and with which parallelism it fits; pure."""
