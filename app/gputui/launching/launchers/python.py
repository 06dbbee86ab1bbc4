"""A plain program: one process that sees all the chosen devices. What the command is, it stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.launching.launchers.base import Completed, is_python


class Python:
    """`python train.py`, and every command that needs no launcher."""

    name = "python"

    def recognises(self, command: Sequence[str]) -> bool:
        return is_python(command)

    def complete(self, command: Sequence[str], count: int, environ: Mapping[str, str]) -> Completed:
        if command and command[0].endswith(".py") and "/" not in command[0]:
            # A bare file name is on nobody's PATH.
            return Completed(("python", *command))
        return Completed(tuple(command))
