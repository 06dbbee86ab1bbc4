"""The size of the terminal, as the terminal itself reports it."""

from __future__ import annotations

import contextlib
import os
import shutil

MOST = os.terminal_size((1000, 400))
"""The most columns and lines that are painted: each cell takes memory, and no real terminal is larger."""


def terminal_size() -> os.terminal_size:
    """Columns and lines, `MOST` at most.

    COLUMNS and LINES of the environment are used only where the terminal does not report its size: they hold
    the size at the time when they were set.
    """
    columns, lines = 0, 0
    for number in (0, 1, 2):
        with contextlib.suppress(OSError):
            columns, lines = os.get_terminal_size(number)
            break
    if not (columns and lines):
        size = shutil.get_terminal_size()
        # Python 3.10 returns the zeros of a terminal that does not know its size.
        columns, lines = size.columns or 80, size.lines or 24
    return os.terminal_size((min(columns, MOST.columns), min(lines, MOST.lines)))
