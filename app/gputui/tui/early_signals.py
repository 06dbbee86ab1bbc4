"""EarlySignals: a signal that arrives during the import of Textual ends gputui as soon as possible."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class EarlySignals:
    """Remembers a terminating signal until the application can answer it.

    An exception in the middle of an import or of Textual's start would leave a half-made screen behind, or
    get lost. The exit from this context restores the earlier handlers.
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
        """The signals that end us: all but those that our parent process has set to be ignored (nohup)."""
        return tuple(self._before)

    def __enter__(self) -> EarlySignals:
        for number in self.NUMBERS:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._remember)
        # Textual handles these too, and afterwards sets the default handlers, not the earlier ones.
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
