"""Parts of a launch that tests check."""

from __future__ import annotations

import shlex

from gputui.launching.launch import Launch


def line(launch: Launch) -> str:
    """The command line of a launch without warnings."""
    assert launch.warnings == ()
    return shlex.join(launch.argv)


def warning(launch: Launch) -> str:
    """The only warning of a launch."""
    assert len(launch.warnings) == 1, launch.warnings
    return launch.warnings[0]
