"""Text tables: cells in columns that are as wide as their widest cell, for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

_BETWEEN = "   "


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


def bar(fraction: float, width: int) -> str:
    """A horizontal bar, `width` cells long for 1, to an eighth of a cell; one above zero is never empty."""
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    full, part = divmod(max(eighths, fraction > 0), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[part].strip()


def packed(facts: Iterable[str], width: int | None) -> list[str]:
    """The facts joined to lines of at most `width` characters; a longer fact is wrapped.

    The separator is wide, because there are commas within facts.
    """
    lines: list[str] = []
    for fact in facts:
        if lines and (width is None or len(lines[-1]) + len(_BETWEEN) + len(fact) <= width):
            lines[-1] += _BETWEEN + fact
        elif width is None or len(fact) <= width:
            lines.append(fact)
        else:
            import textwrap

            lines += textwrap.wrap(fact, width)
    return lines
