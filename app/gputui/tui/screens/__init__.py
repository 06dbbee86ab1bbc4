"""One screen per file, its styles in the .tcss of the same name. All but the main one are imported when
opened."""
