"""Simulated boxes of Intel's GPUs, written as the files of a machine, read, and compared.

Such files are also broken in every way.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

import intel_trees
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box
from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.box import box_below
from gputui.vendors.intel.source import IntelSource
from intel_trees import Driver, Version
from table_tests import each_row
from unit.calling import Call
from unit.hostile_files import none_is_free_that_is_not, spoil
from unit.recorded import program

NAMES = ["intel", "mixed-vendors"]


def of_intel(snapshot: Snapshot) -> tuple[Device, ...]:
    return tuple(device for device in snapshot.devices if device.vendor == "intel")


def twice(
    root: Path, box: Box, elapsed: float, driver: Driver, version: Version | None
) -> tuple[Snapshot, Snapshot]:
    """The box behind the files, and its second reading: counters become rates only there."""
    now = [0.0]
    source = IntelSource(
        Root(str(root)), clock=lambda: 1_700_000_000.0, ticks=lambda: now[0], environ={}, deadline=10.0
    )
    intel_trees.write(root, box, elapsed, driver=driver, version=version)
    source.read()
    truth = intel_trees.write(root, box, elapsed, driver=driver, version=version, counted=2.0)
    now[0] = 2.0
    return truth, source.read()


def comparable(device: Device, version: Version | None) -> Device:
    """Remove facts that a tree does not have: user names, and without xpu-smi the memory."""
    processes = tuple(
        replace(p, user=None, ancestors=(), started=p.started and round(p.started))
        for p in sorted(device.processes or (), key=lambda process: process.pid)
    )
    device = replace(device, processes=processes, uuid="")
    if version is None:
        device = replace(device, memory_total=None, memory_used=None, memory_free=None)
    return device


@each_row("version", [None, 1, 2])
@each_row("driver", ["xe", "i915"])
@each_row("name", NAMES)
def test_a_box_written_as_files_is_read_as_the_simulated_one(
    tmp_path: Path, name: str, driver: Driver, version: Version | None
) -> None:
    truth, seen = twice(tmp_path, BOXES[name], 33.0, driver, version)
    wanted = [comparable(device, version) for device in of_intel(truth)]
    found = [comparable(device, version) for device in seen.devices]
    assert any(device.processes for device in wanted)
    assert found == wanted
    assert seen.errors == () and seen.host.name == truth.host.name
    uuids = [intel_trees.uuid(device) if version and not device.apart else "" for device in wanted]
    assert [device.uuid for device in seen.devices] == uuids


@pytest.mark.parametrize("version", [None, 1, 2])
def test_links_and_what_is_near_are_those_of_the_simulated_one(
    tmp_path: Path, version: Version | None
) -> None:
    truth = intel_trees.write(tmp_path, BOXES["intel"], version=version)
    seen = IntelSource(Root(str(tmp_path)), environ={}, deadline=10.0).read(Want.LINKS | Want.TOPOLOGY)
    if version is None:
        # Only xpu-smi reports Xe links; links between tiles are known without it.
        assert [row[:2] for row in seen.links[:2]] == [("X", "MDF"), ("MDF", "X")]
        assert seen.links[0][2:] == ("SYS", "SYS")
    else:
        assert seen.links == truth.links
    assert seen.pcie == truth.pcie
    assert seen.topology is not None and truth.topology is not None
    pairs = list(zip(seen.topology.localities, truth.topology.localities, strict=True))
    assert all((one.cpus, one.memory_nodes) == (other.cpus, other.memory_nodes) for one, other in pairs)


@pytest.mark.parametrize("elapsed", [0.0, 33.0])
@pytest.mark.parametrize("name", NAMES)
def test_the_short_reading_of_pick_comes_to_the_same_choice(
    tmp_path: Path, name: str, elapsed: float
) -> None:
    truth = intel_trees.write(tmp_path, BOXES[name], elapsed)
    source = IntelSource(Root(str(tmp_path)), environ={}, deadline=10.0)
    judged = verdicts(source.read(Want.VERDICT))
    states = {device.key: verdicts(truth)[device.key].state for device in of_intel(truth)}
    assert {key: verdict.state for key, verdict in judged.items()} == states
    if name == "intel":
        keys = [device.key for device in pick(truth, verdicts(truth), Constraints(2)).devices]
        assert [d.key for d in pick(source.read(Want.LINKS), judged, Constraints(2)).devices] == keys


def test_two_processes_on_a_card_are_told_apart_by_tile(tmp_path: Path) -> None:
    intel_trees.write(tmp_path, BOXES["intel"], 33.0, version=None)
    devices = IntelSource(Root(str(tmp_path)), environ={}).read().devices
    assert [[p.pid for p in device.processes or ()] for device in devices] == [[], [], [61_007], [61_008]]
    # Counted as one card, the device has both processes.
    whole = {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
    devices = IntelSource(Root(str(tmp_path)), environ=whole).read().devices
    assert [[p.pid for p in device.processes or ()] for device in devices] == [[], [61_007, 61_008]]


def test_a_slots_speed_is_the_bridges_and_not_the_endpoints(tmp_path: Path) -> None:
    intel_trees.write(tmp_path, BOXES["mixed-vendors"], version=None)
    topology = IntelSource(Root(str(tmp_path)), environ={}).read(Want.TOPOLOGY).topology
    assert topology is not None
    slots = [(near.pcie_generation, near.pcie_width) for near in topology.localities]
    assert slots == [(4, 16), (4, 16), (None, None)]


def test_a_source_that_was_closed_reads_anew(tmp_path: Path) -> None:
    intel_trees.write(tmp_path, BOXES["intel"])
    source = IntelSource(Root(str(tmp_path)), environ={}, deadline=10.0)
    before = [device.key for device in source.read().devices]
    source.close()
    (tmp_path / "sys/class/drm/card0").unlink()
    assert [device.key for device in source.read().devices] == before[2:]


def test_another_vendor_without_a_sign_of_one_is_not_missed(tmp_path: Path, call: Call) -> None:
    """A machine with an integrated GPU only: AMD GPUs and Gaudi are absent, and nobody asked for them."""
    box = BOXES["mixed-vendors"]
    intel_trees.write(tmp_path, replace(box, tasks=()), version=None)
    for card in (0, 1):
        (tmp_path / f"sys/class/drm/card{card}").unlink()
    done = call("ls", "--root", str(tmp_path))
    assert done.status == 0 and "UHD" in done.out and "AMD" not in done.out + done.err
    snapshot = box_below(str(tmp_path)).read()
    assert (snapshot.errors, snapshot.missing) == ((), None)
    # A failing program of the vendor is a sign.
    program(tmp_path, "hl-smi", "exit 3")
    assert "hl-smi" in (box_below(str(tmp_path)).read().missing or "")


def test_where_the_only_sign_is_a_program_that_fails_it_is_said(tmp_path: Path, call: Call) -> None:
    program(tmp_path, "xpu-smi", "echo no driver; exit 3")
    done = call("ls", "--root", str(tmp_path))
    assert done.status == 3 and "no driver" in done.err


def test_memory_that_is_not_told_is_unknown_with_a_remedy(tmp_path: Path, call: Call) -> None:
    intel_trees.write(tmp_path, BOXES["intel"], version=None)
    done = call("ls", "--json", "--root", str(tmp_path))
    found = json.loads(done.out)["devices"][0]["verdict"]
    assert found["state"] == "unknown" and "CAP_PERFMON" in found["reason"]


# Errors and missing files.


@each_row("seed", range(12))
def test_a_hostile_tree_is_only_less_known(tmp_path: Path, seed: int) -> None:
    """No used device is called free, and a program that fails is reported."""
    chance = random.Random(seed)
    driver: Driver = "xe" if seed % 4 < 2 else "i915"
    truth = intel_trees.write(tmp_path, BOXES[NAMES[seed % 2]], 33.0, driver=driver, version=1 + seed % 2)
    broken = spoil(tmp_path, chance)
    source = IntelSource(Root(str(tmp_path)), environ={}, deadline=0.5 if broken else 10.0)
    try:
        snapshot = source.read(Want.ALL | Want.DETAILS | Want.HOST)
    except NoSourceError:
        return
    keys = [device.key for device in snapshot.devices]
    assert len(set(keys)) == len(keys)
    assert none_is_free_that_is_not(snapshot, truth)
    if broken:
        found = verdicts(snapshot)
        assert not any(found[key].free for key in keys)
        assert snapshot.errors or all(d.apart for d in snapshot.devices)


def test_looping_links_and_pipes_end(tmp_path: Path) -> None:
    intel_trees.write(tmp_path, BOXES["intel"], version=None)
    (tmp_path / "sys/class/drm/card9").symlink_to(".")
    (tmp_path / "sys/class/drm/card10").symlink_to("card10")
    own = (tmp_path / "sys/class/drm/card0/device").resolve()
    (own / "tile7").symlink_to("..")
    (own / "hwmon").mkdir()
    (own / "hwmon/hwmon1").symlink_to("../hwmon")
    (own / "tile0/gt0/freq0/act_freq").unlink()
    os.mkfifo(own / "tile0/gt0/freq0/act_freq")
    snapshot = IntelSource(Root(str(tmp_path)), environ={}).read()
    assert snapshot.devices[0].sm_clock is None
    assert {verdict.state for verdict in verdicts(snapshot).values()} <= {"unknown", "busy"}
