"""The GB/s of a link as NCCL models it; no figure where a deciding fact is unknown."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.bandwidth import bandwidth, generation, nvlink_generation
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, Topology
from table_tests import each_row
from unit.builders import gpu
from unit.wired import matrix, wired


def _pair(
    word: str | None,
    capability: tuple[str | None, str | None] = ("9.0", "9.0"),
    places: tuple[Locality, Locality] = (Locality(pcie_generation=5, pcie_width=16),) * 2,
    between: float | None = None,
) -> Snapshot:
    snapshot = wired(matrix(2, [word]))
    return replace(
        snapshot,
        devices=tuple(
            replace(device, compute_capability=each)
            for device, each in zip(snapshot.devices, capability, strict=True)
        ),
        topology=Topology(places, between_cpus=between),
    )


def _told(snapshot: Snapshot) -> float | None:
    one, other = snapshot.devices
    there, back = bandwidth(snapshot, one, other), bandwidth(snapshot, other, one)
    assert there == back
    return there


@each_row(
    ("capability", "expected"),
    [
        ("6.0", 1),
        ("7.0", 2),
        ("7.5", 2),
        ("8.0", 3),
        ("8.6", 3),
        ("8.9", None),
        ("9.0", 4),
        ("10.0", 5),
        ("10.3", 5),
        ("12.0", None),
        ("5.2", None),
        ("", None),
        (None, None),
        ("gfx90a", None),
    ],
)
def test_nvlink_has_the_generation_of_the_architecture(capability: str | None, expected: int | None) -> None:
    assert nvlink_generation(gpu(compute_capability=capability)) == expected


@each_row(
    ("word", "capability", "expected"),
    [
        ("NV1", "6.0", 18.0),
        ("NV2", "7.0", 40.0),
        ("NV12", "8.0", 240.0),
        ("NV4", "8.6", 48.0),
        ("NV6", "9.0", 123.6),
        ("NV18", "9.0", 370.8),
        ("NV18", "10.0", 720.0),
    ],
)
def test_nvlinks_carry_their_number_times_what_one_of_their_generation_does(
    word: str, capability: str, expected: float
) -> None:
    assert _told(_pair(word, (capability, capability))) == expected


def test_of_unlike_ends_the_older_decides() -> None:
    snapshot = _pair("NV2", ("7.0", "9.0"))
    assert generation(snapshot, *snapshot.devices) == 2
    assert _told(snapshot) == 40.0


@each_row("capability", [(None, "9.0"), ("9.0", None), ("12.0", "12.0"), (None, None)])
def test_of_an_nvlink_with_an_end_of_no_known_generation_nothing_is_said(
    capability: tuple[str | None, str | None],
) -> None:
    snapshot = _pair("NV4", capability)
    assert generation(snapshot, *snapshot.devices) is None
    assert _told(snapshot) is None


@each_row("word", ["NODE", "PHB", "PXB", "PIX"])
@each_row(
    ("age", "width", "expected"), [(1, 16, 3.0), (3, 16, 12.0), (4, 16, 24.0), (4, 8, 12.0), (5, 4, 12.0)]
)
def test_pcie_carries_what_its_generation_and_lanes_do(
    word: str, age: int, width: int, expected: float
) -> None:
    assert _told(_pair(word, places=(Locality(pcie_generation=age, pcie_width=width),) * 2)) == expected


def test_of_unlike_slots_the_older_and_the_narrower_decide() -> None:
    places = (Locality(pcie_generation=5, pcie_width=8), Locality(pcie_generation=3, pcie_width=16))
    snapshot = _pair("PHB", places=places)
    assert generation(snapshot, *snapshot.devices) == 3
    assert _told(snapshot) == 6.0


@each_row(("between", "expected"), [(None, None), (10.0, 10.0), (22.0, 22.0), (100.0, 48.0)])
def test_across_sockets_the_narrower_of_pcie_and_the_way_between_the_sockets(
    between: float | None, expected: float | None
) -> None:
    assert _told(_pair("SYS", between=between)) == expected


@each_row(
    "place",
    [
        Locality(),
        Locality(pcie_generation=4),
        Locality(pcie_width=16),
    ],
)
def test_of_a_slot_that_is_not_known_nothing_is_said(place: Locality) -> None:
    assert _told(_pair("PHB", places=(Locality(pcie_generation=4, pcie_width=16), place))) is None
    assert _told(_pair("SYS", places=(place, place), between=22.0)) is None


def test_of_a_generation_that_came_later_nothing_is_said() -> None:
    newest = Locality(pcie_generation=7, pcie_width=16)
    assert _told(_pair("PHB", places=(newest, newest))) is None


def test_of_a_link_that_is_not_known_nothing_is_said() -> None:
    assert _told(_pair(None)) is None


def test_without_a_topology_only_nvlinks_can_be_told() -> None:
    assert _told(replace(_pair("PIX"), topology=None)) is None
    assert _told(replace(_pair("NV12", ("8.0", "8.0")), topology=None)) == 240.0
