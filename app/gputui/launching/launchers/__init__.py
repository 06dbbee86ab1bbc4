"""The launchers, which start a command on a selection: one file per launcher, behind `Launcher` (base.py)."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.launchers.accelerate import Accelerate
from gputui.launching.launchers.base import Launcher
from gputui.launching.launchers.deepspeed import Deepspeed
from gputui.launching.launchers.mpirun import Mpirun
from gputui.launching.launchers.python import Python
from gputui.launching.launchers.torchrun import Torchrun

LAUNCHERS: dict[str, Launcher] = {
    launcher.name: launcher for launcher in (Python(), Torchrun(), Accelerate(), Deepspeed(), Mpirun())
}
"""Every launcher by name, in the order of `LAUNCHER_NAMES`."""


def recognised(command: Sequence[str]) -> Launcher:
    """Return the launcher that the command itself starts with, else python."""
    # python comes last, because it also recognises `python -m torch.distributed.run`.
    return next(
        (each for each in reversed(LAUNCHERS.values()) if each.recognises(command)), LAUNCHERS["python"]
    )
