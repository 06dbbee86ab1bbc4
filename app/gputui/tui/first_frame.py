"""FirstFrame: the box on the terminal while Textual is imported (0.17 s; the first reading takes 0.06 s).

The frame has the lines that the screen shows a moment later. This module does not import Textual.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from io import TextIOWrapper
from types import TracebackType
from typing import Any

from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.terminal_size import terminal_size

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J", "\x1b[?25h\x1b[?1049l"


def terminal_stream() -> TextIOWrapper[Any] | None:
    """The stream that is a terminal and can be painted on: either of the two may be a file or a pipe."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(ValueError):
            if stream is not None and stream.isatty():
                return stream
    return None


class FirstFrame:
    """Holds the terminal from the start until Textual takes it over.

    Leaving the context always restores the terminal. `painted`: whether the frame is visible.
    """

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._stream = terminal_stream()
        self._lock = threading.Lock()
        self.painted = False
        self._over = False
        self._modes: list[Any] | None = None

    def __enter__(self) -> FirstFrame:
        try:
            import termios
        except ImportError:
            # Windows has no such terminals: Textual is the first to paint there.
            self._over = True
            return self
        with contextlib.suppress(termios.error, ValueError, OSError):
            self._modes = termios.tcgetattr(0)
            quiet = [*self._modes]
            # Keys that are pressed meanwhile wait for the screen, without echo and unprocessed.
            quiet[0] &= ~(termios.ICRNL | termios.IXON)
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            # Ctrl-Z waits too: if it stopped us here, the shell would be left on our frame.
            quiet[6] = [*quiet[6]]
            quiet[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(0, termios.TCSANOW, quiet)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sequence, modes = self.hand_over()
        if sequence and self._stream is not None:
            self._stream.write(sequence)
            self._stream.flush()
        if modes is not None:
            import termios

            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, modes)

    def paint(self, snapshot: Snapshot) -> None:
        """Show the snapshot unless Textual has taken over; called on the sampler's thread."""
        if self.painted or self._over or self._stream is None:
            return
        # Imported late: the first reading runs during the import.
        from gputui.tui.views.first_frame import frame

        width, height = terminal_size()
        text = frame(self._app_state.with_snapshot(snapshot), width, height)
        with self._lock, contextlib.suppress(OSError):
            if not self._over:
                self._stream.write(_ENTER + text)
                self._stream.flush()
                self.painted = True

    def hand_over(self) -> tuple[str, list[Any] | None]:
        """Give up the terminal: the text that must be written to it first, and the modes to restore at the
        end.

        A second call returns "" and None: there is nothing left to give up.
        """
        with self._lock:
            self._over = True
            painted, self.painted = self.painted, False
            modes, self._modes = self._modes, None
        return _LEAVE if painted else "", modes
