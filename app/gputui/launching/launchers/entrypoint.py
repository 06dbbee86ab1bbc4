"""The entrypoint of a command: what is started, apart from the launcher that starts it.

Through it a command goes from one launcher to another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.launching.python_command import is_python, particular_interpreter, read_python

Kind = Literal["script", "module", "program"]


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """A script, a module (`python -m`) or any other program, with its arguments.

    python    the interpreter that was named, None where any will do ("python", "python3")
    left_out  options of the launcher that it is taken from, which mean nothing to another one
    options   of the interpreter that started that launcher (`-X dev`)
    home      the directory that the launcher was named in ("/opt/venv/bin"): its interpreter is there too
    """

    kind: Kind
    words: tuple[str, ...]
    python: str | None = None
    left_out: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    home: str | None = None

    def by_module(self, module: str) -> tuple[str, ...]:
        """What starts another launcher with the same interpreter."""
        return (self.python or "python", *self.options, "-m", module)

    def by_python(self) -> tuple[str, ...]:
        """What starts the script or module without a launcher, or the program as it is."""
        if self.kind == "program":
            return self.words
        module = ("-m",) if self.kind == "module" else ()
        return (self.python or "python", *self.options, *module, *self.words)


def of_launcher(
    command: Sequence[str], kind: Kind, words: tuple[str, ...], left_out: tuple[str, ...]
) -> Entrypoint:
    """What a command of a launcher starts, with the Python environment that the launcher belongs to."""
    python = read_python(command)
    if python is not None:
        return Entrypoint(kind, words, python.interpreter, left_out, python.options)
    home = os.path.dirname(command[0]) if "/" in command[0] else None  # noqa: PTH120 - "./x" stays "./x"
    return Entrypoint(kind, words, left_out=left_out, home=home)


def of_command(command: Sequence[str]) -> Entrypoint:
    """What a command without a launcher starts. Options of the interpreter make it a program of its own."""
    python = read_python(command)
    if python is None:
        script = bool(command) and command[0].endswith(".py")
        return Entrypoint("script" if script else "program", tuple(command))
    name = particular_interpreter(python.interpreter)
    # Launchers start their workers with -u themselves.
    if not any(option != "-u" for option in python.options):
        if python.module is not None:
            return Entrypoint("module", (python.module, *python.arguments), name)
        if python.script is not None and not python.script.startswith("-"):
            return Entrypoint("script", (python.script, *python.arguments), name)
    return Entrypoint("program", tuple(command))


def in_python(command: Sequence[str], python: str) -> tuple[str, ...]:
    """A command without a launcher, started by that interpreter; as it is where it is not Python's."""
    if is_python(command):
        return (python, *command[1:])
    return (python, *command) if command and command[0].endswith(".py") else tuple(command)


def with_interpreter_beside(
    entrypoint: Entrypoint, is_file: Callable[[str], bool], directory: str | None
) -> Entrypoint:
    """The entrypoint with the interpreter that stands beside the launcher it is taken from.

    `.venv/bin/deepspeed train.py` means the torch of that environment; the torchrun of the PATH is another.
    """
    if entrypoint.python is None and entrypoint.home is not None:
        for name in ("python", "python3"):
            path = f"{entrypoint.home}/{name}"
            if is_file(os.path.join(directory or "", path)):  # noqa: PTH118
                return replace(entrypoint, python=path)
    return entrypoint
