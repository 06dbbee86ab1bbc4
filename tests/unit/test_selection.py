"""The selection: an order of devices, each once, that no key press can break."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gputui.choosing.selection import Selection

KEYS = tuple("ABCDEF")

selections = st.lists(st.sampled_from(KEYS), unique=True).map(lambda keys: Selection(tuple(keys)))
keys = st.sampled_from(KEYS)
steps = st.integers(-8, 8)


class KeyPresses(RuleBasedStateMachine):
    """Any sequence of key presses, against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.selection = Selection()
        self.expected: list[str] = []
        self.cpu_only = False

    @rule(key=keys)
    def toggle(self, key: str) -> None:
        self.selection = self.selection.toggle(key)
        self.cpu_only = False
        if key in self.expected:
            self.expected.remove(key)
        else:
            self.expected.append(key)

    @rule(key=keys, by=steps)
    def move(self, key: str, by: int) -> None:
        self.selection = self.selection.move(key, by)
        if key in self.expected:
            place = min(max(self.expected.index(key) + by, 0), len(self.expected) - 1)
            self.expected.remove(key)
            self.expected.insert(place, key)

    @rule(present=st.sets(keys))
    def prune(self, present: set[str]) -> None:
        self.selection = self.selection.prune(present)
        self.expected = [key for key in self.expected if key in present]

    @rule()
    def none(self) -> None:
        self.selection = self.selection.toggle_cpu_only()
        self.cpu_only = not self.cpu_only
        self.expected = []

    @rule()
    def clear(self) -> None:
        self.selection = self.selection.clear()
        self.cpu_only, self.expected = False, []

    @invariant()
    def it_is_what_was_pressed(self) -> None:
        assert list(self.selection) == self.expected
        assert self.selection.cpu_only == self.cpu_only

    @invariant()
    def ranks_count_from_zero_without_gaps(self) -> None:
        assert [self.selection.rank(key) for key in self.selection] == list(range(len(self.selection)))

    @invariant()
    def cpu_only_means_no_device(self) -> None:
        assert not (self.selection.cpu_only and self.selection.keys)
        assert self.selection.decided == (bool(self.expected) or self.cpu_only)


KeyPresses.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestKeyPresses = KeyPresses.TestCase


@given(selections, keys)
def test_toggling_twice_changes_at_most_the_place(selection: Selection, key: str) -> None:
    twice = selection.toggle(key).toggle(key)
    assert set(twice) == set(selection)
    assert [k for k in twice if k != key] == [k for k in selection if k != key]


@given(selections, keys)
def test_a_device_that_is_taken_becomes_the_last(selection: Selection, key: str) -> None:
    if key not in selection:
        assert selection.toggle(key).keys == (*selection.keys, key)
    else:
        assert key not in selection.toggle(key)


@given(selections, keys, steps)
def test_moving_changes_the_place_of_one_device_only(selection: Selection, key: str, by: int) -> None:
    moved = selection.move(key, by)
    assert sorted(moved) == sorted(selection)
    assert [k for k in moved if k != key] == [k for k in selection if k != key]


@given(selections.filter(len), st.data())
def test_moving_stops_at_the_ends(selection: Selection, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(selection.keys))
    assert selection.move(key, -100).keys[0] == key
    assert selection.move(key, 100).keys[-1] == key


@given(selections.filter(len), st.data())
def test_there_and_back_is_where_it_was_away_from_the_ends(selection: Selection, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(selection.keys))
    rank = selection.rank(key)
    assert rank is not None
    by = data.draw(st.integers(-rank, len(selection) - 1 - rank))
    assert selection.move(key, by).rank(key) == rank + by
    assert selection.move(key, by).move(key, -by) == selection


@given(selections, keys, steps)
def test_moving_a_device_that_is_not_chosen_does_nothing(selection: Selection, key: str, by: int) -> None:
    without = selection.prune(set(KEYS) - {key})
    assert without.move(key, by) == without


@given(selections, st.sets(keys))
def test_pruning_keeps_the_order_of_the_others(selection: Selection, present: set[str]) -> None:
    assert list(selection.prune(present)) == [key for key in selection if key in present]


@given(selections)
def test_pruning_nothing_gives_the_very_same_selection(selection: Selection) -> None:
    assert selection.prune(KEYS) is selection


def test_cpu_only_survives_a_device_that_vanishes() -> None:
    assert Selection().toggle_cpu_only().prune(()).cpu_only


@given(selections)
def test_cpu_only_leaves_no_device_and_a_second_time_nothing_decided(selection: Selection) -> None:
    alone = selection.toggle_cpu_only()
    assert alone.cpu_only and alone.decided and len(alone) == 0
    assert not alone.toggle_cpu_only().decided


@given(keys)
def test_taking_a_device_ends_cpu_only(key: str) -> None:
    taken = Selection(cpu_only=True).toggle(key)
    assert taken.keys == (key,) and not taken.cpu_only


@given(selections, keys)
def test_nothing_changes_a_selection_in_place(selection: Selection, key: str) -> None:
    before = (selection.keys, selection.cpu_only)
    for change in (
        lambda: selection.toggle(key),
        lambda: selection.move(key, 1),
        selection.clear,
        selection.toggle_cpu_only,
        lambda: selection.prune(()),
    ):
        change()
    assert (selection.keys, selection.cpu_only) == before


@given(selections.filter(len))
def test_the_same_device_twice_cannot_be(selection: Selection) -> None:
    with pytest.raises(ValueError, match="twice"):
        Selection((*selection.keys, selection.keys[0]))


def test_cpu_only_with_a_device_cannot_be() -> None:
    with pytest.raises(ValueError, match="CPU only"):
        Selection(("A",), cpu_only=True)


@given(selections, keys)
def test_a_rank_is_known_exactly_of_what_is_chosen(selection: Selection, key: str) -> None:
    assert (selection.rank(key) is not None) == (key in selection)
