"""What a launcher is to start, apart from the launcher: how a command goes from one to another."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

TAKE_A_VALUE = ("-X", "-W", "--check-hash-based-pycs")
"""The interpreter's own options that take the next word."""

_RUNS = re.compile(r"-[bBdEiIOPqsSuvx]*([mc])(.*)", re.DOTALL)
"""The word that says what is run: -m, -mMODULE, -um."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A script, a module (`python -m`) or any other program, with its arguments.

    python    the interpreter that was named, None where any will do ("python", "python3")
    left_out  options of the launcher that it is taken from, which mean nothing to another one
    options   of the interpreter that started that launcher (`-X dev`)
    home      the directory that the launcher was named in ("/opt/venv/bin"): its interpreter is there too
    """

    kind: Literal["script", "module", "program"]
    words: tuple[str, ...]
    python: str | None = None
    left_out: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    home: str | None = None

    def by_module(self, module: str) -> tuple[str, ...]:
        """What starts another launcher with the same interpreter."""
        return (self.python or "python", *self.options, "-m", module)


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
    """The module that `python -X dev -m MODULE` starts and the place behind its name; ("", 0) for none."""
    place = behind_options(command) if is_python(command) else len(command)
    match = _RUNS.fullmatch(command[place]) if place < len(command) else None
    if match is None or match[1] != "m":
        return "", 0
    if match[2]:
        return match[2], place + 1
    return (command[place + 1], place + 2) if len(command) > place + 1 else ("", 0)


def by_launcher(
    command: Sequence[str],
    kind: Literal["script", "module", "program"],
    words: tuple[str, ...],
    left_out: tuple[str, ...],
) -> Payload:
    """What a command of a launcher starts, with the environment that the launcher itself is of."""
    if module_of(command)[0]:
        options = tuple(command[1 : behind_options(command)])
        return Payload(kind, words, command[0], left_out, options)
    home = os.path.dirname(command[0]) if "/" in command[0] else None  # noqa: PTH120 - "./x" stays "./x"
    return Payload(kind, words, left_out=left_out, home=home)


def settled(payload: Payload, is_file: Callable[[str], bool], directory: str | None) -> Payload:
    """The payload with the interpreter that stands beside the launcher it is taken from.

    `.venv/bin/deepspeed train.py` means the torch of that environment; the torchrun of the PATH is another.
    """
    if payload.python is None and payload.home is not None:
        for name in ("python", "python3"):
            path = f"{payload.home}/{name}"
            if is_file(os.path.join(directory or "", path)):  # noqa: PTH118
                return replace(payload, python=path)
    return payload


def with_interpreter(
    command: Sequence[str], prefix: int, python: str, starter: tuple[str, ...]
) -> tuple[str, ...]:
    """A launcher's command started by `python`; what else the user gave an interpreter stays."""
    if module_of(command)[0]:
        return (python, *command[1:])
    return (*starter, *command[prefix:])


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


def behind_options(command: Sequence[str]) -> int:
    """The place behind the interpreter's own options: of a script, of `-m`, of `-c`."""
    place = 1
    while place < len(command):
        word = command[place]
        if not word.startswith("-") or word in ("-", "--") or _RUNS.fullmatch(word):
            break
        place += 2 if word in TAKE_A_VALUE else 1
    return min(place, len(command))
