"""The size that the screen assumes for its terminal."""

from __future__ import annotations

import os

import pytest

from gputui.tui.terminal_size import MOST, terminal_size
from table_tests import each_row


@each_row(
    ("told", "variables", "size"),
    [
        ((120, 40), (100_000, 100_000), (120, 40)),
        ((60_000, 60_000), (80, 24), MOST),
        ((0, 0), (90, 30), (90, 30)),
        (None, (90, 30), (90, 30)),
        (None, (100_000, 100_000), MOST),
        ((0, 0), ("x", -5), (80, 24)),
    ],
)
def test_what_the_terminal_tells_counts_before_the_environment_and_neither_beyond_bounds(
    told: tuple[int, int] | None,
    variables: tuple[object, object],
    size: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get_terminal_size(_: int = 1) -> os.terminal_size:
        if told is None:
            raise OSError
        return os.terminal_size(told)

    monkeypatch.setattr(os, "get_terminal_size", get_terminal_size)
    for name, value in zip(("COLUMNS", "LINES"), variables, strict=True):
        monkeypatch.setenv(name, str(value))
    assert terminal_size() == size
