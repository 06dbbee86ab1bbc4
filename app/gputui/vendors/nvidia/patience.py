"""Calls the driver on a separate thread: a GPU whose driver hangs delays no other GPU, and links delay none.

A call can hang in the kernel for ever (btop #1612, gpud #117), and nothing ends it. After a while the reading
goes on without that GPU. The thread is abandoned, and the GPU is read again when its call returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

PATIENCE = 2.5
"""Seconds between two checks of a GPU; if it has made no call in between, it hangs. (Slow calls take 0.2 s;
the first call of a GPU without the persistence daemon takes 1.5 s.)"""
LITTLE_PATIENCE = 0.5
"""The same for the later GPUs of the same reading: mostly they hang in the same lock."""


class Asked(Protocol):
    """An object that takes a place in a turn: a GPU, or the wiring of a box."""

    @property
    def progress(self) -> int:
        """The number of calls that have begun: while it grows, nothing hangs. May be read from any thread."""


Part = TypeVar("Part", bound=Asked)


class Reader:
    """A thread that runs one turn after another. Starting a thread for each reading would
    cost more than reading."""

    def __init__(self) -> None:
        self._turns: SimpleQueue[Turn[Any] | None] = SimpleQueue()
        thread = threading.Thread(target=self._run, name="gputui nvml", daemon=True)
        try:
            thread.start()
            self._has_thread = True
        except RuntimeError:
            # `ulimit -u`: read without a time limit rather than not at all.
            self._has_thread = False

    def begin(self, parts: Sequence[Part], read: Callable[[Part], None]) -> Turn[Part]:
        """Read these parts, one after another, with `read`."""
        turn = Turn(parts, read)
        if self._has_thread:
            self._turns.put(turn)
        else:
            turn.run()
        return turn

    def end(self) -> None:
        """End the thread after its current turn."""
        self._turns.put(None)

    def _run(self) -> None:
        for turn in iter(self._turns.get, None):
            turn.run()


class Turn(Generic[Part]):
    """The parts that a thread reads one after another, until all are read or the thread is abandoned."""

    def __init__(self, parts: Sequence[Part], read: Callable[[Part], None]) -> None:
        self._parts, self._read = parts, read
        self._lock = threading.Lock()
        self._place = 0
        self._left_behind = False
        self._over = threading.Event()
        self._error: BaseException | None = None

    def wait(self, patience: float) -> int | None:
        """Wait for the end. Return None if all parts are read, else the place of the part that hangs.

        After a hang the thread reads no other part. Raise the exception of a defect.
        """
        before: tuple[int, int] | None = None
        while not self._over.wait(patience):
            with self._lock:
                now = self._place, self._parts[self._place].progress
                self._left_behind = now == before
                if self._left_behind:
                    return self._place
            before = now
        if self._error is not None:
            raise self._error
        return None

    @property
    def over(self) -> bool:
        """Whether the thread has finished, even after it was abandoned."""
        return self._over.is_set()

    def run(self) -> None:
        """Read the parts: for the thread."""
        try:
            for place, part in enumerate(self._parts):
                with self._lock:
                    if self._left_behind:
                        return
                    self._place = place
                self._read(part)
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that waits
            self._error = error
        finally:
            self._over.set()
