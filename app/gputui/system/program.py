"""Another's program, asked for facts that the kernel does not tell (xpu-smi, hl-smi, ioreg, Slurm's).

Such a program is somebody else's, can hang and can print anything: it has a deadline, what it prints is
bounded, and after it has failed to answer in time it is left alone for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import IO

from gputui.inventory.formatting import printable
from gputui.system.root import Root

DEADLINE = 5.0
"""Seconds for one answer: hl-smi and xpu-smi take one or two on a machine with eight devices."""

PAUSE = 60.0
"""Seconds for which a program is not asked again after it did not answer in time."""

MOST_OUTPUT = 4 * 1024 * 1024


class Program:
    """The program of that name, of the machine whose files `root` has.

    `trouble` says in one line why the last question had no answer; None where it had one, or where the
    machine has no such program.
    """

    def __init__(
        self,
        root: Root,
        name: str,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST_OUTPUT,
    ) -> None:
        self.name, self._most = name, most
        self.trouble: str | None = None
        self._root, self._deadline, self._clock = root, deadline, clock
        self._path: str | None = None
        self._looked = False
        self._not_before = float("-inf")

    @property
    def there(self) -> bool:
        """Whether the machine has it."""
        return self._where() is not None

    def _where(self) -> str | None:
        if not self._looked:
            self._looked, self._path = True, self._root.program(self.name)
        return self._path

    @property
    def silent(self) -> bool:
        """Whether it is left alone now, as it did not answer in time."""
        return self._clock() < self._not_before

    def ask(self, *words: str) -> str | None:
        """What it prints for these words; None where it is not there, fails, or does not answer in time."""
        path = self._where()
        if path is None or self.silent:
            return None
        self.trouble = None
        began = self._clock()
        try:
            status, output, errors = _output((path, *words), self._deadline, self._most)
        except OSError as error:
            self.trouble = f"{self.name} cannot be started: {error.strerror or error}"
            self._not_before = began + PAUSE
            return None
        if status is None:
            self.trouble = f"{self.name} did not answer within {self._deadline:g} s; its facts are unknown"
            self._not_before = self._clock() + PAUSE
            return None
        text = output.decode(errors="replace")
        if status != 0:
            told = text.strip().splitlines()[:1] or errors.decode(errors="replace").strip().splitlines()[-1:]
            words_of_it = printable(told[0])[:120] if told else ""
            self.trouble = f"{self.name} ended with status {status}" + (f": {words_of_it}" if told else "")
            return None
        if not text.strip():
            self.trouble = f"{self.name} printed nothing"
            return None
        return text


_MOST_ERRORS = 8192
"""Bytes of its error output that are kept."""


def _output(argv: tuple[str, ...], deadline: float, most: int) -> tuple[int | None, bytes, bytes]:
    """The status, the output and the end of the error output of a program; no status where it took too long
    or printed too much. It is ended with all that it has started."""
    import contextlib
    import selectors
    import signal
    import subprocess

    ends = time.monotonic() + deadline
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert process.stdout is not None and process.stderr is not None
    parts: list[bytes] = []
    errors, size, done = b"", 0, False
    try:
        with selectors.DefaultSelector() as waiting:
            for stream in (process.stdout, process.stderr):
                waiting.register(stream, selectors.EVENT_READ)
            while not done and size <= most and (left := ends - time.monotonic()) > 0:
                ready = [key.fd for key, _ in waiting.select(left)]
                if process.stderr.fileno() in ready:
                    said = os.read(process.stderr.fileno(), 65_536)
                    errors = (errors + said)[-_MOST_ERRORS:]
                    if not said:
                        waiting.unregister(process.stderr)
                if process.stdout.fileno() in ready:
                    part = os.read(process.stdout.fileno(), 65_536)
                    parts.append(part)
                    size += len(part)
                    # (Its error output may stay open: whoever it has left behind has it.)
                    done = not part
        if not done:
            return None, b"", errors
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(max(0.0, ends - time.monotonic()))
            return status, b"".join(parts), errors + _at_once(process.stderr)
        return None, b"", errors
    finally:
        # (Its children, too, may hang. The group cannot be another one before the process is waited for.)
        if process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        process.stderr.close()


def _at_once(stream: IO[bytes]) -> bytes:
    """What can be read without waiting."""
    os.set_blocking(stream.fileno(), False)
    try:
        return os.read(stream.fileno(), _MOST_ERRORS)
    except OSError:
        return b""
