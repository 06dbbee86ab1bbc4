"""The base class of all errors that a program which uses gputui as a library may want to catch."""

from __future__ import annotations


class GputuiError(Exception):
    """A failure of gputui and its reason, in one line."""
