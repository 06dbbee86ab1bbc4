"""Columns of text tables are aligned, and lines do not end in spaces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputui.inventory.text_table import aligned

_cells = st.text(st.sampled_from("ab1"), min_size=1, max_size=4)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("#", "NAME", "WHY"), ("10", "a", ""), ("9", "bbbbb", "free")]
    assert aligned(rows, right=(0,)) == [" #  NAME   WHY", "10  a", " 9  bbbbb  free"]
    assert aligned(rows[1:2], least=(4,)) == ["10    a"]
    assert aligned([]) == []


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(_cells, min_size=n, max_size=n), max_size=4)))
def test_every_cell_of_a_column_begins_at_the_same_place(rows: list[list[str]]) -> None:
    lines = aligned(rows)
    assert [line.split() for line in lines] == rows
    for column in range(len(rows[0]) if rows else 0):
        begin = sum(max(len(row[before]) for row in rows) + 2 for before in range(column))
        assert all(line[begin:].split()[0] == row[column] for line, row in zip(lines, rows, strict=True))
