"""ChangedCells: send the terminal only the cells that it does not show yet.

Textual sends whole pieces of lines, with a style before and after each span: five kilobytes a second for
eight busy devices, of which some digits change (Textual 8.2.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import is_not, ne
from typing import Any

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from gputui.tui.widgets.lines import Piece

_MOVE = 8
"""Bytes that a move of the cursor takes: fewer unchanged ones between two changed cells are sent again."""

_UNKNOWN = "\0"
"""The text of a cell whose content on the terminal is not known."""

_PLAIN = Style.null()

Run = tuple[int, str, Style]
"""The first cell of a text in a line, and the text, which has one style."""


class ChangedCells:
    """The cells that the terminal shows: the text of each line, and the style of each cell."""

    def __init__(self) -> None:
        self._shown: dict[int, tuple[str, list[Style]]] = {}

    def only_changes(self, update: object) -> Any:
        """Return an update of Textual's compositor in a form that sends only the changed cells, and anything
        else as it is."""
        if not isinstance(update, ChopsUpdate | LayoutUpdate):
            return update
        return Changes(self, _pieces(update), isinstance(update, LayoutUpdate))

    def sequences(self, pieces: Iterable[Piece], colors: ColorSystem, all: bool = False) -> str:
        """Return what brings the terminal up to date. A full update sends every cell: after a new size or a
        pause, the terminal may have lost what it showed."""
        if all:
            self._shown.clear()
        found: dict[Style, list[str]] = {}
        for piece in pieces:
            for start, text, style in self._runs(*piece):
                found.setdefault(style, []).append(f"\x1b[{piece[0] + 1};{start + 1}H{text}")
        # By style, as a style takes more bytes than a move of the cursor.
        return "".join([Strip.render_style(style, "".join(texts), colors) for style, texts in found.items()])

    def _runs(self, y: int, x: int, width: int, parts: Iterable[Segment]) -> list[Run]:
        """The changed cells of a piece of a line; they are shown from now on."""
        text, end = "".join([part.text for part in parts]), x + width
        old, old_styles = self._shown.get(y, ("", []))
        if (missing := end - len(old)) > 0:
            old, old_styles = old + _UNKNOWN * missing, old_styles + [_PLAIN] * missing
        if not (text.isascii() or _has_cells(text)):
            # Such a text has no cells to compare.
            self._shown[y] = old[:x] + _UNKNOWN * width + old[end:], old_styles
            return _spans(x, parts)
        styles: list[Style] = []
        for part in parts:
            styles += [part.style or _PLAIN] * len(part.text)
        before, styles_before = old[x:end], old_styles[x:end]
        if before == text and styles_before == styles:
            return []
        self._shown[y] = old[:x] + text + old[end:], old_styles[:x] + styles + old_styles[end:]
        changed = zip(map(ne, before, text), map(is_not, styles_before, styles), strict=True)
        runs: list[tuple[int, int]] = []
        for place in [n for n, (letter, style) in enumerate(changed) if letter or style]:
            if runs and _is_near(runs[-1][1], place, text, styles):
                runs[-1] = runs[-1][0], place + 1
            else:
                runs.append((place, place + 1))
        return [(x + first, text[first:last], styles[first]) for first, last in runs]


class Changes(CompositorUpdate):
    """An update as the changed cells at the moment at which it is sent; `sent`: whether it was."""

    def __init__(self, cells: ChangedCells, pieces: Iterable[Piece], all: bool = False) -> None:
        self._cells, self._pieces, self._all = cells, pieces, all
        self.sent = False

    def render_segments(self, console: Console) -> str:
        self.sent = True
        colors = COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR)
        return self._cells.sequences(self._pieces, colors, self._all)


def _pieces(update: ChopsUpdate | LayoutUpdate) -> Iterator[Piece]:
    """The pieces of lines that are painted, each with its line and its first cell."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                yield y, x, strip.cell_length, strip
                x += strip.cell_length
        return
    for y, first, last in update.spans:
        for end, (x, piece) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if piece is not None and x < last and end > first:
                yield y, x, piece.cell_length, piece


def _has_cells(text: str) -> bool:
    """Whether each character takes one cell."""
    return all(map(_is_one_cell, set(text)))


@lru_cache(maxsize=1024)
def _is_one_cell(character: str) -> bool:
    return get_character_cell_size(character) == 1


def _is_near(end: int, place: int, text: str, styles: list[Style]) -> bool:
    """Whether sending the cells from the end of a run to a place takes no more bytes than a move."""
    if place - end > _MOVE or len(text[end:place].encode()) > _MOVE:
        return False
    return styles[end - 1 : place].count(styles[place]) == place - end + 1


def _spans(x: int, parts: Iterable[Segment]) -> list[Run]:
    """All cells of a piece of a line."""
    runs = []
    for part in parts:
        runs.append((x, part.text, part.style or _PLAIN))
        x += part.cell_length
    return runs
