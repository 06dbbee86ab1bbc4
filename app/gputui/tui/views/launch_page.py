"""The launch as a page: its settings, its variables, earlier launches, and the resulting launch line."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.formatting import printable
from gputui.launching.history import PastLaunch, launch_columns
from gputui.tui.option_rows import MORE, NEW, Row
from gputui.tui.views.text import ItemLines, Line, cells_of, clip, fit, table_lines, title, told_lines

_LABEL = 14
_LEAST, _MOST = 30, 36
"""The cells of a row before its explanation, where the explanations are aligned: at least, and at most on a
screen of 80 cells. They may take half of the cells beyond 80."""
_BEFORE_VALUE, _BEFORE_NAME = 18, 6
"""Cells of a row before its explanation, without its value or variable."""


def settings(rows: Sequence[Row], width: int) -> ItemLines:
    """The rows with a rule before each section, and for every line the place of its row."""
    lines: list[Line] = []
    places: list[int | None] = []
    before = _before(rows, width)
    for place, row in enumerate(rows):
        line = clip(_row(row, before), width)
        if row.id == MORE:
            line = title(f"{row.label} {row.value}", width, row.about)
        elif row.section and (place == 0 or rows[place - 1].section != row.section):
            lines.append(title(row.section, width))
            places.append(None)
        lines.append(line)
        places.append(place)
    return lines, places


def _before(rows: Sequence[Row], width: int) -> int:
    """The cells of a row before its explanation. There is room for every choice: another one moves
    nothing."""
    variables = [_BEFORE_NAME + cells_of(f"{row.label}={printable(row.value)} ") for row in rows if row.box]
    values = [
        _BEFORE_VALUE + cells_of(printable(each))
        for row in rows
        if not row.box
        for each in (row.value, *row.choices)
    ]
    return min(_MOST + max(0, width - 80) // 2, max(_LEAST, *variables, *values))


def _row(row: Row, before: int) -> Line:
    strong = "strong" if row.given else ""
    if row.box:
        box = ("   " if row.id == NEW else "[x]" if row.given else "[ ]", "prompt")
        variable = row.id.startswith("env ")
        shown = f"{row.label}={printable(row.value)}" if variable else row.label
        return ((" ", ""), box, (f" {fit(shown, before - _BEFORE_NAME)}", strong), (f" {row.about}", "dim"))
    value = fit(printable(row.value), before - _BEFORE_VALUE)
    return ((f"  {fit(row.label, _LABEL)}", "dim"), (f"{value}  ", strong), (row.about, "dim"))


def remembered(known: Sequence[PastLaunch], width: int, now: float) -> list[Line]:
    """The recent launches, a line each."""
    return [clip(line, width) for line in table_lines(launch_columns(known, now), known, before=" ")]


def no_launches(width: int, trouble: str) -> list[Line]:
    """The text shown before the first launch, or where the saved launches cannot be read."""
    if trouble:
        return told_lines(trouble, "warn", width)
    return told_lines("no launches yet: each is kept here, :save gives one a name", "dim", width)
