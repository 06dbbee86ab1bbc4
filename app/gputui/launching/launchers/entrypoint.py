"""The entrypoint of a command: the script, module or program that a launcher starts.

Through its entrypoint, a command can be moved from one launcher to another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.host_environment import below
from gputui.launching.python_command import is_python, particular_interpreter, read_python

Kind = Literal["script", "module", "program"]


@frozen
class Entrypoint:
    """A script, a module (`python -m`) or any other program, with its arguments.

    python    the interpreter that was named, None where any will do ("python", "python3")
    left_out  options of the previous launcher, which mean nothing to another one
    options   options of the interpreter that started that launcher (`-X dev`)
    home      the directory of the launcher that was named ("/opt/venv/bin"), which also has its interpreter
    """

    kind: Kind
    words: tuple[str, ...]
    python: str | None = None
    left_out: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    home: str | None = None

    def by_module(self, module: str) -> tuple[str, ...]:
        """Return the words that start another launcher with the same interpreter."""
        return (self.python or "python", *self.options, "-m", module)

    def by_python(self) -> tuple[str, ...]:
        """Return the words that start the script or module without a launcher, or the program as it is."""
        if self.kind == "program":
            return self.words
        module = ("-m",) if self.kind == "module" else ()
        return (self.python or "python", *self.options, *module, *self.words)


def of_launcher(
    command: Sequence[str], kind: Kind, words: tuple[str, ...], left_out: tuple[str, ...]
) -> Entrypoint:
    """Return the entrypoint of a launcher's command, with the Python environment that the launcher belongs
    to."""
    python = read_python(command)
    if python is not None:
        return Entrypoint(kind, words, python.interpreter, left_out, python.options)
    home = os.path.dirname(command[0]) if "/" in command[0] else None  # noqa: PTH120 - "./x" stays "./x"
    return Entrypoint(kind, words, left_out=left_out, home=home)


def of_command(command: Sequence[str]) -> Entrypoint:
    """Return the entrypoint of a command without a launcher. Options of the interpreter make it a plain
    program."""
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
    """Return a command without a launcher, started by that interpreter; unchanged where it is not
    Python's."""
    if is_python(command):
        return (python, *command[1:])
    return (python, *command) if command and command[0].endswith(".py") else tuple(command)


def with_interpreter_beside(
    entrypoint: Entrypoint, is_file: Callable[[str], bool], directory: str | None
) -> Entrypoint:
    """Return the entrypoint with the interpreter beside the launcher that it is taken from.

    `.venv/bin/deepspeed train.py` means the torch of that environment; the torchrun on PATH is another one.
    """
    if entrypoint.python is None and entrypoint.home is not None:
        for name in ("python", "python3"):
            path = f"{entrypoint.home}/{name}"
            if is_file(below(directory, path)):
                return replace(entrypoint, python=path)
    return entrypoint
