"""The driver with which Textual paints on our terminal."""

from __future__ import annotations

from typing import Any

from textual.drivers.linux_driver import LinuxDriver

from gputui.tui.first_frame import FirstPicture, terminal_stream


def driver_after(picture: FirstPicture) -> type[LinuxDriver]:
    """A driver class that takes the terminal over from the first picture.

    Textual paints on stderr, which may be a file (`gputui -- python train.py 2> log`): this one paints on
    whichever stream is the terminal.
    """

    class Driver(LinuxDriver):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            stream = terminal_stream()
            if stream is not None:
                self._file = stream

        def start_application_mode(self) -> None:
            # Out of the alternate screen and into it again, or the shell's cursor would be forgotten.
            leave, modes = picture.hand_over()
            if leave and self._file is not None:
                self._file.write(leave)
            super().start_application_mode()  # type: ignore[no-untyped-call]
            if modes is not None:
                # What Textual found were the first picture's modes; these are the user's.
                self.attrs_before = modes

    return Driver
