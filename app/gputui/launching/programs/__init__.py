"""The table of programs: those that say of themselves how many devices they need, or which.

Adding one is adding a row (`program.py` says what a row has). Programs that start others on a selection are
launchers, and have a file each in `launchers/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.programs.clusters import CLUSTERS
from gputui.launching.programs.program import Program
from gputui.launching.programs.serving import SERVING
from gputui.launching.programs.training import TRAINING
from gputui.launching.python_command import started_program

PROGRAMS: tuple[Program, ...] = (*SERVING, *CLUSTERS, *TRAINING)
"""Every row. The first that recognises a command is its program; rows of libraries come last."""


def program_of(command: Sequence[str]) -> Program | None:
    """The row of the program that a command starts; None where it is in none."""
    started = started_program(command)
    return next((program for program in PROGRAMS if program.own(command, started)), None)
