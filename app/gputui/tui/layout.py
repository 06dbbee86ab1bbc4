"""The room of each part of the main screen: pure arithmetic on sizes, without any widget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from gputui.inventory.light_dataclasses import frozen, replace

WIDE = 150
"""Cells from which there are two columns: the table with what is below it, and the other panels."""

_TABLE, _FULL_TABLE = 89, 105
"""Cells of the first column from which its table has all usual columns where all devices have one name, and
from which its bars are longer too."""

_LEAST_SIDE, _SIDE, _WIDEST_SIDE = 39, 44, 72
"""Cells of the second column: the fewest, in which the facts of a device are whole; those in which a usual
queue wraps less; and the most, because nothing in it is wider."""

_SHORT = 13
"""Lines below which the selection and the launch line have no rules."""

_TINY = 8
"""Lines below which there is no header, and a message takes the place of the keys."""

_MOST_ROWS = 16
"""Rows of the table that a long launch line leaves."""

_ROWS_KEPT, _ROWS_KEPT_SHORT = 5, 3
"""Rows of the table that the launch line and its warnings always leave; the same on a short terminal."""

_LINES_KEPT = 4
"""Lines of the launch line and its warnings that may take the place of further rows."""

_FEW, _ROW = 9, 7
"""Lines below the table that, in one column, are for the processes first, as the table has the devices of the
user's jobs and of the queue: of these there is a row, and below the last number only a heading."""

_NOTES, _NOTES_SHORT, _LOW = 2, 1, 50
"""Lines for warnings and remarks below the launch line, which are there before a device is selected, because
a selection moves nothing; the same on a terminal lower than the last."""


class Size(NamedTuple):
    """The fewest lines that are worth showing, and the lines that show everything, 0 for a panel that needs
    only lines that no other one wants; `most` counts the lines of a panel with even more content (a log),
    which it gets where no other panel needs the room. `charts` counts the charts below each other, which all
    have the same height, two lines where they have what they want, with a line between two of them where they
    are higher."""

    least: int
    wants: int
    most: int = 0
    charts: int = 1


class LaunchRoom(NamedTuple):
    """The lines for the launch line, its warnings and its remarks, and whether a rule is above them."""

    lines: int
    ruled: bool = True


@frozen
class Part:
    """A panel that asks for room; see `tui/panels.py`.

    spare  whether it is shown only in lines that no other panel wants
    """

    name: str
    size: Size
    place: Literal["table", "side"]
    grows: bool
    spare: bool = False


@frozen
class Column:
    """Panels below each other, with their heights."""

    width: int
    heights: tuple[tuple[str, int], ...] = ()

    @property
    def lines(self) -> int:
        """The lines of all of them."""
        return sum(lines for _, lines in self.heights)


@frozen
class Layout:
    """The main screen at one size.

    roomy                    whether there are a header and a line for messages
    table                    lines of the device table, its heading included
    left                     the column below the table, of the same width; `beside` is to the right of both
    """

    roomy: bool
    table: int
    left: Column
    beside: Column | None = None

    @property
    def heights(self) -> tuple[tuple[str, int], ...]:
        """The lines of every panel."""
        return self.left.heights + (self.beside.heights if self.beside else ())


