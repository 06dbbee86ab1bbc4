"""The matrix of links, from NVML's answers about each GPU and each pair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.link import PCIE_CLASSES, SELF, is_link, strength
from gputui.vendors.nvidia.links import PCIE_BY_LEVEL, NvLinks, matrix, nvlinks_between
from table_tests import each_row

A, B, C = (f"00000000:{bus}:00.0" for bus in ("1B", "43", "52"))


def _no(*_: object) -> bool:
    return False


def _yes(*_: object) -> bool:
    return True


def _untold(*_: object) -> None:
    return None


def _between(one: NvLinks, other: NvLinks, peers: bool | None = None) -> int:
    """The number of links that join two GPUs, where the driver reports peer access over NVLink."""
    forward = nvlinks_between(one, other, lambda: peers)
    assert forward == nvlinks_between(other, one, lambda: peers), "a link is the same from both ends"
    return forward


@each_row(
    ("level", "word"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (None, None), (99, None)],
)
def test_without_nvlink_the_common_ancestor_gives_the_word(level: int | None, word: str | None) -> None:
    assert matrix([NvLinks(A), NvLinks(B)], lambda i, j: level, _no) == ((SELF, word), (word, SELF))


def test_the_words_of_pcie_are_those_of_nvidia_smi() -> None:
    assert set(PCIE_BY_LEVEL.values()) == set(PCIE_CLASSES)


@each_row(
    ("one", "other", "count"),
    [
        (NvLinks(A, 18), NvLinks(B, 18), 18),
        (NvLinks(A, 18), NvLinks(B, 12), 12),
        (NvLinks(A, 18), NvLinks(B, 0), 0),
        (NvLinks(A, 18), NvLinks(B, None), 0),
        (NvLinks(A, 0, (B, B)), NvLinks(B, 0, (A, A)), 2),
    ],
)
def test_links_to_switches_join_with_the_smaller_number(one: NvLinks, other: NvLinks, count: int) -> None:
    assert _between(one, other) == count
    assert _between(one, other, peers=True) == count


@each_row(
    ("one", "other"),
    [
        (NvLinks(A, 18), NvLinks(B, 18)),
        (NvLinks(A, None, ("switch",) * 6), NvLinks(B, None, ("switch",) * 6)),
        (NvLinks(A, 0, ("switch",) * 6), NvLinks(B, 0, ("switch", None, C))),
        (NvLinks(A, None, (None,) * 18), NvLinks(B, None, (None,) * 18)),
    ],
)
def test_what_is_only_inferred_is_given_up_where_the_driver_denies_peer_access(
    one: NvLinks, other: NvLinks
) -> None:
    """NVSwitches without a running fabric manager, or divided ones: their links lead nowhere."""
    assert _between(one, other, peers=False) == 0
    assert matrix([one, other], lambda i, j: 40, _no) == ((SELF, "NODE"), ("NODE", SELF))


def test_links_that_end_at_the_peer_stay_whatever_is_said_of_peer_access() -> None:
    one, other = NvLinks(A, None, (B, B, "switch")), NvLinks(B, None, (A, A, "switch"))
    assert [_between(one, other, peers=peers) for peers in (True, False, None)] == [2, 2, 2]
    assert matrix([one, other], lambda i, j: 40, _no)[0][1] == "NV2"


def test_links_whose_end_is_the_peer_are_counted() -> None:
    one, other = NvLinks(A, None, (B, B, C, B, "switch", None)), NvLinks(B, None, (A, A, A))
    assert _between(one, other) == 3


def test_links_to_somebody_else_join_nothing() -> None:
    assert _between(NvLinks(A, None, (C, C)), NvLinks(B, None, (C,))) == 0


def test_links_that_are_up_say_nothing_of_where_they_go() -> None:
    one, other = NvLinks(A, None, (C, C, C, C)), NvLinks(B, None, (C, C, C, C))
    assert _between(one, other, peers=True) == 0


def test_links_that_end_at_a_switch_on_both_sides_join_with_the_smaller_number() -> None:
    one, other = NvLinks(A, None, ("switch",) * 6), NvLinks(B, None, ("switch",) * 4)
    assert _between(one, other) == 4


def test_links_to_a_switch_on_one_side_only_join_nothing() -> None:
    assert _between(NvLinks(A, None, ("switch",) * 6), NvLinks(B, None, (C, C))) == 0


def test_direct_links_come_before_switches() -> None:
    one, other = NvLinks(A, None, (B, "switch", "switch")), NvLinks(B, None, (A, "switch", "switch"))
    assert _between(one, other) == 1


def test_unreadable_ends_count_only_where_the_driver_grants_peer_access() -> None:
    one, other = NvLinks(A, None, (None,) * 18), NvLinks(B, None, (None,) * 17)
    assert _between(one, other, peers=True) == 17
    assert _between(one, other, peers=False) == 0
    assert _between(one, other, peers=None) == 0


def test_peer_access_without_a_link_is_no_link() -> None:
    assert _between(NvLinks(A), NvLinks(B), peers=True) == 0


def test_peer_access_is_asked_only_where_it_changes_the_answer() -> None:
    asked: list[NvLinks] = []

    def count(one: NvLinks, other: NvLinks) -> int:
        def peers() -> bool:
            asked.append(one)
            return True

        return nvlinks_between(one, other, peers)

    count(NvLinks(A, None, (B,)), NvLinks(B, None, (A,)))
    count(NvLinks(A), NvLinks(B))
    count(NvLinks(A, 18), NvLinks(B))
    count(NvLinks(A, None, (None,)), NvLinks(B, None, (C,)))
    count(NvLinks(A, None, ("switch",)), NvLinks(B, None, (None,)))
    assert asked == []
    inferred = [NvLinks(A, 18), NvLinks(A, None, ("switch",)), NvLinks(A, None, (None,))]
    for one in inferred:
        assert count(one, NvLinks(B, one.to_switches, one.remotes)) > 0
    assert asked == inferred


def test_an_end_that_only_one_side_can_read_still_joins() -> None:
    assert _between(NvLinks(A, None, (None, None)), NvLinks(B, None, (A, A))) == 2


def test_a_gpu_that_cannot_be_asked_has_no_known_links() -> None:
    found = matrix([NvLinks(A, 18), None, NvLinks(B, 18)], lambda i, j: 10, _yes)
    assert found == ((SELF, None, "NV18"), (None, SELF, None), ("NV18", None, SELF))


def test_a_pair_that_cannot_be_asked_is_not_asked() -> None:
    asked: list[tuple[int, int]] = []

    def level(i: int, j: int) -> int:
        asked.append((i, j))
        return 50

    matrix([NvLinks(A), None, NvLinks(B), NvLinks(C)], level, _no)
    assert sorted(asked) == [(2, 0), (3, 0), (3, 2)]


def test_the_pcie_level_of_a_pair_with_nvlink_is_not_asked() -> None:
    asked: list[tuple[int, int]] = []
    for by_nvlink in (_yes, _untold):
        found = matrix([NvLinks(A, 18), NvLinks(B, 18)], lambda i, j: asked.append((i, j)), by_nvlink)
        assert found[0][1] == "NV18" and asked == []


def _switched(count: int, links: int = 18) -> list[NvLinks | None]:
    return [NvLinks(f"00000000:{0x10 + n:02X}:00.0", links) for n in range(count)]


def test_behind_one_fabric_each_gpu_is_asked_about_once_and_not_each_pair() -> None:
    asked: list[tuple[int, int]] = []

    def by_nvlink(i: int, j: int) -> bool:
        asked.append((i, j))
        return True

    found = matrix(_switched(72), lambda i, j: 40, by_nvlink)
    assert {word for row in found for word in row} == {SELF, "NV18"}
    assert len(asked) == 71 == len(set(asked))


@each_row("islands", [((0, 1), (2, 3)), ((0, 3), (1, 2)), ((0, 2, 5), (1,), (3, 4)), ((0,), (1,))])
def test_switches_that_are_divided_join_only_those_of_one_part(islands: tuple[tuple[int, ...], ...]) -> None:
    home = {gpu: island for island in islands for gpu in island}
    found = matrix(_switched(len(home)), lambda i, j: 40, lambda i, j: home[i] == home[j])
    for i, row in enumerate(found):
        for j, word in enumerate(row):
            assert word == (SELF if i == j else "NV18" if home[i] == home[j] else "NODE")


def test_where_the_driver_does_not_tell_of_peer_access_each_pair_has_its_switched_links() -> None:
    asked: list[tuple[int, int]] = []
    gpus = _switched(4)
    gpus[2] = NvLinks(C, 16)
    found = matrix(gpus, lambda i, j: 40, lambda i, j: asked.append((i, j)))
    assert found[0] == (SELF, "NV18", "NV16", "NV18")
    assert len(asked) == 6


def test_a_lost_gpu_among_switched_ones_is_not_asked_about() -> None:
    asked: list[int] = []
    gpus = _switched(4)
    gpus[1] = None
    found = matrix(gpus, lambda i, j: 40, lambda i, j: not asked.extend((i, j)))
    assert found[1] == (None, SELF, None, None)
    assert found[3] == ("NV18", None, "NV18", SELF)
    assert 1 not in asked


def test_links_whose_ends_cannot_be_read_are_no_fabric() -> None:
    """V100s in a hybrid cube mesh in a virtual machine: 0 reaches 1 and 2, which do not reach each other."""
    gpus: list[NvLinks | None] = [NvLinks(bus, None, (None,) * 6) for bus in (A, B, C)]
    found = matrix(gpus, lambda i, j: 50, lambda i, j: (i, j) != (2, 1))
    assert found[2] == ("NV6", "SYS", SELF)


def test_every_pair_gets_its_own_answer() -> None:
    gpus = [NvLinks(A, None, (B, B)), NvLinks(B, None, (A, A)), NvLinks(C)]
    levels = {(1, 0): 10, (2, 0): 40, (2, 1): 50}
    found = matrix(gpus, lambda i, j: levels[(i, j)], _no)
    assert found == ((SELF, "NV2", "NODE"), ("NV2", SELF, "SYS"), ("NODE", "SYS", SELF))


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_join_is_no_trouble(count: int) -> None:
    found = matrix([NvLinks(A)] * count, lambda i, j: 50, _no)
    assert found == ((SELF,),) * count


_ends = st.lists(st.sampled_from([A, B, C, "switch", None]), max_size=6).map(tuple)
_gpus = st.lists(
    st.one_of(
        st.none(),
        st.builds(NvLinks, st.sampled_from([A, B, C]), st.sampled_from([None, None, 0, 6, 18]), _ends),
    ),
    max_size=5,
)


@given(_gpus, st.sampled_from([None, 0, 10, 20, 30, 40, 50, 7]), st.sampled_from([True, False, None]))
@settings(max_examples=60, deadline=None)
def test_whatever_nvml_tells_the_matrix_is_square_symmetric_and_of_known_words(
    gpus: list[NvLinks | None], level: int | None, peers: bool | None
) -> None:
    found = matrix(gpus, lambda i, j: level, lambda i, j: peers)
    assert [len(row) for row in found] == [len(gpus)] * len(gpus)
    for i, row in enumerate(found):
        for j, word in enumerate(row):
            assert word == found[j][i]
            assert (word == SELF) == (i == j)
            assert word is None or is_link(word)
            assert strength(word) >= -1


def test_links_compare_from_unknown_to_self() -> None:
    words = [None, "SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV4", "NV18", SELF]
    assert sorted(set(words), key=strength) == words


@each_row("word", ["", "NV", "NV0", "NV01", "nv4", "NV1000", "XGMI0", "SOC", "N/A", "X ", "NV4\n"])
def test_a_word_that_no_link_has_is_none(word: str) -> None:
    assert not is_link(word)


@each_row("word", ["X", "NV1", "NV18", "XGMI4", "PIX", "PXB", "PHB", "NODE", "SYS"])
def test_a_word_that_a_link_has_is_one(word: str) -> None:
    assert is_link(word)
