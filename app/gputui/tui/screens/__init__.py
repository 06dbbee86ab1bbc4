"""One screen per file; the .tcss files have the styles. All but the main one are imported when opened."""
