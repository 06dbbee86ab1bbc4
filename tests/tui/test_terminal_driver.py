"""The terminal driver can start again after a start that failed."""

from __future__ import annotations

import pytest
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Resize
from textual.geometry import Size
from textual.message import Message

from gputui.tui.terminal_driver import InputParser, PatientDriver
from gputui.tui.terminal_size import MOST
from table_tests import each_row


class _FailsOnce(PatientDriver):
    def __init__(self) -> None:
        self.starts = 0

    def _start(self) -> None:
        self.starts += 1
        if self.starts == 1:
            raise OSError("the terminal does not answer")


def test_a_start_that_failed_is_not_the_last_one() -> None:
    driver = _FailsOnce()
    with pytest.raises(OSError, match="does not answer"):
        driver.start_application_mode()
    driver.start_application_mode()
    assert driver.starts == 2


@each_row("code", [f"{0x110000}", f"{2**31}", f"{2**63}", f"97;1;{0x110000}"])
def test_a_key_that_no_keyboard_has_does_not_end_the_screen(code: str) -> None:
    parser = InputParser()
    events = [*parser.feed(f"\x1b[{code}u"), *parser.feed("a")]
    assert isinstance(events[-1], Key) and events[-1].key == "a"


def test_a_size_that_a_terminal_sends_is_bounded_as_one_that_it_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Message] = []
    monkeypatch.setattr(LinuxDriver, "process_message", lambda _, message: sent.append(message))
    driver = PatientDriver.__new__(PatientDriver)
    for text in ("\x1b[48;1000000000;1000000000;0;0t", "\x1b[48;24;80;480;800t"):
        for event in InputParser().feed(text):
            driver.process_message(event)
    large, small = (each for each in sent if isinstance(each, Resize))
    assert (large.size, small.size) == (Size(MOST.columns, MOST.lines), Size(80, 24))
    assert small.pixel_size == Size(800, 480)
