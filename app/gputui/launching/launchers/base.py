"""What a launcher is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Completed:
    """The command as it will be executed, and what there is to say about it.

    `warnings` are about what the user gave, `remarks` about what the launcher did of itself.
    """

    argv: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Launcher(Protocol):
    """Makes of the user's command one that starts on `count` devices. Pure."""

    @property
    def name(self) -> str:
        """The word on the screen and of `--launcher`."""

    def recognises(self, command: Sequence[str]) -> bool:
        """Whether the command starts with this launcher already."""

    def complete(self, command: Sequence[str], count: int, environ: Mapping[str, str]) -> Completed:
        """The command for `count` devices (0: CPU only), never doubling what the user gave.

        What contradicts the selection is kept and named in a warning, not mended in silence.
        """


def program(command: Sequence[str]) -> str:
    """The name of the program that a command starts: "/opt/venv/bin/torchrun" is "torchrun"."""
    return command[0].rsplit("/", 1)[-1] if command else ""


def is_python(command: Sequence[str]) -> bool:
    """Whether the command starts a Python interpreter: python, python3, python3.11, pypy3."""
    name = program(command)
    for stem in ("python", "pypy"):
        if name.startswith(stem):
            return name[len(stem) :].replace(".", "").isdigit() or name == stem
    return False
