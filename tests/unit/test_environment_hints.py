"""Variables that are suggested for a launch, and the number of threads near the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, Topology
from gputui.launching.environment_hints import THREADS, hints, threads_near
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from table_tests import each_row
from unit.builders import box as boxed
from unit.builders import gpu, instance


def box(*cpus: Sequence[int] | None, parts: int = 0) -> Snapshot:
    """A box of GPUs with the CPUs near each; the last GPU has this many instances."""
    devices = [gpu(index, mig=parts > 0) for index in range(len(cpus))]
    places = [Locality(cpus=None if near is None else tuple(near)) for near in cpus]
    devices += [instance(devices[-1], part) for part in range(parts)]
    places += [replace(places[-1]) for _ in range(parts)]
    return replace(boxed(*devices), topology=Topology(localities=tuple(places)))


def near(machine: Snapshot, *places: int) -> int | None:
    """The number of threads for the devices at these positions of the box."""
    return threads_near(machine, [machine.devices[place] for place in places])


def test_a_gpu_alone_has_all_the_cpus_near_it() -> None:
    assert near(box(range(8), range(8, 24)), 0) == 8
    assert near(box(range(8), range(8, 24)), 1) == 16


def test_the_least_counts_for_several() -> None:
    assert near(box(range(8), range(8, 24)), 1, 0) == 8


def test_cpus_are_divided_among_all_gpus_that_they_are_near_to() -> None:
    """The other GPUs will have processes too."""
    machine = box(range(16), range(16), range(16), range(16, 32))
    assert near(machine, 0) == near(machine, 0, 1) == 5
    assert near(machine, 3) == 16


def test_cpus_that_are_near_to_one_more_gpu_are_shared_with_it() -> None:
    """A GPU whose node is not known has all CPUs near it."""
    assert near(box(range(8), range(16)), 0) == 4
    assert near(box(range(8), range(16)), 1) == 12


def test_instances_share_what_their_gpu_has() -> None:
    machine = box(range(8), range(8, 24), parts=4)
    assert near(machine, 2) == 16
    assert near(machine, 2, 3, 4, 5) == 4


def test_there_is_always_one() -> None:
    assert near(box([0], [0], [0]), 0) == 1


@pytest.mark.parametrize("cpus", [None, ()])
def test_what_is_not_known_is_not_guessed(cpus: Sequence[int] | None) -> None:
    machine = box(range(8), cpus)
    assert near(machine, 1) is None
    assert near(machine, 0, 1) is None
    assert near(machine, 0) == 8


def test_without_devices_or_a_topology_there_is_no_number() -> None:
    machine = box(range(8))
    assert threads_near(machine, []) is None
    assert threads_near(replace(machine, topology=None), machine.devices) is None


def test_the_number_of_threads_is_offered_first_where_it_is_known() -> None:
    machine = box(range(8))
    first = hints(machine, machine.devices)[0]
    assert (first.name, first.value) == (THREADS, "8")
    for unknown in (hints(machine, []), hints(None, machine.devices)):
        assert THREADS not in {offer.name for offer in unknown}


def test_every_offer_says_what_it_does_on_a_line_and_is_there_once() -> None:
    machine = box(range(8))
    found = hints(machine, machine.devices)
    assert len({offer.name for offer in found}) == len(found)
    assert {"NCCL_P2P_DISABLE", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE"} <= {
        offer.name for offer in found
    }
    for offer in found:
        assert offer.about and offer.value and offer.about.isprintable()
        assert offer.name.replace("_", "").isalnum() and offer.name.isupper()


@each_row(
    ("name", "has_nccl"),
    [("shared", True), ("amd", True), ("intel", False), ("gaudi", False), ("apple", False)],
)
def test_only_vendors_whose_collectives_read_them_have_nccls_variables(name: str, has_nccl: bool) -> None:
    snapshot = at(BOXES[name], 0.0, 0.0)
    offered = {offer.name for offer in hints(snapshot, snapshot.devices[:1])}
    assert ("NCCL_DEBUG" in offered) == has_nccl
    assert not any("CUDA" in each for each in offered) or name in ("shared", "amd")


@pytest.mark.parametrize(
    ("name", "own"), [("amd", "AMD_SERIALIZE_KERNEL"), ("apple", "PYTORCH_ENABLE_MPS_FALLBACK")]
)
def test_a_box_is_offered_its_own_vendors_whether_or_not_a_device_is_selected(name: str, own: str) -> None:
    snapshot = at(BOXES[name], 30.0, 1_700_000_000.0)
    for devices in (snapshot.devices[:1], ()):
        names = {hint.name for hint in hints(snapshot, devices)}
        assert own in names and not any(each.startswith(("CUDA_", "PYTORCH_CUDA")) for each in names)
        # Metal has no NCCL.
        assert any(each.startswith("NCCL_") for each in names) == (name == "amd")
