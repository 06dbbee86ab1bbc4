"""Starting a launch in place of this process, with its pid and terminal, or as a child of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gputui.inventory.errors import GputuiError
from gputui.inventory.others_files import beginning
from gputui.launching.launch import Launch
from gputui.launching.shell_words import one_word_for_several
from gputui.system.landlock import LandlockError, confine, started

CANNOT_START = 126
"""What a shell ends with when a command is there and cannot be started."""


def _shell_script(program: str, environment: Mapping[str, str]) -> str | None:
    """The path of a text file without "#!", which every shell runs as a script; None for a binary."""
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return None
    return None if b"\0" in beginning(path, 256)[0] else path


class StartError(GputuiError):
    """The command could not be started; `status` is what a shell would end with (126 or 127)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def cannot_confine(error: OSError) -> StartError:
    """For a launch that was to be confined, and cannot be: then it is not started."""
    return StartError(f"cannot confine it to its devices: {error.strerror} (--no-confine)", 126)


def no_program(program: str) -> str:
    """That a program is not there, and what to write where it is a line in one word."""
    return f"there is no program {program!r}{one_word_for_several(program)}"


def line_in_one_word(command: Sequence[str], directory: str | None) -> str | None:
    """A sentence where a command is a whole line in one word ("python x.py"), which names no file; else None.

    Asked before it is completed: what ends with .py would be started by Python.
    """
    word = command[0]
    if not one_word_for_several(word) or shutil.which(word) or (Path(directory or ".") / word).exists():
        return None
    return no_program(word)


def missing_program(launch: Launch, environ: Mapping[str, str]) -> str | None:
    """A sentence where the launch's program cannot be found, else None; asked before the screen is left."""
    program = launch.argv[0]
    if "/" in program:
        found = (Path(launch.directory or ".") / program).exists()
    else:
        found = shutil.which(program, path=launch.environment(environ).get("PATH")) is not None
    return None if found else no_program(program)


def look_ahead(launch: Launch, environ: Mapping[str, str]) -> None:
    """Raises the StartError of a launch whose directory or program is not there, or may not be used.

    What only its start would tell (the interpreter of a script) is not looked for.
    """
    if launch.directory is not None:
        try:
            # (With the dot it says as well whether we may go there.)
            os.stat(os.path.join(launch.directory, "."))  # noqa: PTH116, PTH118 - pathlib drops the dot
        except OSError as error:
            raise StartError(f"cannot change to {launch.directory!r}: {error.strerror}", 126) from None
    program, path = launch.argv[0], launch.environment(environ).get("PATH", os.defpath)
    places = [""] if "/" in program else path.split(os.pathsep)
    files = [Path(launch.directory or ".") / place / program for place in places]
    if not any(os.access(file, os.F_OK) for file in files):
        raise StartError(no_program(program), 127)
    if not any(os.access(file, os.X_OK) and file.is_file() for file in files):
        raise StartError(f"cannot start {program!r}: {os.strerror(errno.EACCES)}", 126)


def run_child(
    launch: Launch,
    environ: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    outputs: tuple[int | None, int | None] = (None, None),
) -> int:
    """Start `launch` on our terminal and wait for it; its status, -n after signal n. Raises StartError.

    `pass_fds` are open descriptors that it inherits (a lease on its devices), `outputs` those that it writes
    to in place of our stdout and stderr.
    """
    launch = launch.started
    program = launch.argv[0]
    environment = launch.environment(environ)
    words = list(launch.argv)
    try:
        try:
            return _status_of(words, environment, launch.directory, pass_fds, outputs, launch.left_out)
        except OSError as error:
            script = _shell_script(program, environment) if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            words = ["/bin/sh", script, *words[1:]]
            return _status_of(words, environment, launch.directory, pass_fds, outputs, launch.left_out)
    except LandlockError as error:
        raise cannot_confine(error) from None
    except FileNotFoundError as error:
        if error.filename == launch.directory and launch.directory is not None:
            raise StartError(f"cannot change to {launch.directory!r}: {error.strerror}", 126) from None
        raise StartError(no_program(program), 127) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot start {program!r}: {reason}", 126) from None


@contextlib.contextmanager
def _no_interrupt() -> Iterator[list[int]]:
    """Ctrl-C raises nothing meanwhile, and is noted: between its start and our hold on it, a program would be
    left alone. (A handler of somebody else's stays, and so does a signal that is ignored.)"""
    noted: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _status_of(
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: str | None,
    pass_fds: Sequence[int],
    outputs: tuple[int | None, int | None],
    left_out: Sequence[str],
) -> int:
    """Start a program and wait for it. Raises OSError, ValueError.

    Ctrl-C reaches the program, too, which may save what it has: it gets the time, as a shell would give it
    (`subprocess.call` kills it after a quarter of a second). A second Ctrl-C kills it.
    """
    import subprocess

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words, env=environment, cwd=directory, pass_fds=pass_fds, stdout=outputs[0], stderr=outputs[1]
        )

    with _no_interrupt() as interrupted:
        process = started(left_out, start)
    try:
        if interrupted:
            raise KeyboardInterrupt
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait()
        except KeyboardInterrupt:
            process.kill()
            process.wait()
        raise


def replace_process(launch: Launch, environ: Mapping[str, str]) -> NoReturn:
    """Become `launch`, with `environ` changed as it says. Raises StartError when that cannot be."""
    launch = launch.started
    environment = launch.environment(environ)
    if launch.left_out:
        try:
            confine(launch.left_out)
        except LandlockError as error:
            raise cannot_confine(error) from None
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
        raise StartError(no_program(program), 127) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot start {program!r}: {reason}", 126) from None
