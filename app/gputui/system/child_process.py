"""Runs one of gputui's scripts in a separate process, mostly in the command's own Python, with a time limit.

The child's output is kept in part and is not trusted: answers come as files in a separate folder, because
sitecustomize, wrappers and libraries may write anything to stdout.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputui.inventory.errors import reason_of
from gputui.inventory.formatting import MIB
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.typed_json import DocumentError, loads
from gputui.system.environment import Environ
from gputui.system.landlock import started
from gputui.system.trust import who_can_change

MOST_ANSWER = 4 * MIB
"""The most bytes of an answer that are read; 72 devices measured in pairs take 1 MiB."""

_MOST_OUTPUT = 16 * 1024
"""The most bytes of the child's output that are kept: the last ones, which hold the reason for a failure."""

_BEAT = 0.1
"""The longest time, in seconds, until a cancelled child is ended."""

_PATIENCE = 2.0
"""Seconds between SIGTERM and SIGKILL."""

Cancelled = threading.Event | None
"""Is set where a child, and what follows it, is no longer wanted; None: that cannot happen."""


@frozen
class Ended:
    """How a child ended.

    status   as in `subprocess.Popen.returncode`; None where it did not start, or gputui ended it
    output   the end of its stdout and stderr; or all of its stdout, where that was requested
    trouble  why it did not start or was ended, None where it ended by itself
    errors   the end of its stderr, where all of its stdout was requested; else ""
    """

    status: int | None
    output: str
    trouble: str | None = None
    errors: str = ""

    @property
    def last_line(self) -> str:
        """The last line of the output that is not empty."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


class AnswerError(DocumentError):
    """There is no readable answer; the message is a complete sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def answers() -> Iterator[Path]:
    """Yield a folder for our user alone, and remove it at the end.

    It is in /tmp if other users could replace one in TMPDIR (TMPDIR=/scratch).
    """
    elsewhere = who_can_change(f"{tempfile.gettempdir()}/.")
    folder = Path(tempfile.mkdtemp(prefix="gputui-check-", dir="/tmp" if elsewhere else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_answer(path: Path) -> Any:
    """Return the values of the JSON that a child wrote. Raise DocumentError where there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_ANSWER + 1)
    except OSError as error:
        raise AnswerError(f"no answer: {error.strerror}") from None
    if len(data) > MOST_ANSWER:
        raise AnswerError(f"the answer has more than {MOST_ANSWER} bytes")
    try:
        return loads(data)
    except DocumentError:
        raise AnswerError("the answer is not JSON") from None


def run(
    argv: Sequence[str],
    environment: Environ,
    directory: str | None = None,
    seconds: float = 120.0,
    cancelled: Cancelled = None,
    left_out: Sequence[str] = (),
    most: int | None = None,
) -> Ended:
    """Run `argv` to its end, for at most `seconds`. Raise nothing for a failure of the child.

    `left_out` are device files that it cannot open. `most` is the most bytes of stdout, which are kept in
    full; a child that writes more is ended.

    The child leads a session of its own: all that it started and left in its process group ends with it. May
    be called on any thread; setting `cancelled` from another thread ends the child.
    """

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(argv),
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if most is None else subprocess.PIPE,
            start_new_session=True,
        )

    try:
        child = started(left_out, start)
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        if directory is not None and isinstance(error, OSError) and error.filename == directory:
            return Ended(None, "", f"cannot change to {directory!r}: {reason}")
        return Ended(None, "", f"{argv[0]!r} cannot be started: {reason}")
    trouble = None
    try:
        with _Output(child, most) as output:
            trouble = _follow(child, output, seconds, cancelled)
            _end(child, gently=trouble is not None)
            output.drain()
            return Ended(None if trouble else child.returncode, output.text, trouble, output.errors)
    finally:
        # Also after an interruption of gputui itself (Ctrl-C, an error).
        _end(child, gently=False)


def _follow(
    child: subprocess.Popen[bytes], output: _Output, seconds: float, cancelled: Cancelled
) -> str | None:
    """Wait until the child has ended (None), or must be ended: return why."""
    deadline = time.monotonic() + seconds
    while child.poll() is None:
        if cancelled is not None and cancelled.is_set():
            return "cancelled"
        if time.monotonic() > deadline:
            return f"no answer within {seconds:g} seconds"
        if output.is_too_much:
            return "it prints too much"
        output.wait(_BEAT)
    return None


def _end(child: subprocess.Popen[bytes], gently: bool) -> None:
    """End the child's whole process group, including processes that the child left behind."""
    if gently:
        _signal(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE)
    _signal(child, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # A process that hangs in the kernel (a driver's ioctl) is not waited for.
        child.wait(_PATIENCE)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        # The group is empty, or its processes have another user's rights.
        return


class _Output:
    """The child's output, read as it arrives, so that a full pipe never stops the child.

    The end of it is kept; of stdout `most` bytes, where that is a number.
    """

    def __init__(self, child: subprocess.Popen[bytes], most: int | None) -> None:
        self._child, self._most = child, most
        self._selector = selectors.DefaultSelector()
        self._kept = bytearray(), bytearray()

    def __enter__(self) -> _Output:
        for stream, kept in zip((self._child.stdout, self._child.stderr), self._kept, strict=True):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ, kept)
        return self

    def __exit__(self, *error: object) -> None:
        self._selector.close()
        for stream in (self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()

    @property
    def text(self) -> str:
        return self._kept[0].decode(errors="replace")

    @property
    def errors(self) -> str:
        return self._kept[1].decode(errors="replace")

    @property
    def is_too_much(self) -> bool:
        return self._most is not None and len(self._kept[0]) > self._most

    def wait(self, seconds: float) -> None:
        """Read what has arrived, or wait this long for something."""
        if self._selector.get_map():
            self._take(seconds)
        else:
            # The child has closed its streams and still runs.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)

    def drain(self) -> None:
        """Read what has arrived and do not wait: a process that has left the group may keep a pipe open."""
        for _ in range(64):
            if not self._selector.get_map() or not self._take(0):
                return

    def _take(self, seconds: float) -> bool:
        ready = self._selector.select(seconds)
        for key, _ in ready:
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
            key.data.extend(data)
            if self._most is None or key.data is self._kept[1]:
                del key.data[:-_MOST_OUTPUT]
        return bool(ready)
