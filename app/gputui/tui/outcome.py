"""Outcome: how the screen ended. The command line carries it out once the terminal is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputui.inventory.light_dataclasses import frozen
from gputui.launching.launch import Launch

if TYPE_CHECKING:
    from gputui.allocating.allocation import Allocation


@frozen
class Outcome:
    """Either a launch to execute, with an allocation unless a scheduler selects the devices, or an exit
    status.

    `text` is for stdout and `warning` for stderr, both once the screen is gone.
    """

    launch: Launch | None = None
    allocation: Allocation | None = None
    status: int = 0
    text: str | None = None
    warning: str | None = None
