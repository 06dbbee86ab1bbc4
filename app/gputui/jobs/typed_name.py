"""How a person names our jobs who has typed the call here, or on another machine (`run --on BOX`)."""

from __future__ import annotations

import os

from gputui.system.environment import called


def typed_name(job: str) -> str:
    """A job's id, with the box before it where the call has come over ssh."""
    box = called(os.environ)
    return job if box is None else f"{box}:{job}"


def typed_list() -> str:
    """The call that lists our jobs."""
    box = called(os.environ)
    return "gputui jobs" if box is None else f"gputui jobs --hosts {box}"
