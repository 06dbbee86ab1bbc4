"""The table of programs whose commands say how many devices they need, or which.

To add one, add a row (`program.py` describes the fields). Programs that start others on a selection are
launchers, with a file each in `launchers/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.programs.clusters import CLUSTERS
from gputui.launching.programs.program import Program
from gputui.launching.programs.serving import SERVING
from gputui.launching.programs.training import TRAINING
from gputui.launching.python_command import started_program

PROGRAMS: tuple[Program, ...] = (*SERVING, *CLUSTERS, *TRAINING)
"""Every row. The first one that recognises a command is its program; rows of libraries come last."""


def program_of(command: Sequence[str]) -> Program | None:
    """Return the row of the program that a command starts; None where there is none."""
    started = started_program(command)
    return next((program for program in PROGRAMS if program.own(command, started)), None)
