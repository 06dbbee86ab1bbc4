"""Pairing two groups: the weakest pair is as strong as in the best of all pairings."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.order import paired

Table = list[list[int]]


@st.composite
def _tables(draw: st.DrawFn) -> Table:
    size = draw(st.integers(1, 5))
    row = st.lists(st.integers(-10_000, 5), min_size=size, max_size=size)
    few = st.lists(st.integers(0, 2), min_size=size, max_size=size)
    return draw(st.lists(draw(st.sampled_from((row, few))), min_size=size, max_size=size))


def _weakest(table: Table, way: tuple[int, ...]) -> int:
    return min(table[row][column] for row, column in enumerate(way))


@given(_tables())
@settings(max_examples=60, deadline=None)
def test_the_weakest_pair_is_as_strong_as_in_the_best_of_all_pairings(table: Table) -> None:
    best = max(_weakest(table, way) for way in permutations(range(len(table))))
    weakest, found = paired(table)
    assert weakest == best
    assert sorted(found) == list(range(len(table)))
    assert _weakest(table, found) >= best


@given(_tables())
@settings(max_examples=40, deadline=None)
def test_straight_on_where_that_is_as_good(table: Table) -> None:
    straight = tuple(range(len(table)))
    weakest, found = paired(table)
    assert (found == straight) is (_weakest(table, straight) == weakest)


def test_a_row_makes_way_for_another() -> None:
    assert paired([[2, 2, 0], [2, 0, 0], [0, 2, 2]]) == (2, (1, 0, 2))
