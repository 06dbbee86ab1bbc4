"""Parse a command that starts a Python interpreter: the interpreter's own options, and its program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gputui.inventory.light_dataclasses import frozen
from gputui.launching.argument_vector import OptionTable, program_name, read_options
from gputui.launching.wrappers import uv_starting_module

OPTIONS = OptionTable(
    flags="b B d E h i I O P q R s S u v V x ? help help-all help-env help-xoptions version",
    valued="X W check-hash-based-pycs",
    last="m c",
)
"""Source: `python --help-all` of 3.13."""


@frozen
class PythonCommand:
    """`python -X dev -m MODULE ARGUMENT…`. At most one of module, code and script is not None.

    options    the interpreter's own, without -m and -c
    script     the file that is run; "-" is standard input
    arguments  the arguments of the script, the module or the code
    """

    interpreter: str
    options: tuple[str, ...]
    module: str | None
    code: str | None
    script: str | None
    arguments: tuple[str, ...]


def read_python(command: Sequence[str]) -> PythonCommand | None:
    """Parse a command that starts Python; None where it starts another program."""
    if not is_python(command):
        return None
    given = read_options(command[1:], OPTIONS)
    runs = {option.name: option.value for option in given.named(OPTIONS.last) if option.values}
    options = given.without(OPTIONS.last).option_words
    # After -m and -c, a "--" is an argument of the module or the code.
    arguments = given.rest if runs else given.operands[1:]
    script = None if given.named(OPTIONS.last) else next(iter(given.operands), None)
    return PythonCommand(command[0], options, runs.get("m"), runs.get("c"), script, arguments)


def is_python(command: Sequence[str]) -> bool:
    """Whether the command starts a Python interpreter: python, python3, python3.11, python3.13t, pypy3.

    PEP 779: a "t" after the version is a free-threaded build, a "d" a debug build.
    """
    return re.fullmatch(r"(python|pypy)([0-9]+(\.[0-9]+)*t?d?)?", program_name(command)) is not None


_DEBUGPY = OptionTable(
    flags="wait-for-client log-to-stderr disable-sys-remote-exec",
    valued="listen connect log-to parent-session-pid adapter-access-token pid",
    last="m c",
    unlisted="value",
)
_PROFILE = OptionTable(valued="outfile|o sort|s", last="module|m")

_RUNNERS = {
    "debugpy": ((), _DEBUGPY),
    "cProfile": ((), _PROFILE),
    "profile": ((), _PROFILE),
    "pdb": ((), OptionTable(valued="c command", last="m")),
    "coverage": (
        ("run",),
        OptionTable(
            flags="append|a branch parallel-mode|p pylib|L timid quiet|q",
            valued="concurrency context data-file include omit rcfile save-signal source",
            last="module|m",
        ),
    ),
    "memray": (
        ("run",),
        OptionTable(
            flags="live live-remote native follow-fork trace-python-allocators quiet|q verbose|v force|f"
            " aggregate compress-on-exit no-compress",
            valued="output|o live-port|p",
            last="m c",
        ),
    ),
}
"""Modules that run other modules: their subcommand, and their options (debugpy 1.8, coverage 7, memray 1)."""


class Started(NamedTuple):
    """The program that a command starts: `name`, or the `module` of `python -m`; how many words name it."""

    name: str | None
    module: str | None
    words: int


def started_program(command: Sequence[str]) -> Started:
    """Return the program that a command starts: torchrun for `python /opt/bin/torchrun` and `torchrun`; the
    module for `python -m debugpy -m MODULE` and `uv run -m MODULE`."""
    python = read_python(command)
    if python is None:
        by_uv = uv_starting_module(command)
        return (
            Started(None, *by_uv)
            if by_uv
            else Started(program_name(command) or None, None, min(1, len(command)))
        )
    words = len(command) - len(python.arguments)
    if python.module is not None:
        return _run_by_module(python.module, python.arguments, words) or Started(None, python.module, words)
    if python.script is not None and _is_program(python.script):
        return Started(program_name((python.script,)), None, words)
    return Started(program_name(command), None, 1)


def words_of_start(
    command: Sequence[str], started: Started, starts: Sequence[str], modules: Sequence[str]
) -> int:
    """Return how many leading words of a command match one of these programs ("vllm serve") or modules
    ("swift.cli.main pt|sft", either word); 0 for another command. `started` is the program that it starts."""
    # `uvx vllm@0.11 serve` names a version.
    name = started.module or (started.name or "").partition("@")[0]
    for begin in starts if started.module is None else modules:
        program, *following = begin.split()
        end = started.words + len(following)
        if program == name and len(command) >= end:
            given = command[started.words : end]
            if all(word in verbs.split("|") for word, verbs in zip(given, following, strict=True)):
                return end
    return 0


def _is_program(script: str) -> bool:
    """Whether the script is an installed program: `python /opt/venv/bin/torchrun`."""
    return not script.endswith(".py") and "/" in script


def _run_by_module(module: str, arguments: Sequence[str], words: int) -> Started | None:
    """Return the module that another module runs: torch.distributed.run for `python -m debugpy --listen 5678
    -m torch.distributed.run`; None where it runs none."""
    verb, options = _RUNNERS.get(module, ((), None))
    if options is None or tuple(arguments[: len(verb)]) != verb:
        return None
    given = read_options(arguments[len(verb) :], options)
    run = given.named(("m", "module"))
    if not run and given.operands and _is_program(given.operands[0]):
        return Started(program_name(given.operands), None, words + len(arguments) - len(given.operands) + 1)
    if not run or not run[-1].values:
        return None
    words += len(arguments) - len(given.rest)
    return _run_by_module(run[-1].value, given.rest, words) or Started(None, run[-1].value, words)


def particular_interpreter(word: str) -> str | None:
    """Return the word if it has a path or a version; None for "python" and "python3"."""
    return None if word in ("python", "python3") else word
