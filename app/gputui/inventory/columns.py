"""Columns: one list of facts for each subject (jobs, waiters, claims, nodes …).

The command line prints a table from them, and the screen paints them. A tone marks the meaning of a text; the
screen has a style for each tone, and a printed table ignores tones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.text_table import aligned, cut

T = TypeVar("T")


@frozen
class Column(Generic[T]):
    """One fact of each row. All texts are printable.

    name   the heading above it, where a table has one
    text   the fact, for users: "–" where it is not known, "" where there is nothing to say
    tone   a style of the screen ("strong", "dim", "warn", …), "" for plain
    right  whether the texts are aligned to the right
    least  the least width in cells
    most   the largest width in cells on the screen
    optional      whether the screen leaves it out where no row has the fact
    """

    name: str
    text: Callable[[T], str]
    tone: str | Callable[[T], str] = ""
    right: bool = False
    least: int = 0
    most: int = 1000
    optional: bool = False

    def cells(self, rows: Sequence[T]) -> list[tuple[str, str]]:
        """Return the text and the tone of this fact for each row."""
        tone, text = self.tone, self.text
        if isinstance(tone, str):
            return [(text(row), tone) for row in rows]
        return [(text(row), tone(row)) for row in rows]


def printed(columns: Sequence[Column[T]], rows: Sequence[T], width: int | None = None) -> list[str]:
    """Return the names of the columns and a line for each row, cut at `width`; None does not cut. A column
    without a text in any row is left out."""
    told = {column: texts for column in columns if any(texts := [*map(column.text, rows)]) or not rows}
    right = [place for place, column in enumerate(told) if column.right]
    cells = [[column.name for column in told], *zip(*told.values(), strict=True)]
    return [cut(line, width) for line in aligned(cells, right, [column.least for column in told])]
