"""Signals that end a call (Ctrl-C, SIGTERM, SIGHUP): as an exception, noted, or deferred."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndedError(BaseException):
    """A signal asked gputui to end. Not an Exception, so that no handler takes it for an error of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def hangs_up(self) -> bool:
        """Whether only the terminal was closed."""
        return self.number == signal.SIGHUP


@contextmanager
def answered(answers: Mapping[int, Any]) -> Iterator[None]:
    """Answer signals with these handlers within this context. A signal that our parent process has set to be
    ignored stays ignored: `nohup gputui compare` goes on when its terminal is closed."""
    before = {number: signal.getsignal(number) for number in answers}
    ours = [number for number in answers if before[number] is not signal.SIG_IGN]
    try:
        for number in ours:
            signal.signal(number, answers[number])
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@contextmanager
def until_a_signal() -> Iterator[None]:
    """Raise EndedError at an ending signal within this context."""

    def end(number: int, _: FrameType | None) -> None:
        raise EndedError(number)

    with answered(dict.fromkeys(_ENDING, end)):
        yield


@contextmanager
def without_signals() -> Iterator[None]:
    """Defer ending signals to the end of this context: a job that is being started is known only then."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def noted_interrupts() -> Iterator[list[int]]:
    """Note Ctrl-C within this context instead of raising KeyboardInterrupt. Raised at an arbitrary point, it
    can leave a started program unattended, or a lock of `threading` held for good (bpo-29988). Another
    handler stays in place, and so does an ignored signal. Python calls handlers in the main thread only:
    another thread notes nothing."""
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
