"""What a training needs, and how variants of it compare; pure."""
