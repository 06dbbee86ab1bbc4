"""Starting a launch in place of this process, with its pid and terminal, or as a child of it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gputui.inventory.errors import GputuiError
from gputui.launching.launch import Launch


def _shell_script(program: str, environment: Mapping[str, str]) -> str | None:
    """The path of a text file without "#!", which every shell runs as a script; None for a binary."""
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return None
    with Path(path).open("rb") as file:
        return None if b"\0" in file.read(256) else path


def missing_program(launch: Launch, environ: Mapping[str, str]) -> str | None:
    """A sentence where the launch's program cannot be found, else None; asked before the screen is left."""
    program = launch.argv[0]
    if "/" in program:
        found = (Path(launch.directory or ".") / program).exists()
    else:
        found = shutil.which(program, path=launch.environment(environ).get("PATH")) is not None
    return None if found else f"there is no program {program!r}"


class StartError(GputuiError):
    """The command could not be started; `status` is what a shell would end with (126 or 127)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run_child(launch: Launch, environ: Mapping[str, str], pass_fds: Sequence[int] = ()) -> int:
    """Start `launch` on our terminal and wait for it; its status, -n after signal n. Raises StartError.

    `pass_fds` are open descriptors that it inherits (a lease on its devices).
    """
    import subprocess

    program = launch.argv[0]
    environment = launch.environment(environ)
    words = list(launch.argv)
    try:
        try:
            return subprocess.call(words, env=environment, cwd=launch.directory, pass_fds=pass_fds)
        except OSError as error:
            script = _shell_script(program, environment) if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            words = ["/bin/sh", script, *words[1:]]
            return subprocess.call(words, env=environment, cwd=launch.directory, pass_fds=pass_fds)
    except FileNotFoundError as error:
        if error.filename == launch.directory and launch.directory is not None:
            raise StartError(f"cannot change to {launch.directory!r}: {error.strerror}", 126) from None
        raise StartError(f"there is no program {program!r}", 127) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot start {program!r}: {reason}", 126) from None


def replace_process(launch: Launch, environ: Mapping[str, str]) -> NoReturn:
    """Become `launch`, with `environ` changed as it says. Raises StartError when that cannot be."""
    environment = launch.environment(environ)
    if launch.directory is not None:
        try:
            os.chdir(launch.directory)
        except OSError as error:
            raise StartError(f"cannot change to {launch.directory!r}: {error.strerror}", 126) from None
    # Python ignores these two, and what is ignored stays ignored in the command: `… | head` would differ.
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    program = launch.argv[0]
    try:
        try:
            os.execvpe(program, list(launch.argv), environment)
        except OSError as error:
            script = _shell_script(program, environment) if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            os.execve("/bin/sh", ["/bin/sh", script, *launch.argv[1:]], environment)
    except FileNotFoundError:
        raise StartError(f"there is no program {program!r}", 127) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot start {program!r}: {reason}", 126) from None
