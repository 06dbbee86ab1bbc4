"""The base of every error that a program which uses gputui as a library may want to catch."""

from __future__ import annotations


class GputuiError(Exception):
    """What gputui could not do, and why, in one line."""
