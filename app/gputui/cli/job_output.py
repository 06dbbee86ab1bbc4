"""Print the output of jobs: of one job unchanged, of several boxes line by line, prefixed with the box."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Sequence

from gputui.cli.common import say
from gputui.cli.jobs_text import confinement_trouble
from gputui.inventory.job import Job
from gputui.jobs.ansi_sanitizer import AnsiSanitizer
from gputui.jobs.foreground import LEFT, Foreground, LeftError
from gputui.jobs.start import why_not
from gputui.jobs.wait import wait_for
from gputui.system.terminal_abilities import is_terminal

_LONGEST = 64 * 1024
"""The most bytes of a line; a longer line is divided."""
_LINE = re.compile(rb"[^\n]{0,%d}\n" % _LONGEST)
_LINE_OR_PROGRESS = re.compile(rb"[^\r\n]{0,%d}(?:\r*\n|\r+(?=[^\r\n]))" % _LONGEST)
"""For a terminal: a progress bar that returns to the beginning of its line is replaced by the next one."""
_NO_COLOUR = re.compile(rb"\x1b\[[0-9;:]*[A-Za-ln-z]|\x08")
"""Escape sequences other than colours, and backspaces: they could move the cursor to the lines of another
box, or to the name before a line."""


NOT_KNOWN = 1
"""The exit status of a job whose own is not known, and of `jobs stop` where a job keeps running."""


def say_how_to_come_back(jobs: Sequence[str]) -> None:
    """Print that these jobs keep running without the terminal that follows them; nothing for no job."""
    if len(jobs) == 1:
        say(
            f"job {jobs[0]}: it keeps running without this terminal;"
            f" `gputui jobs attach {jobs[0]}` returns to it"
        )
    elif jobs:
        say(
            f"jobs {' and '.join(jobs)}: they keep running without this terminal;"
            " `gputui jobs attach BOX:ID` returns to one"
        )


def attached(job: Job, foreground: Foreground) -> int:
    """Show a job's output until it ends; its status, or 129 when our terminal has gone. Raises JobError."""
    try:
        write(foreground.output(job))
    except (LeftError, BrokenPipeError):
        return LEFT
    return status_of(job)


def status_of(job: Job) -> int:
    """The job's own status, once it has ended; what gputui itself knows of a failure has been said."""
    job = wait_for(job)
    if job.trouble is not None:
        say(why_not(job.trouble, job))
    if (explained := confinement_trouble(job)) is not None:
        say(explained)
    if job.exit_status is None:
        say(f"job {job.id} has ended; its status is not known")
        return NOT_KNOWN
    return job.exit_status


def write(pieces: Iterable[bytes]) -> None:
    """Print a log piece by piece; on a terminal without harmful escape sequences."""
    (_to_a_terminal if is_terminal(sys.stdout) else _as_it_is)(pieces)


def _as_it_is(pieces: Iterable[bytes]) -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    for piece in pieces:
        # stdout is None where it was closed; the log is read anyway, as its end is the end of the job.
        if sys.stdout is not None:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


def _to_a_terminal(pieces: Iterable[bytes]) -> None:
    sanitizer = AnsiSanitizer()
    try:
        for piece in pieces:
            sys.stdout.write(sanitizer.feed(piece))
            sys.stdout.flush()
        sys.stdout.write(sanitizer.feed(b"", final=True))
    finally:
        # A colour must not outlive the log.
        sys.stdout.write("\x1b[0m")


class PrefixedOutput:
    """Standard output, shared by the threads that read the boxes."""

    def __init__(self, boxes: Iterable[str]) -> None:
        self._terminal = is_terminal(sys.stdout)
        self._line = _LINE_OR_PROGRESS if self._terminal else _LINE
        self._rest = dict.fromkeys(boxes, b"")
        self._sanitizers = {box: AnsiSanitizer() for box in self._rest} if self._terminal else {}
        self._lock = threading.Lock()
        self._unfinished: str | None = None
        """The box whose progress bar is on the line of the cursor."""

    def write(self, box: str, data: bytes, final: bool = False) -> None:
        """Print the complete lines that a box has written; with `final`, also the rest. Raises OSError."""
        if self._terminal:
            data = _NO_COLOUR.sub(b"", self._sanitizers[box].feed(data, final).encode())
        with self._lock:
            rest, at = self._rest[box] + data, 0
            while at < len(rest):
                line = self._line.match(rest, at)
                if line is not None:
                    self._print(box, line[0])
                    at = line.end()
                elif final or len(rest) - at > _LONGEST:
                    self._print(box, rest[at : at + _LONGEST] + b"\n")
                    at += _LONGEST
                else:
                    break
            self._rest[box] = rest[at:]
            sys.stdout.buffer.flush()

    def _print(self, box: str, line: bytes) -> None:
        if self._unfinished not in (None, box):
            sys.stdout.buffer.write(b"\n")
        reset = b"\x1b[0m" if self._terminal and b"\x1b" in line else b""
        text = line.rstrip(b"\r\n") if self._terminal else line[:-1]
        sys.stdout.buffer.write(box.encode() + b": " + text + reset + line[len(text) :])
        self._unfinished = None if line.endswith(b"\n") else box
