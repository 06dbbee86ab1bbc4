"""The entry point of the `gputui` command, with as little code as possible before the imports."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_OF_UNIX = ("fcntl", "grp", "pwd", "resource", "termios")
"""Modules of Python that Windows lacks. What imports one is caught here, for all calls."""


def entry() -> NoReturn:
    """Run the command; it exits without the interpreter's finalization, which takes 5 ms."""
    _keep_standard_numbers()
    status = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    os._exit(status)


def queued_entry() -> NoReturn:
    """Run a job that is gputui itself: it reads its words from a file in its private folder. The subcommand
    is on its command line ("gputui run --wait")."""
    from pathlib import Path

    from gputui.jobs import FOLDER
    from gputui.jobs.record import take_words
    from gputui.jobs.record_folders import RecordError

    try:
        words = take_words(Path(os.environ[FOLDER]))
    except RecordError as error:
        print(f"gputui: this job cannot start: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    sys.argv[1:] = [sys.argv[2], *words]
    entry()


def _keep_standard_numbers() -> None:
    """Open /dev/null where a standard stream is closed, so that no other file gets its descriptor (a
    driver's, a pipe to a supervisor). Python opens it close-on-exec: the command gets the stream closed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # open() returns the lowest free descriptor.
            os.open(os.devnull, os.O_RDWR)


def _own_words() -> list[str]:
    """The arguments of this call: those on its command line, or those that are kept out of it."""
    words = sys.argv[1:]
    if words[1:] == ["--sent-words"]:
        from gputui.inventory.typed_json import DocumentError, WordList, form_of, loads
        from gputui.system.environment import WORDS

        try:
            words = [*form_of(WordList).read(loads(os.environ.pop(WORDS, "")))]
        except DocumentError as error:
            raise SystemExit(f"gputui: {WORDS}: {error}") from None
    return words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one call and return its exit status. `run`, and Enter on the screen, do not return."""
    words = _own_words() if argv is None else list(argv)
    if words == ["--version"]:
        from gputui import __version__

        print(f"gputui {__version__}")
        return 0
    # Imports cause garbage collections, but create no garbage: without collections a `pick` takes 69 ms
    # instead of 80. The screen, which runs for long, enables collection after its first paint.
    gc.disable()
    try:
        from gputui.cli.dispatch import dispatch

        return dispatch(words)
    except KeyboardInterrupt:
        # Ctrl-C came before `dispatch`.
        return 130
    except ModuleNotFoundError as error:
        if error.name not in _OF_UNIX:
            raise
        print(
            f"gputui: this needs Linux (or WSL): Python has no module {error.name} here; `gputui --version`,"
            " `gputui docs` and `gputui topo --demo` work everywhere",
            file=sys.stderr,
        )
        return 3
    except (MemoryError, SystemError, OSError) as error:
        # Without memory, a module of C may fail without a reason, and a folder of modules cannot be listed.
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        os.write(2, b"gputui: there is too little memory (`ulimit -v` and `ulimit -d` show the limits)\n")
        return 1
