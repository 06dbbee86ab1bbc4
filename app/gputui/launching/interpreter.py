"""Find the Python interpreter that a command will train in, to start a script of ours in it.

This module looks programs up in PATH and reads their first lines; it starts no program.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.others_files import beginning
from gputui.launching.argument_vector import program_name, read_options
from gputui.launching.host_environment import shebang
from gputui.launching.launchers import recognised
from gputui.launching.python_command import OPTIONS, is_python, read_python
from gputui.launching.wrappers import WRAPPERS, assigned, unwrap, uv_starting_python, wrappers
from gputui.system.environment import Environ
from gputui.system.trust import absolute_folders
from gputui.vendors.visibility import with_changes

_INLINE = re.compile(rb"^# /// script\s*$", re.MULTILINE)
"""The dependencies of a single script (PEP 723), for which uv makes a separate environment."""


class InterpreterError(Exception):
    """No interpreter was found. The message is one line."""


@frozen
class Interpreter:
    """The words that start a script: ("uv", "run", "python"), ("/opt/venv/bin/python3",).

    doubt  why the command's own interpreter is not known and another was chosen; None where it is known
    """

    argv: tuple[str, ...]
    doubt: str | None = None


def interpreter(
    command: Sequence[str],
    environ: Environ,
    directory: str | None = None,
    python: str | None = None,
) -> Interpreter:
    """Return the interpreter of `command`, started with `environ` in `directory`; `python` overrides it.

    Raises InterpreterError where there is no interpreter, or the command's program does not exist.
    """
    path, place = environ.get("PATH"), Path(directory or ".")
    if python is not None:
        # A path from the user is relative to the current directory, not to the command's.
        found = python if "/" not in python else str(Path(python).absolute())
        return Interpreter((found,))
    if not command:
        return _of_path(path, None)
    prefix, inner = unwrap(command)
    # `setsid` is left out: it may not wait for the script.
    calls = [call for call in wrappers(prefix) if call.name != "setsid"]
    prefix = tuple(word for call in calls for word in call.words)
    environ = with_changes(environ, assigned(prefix))
    path = environ.get("PATH")
    if not inner:
        return _of_path(path, f"{command[0]} starts no command")
    launcher = recognised(inner)
    if launcher.name in ("mpirun", "torchrun"):
        entrypoint = launcher.entrypoint(inner)
        if entrypoint.kind == "program":
            # They start another command, which may have an interpreter of its own.
            within = interpreter(entrypoint.words, environ, directory)
            return Interpreter((*prefix, *within.argv), within.doubt)
        if launcher.name == "mpirun":
            return Interpreter((*prefix, entrypoint.python or "python"))
    started = read_python(inner)
    if started is not None:
        # Its options decide what it can import (-I, -X dev); -i would make it wait for input.
        options = read_options(started.options, OPTIONS).without(("i",)).option_words
        return Interpreter((*prefix, started.interpreter, *options))
    elsewhere = any(WRAPPERS[call.name].environment for call in calls)
    if elsewhere and ("/" not in inner[0] or inner[0].endswith(".py")):
        return Interpreter((*prefix, "python"), _inline(inner[0], place))
    by_uv = uv_starting_python(inner)
    if by_uv is not None:
        doubt = "uv makes a separate environment for a script" if by_uv[1] else None
        return Interpreter((*prefix, *by_uv[0], "python"), doubt)
    if program_name(inner) == "uv":
        return _of_path(path, f"{' '.join(inner[:2])} starts no command")
    return _of_program(prefix, inner[0], environ, place)


def _of_path(path: str | None, doubt: str | None) -> Interpreter:
    """Return the Python of the PATH, whose relative folders are passed over: nobody has named what is in the
    current one. Raises InterpreterError."""
    absolute = os.pathsep.join(absolute_folders(path))
    for name in ("python", "python3"):
        found = absolute and shutil.which(name, path=absolute)
        if found:
            named = name if shutil.which(name, path=path) == found else found
            taken = f"; using the {name} on PATH (--python names another)" if doubt else ""
            return Interpreter((named,), f"{doubt}{taken}" if doubt else None)
    raise InterpreterError("no python on PATH; name one with --python")


def _inline(word: str, place: Path) -> str | None:
    """Return why uv does not start this script in the project's environment; None where it does."""
    if not word.endswith(".py"):
        return None
    with contextlib.suppress(OSError):
        if _INLINE.search(beginning(place / word, 1 << 16)[0]):
            return f"{word} names its own dependencies, for which uv makes a separate environment"
    return None


def _of_program(prefix: tuple[str, ...], word: str, environ: Environ, place: Path) -> Interpreter:
    """Return the interpreter that the first line of a script names (torchrun, accelerate, ./train.py)."""
    name, path = word.rsplit("/", 1)[-1], environ.get("PATH")
    if name == "torchrun" and environ.get("PYTHON_EXEC"):
        # torchrun starts its workers with this program (torch/distributed/run.py).
        return Interpreter((*prefix, environ["PYTHON_EXEC"]))
    found = str(place / word) if "/" in word else shutil.which(word, path=path)
    if found is None or not os.access(found, os.F_OK):
        raise InterpreterError(f"there is no program {word!r}")
    named = shebang(found)
    if named and is_python(named):
        return Interpreter((*prefix, *named))
    beside = Path(found).parent / "python"
    if Path(found).parent.name == "shims" and os.access(beside, os.X_OK):
        # pyenv and similar tools put a script in front of every program, including python.
        return Interpreter((*prefix, str(beside)))
    kind = f"a script of {named[0]}" if named else "a program"
    return _of_path(path, f"which Python {name} ({kind}) starts is unknown")
