"""How a command is started on a selection: one file a launcher, behind `Launcher` (base.py)."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.launchers.base import Launcher
from gputui.launching.launchers.python import Python
from gputui.launching.launchers.torchrun import Torchrun

LAUNCHERS: dict[str, Launcher] = {launcher.name: launcher for launcher in (Python(), Torchrun())}
"""Every launcher by name, in the order in which the screen walks through them."""

AUTO = "auto"


def launcher_for(name: str, command: Sequence[str]) -> Launcher:
    """The launcher of that name; "auto" is the one that the command itself starts with, else python."""
    if name != AUTO:
        return LAUNCHERS[name]
    # Last of all python, which also recognises `python -m torch.distributed.run`.
    return next(
        (each for each in reversed(LAUNCHERS.values()) if each.recognises(command)), LAUNCHERS["python"]
    )
