"""The launch as a page: its settings, its variables, the launches of before, and the line it comes to."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.wording import duration, printable
from gputui.launching.remembered import Remembered
from gputui.launching.words import command_line
from gputui.tui.board import Board
from gputui.tui.plan_rows import Row
from gputui.tui.views.text import Line, clip, fit, title

_LABEL, _VALUE = 14, 26
_NAME = 32


def settings(rows: Sequence[Row], cursor: int, width: int) -> tuple[list[Line], list[int | None]]:
    """The rows with a rule before the variables, and for every line the row that it shows."""
    lines: list[Line] = []
    places: list[int | None] = []
    for place, row in enumerate(rows):
        if row.variable and (place == 0 or not rows[place - 1].variable):
            lines.append(title("environment", width))
            places.append(None)
        lines.append(clip(_row(row, place == cursor), width))
        places.append(place)
    return lines, places


def _row(row: Row, here: bool) -> Line:
    point = ("▸" if here else " ", "cursor")
    strong = "strong" if row.given else ""
    if row.variable:
        box = ("   " if not row.value and not row.label.isupper() else "[x]" if row.given else "[ ]", "slot")
        shown = f"{row.label}={printable(row.value)}" if row.value or row.given else row.label
        return (point, box, (f" {fit(shown, _NAME)}", strong), (f"  {row.about}", "dim"))
    value = fit(printable(row.value), _VALUE)
    return (point, (f" {fit(row.label, _LABEL)}", "dim"), (f"{value}  ", strong), (row.about, "dim"))


def remembered(
    known: Sequence[Remembered], cursor: int, width: int, now: float
) -> tuple[list[Line], list[int | None]]:
    """The last launches, a line each: its name, its devices, how long ago, the command."""
    lines: list[Line] = []
    for place, each in enumerate(known):
        here = place == cursor
        name = f"★ {printable(each.name)}" if each.name else ""
        devices = "CPU only" if not each.count else f"{each.count} GPU{'s' if each.count > 1 else ''}"
        ago = duration(max(0.0, now - each.when))
        command = printable(command_line(each.plan.additions, each.plan.command))
        lines.append(
            clip(
                (
                    ("▸" if here else " ", "cursor"),
                    (f" {fit(name, 14)}", "slot"),
                    (f" {fit(devices, 8)} {fit(ago, 6, right=True)} ago  ", "dim"),
                    (command, "strong" if here else ""),
                ),
                width,
            )
        )
    return lines, list(range(len(known)))


def no_launches(width: int) -> list[Line]:
    """What stands there before anything was launched."""
    return [clip(((" none yet: what is launched is kept here, s gives it a name", "dim"),), width)]


def keys(width: int, launches: bool, message: str) -> Line:
    """The last line: the keys, or a message."""
    if message:
        return clip(((" ▌ ", "key"), (message, "")), width)
    told = (
        " esc back  ↑↓ launch  ⏎ take  s name  x forget"
        if launches
        else " esc back  ↑↓ row  space change  e type  x default  y copy  s keep by a name"
    )
    return clip(((told, "dim"),), width)


def heading(board: Board, launches: bool, width: int) -> Line:
    """The rule at the top."""
    return title("last launches" if launches else f"launch: {board.launcher}", width, "tab: " + (
        "settings" if launches else "last launches"
    ))  # fmt: skip
