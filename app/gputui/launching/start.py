"""Start a launch in place of this process, with its pid and terminal, or as a child of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from gputui.inventory.errors import GputuiError
from gputui.inventory.job import Step, Trouble
from gputui.inventory.others_files import beginning
from gputui.launching.launch import Launch
from gputui.launching.shell_words import one_word_for_several
from gputui.system import landlock, time_limit
from gputui.system.ending_signals import noted_interrupts
from gputui.system.environment import Environ

T = TypeVar("T")

CANNOT_START = 126
"""The status of a shell whose command exists and cannot be started."""


class StartError(GputuiError):
    """The command could not be started; `status` is the status that a shell would have (126 or 127)."""

    code = "cannot_start"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def cannot_start(trouble: Trouble, program: str, directory: str | None) -> StartError:
    """The error for a program that could not be started in that directory."""
    if trouble.step == "confinement":
        why = f"cannot confine it to its devices: {landlock.why(trouble.errno)} (--no-confine)"
    elif trouble.step == "directory":
        why = f"cannot change to {directory!r}: {os.strerror(trouble.errno)}"
    elif trouble.errno == errno.ENOENT:
        return StartError(no_program(program), 127)
    else:
        why = f"cannot start {program!r}: {os.strerror(trouble.errno)}"
    return StartError(why, CANNOT_START)


@contextlib.contextmanager
def _told(program: str, directory: str | None = None) -> Iterator[None]:
    """Turn the system's errors at a start into StartError."""
    try:
        yield
    except OSError as error:
        step: Step = "program"
        if isinstance(error, landlock.LandlockError):
            step = "confinement"
        elif directory is not None and error.filename == directory:
            step = "directory"
        raise cannot_start(Trouble(step, error.errno or 0), program, directory) from None
    except ValueError as error:
        raise StartError(f"cannot start {program!r}: {error}", CANNOT_START) from None


def _or_by_shell(start: Callable[[list[str]], T], words: Sequence[str], environment: Environ) -> T:
    """The result of `start`; a text file without "#!" is started by sh, as every shell does."""
    try:
        return start([*words])
    except OSError as error:
        path = shutil.which(words[0], path=environment.get("PATH")) if error.errno == errno.ENOEXEC else None
        if path is None or b"\0" in beginning(path, 256)[0]:
            raise
        return start(["/bin/sh", path, *words[1:]])


def no_program(program: str) -> str:
    """The message that a program does not exist, with a remedy where one is known."""
    named = "" if "/" in program else " in PATH; activate its environment or give a path"
    return f"there is no program {program!r}{one_word_for_several(program) or named}"


def line_in_one_word(command: Sequence[str], directory: str | None) -> str | None:
    """A message for a command that is a whole line in one word ("python x.py") and names no file; else None.

    Call it before the command is completed: a word that ends with .py would be started by Python.
    """
    word = command[0]
    if not one_word_for_several(word) or shutil.which(word):
        return None
    # (A line may be longer than a name can be.)
    if os.access(Path(directory or ".") / word, os.F_OK):
        return None
    return no_program(word)


def missing_program(launch: Launch, environ: Environ) -> str | None:
    """The reason that a launch cannot start, as a sentence; None where none is known."""
    try:
        look_ahead(launch, environ)
    except StartError as error:
        return str(error)
    return None


def look_ahead(launch: Launch, environ: Environ) -> None:
    """Raise the StartError of a launch whose directory or program does not exist or may not be used.

    Causes that only a start reveals (a script's missing interpreter) are not found.
    """
    directory, program = launch.directory, launch.argv[0]
    if directory is not None:
        try:
            # With the dot, stat also checks that we may change to the directory.
            os.stat(os.path.join(directory, "."))  # noqa: PTH116, PTH118 - pathlib drops the dot
        except OSError as error:
            raise cannot_start(Trouble("directory", error.errno or 0), program, directory) from None
    path = launch.environment(environ).get("PATH", os.defpath)
    places = [""] if "/" in program else path.split(os.pathsep)
    files = [Path(directory or ".") / place / program for place in places]
    if any(os.access(file, os.X_OK) and file.is_file() for file in files):
        return
    there = any(os.access(file, os.F_OK) for file in files)
    raise cannot_start(Trouble("program", errno.EACCES if there else errno.ENOENT), program, directory)


def run_child(
    launch: Launch,
    environ: Environ,
    pass_fds: Sequence[int] = (),
    outputs: tuple[int | None, int | None] = (None, None),
) -> int:
    """Start `launch` on our terminal and wait for it. Returns its status, -n after signal n. Raises
    StartError.

    `pass_fds` are open descriptors that it inherits (a lease on its devices); `outputs` are the descriptors
    that it writes to in place of our stdout and stderr.
    """
    launch = launch.started
    environment = launch.environment(environ)

    def run(words: Sequence[str]) -> int:
        return _status_of(words, environment, launch, pass_fds, outputs)

    with _told(launch.argv[0], launch.directory):
        return _or_by_shell(run, launch.argv, environment)


def _status_of(
    words: Sequence[str],
    environment: Environ,
    launch: Launch,
    pass_fds: Sequence[int],
    outputs: tuple[int | None, int | None],
) -> int:
    """Start a program and wait for it. Raises OSError, ValueError.

    Ctrl-C also reaches the program, which may save its state. We wait for it as a shell would, whereas
    `subprocess.call` kills it after a quarter of a second. A second Ctrl-C kills it.
    """
    import subprocess

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            env=environment,
            cwd=launch.directory,
            pass_fds=pass_fds,
            stdout=outputs[0],
            stderr=outputs[1],
        )

    process: subprocess.Popen[bytes] | None = None
    try:
        with noted_interrupts() as interrupted:
            process = landlock.started(launch.left_out, start)
        if launch.time_limit is not None:
            time_limit.start(process.pid, launch.time_limit)
        if interrupted:
            raise KeyboardInterrupt
        return process.wait()
    except KeyboardInterrupt:
        # Ctrl-C can also be raised as noted_interrupts ends: the program runs then.
        if process is not None:
            try:
                process.wait()
            except KeyboardInterrupt:
                process.kill()
                process.wait()
        raise


def replace_process(launch: Launch, environ: Environ) -> NoReturn:
    """Become `launch`, with its changes to `environ`. Raises StartError when that fails."""
    launch = launch.started
    environment, program = launch.environment(environ), launch.argv[0]
    with _told(program, launch.directory):
        if launch.left_out:
            landlock.confine(launch.left_out)
        if launch.directory is not None:
            os.chdir(launch.directory)
    # Python ignores these two, and the command would inherit that: `… | head` would behave differently.
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)

    if launch.time_limit is not None:
        time_limit.start(os.getpid(), launch.time_limit)

    def become(words: list[str]) -> NoReturn:
        os.execvpe(words[0], words, environment)

    with _told(program):
        _or_by_shell(become, launch.argv, environment)
