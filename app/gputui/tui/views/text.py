"""Make lines of styled text, and cut or wrap them to a width in terminal cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len, chop_cells, set_cell_size

from gputui.inventory import text_table
from gputui.inventory.columns import Column, T
from gputui.inventory.formatting import UNKNOWN, printable

_HANGING = 12
"""Fewest cells for the wrapped rest of a line below its last span; with fewer, it gets the whole width."""

_INDENT = 6

_FOLDERS = re.compile(r"(?<= )/\S*/")
"""The folders of an absolute path among the words of a command."""
_INTERPRETER = re.compile(r"^python[0-9.]* (?!-)")
"""The interpreter before a script."""

Span = tuple[str, str]
"""Text, and the name of its style (`widgets/lines.py` lists them; "" is plain)."""

Line = tuple[Span, ...]

ItemLines = tuple[Sequence[Line], Sequence[int | None]]
"""The lines of a list, and for each the place of its item, None for a line without an item."""

Hints = Sequence[tuple[str, str]]
"""Keys, each with what it does."""

Place = tuple[int, int, str]
"""What a click meets: the first cell, the cell after the last, and the action or device there."""


def cells_of(text: str) -> int:
    """The width of the text in cells. Rich's function looks each text up among the last thousands."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(line: Line) -> int:
    """The width of the line in cells."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in line])


def fit(text: str, width: int, right: bool = False) -> str:
    """`text` in exactly `width` cells: cut with an ellipsis, or padded with spaces."""
    if width <= 0:
        return ""
    length = cells_of(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    pad = " " * (width - length)
    return pad + text if right else text + pad


def shorten(name: str, width: int) -> str:
    """A product's name in exactly `width` cells. Its last words are dropped rather than cut in the middle.

    "H100 80GB HBM3" in nine cells is "H100 80GB", "V100-SXM2-32GB" is "V100-SXM2".
    """
    if cells_of(name) <= width:
        return fit(name, width)
    cut = set_cell_size(name, width + 1)
    end = max(cut.rfind(" "), cut.rfind("-"))
    return fit(cut[:end] if end > 1 else name, width)


def clip(line: Line, width: int) -> Line:
    """The line in at most `width` cells, cut with an ellipsis."""
    if width_of(line) <= width:
        return line
    out: list[Span] = []
    left = width
    for text, style in line:
        length = cells_of(text)
        if length >= left:
            out.append((fit(text + "…", left), style))
            break
        out.append((text, style))
        left -= length
    return tuple(out)


def clip_command(line: Line, width: int) -> Line:
    """The line, which ends with a command, cut to `width` cells. The folders of its paths and the interpreter
    are left out first: many rows have the same ones, and the name of the script comes after them."""
    if width_of(line) <= width:
        return line
    *head, (text, style) = line
    return clip((*head, (_INTERPRETER.sub("", _FOLDERS.sub("…/", text)), style)), width)


def padded(line: Line, width: int) -> Line:
    """The line in exactly `width` cells: cut with an ellipsis, or padded with spaces."""
    missing = width - width_of(line)
    if missing < 0:
        return clip(line, width)
    return (*line, (" " * missing, "")) if missing else line


def hint_line(hints: Hints, last: Hints, width: int) -> Line:
    """Keys, each with what it does: as many as fit, none cut. The last of the `last` ones stays longest, then
    the first of all, then the others of the `last` ones."""
    hints, last = [*hints], [*last]
    while True:
        spans: list[Span] = []
        for key, hint in [*hints, *last]:
            spans += [(f"{'  ' if spans else ' '}{key}", "key"), (f" {hint}", "dim")]
        if width_of(tuple(spans)) <= width or not hints:
            return clip(tuple(spans), width)
        if len(hints) == 1 < len(last):
            del last[0]
        else:
            hints.pop()


def flow(items: Sequence[Line], width: int) -> list[Line]:
    """Items next to each other, two cells between them, in as many lines as they need."""
    lines: list[list[Span]] = []
    for item in items:
        if lines and width_of(tuple(lines[-1])) + 2 + width_of(item) <= width:
            lines[-1] += [("  ", ""), *item]
        else:
            lines.append([(" ", ""), *item])
    return [clip(tuple(line), width) for line in lines]


def hanging(line: Line, width: int) -> list[Line]:
    """The line with its last span wrapped: below the span's beginning, or where that is too narrow, the whole
    span below the rest of the line."""
    if width_of(line) <= width and "\n" not in line[-1][0]:
        return [line]
    *head, (text, style) = line
    indent = width_of(tuple(head))
    if width - indent >= _HANGING:
        first, *more = wrap(text, width - indent)
        lines: list[Line] = [(*head, (first, style))]
    else:
        indent = min(_INDENT, max(0, width - 1))
        lines, more = [clip(tuple(head), width)], wrap(text.strip(), width - indent)
    return [*lines, *(((" " * indent, ""), (piece, style)) for piece in more)]


def wrapped_where_free(rows: Sequence[Line], width: int, room: int) -> list[list[Line]]:
    """The lines of each row, at least one. From the top, rows that are too long are wrapped where `room` has
    lines for the whole row, else cut."""
    wholes, left = [hanging(row, width) for row in rows], room - len(rows)
    for place, row in enumerate(rows):
        more = len(wholes[place]) - 1
        if more <= left:
            left -= more
        else:
            wholes[place] = [clip_command(row, width)]
    return wholes


def column_widths(columns: Iterable[Column[T]], rows: Sequence[T]) -> dict[Column[T], int]:
    """The columns with the cells that they need for their names and these rows. A column that is empty in
    every row is left out."""
    widths = {column: _cells_of(column, column.cells(rows), True) for column in columns}
    return {column: cells for column, cells in widths.items() if cells is not None}


def _cells_of(column: Column[T], spans: Sequence[Span], heading: bool) -> int | None:
    """The cells that a column needs for these texts; None where it is empty in every row."""
    texts = {text for text, _ in spans}
    if texts <= ({"", UNKNOWN} if column.optional else {""}):
        return None
    names = [column.name] if heading else []
    return max(column.least, min(column.most, max(map(cells_of, [*texts, *names]))))


def table_lines(
    columns: Iterable[Column[T]],
    rows: Sequence[T],
    heading: bool = False,
    before: str = " ",
    widths: Mapping[Column[T], int] | None = None,
) -> list[Line]:
    """A line for each row, with `heading` below the names of the columns. Two cells separate columns; the
    last column is neither cut nor padded.

    before  the text before the first column
    widths  the columns and their cells, None for those of `column_widths`
    """
    shown: list[tuple[list[Span], int, bool]] = []
    for column in columns if widths is None else widths:
        spans = column.cells(rows)
        cells = _cells_of(column, spans, heading) if widths is None else widths[column]
        if cells is not None:
            names = [(column.name, "dim")] if heading else []
            shown.append(([*names, *spans], cells, column.right))
    fitted = [
        [(fit(text, cells, right) + "  ", tone) for text, tone in spans] for spans, cells, right in shown[:-1]
    ]
    last = [spans for spans, _, _ in shown[-1:]]
    return [*zip([(before, "")] * (len(rows) + heading), *fitted, *last, strict=True)]


def place_mark(rank: int | None) -> tuple[Span, ...]:
    """The place in the selection, "[1]", in five cells; blank for a device that is not selected."""
    slot = "" if rank is None else f"[{rank + 1}]"[:4]
    return (" " * (4 - len(slot)), ""), (slot, "slot"), (" ", "")


def title(text: str, width: int, *tails: str) -> Line:
    """A section's rule: " ─ selected ───────────". Its end shows as many of the `tails` as fit: parts with
    two spaces between them, "" for none."""
    head = f" ─ {text} "
    parts = [part for tail in tails if tail for part in tail.split("  ")]
    # A part that does not fit is left out as a whole: half a hint is useless.
    while parts and cells_of(head) + cells_of("  ".join(parts)) + 4 > width:
        parts.pop()
    end = f" {'  '.join(parts)} ─" if parts else ""
    rule = "─" * max(0, width - cells_of(head) - cells_of(end) - 1)
    return clip(((" ─ ", "rule"), (text, "title"), (f" {rule}", "rule"), (end, "dim")), width)


def bar(fraction: float, width: int) -> tuple[str, str]:
    """A horizontal bar as (full part, empty part), to an eighth of a cell."""
    filled = text_table.bar(fraction, width)
    return filled, "░" * (width - len(filled))


def prompt_lines(pieces: Sequence[str], tone: str = "") -> list[Line]:
    """The pieces of a command line as lines, the first one after the prompt."""
    return [((" $ " if not place else "   ", "prompt"), (text, tone)) for place, text in enumerate(pieces)]


def told_lines(text: str, tone: str, width: int) -> list[Line]:
    """A sentence in as many lines as it needs, one cell from the edge."""
    return [((f" {piece}", tone),) for piece in wrap(printable(text), width - 2)]


def wrap(text: str, width: int) -> list[str]:
    """`text` in pieces of at most `width` cells, broken at spaces where possible; no text is lost."""
    if cells_of(text) <= width and "\n" not in text and text[:1] != " ":
        return [text]
    pieces: list[str] = []
    line = ""
    for word in text.replace("\n", " ").split(" "):
        joined = f"{line} {word}" if line else word
        if cells_of(joined) <= width:
            line = joined
            continue
        if line:
            pieces.append(line)
        *full, line = chop_cells(word, max(1, width)) or [""]
        pieces.extend(full)
    return [*pieces, line]
