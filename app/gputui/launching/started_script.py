"""Find the script that a command starts: `bash train.sh A B`, `./train.sh`, `torchrun train.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gputui.inventory.light_dataclasses import frozen
from gputui.launching.argument_vector import program_name
from gputui.launching.host_environment import HostEnvironment, below
from gputui.launching.launchers import recognised
from gputui.launching.launchers.entrypoint import Entrypoint
from gputui.launching.python_command import is_python, read_python
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import unwrap

MOST = 1 << 17
"""The most bytes of a script that are read."""


@frozen
class StartedScript:
    """A script that a command starts.

    name       its name for messages: "train.sh", "sh -c"
    text       its first 128 KiB, up to the first NUL
    whole      whether that is all of it
    arguments  its arguments
    """

    kind: Literal["shell", "python"]
    name: str
    text: str
    whole: bool = True
    arguments: tuple[str, ...] = ()


def started_script(
    command: Sequence[str],
    host_environment: HostEnvironment,
    directory: str | None,
) -> StartedScript | None:
    """Return the script that a command starts, also through wrappers and launchers; None for no script.

    A module (`-m pkg.train`) is found only as a file below the directory, not as an installed package.
    """
    for _ in range(4):
        command = unwrap(command)[1]
        if not command:
            return None
        found = _shell(command, host_environment, directory)
        if found is not None:
            return found
        if shell_of(command) is not None:
            return None
        python = read_python(command)
        if python is not None and python.code is not None:
            return StartedScript("python", "python -c", python.code, arguments=python.arguments)
        launcher = recognised(command)
        if python is not None and launcher.name == "python":
            # The interpreter's options do not change the script.
            if python.script in (None, "-") and python.module is None:
                return None
            words = (python.module or python.script or "", *python.arguments)
            kind: Literal["module", "script"] = "script" if python.module is None else "module"
            return _python(Entrypoint(kind, words), host_environment, directory)
        entrypoint = launcher.entrypoint(command)
        if entrypoint.kind != "program":
            return _python(entrypoint, host_environment, directory)
        if entrypoint.words == tuple(command):
            return _by_first_line(command, host_environment, directory)
        command = entrypoint.words
    return None


def launcher_words(command: Sequence[str]) -> int:
    """Return how many words of a command belong to a launcher and its wrappers; 0 for no launcher."""
    inner = unwrap(command)[1]
    launcher = recognised(inner) if inner else None
    if launcher is None or launcher.name == "python" or not launcher.recognises(inner):
        return 0
    return len(command) - len(launcher.entrypoint(inner).words)


def _shell(
    command: Sequence[str], host_environment: HostEnvironment, directory: str | None
) -> StartedScript | None:
    shell, name = shell_of(command), program_name(command)
    if shell is None or name == "fish":
        return None
    if shell.command is not None:
        # The first word after the command is $0.
        return StartedScript("shell", f"{name} -c", shell.command, True, shell.arguments[1:])
    if shell.script is None or shell.script == "-":
        return None
    beginning = host_environment.beginning(below(directory, shell.script), MOST)
    return beginning and StartedScript("shell", shell.script, *beginning, shell.arguments)


def _by_first_line(
    command: Sequence[str], host_environment: HostEnvironment, directory: str | None
) -> StartedScript | None:
    """Return the script for `./train.sh`, whose first line names a shell, or Python."""
    words = host_environment.interpreter(below(directory, command[0])) if "/" in command[0] else None
    if words is None:
        return None
    if is_python(words):
        return _python(Entrypoint("script", tuple(command)), host_environment, directory)
    return _shell((*words, *command), host_environment, directory)


def _python(
    entrypoint: Entrypoint, host_environment: HostEnvironment, directory: str | None
) -> StartedScript | None:
    if not entrypoint.words:
        return None
    name, *arguments = entrypoint.words
    names = [name]
    if entrypoint.kind == "module":
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
            return None
        path = name.replace(".", "/")
        names = [f"{path}.py", f"{path}/__main__.py"]
    for each in names:
        beginning = host_environment.beginning(below(directory, each), MOST)
        if beginning is not None:
            return StartedScript("python", each, *beginning, tuple(arguments))
    return None