def launch_room(height: int, devices: int, wanted: int) -> LaunchRoom:
    """The room of the launch, whatever is selected: the lines that its launch line may take (`wanted`), and
    some for notes, unless they would take the last rows of a table that else is shown whole. Half of the
    lines below such a table are for the panels, however long the command is."""
    around = 7 if has_rules(height) else 5 if height >= _TINY else 3
    left = height - min(devices, _MOST_ROWS) - around
    kept = height - min(devices, _ROWS_KEPT if has_rules(height) else _ROWS_KEPT_SHORT) - around
    most = max(1, (left + 1) // 2, min(_LINES_KEPT, kept))
    notes = _NOTES if height >= _LOW else _NOTES_SHORT
    if wanted <= left:
        notes = min(notes, left - wanted)
    return LaunchRoom(min(most, wanted + notes), has_rules(height))


def side_width(width: int) -> int:
    """Cells of the column beside the table on a terminal of this width; all where there is no such column."""
    if width < WIDE:
        return width
    least = max(_LEAST_SIDE, min(_SIDE, width - _TABLE - 1))
    return min(_WIDEST_SIDE, max(least, width - max(_FULL_TABLE, width * 62 // 100) - 1))


def has_rules(height: int) -> bool:
    """Whether the selection and the launch line have rules above them."""
    return height >= _SHORT


def lay_out(
    width: int,
    height: int,
    devices: int,
    below: int,
    parts: Sequence[Part] | None,
    before: Layout | None = None,
) -> Layout:
    """The layout of a terminal of this size.

    devices  rows of the table; 0 where a text replaces them and takes all the room
    below    lines of the selection and the launch line together
    parts    the panels that have something to show, the most important first; None where that is not known
             yet: their room stays blank
    before   the layout of the same screen with other panels, of which those that are left keep their lines
    """
    roomy = height >= _TINY
    room = max(1, height - below - 1 - 2 * roomy)
    table = min(devices + 1, room) if devices else room
    left_over, left, beside = room - table, list(parts or ()), None
    beneath = [
        part for part in left if part.place == "table" and (part.spare or part.size.least <= left_over)
    ]
    side = [part for part in left if part not in beneath]
    # A second column that came or went would change the width of the table.
    shown = before if before is not None and before.heights else None
    two = shown.beside is not None if shown else bool(side) or parts is None
    if width >= WIDE and devices and two:
        left, beside = beneath, Column(side_width(width), share(room, side))
        width -= beside.width + 1
    elif left_over < _FEW:
        few = 1 + (left_over >= _ROW)
        heading = {part.name: Size(few, few, max(part.size[1:3])) for part in side if not part.grows}
        left = [replace(part, size=heading.get(part.name, part.size)) for part in left]
    heights = share(left_over, left)
    if shown is None:
        heights = _without_blank_lines(heights, left)
    return Layout(roomy, table, Column(width, heights), beside)


def _without_blank_lines(
    heights: tuple[tuple[str, int], ...], parts: Sequence[Part]
) -> tuple[tuple[str, int], ...]:
    """The heights, where lines that make no chart higher go to the first panel."""
    lines = dict(heights)
    for part in parts:
        count, more = part.size.charts, lines.get(part.name, 0) - part.size.wants
        if count > 1 and more >= -count:
            blank = more % count if more < count - 1 else 0 if more < 2 * count - 1 else (more + 1) % count
            lines[part.name] -= blank
            lines[heights[0][0]] += blank
    return tuple(lines.items())


def _wanted(parts: Sequence[Part]) -> int:
    return sum(max(part.size.least, part.size.wants) for part in parts)


def share(room: int, parts: Sequence[Part]) -> tuple[tuple[str, int], ...]:
    """The heights of panels in one column, from top to bottom.

    Each panel in turn gets its least, as long as there is room. Then the panels that do not grow get what
    they want; at most half of the rest if the others want more than there is. What then remains is for the
    growing panels, then for what the others still want, or else for the first panel.
    """
    shown: list[Part] = []
    for part in sorted(parts, key=lambda part: part.spare):
        taken = _wanted(shown) if part.spare else sum(each.size.least for each in shown)
        if taken + part.size.least <= room:
            shown.append(part)
    # The panels that grow come first: one that comes takes lines from their end, and gives them back.
    shown.sort(key=lambda part: (not part.grows, parts.index(part)))
    if shown and not shown[0].grows:
        # Without such a panel, what comes and goes is at the end.
        shown.reverse()
    heights = {part.name: part.size.least for part in shown}
    left = room - sum(heights.values())
    growing = [part for part in shown if part.grows]
    needed = [part for part in shown if not part.spare]
    short = any(part.grows for part in needed) and _wanted(needed) > room
    half = (left + 1) // 2 if short else 0
    left = half + _give(
        left - half, heights, {p.name: p.size.wants for p in shown if not (p.grows or p.spare)}
    )
    rest = sorted((*growing, *shown), key=lambda part: part.spare)
    left = _give(left, heights, {part.name: part.size.wants for part in rest})
    left = _give(left, heights, {part.name: part.size.most for part in shown})
    if shown:
        heights[(growing[-1:] or shown)[0].name] += left
    return tuple(heights.items())


def _give(lines: int, heights: dict[str, int], upto: Mapping[str, int]) -> int:
    """Give the lines to these panels in turn, to each up to a height; return how many lines are left."""
    for name, most in upto.items():
        more = max(0, min(lines, most - heights[name]))
        heights[name] += more
        lines -= more
    return lines
