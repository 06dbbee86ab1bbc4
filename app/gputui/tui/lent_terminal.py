"""The terminal while a command has it: restores modes and signals when the command has ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from gputui.inventory.formatting import printable
from gputui.system.ending_signals import answered
from gputui.tui.first_frame import terminal_stream
from gputui.tui.terminal_size import terminal_size

_TAKE_BACK = (
    "\x1b[<u"  # keys as they always were (kitty's protocol)
    "\x1b[?1047l"  # the normal screen; 1049 would move the cursor to where it once was
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l"  # no mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2026l"  # no reports of focus, no marked pastes, nothing held back
    "\x1b[?1l\x1b>\x1b[?7h\x1b[?25h"  # plain cursor keys, lines wrap, a cursor to be seen
    "\x1b7\x1b[r\x1b8"  # the whole screen scrolls; the cursor stays
    "\x0f\x1b(B\x1b[0m"  # letters, not line drawing; no colours
)
"""Resets what a killed program may have left switched on; each is a no-op where it was not."""

_ENDS = ("SIGTERM", "SIGHUP")


class LentTerminal:
    """Our terminal, lent to a command. `gone` is True once it has been closed.

    `ended` is the signal that asked us to end while the command ran, None where there was none.
    """

    def __init__(self) -> None:
        import termios

        self._termios = termios
        self._stream: TextIO | None = terminal_stream()
        self._number = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0
        self._modes: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):
            self._modes = termios.tcgetattr(self._number)
        self.ended: int | None = None

    @property
    def gone(self) -> bool:
        """Whether the terminal has been closed."""
        try:
            return not os.isatty(self._number)
        except OSError:
            return True

    def say(self, text: str, end: str = "\n") -> None:
        """Write a line to the user, wherever the command's own output goes."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.write(f"{printable(f'gputui: {text}')}{end}")
                self._stream.flush()

    def take_back(self) -> None:
        """Restore the terminal to its state before the command."""
        if self.gone or self._modes is None:
            return
        self._to_the_foreground()
        with contextlib.suppress(self._termios.error, OSError):
            self._termios.tcsetattr(self._number, self._termios.TCSANOW, self._modes)
        # Keys typed for the command are no answer to a question that is shown now.
        self._forget_typed()
        if self._stream is None:
            return
        # Blanks fill the line, and wrap to a new line where the command did not end its last one.
        width = terminal_size().columns
        with contextlib.suppress(OSError):
            self._stream.write(f"{_TAKE_BACK}{' ' * width}\r\x1b[K")
            self._stream.flush()

    def _to_the_foreground(self) -> None:
        """Take the foreground if it still belongs to the process group of a killed shell, which is gone."""
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._number) == os.getpgrp():
                return
            try:
                os.killpg(os.tcgetpgrp(self._number), 0)
            except ProcessLookupError:
                before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(self._number, os.getpgrp())
                signal.signal(signal.SIGTTOU, before)

    def wait_for_enter(self) -> None:
        """Wait until the user has read the end of the output, a signal ends us, or the terminal is gone."""
        hears, tells = os.pipe()
        os.set_blocking(tells, False)
        waker = signal.set_wakeup_fd(tells)
        try:
            while self.ended is None and not self.gone:
                ready, _, _ = select.select([self._number, hears], [], [])
                if hears in ready:
                    os.read(hears, 512)
                elif os.read(self._number, 1) in (b"\n", b"\r", b""):
                    return
        except OSError:
            # It was closed while we waited.
            return
        finally:
            signal.set_wakeup_fd(waker)
            os.close(hears)
            os.close(tells)
            # Surplus keys must not reach the screen.
            self._forget_typed()

    def _forget_typed(self) -> None:
        with contextlib.suppress(self._termios.error, OSError):
            self._termios.tcflush(self._number, self._termios.TCIFLUSH)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """While inside, answer signals as a shell would.

        Ctrl-C and Ctrl-\\ reach everything on the terminal: they are for the command alone. They are handled,
        not ignored: an ignored signal would stay ignored in the command. Ctrl-Z stops both, as the shell
        expects of one job. A signal that asks us to end is passed to the command, and we end with it.
        """
        answers: dict[int, Any] = {signal.SIGINT: _nothing, signal.SIGQUIT: _nothing}
        answers |= dict.fromkeys((signal.SIGTSTP, signal.SIGCONT), signal.SIG_DFL)
        answers |= {getattr(signal, name): self._end for name in _ENDS}
        with answered(answers):
            # The event loop sees every signal through this descriptor, and would exit after the command.
            waker = signal.set_wakeup_fd(-1)
            try:
                yield
            finally:
                signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def _end(self, number: int, frame: object) -> None:
        import psutil

        self.ended = number
        if number == signal.SIGHUP and self.gone and os.getsid(0) != os.getpid():
            # The shell has signalled its whole job, or the system has, when the shell ended.
            return
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)


def _nothing(number: int, frame: object) -> None:
    """Ignore a signal that is for the command."""
