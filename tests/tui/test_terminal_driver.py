"""The terminal driver can start again after a start that failed."""

from __future__ import annotations

import pytest

from gputui.tui.terminal_driver import PatientDriver


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
