"""One screen a file, its styles in the .tcss beside it. All but the main one are imported when opened."""
