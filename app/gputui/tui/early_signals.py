"""EarlySignals: a signal that comes while Textual is still being imported ends gputui as soon as it can."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class EarlySignals:
    """Remembers a signal that should end us until the application can answer it.

    An exception in the middle of an import, or of Textual's start, would leave a half-made screen behind, or
    get lost. A context: afterwards the handlers are those of before.
    """

    NUMBERS: tuple[int, ...] = tuple(
        getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.came: int | None = None
        self._before: dict[int, Any] = {}
        self._ignored: list[int] = []

    @property
    def answered(self) -> tuple[int, ...]:
        """The signals that end us: all but those that whoever started us wants ignored (nohup)."""
        return tuple(self._before)

    def __enter__(self) -> EarlySignals:
        for number in self.NUMBERS:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._remember)
        # Textual answers these too, and gives the default back, not what was before.
        names = ("SIGTSTP", "SIGTTOU", "SIGTTIN", "SIGCONT", "SIGWINCH")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        self._ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for number in self._ignored:
            signal.signal(number, signal.SIG_IGN)

    def _remember(self, number: int, _: FrameType | None) -> None:
        self.came = number
