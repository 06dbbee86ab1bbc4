"""TerminalAfter: the Textual driver that takes over the terminal from the first frame, and waits for keys."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, TextIO

from textual import constants
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Resize
from textual.keys import Keys
from textual.message import Message

from gputui.tui.first_frame import FirstFrame, terminal_stream
from gputui.tui.terminal_size import MOST, terminal_size

_READ_AT_ONCE = 4096
"""The number of bytes per read."""


class InputParser(XTermParser):
    """Turns all input into events, also a key beyond the characters of Unicode: it is none."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterator[Key]:
        try:
            yield from super()._sequence_to_key_events(sequence, alt)
        except (ValueError, OverflowError):
            yield Key(Keys.Ignore, sequence)


class PatientDriver(LinuxDriver):
    """Sleeps until a key arrives. Textual's own driver checks ten times a second whether it should end: this
    takes a fifth of the screen's CPU at 1 Hz, and half of it while nobody looks (Textual 8.2.8)."""

    _end: tuple[int, int] | None = None
    """A pipe: a byte in it ends the thread that waits for keys."""
    _restarts = False
    """Whether the terminal is released only to be taken again."""
    _starting = _again = False
    """Whether a start is in progress, and whether the program was continued meanwhile."""

    def _get_terminal_size(self) -> tuple[int, int]:
        # Textual's method trusts COLUMNS and LINES, however large: a gigabyte within seconds.
        return terminal_size()

    def process_message(self, message: Message) -> None:
        if isinstance(message, Resize):
            # A terminal may also send its size as text, however large.
            size = min(message.size.width, MOST.columns), min(message.size.height, MOST.lines)
            message = Resize.from_dimensions(size, message.pixel_size)
        super().process_message(message)

    def start_application_mode(self) -> None:
        # This is a signal handler too: SIGCONT may arrive while it runs.
        self._again = True
        if self._starting:
            return
        self._starting = True
        try:
            while self._again:
                self._again = False
                self._start()
        finally:
            # Otherwise no later SIGCONT would start it again.
            self._starting = False

    def _start(self) -> None:
        # SIGCONT after a SIGSTOP starts it without a stop before: two threads would share the keys, two would
        # write to the terminal, and nothing would repaint what the shell has overwritten.
        if self._end is not None:
            self._restarts = True
            self.suspend_application_mode()
            self._restarts = False
            # This makes the application paint everything again.
            self._must_signal_resume = True
        self._end = os.pipe()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def disable_input(self) -> None:
        # Textual calls this twice.
        if self._end is None:
            return
        os.write(self._end[1], b".")
        if not self._restarts:
            super().disable_input()
        elif self._key_thread is not None:
            # Textual's method would discard the keys that were typed meanwhile.
            self._key_thread.join()
        for number in self._end:
            os.close(number)
        self._end = None

    def run_input_thread(self) -> None:
        """Turn the input into events until the end, or until the terminal is gone.

        The application detects by itself that the terminal is gone.
        """
        assert self._end is not None
        end, parser, decoder = (
            self._end[0],
            InputParser(self._debug),
            getincrementaldecoder("utf-8")("replace"),
        )
        wait: float | None = None
        while True:
            ready = select.select([self.fileno, end], [], [], wait)[0]
            if end in ready:
                return
            if ready:
                try:
                    data = os.read(self.fileno, _READ_AT_ONCE)
                except OSError:
                    return
                if not data:
                    return
                for event in parser.feed(decoder.decode(data)):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
            # An Escape that nothing follows is the key itself: the parser reports it after this time.
            wait = constants.ESCAPE_DELAY if ready else None


class TerminalAfter:
    """Provides the application's `driver_class`; `write` sends a sequence through the driver, on any thread.

    Textual paints on stderr, which may be a file (`gputui -- python train.py 2> log`): this driver paints on
    whichever stream is the terminal.
    """

    def __init__(self, first_frame: FirstFrame) -> None:
        self._driver: LinuxDriver | None = None
        terminal = self
        stream = terminal_stream()

        class TerminalDriver(PatientDriver):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                with _as_stderr(stream):
                    super().__init__(*arguments, **options)
                terminal._driver = self

            def start_application_mode(self) -> None:
                # Leave the alternate screen and enter it again, or the shell's cursor position would be lost.
                leave, modes = first_frame.hand_over()
                if leave and stream is not None:
                    stream.write(leave)
                super().start_application_mode()
                if modes is not None:
                    # Textual has found the first frame's modes; these are the user's.
                    self.attrs_before = modes

        self.driver_class: type[LinuxDriver] = TerminalDriver

    def write(self, sequence: str) -> None:
        """Send an escape sequence to the terminal. Raises OSError before the application runs."""
        if self._driver is None:
            raise OSError("the screen does not run")
        self._driver.write(sequence)


@contextlib.contextmanager
def _as_stderr(stream: TextIO | None) -> Iterator[None]:
    """While inside, Textual uses this stream as stderr: it has no option for another stream."""
    before = sys.__stderr__
    if stream is not None:
        vars(sys)["__stderr__"] = stream
    try:
        yield
    finally:
        vars(sys)["__stderr__"] = before
