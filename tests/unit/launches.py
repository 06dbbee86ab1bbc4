"""What tests ask of a launch."""

from __future__ import annotations

import shlex

from gputui.launching.launch import Launch


def line(launch: Launch) -> str:
    """The command; it goes without a warning."""
    assert launch.warnings == ()
    return shlex.join(launch.argv)


def warning(launch: Launch) -> str:
    """The only warning."""
    assert len(launch.warnings) == 1, launch.warnings
    return launch.warnings[0]
