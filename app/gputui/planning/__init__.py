"""What a training needs, with which parallelism it fits, and how variants of it compare; pure."""
