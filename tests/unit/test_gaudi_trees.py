"""Simulated boxes of Gaudi, written as the files of a machine and an hl-smi, read, and compared.

Such files are also broken in every way.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import gaudi_trees
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box
from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.gaudi.source import GaudiSource
from table_tests import each_row
from unit.hostile_files import none_is_free_that_is_not, spoil

GAUDI = BOXES["gaudi"]
GENERATIONS = {"HL-205": (32_768, 512), "HL-225": (98_304, 768), "HL-325L": (131_072, 672)}
"""The memory, and the part in use while the device is idle, in MiB."""


def of_generation(name: str) -> Box:
    memory, idle = GENERATIONS[name]
    gpus = (replace(g, name=name, memory=memory, reserve=idle, idle_memory=idle) for g in GAUDI.gpus)
    tasks = tuple(
        replace(t, memory=min(t.memory or 0, memory - idle - 1000)) if t.memory else t for t in GAUDI.tasks
    )
    return replace(GAUDI, gpus=tuple(gpus), tasks=tasks)


def source(root: Path, deadline: float = 10.0) -> GaudiSource:
    return GaudiSource(Root(str(root)), clock=lambda: 1_700_000_030.0, deadline=deadline)


def comparable(device: Device) -> Device:
    """Remove facts that a tree does not have: user names and each process's memory."""
    processes = device.processes and tuple(
        replace(p, user=None, ancestors=(), memory=None, started=p.started and round(p.started))
        for p in device.processes
    )
    return replace(device, processes=processes, render=None)


@each_row("units", [True, False])
@each_row("generation", GENERATIONS)
def test_a_box_written_as_files_is_read_as_the_simulated_one(
    tmp_path: Path, generation: str, units: bool
) -> None:
    truth = gaudi_trees.write(tmp_path, of_generation(generation), units=units)
    seen = source(tmp_path).read()
    assert [comparable(device) for device in seen.devices] == [comparable(device) for device in truth.devices]
    assert [device.render for device in seen.devices] == [f"accel{place}" for place in range(8)]
    assert seen.host == truth.host and seen.links == truth.links and seen.errors == ()
    assert seen.topology is not None and truth.topology is not None
    assert (seen.pcie[0][1], seen.pcie[0][7]) == ("PHB", "SYS")
    near = [(each.cpus, each.memory_nodes) for each in seen.topology.localities]
    assert near == [(each.cpus, each.memory_nodes) for each in truth.topology.localities]
    states = {key: verdict.state for key, verdict in verdicts(seen).items()}
    assert states == {key: verdict.state for key, verdict in verdicts(truth).items()}
    assert set(states.values()) == {"free", "busy"}


def test_links_stay_known_when_a_later_reading_does_not_ask_for_them(tmp_path: Path) -> None:
    gaudi_trees.write(tmp_path, GAUDI)
    opened = source(tmp_path)
    first, later = opened.read(), opened.read(Want.LOAD)
    assert later.pcie == first.pcie != ()
    assert (later.links, later.topology) == (first.links, first.topology)


@pytest.mark.parametrize("elapsed", [0.0, 30.0])
def test_the_short_reading_of_pick_comes_to_the_same_choice(tmp_path: Path, elapsed: float) -> None:
    truth = gaudi_trees.write(tmp_path, GAUDI, elapsed)
    short = source(tmp_path).read(Want.VERDICT)
    for count in (1, 2, 4):
        keys = [device.key for device in pick(truth, verdicts(truth), Constraints(count)).devices]
        assert [d.key for d in pick(short, verdicts(short), Constraints(count)).devices] == keys


@each_row(
    "lacks",
    [
        ("module_id",),
        ("bus_id", "module_id"),
        ("power.max", "module_id"),
        ("power.max", "bus_id", "driver_version", "memory.free", "module_id"),
    ],
)
@each_row("files", [True, False])
def test_a_version_that_lacks_columns_leaves_only_them_unknown(
    tmp_path: Path, lacks: tuple[str, ...], files: bool
) -> None:
    truth = gaudi_trees.write(tmp_path, GAUDI, lacks=lacks, files=files)
    seen = source(tmp_path).read()
    assert len(seen.devices) == 8 and not seen.errors
    facts = [(d.index, d.uuid, d.memory_used, d.utilization) for d in seen.devices]
    assert facts == [(d.index, d.uuid, d.memory_used, d.utilization) for d in truth.devices]
    # sysfs has the modules too, by bus id.
    known = [d.module for d in truth.devices] if files and "bus_id" not in lacks else [None] * 8
    assert [d.module for d in seen.devices] == known


def test_others_processes_are_unknown_and_not_none(tmp_path: Path) -> None:
    gaudi_trees.write(tmp_path, GAUDI)
    devices = source(tmp_path).read().devices
    assert [device.processes is None for device in devices] == [True] * 4 + [False] * 2 + [True] * 2


def test_a_source_that_was_closed_reads_anew(tmp_path: Path) -> None:
    gaudi_trees.write(tmp_path, GAUDI)
    one = source(tmp_path)
    before = [device.key for device in one.read().devices]
    one.close()
    two = replace(GAUDI, gpus=GAUDI.gpus[:2], links=(("X", None), (None, "X")), tasks=())
    gaudi_trees.write(tmp_path, two, files=False)
    assert [device.key for device in one.read().devices if device.memory_used] == before[:2]


# Errors and missing files.


@each_row("seed", range(12))
def test_a_hostile_tree_is_only_less_known(tmp_path: Path, seed: int) -> None:
    """No used device is called free, and a program that fails is reported."""
    chance = random.Random(seed)
    truth = gaudi_trees.write(tmp_path, of_generation([*GENERATIONS][seed % 3]))
    broken = spoil(tmp_path, chance)
    try:
        snapshot = source(tmp_path, 0.5 if broken else 10.0).read(Want.ALL | Want.DETAILS | Want.HOST)
    except NoSourceError:
        return
    keys = [device.key for device in snapshot.devices]
    assert len(set(keys)) == len(keys) and len({device.index for device in snapshot.devices}) == len(keys)
    assert none_is_free_that_is_not(snapshot, truth)
    if broken:
        found = verdicts(snapshot)
        assert not any(found[key].free for key in keys)
        assert snapshot.errors


def test_looping_links_end(tmp_path: Path) -> None:
    gaudi_trees.write(tmp_path, GAUDI)
    drivers = tmp_path / "sys/bus/pci/drivers/habanalabs"
    (drivers / "0000:99:00.0").symlink_to("0000:99:00.0")
    (drivers / "0000:9a:00.0").symlink_to(".")
    (drivers / "module").symlink_to("..")
    devices = source(tmp_path).read().devices
    assert {device.pci_bus_id for device in devices} >= {"00000000:19:00.0", "00000000:CD:00.0"}
    strange = [device for device in devices if device.memory_total is None]
    assert all(verdicts(source(tmp_path).read())[device.key].state == "unknown" for device in strange)
