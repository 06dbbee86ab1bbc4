"""What each surface shows: pure functions from an app state and a width to lines of styled text."""
