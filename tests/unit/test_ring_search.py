"""Rings and chains, compared with all rings and chains; a reported ring always exists."""

from __future__ import annotations

import random
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.ring_search import (
    MAX_EXACT,
    bit_positions,
    joined,
    packed,
    partitions,
    path_through,
    strongest,
)
from table_tests import each_row
from unit.wired import best_chain, best_ring
from unit.wired import partitions as every_partition

Table = list[list[int]]


@st.composite
def _tables(draw: st.DrawFn, least: int = 1, most: int = 7, ranks: int = 3) -> Table:
    count = draw(st.integers(least, most))
    table = [[-1] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            table[i][j] = table[j][i] = draw(st.integers(0, ranks - 1))
    return table


def _sets(number: int) -> set[tuple[int, ...]]:
    return {tuple(bit_positions(each)) for each in bit_positions(number)}


def _has_ring(table: Table, part: tuple[int, ...], least: int) -> bool:
    first, *rest = part
    return len(part) == 1 or any(
        all(table[a][b] >= least for a, b in zip((first, *way), (*way, first), strict=True))
        for way in permutations(rest)
    )


def _has_chain(table: Table, part: tuple[int, ...], least: int) -> bool:
    return any(all(table[a][b] >= least for a, b in pairwise(way)) for way in permutations(part))


@given(st.integers(0, 1 << 200))
def test_the_places_of_the_bits_that_are_set(number: int) -> None:
    assert sum(1 << place for place in bit_positions(number)) == number
    assert bit_positions(number) == sorted(set(bit_positions(number)))


@given(_tables(), st.integers(0, 2), st.data())
@settings(max_examples=40, deadline=None)
def test_the_sets_with_a_ring_are_those_in_which_one_is_found_by_trying(
    table: Table, least: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, min(6, len(table))))
    parts = combinations(range(len(table)), size)
    assert _sets(joined(table, least, size, chain=False)) == {
        part for part in parts if _has_ring(table, part, least)
    }


@given(_tables(), st.integers(0, 2), st.data())
@settings(max_examples=40, deadline=None)
def test_the_sets_with_a_chain_are_those_in_which_one_is_found_by_trying(
    table: Table, least: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, min(5, len(table))))
    parts = combinations(range(len(table)), size)
    assert _sets(joined(table, least, size, chain=True)) == {
        part for part in parts if _has_chain(table, part, least)
    }


def test_three_in_a_row_are_a_chain_and_no_ring() -> None:
    row = [[-1, 1, 0], [1, -1, 1], [0, 1, -1]]
    assert _sets(joined(row, 1, 3, chain=True)) == _sets(joined(row, 0, 3, chain=False)) == {(0, 1, 2)}
    assert not joined(row, 1, 3, chain=False)
    assert _sets(joined(row, 1, 2, chain=False)) == {(0, 1), (1, 2)}


def test_more_devices_than_there_are_have_neither_ring_nor_chain() -> None:
    table = [[1] * 3 for _ in range(3)]
    assert joined(table, 0, 4, chain=False) == joined(table, 0, 4, chain=True) == 0


