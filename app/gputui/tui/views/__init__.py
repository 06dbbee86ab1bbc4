"""What each surface shows: pure functions from a board and a width to lines of styled text."""
