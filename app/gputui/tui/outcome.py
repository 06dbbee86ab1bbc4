"""Outcome: how the screen ended. The command line carries it out once the terminal is its own again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputui.launching.launch import Launch

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease


@dataclass(frozen=True, slots=True)
class Outcome:
    """With a launch to become, or an exit status.

    `text` is for stdout and `warning` for stderr, both once the screen is gone.
    """

    launch: Launch | None = None
    lease: Lease | None = None
    status: int = 0
    text: str | None = None
    warning: str | None = None
