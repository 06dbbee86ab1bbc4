"""Bottleneck matching: pairs two groups so that the weakest pair is as strong as possible. Pure."""

from __future__ import annotations

from collections.abc import Sequence

Table = Sequence[Sequence[int]]
"""Square: row i, column j has the rank of the link from the i-th of one group to the j-th of the other."""


def bottleneck(table: Table) -> int:
    """The rank of the weakest pair of the best matching."""
    levels = sorted({value for row in table for value in row}, reverse=True)
    return next(level for level in levels if _perfect_matching(table, level) is not None)


def matching(table: Table, least: int) -> tuple[int, ...]:
    """The column of each row in a matching whose pairs have rank `least` or better; i to i if that is one.

    Raises ValueError if there is no such matching.
    """
    if all(row[place] >= least for place, row in enumerate(table)):
        return tuple(range(len(table)))
    found = _perfect_matching(table, least)
    if found is None:
        raise ValueError(f"no pairing over {least} or stronger")
    return found


def _perfect_matching(table: Table, least: int) -> tuple[int, ...] | None:
    """A matching by augmenting paths (Kuhn), None if there is none: a row may move another one on."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, value in enumerate(table[row]):
            if value >= least and column not in tried:
                tried.add(column)
                if column not in owner or place(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    if not all(place(row, set()) for row in range(len(table))):
        return None
    columns = {row: column for column, row in owner.items()}
    return tuple(columns[row] for row in range(len(table)))
