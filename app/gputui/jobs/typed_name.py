"""The names of our jobs for a user who typed the call here, or on another machine (`run --on BOX`)."""

from __future__ import annotations

import os

from gputui.system.environment import called


def typed_name(job: str) -> str:
    """A job's id, prefixed with the box where the call came over ssh."""
    box = called(os.environ)
    return job if box is None else f"{box}:{job}"


def typed_list() -> str:
    """The command line that lists our jobs."""
    box = called(os.environ)
    return "gputui jobs" if box is None else f"gputui jobs --hosts {box}"
