"""TerminalAfter: the Textual driver that takes our terminal over from the first frame."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from textual.drivers.linux_driver import LinuxDriver

from gputui.tui.first_frame import FirstFrame, terminal_stream


class TerminalAfter:
    """`driver_class` is for the application; `write` sends a sequence through its driver, on any thread.

    Textual paints on stderr, which may be a file (`gputui -- python train.py 2> log`): this driver paints on
    whichever stream is the terminal.
    """

    def __init__(self, first_frame: FirstFrame) -> None:
        self._driver: LinuxDriver | None = None
        terminal = self
        stream = terminal_stream()

        class TerminalDriver(LinuxDriver):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                with _as_stderr(stream):
                    super().__init__(*arguments, **options)
                terminal._driver = self

            def start_application_mode(self) -> None:
                # Out of the alternate screen and into it again, or the shell's cursor would be forgotten.
                leave, modes = first_frame.hand_over()
                if leave and stream is not None:
                    stream.write(leave)
                super().start_application_mode()  # type: ignore[no-untyped-call]
                if modes is not None:
                    # What Textual found were the first frame's modes; these are the user's.
                    self.attrs_before = modes

        self.driver_class: type[LinuxDriver] = TerminalDriver

    def write(self, sequence: str) -> None:
        """Send an escape sequence to the terminal. Raises OSError before the application runs."""
        if self._driver is None:
            raise OSError("the screen does not run")
        self._driver.write(sequence)


@contextlib.contextmanager
def _as_stderr(stream: TextIO | None) -> Iterator[None]:
    """While inside, Textual takes this stream for stderr: it has no option for another one."""
    before = sys.__stderr__
    if stream is not None:
        vars(sys)["__stderr__"] = stream
    try:
        yield
    finally:
        vars(sys)["__stderr__"] = before
