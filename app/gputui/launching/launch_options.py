"""What the user wants to run, apart from the devices. By itself: a screen starts before it makes a launch."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.vendors.visibility import Ids

AUTO = "auto"
"""Stands for the launcher that the command itself starts with."""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What the user wants to run, apart from the devices.

    additions   environment variables that the user wrote before the command (`FOO=1 python train.py`) or
                asked for; None unsets one
    python      the interpreter to start it with, None for the command's own
    processes   how many, None for one a device
    logs        a directory for a log a rank
    numa        bind processes to the CPUs near their devices
    nodes       machines; `rendezvous` is HOST[:PORT] of the first of several
    """

    command: tuple[str, ...] = ()
    launcher: str = AUTO
    ids: Ids = "index"
    directory: str | None = None
    additions: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    processes: int | None = None
    logs: str | None = None
    numa: bool = False
    nodes: int = 1
    rendezvous: str | None = None
