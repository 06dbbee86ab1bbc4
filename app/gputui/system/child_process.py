"""Runs a script of ours in a process of its own, mostly in the command's own Python, with a time limit.

What the child prints is kept in part and believed in nothing: answers come as files in a folder of their
own, since sitecustomize, wrappers and libraries write what they like to stdout.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.typed_json import DocumentError, loads
from gputui.system.landlock import started

MOST_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that are read; 72 devices measured in pairs take 1 MiB."""

_MOST_OUTPUT = 16 * 1024
"""Bytes of the child's output that are kept: the last ones, where the reason of a failure stands."""

_BEAT = 0.1
"""Seconds after which a cancelled child is ended, at most."""

_PATIENCE = 2.0
"""Seconds between the request to end and the end by force."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    status   as `subprocess.Popen.returncode`; None where it did not start, or was ended by us
    output   the end of what it wrote to stdout and stderr; or all of stdout, where that was asked for, and
             then `errors` is the end of what it wrote to stderr
    trouble  why it did not start or was ended, None where it ended by itself
    """

    status: int | None
    output: str
    trouble: str | None = None
    errors: str = ""

    @property
    def last_line(self) -> str:
        """The last line of the output that says something."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


class AnswerError(DocumentError):
    """There is no answer that could be read; the message says so as a whole."""

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def answers() -> Iterator[Path]:
    """A folder of our user alone, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="gputui-check-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_answer(path: Path) -> Any:
    """The values of the JSON that a child wrote. Raises DocumentError where there is none."""
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
    environment: Mapping[str, str],
    directory: str | None = None,
    seconds: float = 120.0,
    cancelled: threading.Event | None = None,
    left_out: Sequence[str] = (),
    most: int | None = None,
) -> Ended:
    """Run `argv` to its end, at most `seconds`; raises nothing for what the child does. `left_out` are device
    files that it cannot open. `most`: how many bytes of stdout are kept, all of them; a child that writes
    more is ended.

    The child leads a session of its own: with it ends everything that it started and left in its group. May
    be called on any thread; `cancelled`, when set from another one, ends the child.
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
        reason = error.strerror if isinstance(error, OSError) else str(error)
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
        # Also when we ourselves are interrupted (Ctrl-C, an error).
        _end(child, gently=False)


def _follow(
    child: subprocess.Popen[bytes], output: _Output, seconds: float, cancelled: threading.Event | None
) -> str | None:
    """Until the child has ended (None), or must be: why."""
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
    """End the child's whole process group: those that it left behind too."""
    if gently:
        _signal(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE)
    _signal(child, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # One that hangs in the kernel (a driver's ioctl) is not waited for.
        child.wait(_PATIENCE)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        # Nobody is left in the group; or only what has taken another user's rights.
        return


class _Output:
    """What a child writes: read as it comes, so that a full pipe never stops it. The end of it is kept; of
    stdout `most` bytes, where that is a number."""

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
        """Take what is there, or wait so long for something."""
        if self._selector.get_map():
            self._take(seconds)
        else:
            # Closed by the child, which still runs.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)

    def drain(self) -> None:
        """Take what is there and do not wait: a process that has left the group may keep a pipe open."""
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
