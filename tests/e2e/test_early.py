"""Keys and signals that arrive while the program is still starting: none is lost."""

from __future__ import annotations

import time

import pytest

from e2e.conftest import Start
from e2e.terminal import Terminal

pytestmark = pytest.mark.e2e

DELAYS = [0.0, pytest.param(0.12, marks=pytest.mark.thorough)]
"""Seconds after the first picture: Textual takes over about 0.15 s after it, later on a busy machine."""


def after_first_picture(start: Start, delay: float, *words: str) -> Terminal:
    """The program, this number of seconds after its first picture."""
    terminal = start("--demo", "idle", *words)
    terminal.until("○ free")
    due = time.monotonic() + delay
    return terminal.until(lambda t: time.monotonic() >= due)


@pytest.mark.parametrize("delay", DELAYS)
def test_keys_typed_early_do_what_they_say_in_their_order(start: Start, delay: float) -> None:
    terminal = after_first_picture(start, delay, "--", "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; exit 7")
    terminal.send("10\r")
    terminal.start_anyway()
    assert terminal.end() == 7
    assert "on 1,0" in terminal.text


@pytest.mark.parametrize("delay", DELAYS)
def test_an_early_ctrl_c_leaves_with_130_and_the_terminal_restored(start: Start, delay: float) -> None:
    terminal = after_first_picture(start, delay)
    terminal.send("\x03")
    assert terminal.end() == 130
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("delay", DELAYS)
def test_an_early_signal_leaves_with_the_terminal_restored(start: Start, delay: float) -> None:
    terminal = after_first_picture(start, delay)
    terminal.signal(15)
    assert terminal.end() == 143
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    assert "Traceback" not in terminal.text
