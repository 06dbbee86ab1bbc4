"""Pairing two groups so that the weakest pair is as strong as can be (a bottleneck matching). Pure."""

from __future__ import annotations

from collections.abc import Sequence

Table = Sequence[Sequence[int]]
"""Row i, column j: how strong the i-th of one group and the j-th of the other are joined. Square."""


def bottleneck(table: Table) -> int:
    """The strength of the weakest pair of the best pairing."""
    levels = sorted({value for row in table for value in row}, reverse=True)
    return next(level for level in levels if _pairing(table, level) is not None)


def matched(table: Table, least: int) -> tuple[int, ...]:
    """For each row its column in a pairing without a pair weaker than `least`; straight on where that does.

    Raises ValueError where there is none.
    """
    if all(row[place] >= least for place, row in enumerate(table)):
        return tuple(range(len(table)))
    found = _pairing(table, least)
    if found is None:
        raise ValueError(f"no pairing of {least} or stronger")
    return found


def _pairing(table: Table, least: int) -> tuple[int, ...] | None:
    """Augmenting paths (Kuhn): each row takes a column, and moves another row on where it must."""
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
