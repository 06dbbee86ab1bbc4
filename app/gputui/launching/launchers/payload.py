"""What a launcher is to start, apart from the launcher: how a command goes from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Payload:
    """A script, a module (`python -m`) or any other program, with its arguments.

    python    the interpreter that was named, None where any will do ("python", "python3")
    left_out  options of the launcher that it is taken from, which mean nothing to another one
    """

    kind: Literal["script", "module", "program"]
    words: tuple[str, ...]
    python: str | None = None
    left_out: tuple[str, ...] = ()


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


def module_of(command: Sequence[str]) -> tuple[str, int]:
    """The module that `python [-u] -m MODULE` starts and the place behind its name; ("", 0) for none."""
    place = 2 if list(command[1:2]) == ["-u"] else 1
    if is_python(command) and list(command[place : place + 1]) == ["-m"] and len(command) > place + 1:
        return command[place + 1], place + 2
    return "", 0


def named_python(word: str) -> str | None:
    """The interpreter, where the word names one in particular: by a path or a version."""
    return None if word in ("python", "python3") else word


def of_python(command: Sequence[str]) -> Payload:
    """What a command without a launcher starts. Options of the interpreter make it a program of its own."""
    if not is_python(command):
        kind: Literal["script", "program"] = "script" if command and command[0].endswith(".py") else "program"
        return Payload(kind, tuple(command))
    python, rest = named_python(command[0]), list(command[1:])
    while rest and rest[0] == "-u":
        # Launchers start their workers with -u themselves.
        rest.pop(0)
    if rest[:1] == ["-m"] and len(rest) > 1:
        return Payload("module", tuple(rest[1:]), python)
    if not rest or rest[0].startswith("-"):
        return Payload("program", tuple(command))
    return Payload("script", tuple(rest), python)
