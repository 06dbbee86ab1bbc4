"""Text tables: cells in columns that are as wide as their widest cell, for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest


def aligned(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), least: Sequence[int] = ()
) -> list[str]:
    """A line for each row, with two spaces between columns and none at its end.

    right   the indices of the columns that are aligned to the right
    least   the least width of each of the first columns, in characters

    All rows have the same number of cells. The last column is not padded.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = [max(pair) for pair in zip_longest(widths, least[: len(widths)], fillvalue=0)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def cut(line: str, width: int | None) -> str:
    """The line cut to at most `width` characters (None: not cut); an ellipsis marks a cut."""
    return line if width is None or len(line) <= width else f"{line[: max(0, width - 1)].rstrip()}…"
