"""A real terminal for a test: a pseudo-terminal (pexpect) with an emulator (pyte) behind it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect
import psutil
import pyte

PATIENCE = 120.0
"""Seconds that a test waits for something on the screen, on a slow machine with all cores busy."""

_AT_ONCE = 262_144
"""Bytes after which the screen is checked although its program goes on writing."""

_KEYBOARD = re.compile(rb"\x1b\[[<>=?][0-9;]*u")
"""The kitty keyboard protocol, which pyte would show as text."""
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[^\[])")
_PIECES = re.compile(rb"(\x1b\[\?1049[hl]|" + _KEYBOARD.pattern + rb")")


class Terminal:
    """A program in a terminal of its own: its screen, its input, its end."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        size: tuple[int, int] = (80, 24),
        cwd: Path | None = None,
    ) -> None:
        columns, lines = size
        self.raw = b""
        self._rest = b""
        self._size = size
        self._plain = self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._child = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            env=dict(environment),
            dimensions=(lines, columns),
            timeout=PATIENCE,
            cwd=str(cwd) if cwd else None,
        )
        self._child.delaybeforesend = None
        self.pid = self._child.pid

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without trailing blanks."""
        return [self._line(number) for number in range(self._screen.lines)]

    @property
    def last_line(self) -> str:
        """The last line of the screen, which is cheap to read again and again."""
        return self._line(self._screen.lines - 1)

    def _line(self, number: int) -> str:
        # The cell after a wide character is empty.
        line = self._screen.buffer[number]
        return "".join([line[column].data for column in range(self._screen.columns)]).rstrip()

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines)

    @property
    def modes(self) -> list[object]:
        """The terminal's settings, as stty would print them."""
        return list(termios.tcgetattr(self._child.child_fd))

    @property
    def foreground(self) -> int:
        """The process group that has the terminal; that of the program itself is its `pid`."""
        return os.tcgetpgrp(self._child.child_fd)

    @property
    def is_stopped(self) -> bool:
        """Whether every process that the program has started is stopped.

        After Ctrl-Z the shell prompts as soon as the first process of the job is stopped. Until the others
        are, they may still take what is typed next.
        """
        started = psutil.Process(self.pid).children(recursive=True)
        try:
            return all(each.status() == psutil.STATUS_STOPPED for each in started)
        except psutil.NoSuchProcess:
            return False

    def send(self, keys: str) -> None:
        """Type."""
        self._child.send(keys)

    def start_anyway(self) -> None:
        """Answer the question before a real start from a demo."""
        self.until("start anyway")
        self.send("f")

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal, as a person drags its window."""
        self._size = (columns, lines)
        for screen in (self._plain, self._screen):
            screen.resize(lines, columns)
        self._child.setwinsize(lines, columns)

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the terminal under the program, as a lost connection does."""
        # Close it through its owner, which would otherwise close the same number again when it is collected:
        # by then it may be the terminal of another test.
        self._child.ptyproc.fileobj.close()
        self._child.ptyproc.closed = self._child.closed = True
        self._child.ptyproc.fd = self._child.child_fd = -1

    def until(self, seen: str | Callable[[Terminal], object], patience: float = PATIENCE) -> Terminal:
        """Wait until `seen` is on the screen or is true; else fail with the content of the screen."""
        deadline = time.monotonic() + patience
        wanted = (lambda terminal: seen in terminal.text) if isinstance(seen, str) else seen
        while not wanted(self):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(min(left, 0.2)):
                if wanted(self):
                    return self
                raise AssertionError(f"never seen: {seen}\n--- screen ---\n{self.text}\n---")
        return self

    def end(self, patience: float = PATIENCE) -> int:
        """Wait for the program to end and read its remaining output; return its status, -n when signal n
        ended it."""
        deadline = time.monotonic() + patience
        while self._read(0.2):
            assert time.monotonic() < deadline, f"it did not end:\n{self.text}"
        self._child.wait()
        if self._child.signalstatus is not None:
            return -int(self._child.signalstatus)
        return int(self._child.exitstatus or 0)

    def close(self) -> None:
        """Kill the program if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            if self._child.isalive():
                os.kill(self.pid, signal.SIGKILL)
        if self._child.child_fd >= 0:
            self._child.close(force=True)

    def _read(self, patience: float) -> bool:
        """Process the output of the program within `patience` seconds; False once it has closed its side."""
        try:
            data = self._child.read_nonblocking(65536, timeout=patience)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        # The kernel returns 4 KiB at a time, and checking a large screen after each piece is expensive. The
        # next reading notices an end, too.
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            while len(data) < _AT_ONCE:
                data += self._child.read_nonblocking(65536, timeout=0)
        self.raw += data
        data = self._rest + data
        # A sequence that the reading cuts in two waits for its other half.
        begun = data.rfind(b"\x1b")
        whole = begun < 0 or _SEQUENCE.match(data, begun)
        data, self._rest = (data, b"") if whole else (data[:begun], data[begun:])
        for piece in _PIECES.split(data):
            if piece == b"\x1b[?1049h":
                self._show(pyte.Screen(*self._size))
            elif piece == b"\x1b[?1049l":
                self._show(self._plain)
            elif not _KEYBOARD.fullmatch(piece):
                self._stream.feed(piece)
        return True

    def _show(self, screen: pyte.Screen) -> None:
        """Continue with another screen: pyte itself has no alternate screen."""
        self._screen = screen
        self._stream = pyte.ByteStream(screen)
