"""Slurm, an existing scheduler: its own programs' reports of its nodes, their devices and the user's jobs."""

from __future__ import annotations

from gputui.system.root import Root


def slurm_is_here() -> bool:
    """Whether this machine has Slurm's programs."""
    return Root().program("scontrol") is not None
