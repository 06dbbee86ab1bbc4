"""Widgets: live surfaces are strips that repaint only the lines that changed."""
