"""Reads what another user can make slow, on a thread, for a limited time.

Linux reads /proc/PID/cmdline under a lock of the process's memory (mmap_lock), which the process can hold
nearly all the time by changing its mappings: a reading then takes half a minute.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Answers = SimpleQueue[tuple[Any, "BaseException | None"]]
_Requests = SimpleQueue["tuple[Callable[[], Any], _Answers] | None"]

PATIENCE = 0.2
"""Seconds for which one reading waits, for all calls of `read` together."""
MOST_LATE = 8
"""The most calls that are unfinished at a time, each on a thread of its own."""


class TimedReader:
    """A daemon thread that runs one call after another; a call that is late keeps that thread, and the next
    gets a new one. Nothing waits for the threads at the end of the program."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = self._left = patience
        self._requests: _Requests | None = None
        self._late: dict[Hashable, _Answers] = {}

    def read(self, key: Hashable, call: Callable[[], T]) -> T:
        """Return the result of the call, or raise its error.

        Raise TimeoutError if it takes more than half of the time that this reading has left. A later `read`
        of that key does not wait, and returns the late result once there is one.
        """
        answers, patience = self._late.pop(key, None), 0.0
        if answers is None:
            answers, patience = SimpleQueue(), self._left / 2
            self._begin(call, answers)
        began = time.monotonic()
        try:
            result, error = answers.get(timeout=patience)
        except Empty:
            self._late[key] = answers
            if patience:
                self._end_thread()
            raise TimeoutError from None
        finally:
            self._left = max(0.0, self._left - (time.monotonic() - began))
        try:
            if error is not None:
                raise error
        finally:
            # Its traceback leads to this frame, and so to all that the callers have.
            del error
        return result  # type: ignore[no-any-return]

    def end_reading(self) -> None:
        """End the thread, and give the next reading its time; drop late results that were not asked for."""
        self._left = self._patience
        self._late = {key: answers for key, answers in self._late.items() if answers.empty()}
        self._end_thread()

    def _begin(self, call: Callable[[], Any], answers: _Answers) -> None:
        if len(self._late) >= MOST_LATE:
            raise TimeoutError
        if self._requests is None:
            requests: _Requests = SimpleQueue()
            thread = threading.Thread(target=_run, args=(requests,), name="gputui processes", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._requests = requests
        if self._requests is None:
            # `ulimit -u`: without a thread there is no time limit.
            raise TimeoutError
        self._requests.put((call, answers))

    def _end_thread(self) -> None:
        if self._requests is not None:
            self._requests.put(None)
            self._requests = None


def _run(requests: _Requests) -> None:
    for call, answers in iter(requests.get, None):
        try:
            answers.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that asked
            answers.put((None, error))
