"""A command that starts a Python interpreter: the interpreter's own options, and what it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.launching.argument_vector import option_table, program_name, read_options

OPTIONS = option_table(
    flags="b B d E h i I O P q R s S u v V x ? help help-all help-env help-xoptions version",
    valued="X W check-hash-based-pycs",
    last="m c",
)
"""`python --help-all` of 3.13."""


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """`python -X dev -m MODULE ARGUMENT…`. Of module, code and script at most one is not None.

    options    the interpreter's own, without -m and -c
    script     the file that is run; "-" is standard input
    arguments  what the script, the module or the code is given
    """

    interpreter: str
    options: tuple[str, ...]
    module: str | None
    code: str | None
    script: str | None
    arguments: tuple[str, ...]


def read_python(command: Sequence[str]) -> PythonCommand | None:
    """What a command runs in Python; None where it starts another program."""
    if not is_python(command):
        return None
    given = read_options(command[1:], OPTIONS)
    runs = {option.name: option.value for option in given.named(OPTIONS.last) if option.values}
    options = given.without(OPTIONS.last).option_words
    # Behind -m and -c a "--" is an argument of theirs.
    arguments = given.rest if runs else given.operands[1:]
    script = None if given.named(OPTIONS.last) else next(iter(given.operands), None)
    return PythonCommand(command[0], options, runs.get("m"), runs.get("c"), script, arguments)


def is_python(command: Sequence[str]) -> bool:
    """Whether the command starts a Python interpreter: python, python3, python3.11, python3.13t, pypy3.

    PEP 779: a "t" behind the version is a free-threaded build, a "d" one for debugging.
    """
    return re.fullmatch(r"(python|pypy)([0-9]+(\.[0-9]+)*t?d?)?", program_name(command)) is not None


def module_prefix(command: Sequence[str]) -> tuple[str | None, int]:
    """The module that `python -X dev -m MODULE` starts, and how many words that are; (None, 0) for none."""
    python = read_python(command)
    if python is None or python.module is None:
        return None, 0
    return python.module, len(command) - len(python.arguments)


def particular_interpreter(word: str) -> str | None:
    """The interpreter, where the word names one by a path or a version; None for "python" and "python3"."""
    return None if word in ("python", "python3") else word
