"""Makers of accelerators: the vendor port, and one folder for each vendor that gputui ships."""
