"""The screen. Only this package knows Textual."""
