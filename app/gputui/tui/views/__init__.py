"""The content of each surface: pure functions from an app state and a width to lines of styled text."""