@given(st.integers(2, 8), st.data())
@settings(max_examples=50, deadline=None)
def test_the_sets_of_disjoint_parts_are_those_that_can_be_parted(count: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, count // 2))
    times = data.draw(st.integers(1, count // size))
    every = list(combinations(range(count), size))
    parts = data.draw(st.sets(st.sampled_from(every)))
    number = sum(1 << sum(1 << i for i in part) for part in parts)
    assert _sets(packed(number, count, size, times)) == {
        chosen
        for chosen in combinations(range(count), size * times)
        if any(set(each) <= parts for each in every_partition(chosen, size))
    }


@given(st.integers(2, 8), st.data())
@settings(max_examples=40, deadline=None)
def test_the_ways_to_part_all_are_told_each_once_and_no_other(count: int, data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([size for size in range(1, count + 1) if count % size == 0]))
    parts = data.draw(st.sets(st.sampled_from(list(combinations(range(count), size)))))
    number = sum(1 << sum(1 << i for i in part) for part in parts)
    alternatives = partitions(number, count, count // size, lambda part: 0)
    told = [tuple(tuple(bit_positions(part)) for part in way) for way in alternatives]
    assert told == [way for way in every_partition(range(count), size) if set(way) <= parts]


@given(_tables(least=2), st.integers(0, 2), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_way_through_all_is_found_if_there_is_one(table: Table, least: int, closed: bool) -> None:
    everyone = tuple(range(len(table)))
    way = path_through(table, least, closed)
    if way is None:
        assert not (_has_ring if closed else _has_chain)(table, everyone, least)
        return
    assert sorted(way) == list(everyone)
    assert all(table[a][b] >= least for a, b in pairwise([*way, *(way[:1] if closed else ())]))
    assert not closed or way[0] == 0


@given(_tables(least=2))
@settings(max_examples=30, deadline=None)
def test_the_strongest_chain_is_the_strongest_that_is_found_by_trying(table: Table) -> None:
    everyone = range(len(table))
    assert strongest(table, everyone, chain=True) == best_chain(lambda a, b: table[a][b], everyone)


def test_beyond_sixteen_a_chain_is_taken_as_it_stands() -> None:
    table = [[5 if abs(i - j) == 1 else 0 for j in range(20)] for i in range(20)]
    assert strongest(table, range(20), chain=True) == 5
    assert strongest(table, [1, 0, *range(2, 20)], chain=True) == 0


@given(_tables(least=2))
@settings(max_examples=50, deadline=None)
def test_the_strongest_ring_is_the_strongest_that_is_found_by_trying(table: Table) -> None:
    everyone = range(len(table))
    assert strongest(table, everyone) == best_ring(lambda a, b: table[a][b], everyone)


@given(_tables(least=4), st.data())
@settings(max_examples=25, deadline=None)
def test_only_the_links_among_the_devices_asked_about_count(table: Table, data: st.DataObject) -> None:
    some = data.draw(st.permutations(range(len(table))))[:4]
    assert strongest(table, some) == best_ring(lambda a, b: table[a][b], some)


def test_there_is_no_ring_of_fewer_than_two() -> None:
    assert strongest([[0]], [0]) is None
    assert strongest([[0]], []) is None


def test_a_pair_is_a_ring_over_its_one_link() -> None:
    assert strongest([[-1, 7], [7, -1]], [0, 1]) == 7


def _with_a_ring(count: int, extra: int, chance: random.Random) -> tuple[Table, list[int]]:
    """Links of strength 0, except for a ring of strength 1 and some more; the order of the ring as well."""
    ring = chance.sample(range(count), count)
    table = [[0] * count for _ in range(count)]
    for a, b in [*pairwise([*ring, ring[0]]), *(chance.sample(range(count), 2) for _ in range(extra))]:
        table[a][b] = table[b][a] = 1
    return table, ring


@each_row("count", range(9, MAX_EXACT + 1))
def test_up_to_sixteen_devices_a_ring_that_is_there_is_found_and_with_a_link_less_it_is_not(
    count: int,
) -> None:
    for seed in range(4):
        table, ring = _with_a_ring(count, 0, random.Random(seed))
        assert strongest(table, range(count)) == 1
        table[ring[0]][ring[1]] = table[ring[1]][ring[0]] = 0
        assert strongest(table, range(count)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_with_seventeen_devices_a_ring_that_is_claimed_is_there(seed: int) -> None:
    chance = random.Random(seed)
    count = MAX_EXACT + 1
    table = [[0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            table[i][j] = table[j][i] = chance.choice((0, 0, 0, 1, 1, 2))
    found = strongest(table, range(count))
    assert found is not None and _reaches_all(table, found)


def _reaches_all(table: Table, least: int) -> bool:
    """Whether a ring of links of `least` or more goes through all devices (Held, Karp: for each set, the ends
    of paths from the first device through it)."""
    count = len(table)
    near = [sum(1 << v for v in range(count) if v != u and table[u][v] >= least) for u in range(count)]
    ends = [0] * (1 << count)
    ends[1] = 1
    for through in range(1, 1 << count, 2):
        if ends[through]:
            for v in range(1, count):
                if not through >> v & 1 and ends[through] & near[v]:
                    ends[through | 1 << v] |= 1 << v
    return bool(ends[-1] & near[0])


@given(st.integers(17, 40), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_beyond_sixteen_no_ring_is_claimed_where_some_devices_hold_too_many_parts_together(
    count: int, cut: int, chance: random.Random
) -> None:
    """With `cut` devices taken out a ring falls into at most `cut` pieces; here there are more."""
    names = chance.sample(range(count), count)
    part = {name: place % (cut + 1) for place, name in enumerate(names[cut:])}
    table = [[0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            apart = i in part and j in part and part[i] != part[j]
            table[i][j] = table[j][i] = 0 if apart else 1
    assert strongest(table, range(count)) == 0


@given(st.integers(17, 40), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_beyond_sixteen_a_ring_is_found_where_each_reaches_half_of_the_others(
    count: int, chance: random.Random
) -> None:
    table = [[1] * count for _ in range(count)]
    reach = [count - 1] * count
    pairs = list(combinations(range(count), 2))
    for i, j in chance.sample(pairs, len(pairs)):
        if min(reach[i], reach[j]) * 2 >= count + 2:
            table[i][j] = table[j][i] = 0
            reach[i] -= 1
            reach[j] -= 1
    assert strongest(table, range(count)) == 1


def test_beyond_sixteen_the_weakest_of_all_links_is_always_there() -> None:
    table = [[0 if i == 0 or j == 0 else 5 for j in range(20)] for i in range(20)]
    assert strongest(table, range(20)) == 0
