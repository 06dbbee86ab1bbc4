"""AMD's reader on trees of our own: the simulated boxes written as files, and broken files."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

import simtrees
from fuzz.bounds import assert_costs, cpu_seconds
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.cli.details_text import details_text
from gputui.inventory.device import Device
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import from_document
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.amd.source import AmdSource
from table_tests import each_row
from unit.hostile_files import spoil

AMD = [name for name, box in BOXES.items() if box.vendor == "amd"]


def read(root: Path, want: Want = Want.ALL) -> Snapshot:
    return AmdSource(Root(str(root)), clock=lambda: 0.0).read(want)


def without_users(device: Device) -> Device:
    """Remove facts that a tree does not have: user names and claims."""
    processes = tuple(
        replace(p, user=None, ancestors=(), started=p.started and round(p.started))
        for p in device.processes or ()
    )
    return replace(device, processes=processes)


@each_row("elapsed", [0.0, 12.0, 47.0])
@each_row("name", AMD)
def test_a_box_written_as_files_is_read_as_the_simulated_one(
    tmp_path: Path, name: str, elapsed: float
) -> None:
    truth = simtrees.write(tmp_path, BOXES[name], elapsed)
    seen = read(tmp_path)
    assert list(map(without_users, seen.devices)) == list(map(without_users, truth.devices))
    assert all(p.user == "1042" for d in seen.devices for p in d.processes or ())
    assert (seen.links, seen.pcie, seen.peers) == (truth.links, truth.pcie, truth.peers)
    assert seen.link_weights == truth.link_weights
    assert seen.host == truth.host and seen.topology is not None and truth.topology is not None
    if name == "amd":
        assert seen.topology.localities == truth.topology.localities


def test_the_details_of_one_are_those_of_the_simulated_one(tmp_path: Path) -> None:
    box = BOXES["amd"]
    truth = detailed(simtrees.write(tmp_path, box), box, 30.0)
    seen = read(tmp_path, Want.ALL | Want.DETAILS)

    def rounded(snapshot: Snapshot) -> list[Telemetry | None]:
        told = [d.telemetry for d in snapshot.devices]
        return [t and replace(t, energy=None if t.energy is None else round(t.energy, 3)) for t in told]

    assert rounded(seen) == rounded(truth)
    assert "in rocm-smi" not in details_text(seen, None)


# Beyond the table.


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The folder of a box's third GPU, moved behind a bridge of its own."""
    simtrees.write(tmp_path, BOXES["amd"])
    link = tmp_path / "sys/class/drm/card2/device"
    was = link.resolve()
    bridge = was.parent / "0000:46:00.0"
    bridge.mkdir()
    now = was.rename(bridge / was.name)
    for each in (link, tmp_path / "sys/class/drm/renderD144/device"):
        each.unlink()
        each.symlink_to(os.path.relpath(now, each.parent))
    for name, text in (("vendor", "0x1002"), ("device", "0x1478")):
        (bridge / name).write_text(f"{text}\n")
    return now


def telemetry(root: Path, place: int = 2) -> Telemetry:
    found = read(root, Want.ALL | Want.DETAILS).devices[place].telemetry
    assert found is not None
    return found


def test_each_sensor_of_temperature_has_its_limits(tmp_path: Path, card: Path) -> None:
    sensors = card / "hwmon/hwmon3"
    for name, text in {
        "temp1_label": "edge",
        "temp1_input": "61000",
        "temp1_crit": "100000",
        "temp1_emergency": "105000",
        "temp2_input": "78000",
        "temp2_crit": "110000",
        "temp3_input": "70000",
        "temp3_crit": "94000",
    }.items():
        (sensors / name).write_text(f"{text}\n")
    told = telemetry(tmp_path)
    assert read(tmp_path).devices[2].temperature == 61
    assert (told.slowdown_temperature, told.shutdown_temperature) == (100, 105)
    assert (told.hotspot_temperature, told.hotspot_slowdown_temperature) == (78, 110)
    assert (told.memory_temperature, told.memory_slowdown_temperature) == (70, 94)


def test_the_link_is_that_of_the_cards_own_bridge(tmp_path: Path, card: Path) -> None:
    """The GPU reports 32 GT/s x16, which is its link to the bridge; the slot provides x8 at 16 GT/s."""
    for name, text in {
        "current_link_speed": "16.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "8",
        "max_link_width": "16",
    }.items():
        (card.parent / name).write_text(f"{text}\n")
    told = telemetry(tmp_path)
    assert (told.pcie_generation, told.pcie_width) == (4, 8)
    assert (told.max_pcie_generation, told.max_pcie_width) == (5, 16)


def test_errors_and_bad_pages_of_the_memory_are_counted(tmp_path: Path, card: Path) -> None:
    (card / "ras/umc_err_count").write_text("ue: 1\nce: 7\nde: 0\n")
    (card / "ras/gpu_vram_bad_pages").write_text("0x01 : 0x1000 : R\n0x02 : 0x1000 : P\n")
    told = telemetry(tmp_path)
    assert (told.ecc_corrected, told.ecc_uncorrected, told.retired_pages) == (7, 1, 2)
    shutil.rmtree(card / "ras")
    told = telemetry(tmp_path)
    assert (told.ecc_corrected, told.ecc_uncorrected, told.retired_pages) == (None, None, None)


def test_the_firmwares_table_says_why_clocks_are_low(tmp_path: Path, card: Path) -> None:
    table = bytearray(120)
    struct.pack_into("<HBB", table, 0, 120, 1, 3)
    for bits, reasons in ((0, 0), (1 << 0, 1), (1 << 36 | 1 << 17, 2), (1 << 40 | 1 << 36, 1)):
        struct.pack_into("<Q", table, 112, bits)
        (card / "gpu_metrics").write_bytes(table)
        told = telemetry(tmp_path).throttle
        assert told is not None and len(told) == reasons
    for broken in (b"", b"\x78", bytes(table[:119]), b"\xff" * 120, bytes(table[:112]) + b"\xff" * 8):
        (card / "gpu_metrics").write_bytes(broken)
        assert telemetry(tmp_path).throttle is None and telemetry(tmp_path).energy is None


@pytest.mark.parametrize("name", AMD)
def test_the_short_reading_of_pick_comes_to_the_same_choice(tmp_path: Path, name: str) -> None:
    truth = simtrees.write(tmp_path, BOXES[name])
    source = AmdSource(Root(str(tmp_path)))
    judged = verdicts(source.read(Want.VERDICT))
    assert {k: v.state for k, v in judged.items()} == {k: v.state for k, v in verdicts(truth).items()}
    short = source.read(Want.LINKS)
    for count in (1, 2, 4):
        keys = [d.key for d in pick(truth, verdicts(truth), Constraints(count)).devices]
        assert [d.key for d in pick(short, judged, Constraints(count)).devices] == keys


def test_only_nodes_that_can_be_opened_are_numbered(tmp_path: Path) -> None:
    """A container with access to two of eight nodes."""
    simtrees.write(tmp_path, BOXES["amd"])
    for minor in (144, 176):
        file = tmp_path / "dev" / "dri" / f"renderD{minor}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = [(d.index, d.pci_bus_id, d.render) for d in read(tmp_path).devices if d.apart is None]
    assert found == [(0, "00000000:47:00.0", "renderD144"), (1, "00000000:C7:00.0", "renderD176")]


def test_the_number_of_rocm_smi_is_told_where_hip_counts_otherwise(tmp_path: Path) -> None:
    """HIP counts what the container may open, rocm-smi counts all GPUs in PCI order."""
    simtrees.write(tmp_path, BOXES["amd"])
    for minor in (144, 176):
        file = tmp_path / "dev" / "dri" / f"renderD{minor}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    snapshot = read(tmp_path, Want.ALL | Want.DETAILS)
    ours = [d for d in snapshot.devices if d.apart is None]
    every = sorted(d.pci_bus_id or "" for d in at(BOXES["amd"], 0, 0).devices)
    told = [d.telemetry.tool_index for d in ours if d.telemetry]
    assert told == [every.index(d.pci_bus_id or "") for d in ours] != [d.index for d in ours]
    lines = [line for line in details_text(snapshot, None).splitlines() if "in rocm-smi number" in line]
    assert len(lines) == 2


def test_a_node_that_may_not_be_read_is_not_numbered(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties").unlink()
    devices = [d for d in read(tmp_path).devices if d.apart is None]
    assert (devices[0].index, devices[0].pci_bus_id) == (0, "00000000:27:00.0")


def test_a_sleeping_card_is_left_asleep(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    card = (tmp_path / "sys/class/drm/card2/device").resolve()
    (card / "power/runtime_status").write_text("suspended\n")
    seen: list[str] = []
    source = AmdSource(Root(str(tmp_path), on_read=lambda path, _: seen.append(path)))
    device = source.read(Want.ALL | Want.DETAILS).devices[2]
    assert (device.utilization, device.power, device.temperature) == (0, None, None)
    sensors = ("busy_percent", "_input", "pp_dpm_sclk")
    assert not any("/renderD144/" in path and path.endswith(sensors) for path in seen)
    assert any("/renderD128/" in path and path.endswith(sensors) for path in seen)
    assert verdicts(source.read())[device.key].free


def test_where_the_kernel_lists_no_processes_nothing_is_free(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    shutil.rmtree(tmp_path / "sys/class/kfd/kfd/proc")
    assert {verdict.state for verdict in verdicts(read(tmp_path)).values()} == {"unknown"}


def test_cards_behind_their_own_bridges_are_told_apart_by_the_switch_above(tmp_path: Path) -> None:
    """Two cards on one switch, each behind two bridges of its own: PIX; without the rule, PXB."""
    box = BOXES["amd"]
    two = replace(box, gpus=box.gpus[:2], links=(), weights=((0, 0), (0, 0)), tasks=())
    truth = replace(two, links=(("X", "PIX"), ("PIX", "X")))
    simtrees.write(tmp_path, truth)
    for place, bus in enumerate(("05", "27")):
        old = (tmp_path / f"sys/class/drm/card{place}/device").resolve()
        ports = f"pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:0{place}.0"
        own = f"0000:0{3 + 2 * place}:00.0/0000:0{4 + 2 * place}:00.0"
        new = tmp_path / "sys/devices" / ports / own / f"0000:{bus}:00.0"
        new.parent.mkdir(parents=True)
        old.rename(new)
        for bridge, device in ((new.parent, "0x1479"), (new.parent.parent, "0x1478")):
            (bridge / "vendor").write_text("0x1002\n")
            (bridge / "device").write_text(f"{device}\n")
        for name in (f"card{place}", f"renderD{two.gpus[place].render}"):
            link = tmp_path / f"sys/class/drm/{name}/device"
            link.unlink()
            link.symlink_to(os.path.relpath(new, link.parent))
        shutil.rmtree(tmp_path / f"sys/class/kfd/kfd/topology/nodes/{2 + place}/io_links")
    assert read(tmp_path).links == (("X", "PIX"), ("PIX", "X"))


FDINFO = """\
pos:	0
drm-driver:	amdgpu
drm-pdev:	0000:47:00.0
drm-client-id:	{client}
drm-memory-vram:	{memory}
drm-resident-vram:	{memory}
drm-engine-gfx:	{gfx} ns
drm-engine-compute:	{compute} ns
"""


def test_what_draws_and_vulkan_are_in_fdinfo_once_a_client(tmp_path: Path) -> None:
    simtrees.write(tmp_path, replace(BOXES["amd"], tasks=()))
    for pid, number, client, memory, gfx, compute in (
        (700, 3, 11, "2048 KiB", 9, 0),
        (700, 4, 11, "2048 KiB", 9, 0),
        (700, 5, 12, "1 MiB", 9, 0),
        (800, 3, 13, "4096", 0, 7),
        (900, 3, 14, "0", 0, 0),
    ):
        file = tmp_path / f"proc/{pid}/fdinfo/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FDINFO.format(client=client, memory=memory, gfx=gfx, compute=compute))
    (tmp_path / "proc/700/fdinfo/6").write_text("pos:\t0\nflags:\t02\n")
    source = AmdSource(Root(str(tmp_path)))
    found = source.read().devices[2].processes
    assert found is not None
    assert [(p.pid, p.kind, p.memory) for p in found] == [
        (700, "graphics", 3 * 1024**2),
        (800, "compute", 4096),
    ]
    assert source.read(Want.LOAD | Want.CHANGED_PROCESSES).devices[2].processes is not None
    assert verdicts(source.read())[source.read().devices[2].key].state == "busy"


def test_a_job_that_draws_too_is_one_process(tmp_path: Path) -> None:
    truth = simtrees.write(tmp_path, BOXES["amd"], 30.0)
    pid = (truth.devices[7].processes or ())[0].pid
    file = tmp_path / f"proc/{pid}/fdinfo/9"
    file.parent.mkdir(parents=True)
    text = FDINFO.replace("47:00", "e5:00").format(client=1, memory="1 MiB", gfx=5, compute=5)
    file.write_text(text)
    found = read(tmp_path).devices[7].processes or ()
    assert [(p.pid, p.kind) for p in found] == [(pid, "compute+graphics")]
    assert found[0].memory == (truth.devices[7].processes or ())[0].memory


def test_a_card_that_the_compute_driver_does_not_know_is_listed_and_not_offered(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    shutil.rmtree(tmp_path / "sys/class/kfd/kfd/topology/nodes/9")
    devices = read(tmp_path).devices
    assert [d.index for d in devices] == [0, 1, 2, 3, 4, 5, 6, -8]
    assert (devices[7].pci_bus_id, devices[7].apart) == ("00000000:E5:00.0", "no runtime")
    assert devices[7].memory_total and verdicts(read(tmp_path))[devices[7].key].state == "unknown"


def test_another_vendors_card_among_the_numbers_is_not_mistaken(tmp_path: Path) -> None:
    """The first GPU's render node belongs to an integrated Intel GPU: the bus id shows the difference."""
    simtrees.write(tmp_path, BOXES["amd"])
    link = tmp_path / "sys/class/drm/renderD128/device"
    link.unlink()
    own = tmp_path / "sys/devices/pci0000:00/0000:00:02.0"
    own.mkdir(parents=True)
    (own / "uevent").write_text("DRIVER=i915\nPCI_ID=8086:9A49\nPCI_SLOT_NAME=0000:00:02.0\n")
    (own / "gpu_busy_percent").write_text("99\n")
    link.symlink_to("../../../devices/pci0000:00/0000:00:02.0")
    (tmp_path / "sys/class/drm/card50").mkdir()
    (tmp_path / "sys/class/drm/card50/device").symlink_to("../../../devices/pci0000:00/0000:00:02.0")
    devices = read(tmp_path).devices
    assert len(devices) == 8 and devices[0].name == "AMD Instinct MI300X"
    assert devices[0].utilization != 99


# Errors and missing files.


def test_no_files_are_no_devices(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        read(tmp_path)


@each_row("seed", range(12))
def test_a_hostile_tree_is_only_less_known(tmp_path: Path, seed: int) -> None:
    box = BOXES[AMD[seed % 2]]
    simtrees.write(tmp_path, box)
    spoil(tmp_path, random.Random(seed))
    source = AmdSource(Root(str(tmp_path)))
    try:
        snapshot = source.read(Want.ALL | Want.DETAILS | Want.HOST)
    except NoSourceError:
        return
    keys = [device.key for device in snapshot.devices]
    assert len(set(keys)) == len(keys)
    verdicts(snapshot)


def test_a_node_of_garbage_is_said(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/4/properties").write_bytes(b"\xff\x00garbage")
    seen = read(tmp_path)
    assert len(seen.errors) == 1 and "nodes/4" in seen.errors[0]
    assert sum(device.apart is None for device in seen.devices) == 7


@each_row("attribute", ["power1_input", "power1_average", "power1_cap", "freq1_input", "temp1_input"])
def test_what_cannot_be_negative_is_unknown_then(tmp_path: Path, attribute: str) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    for file in tmp_path.glob(f"sys/devices/**/{attribute}"):
        file.write_text("-9223372036854775809\n")
    seen = read(tmp_path)
    again = from_document(json.loads(json.dumps(to_document(seen, for_document(verdicts(seen), 0.0)))))
    assert [device.power for device in again.devices] == [device.power for device in seen.devices]


def test_looping_folders_and_pipes_end(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    (tmp_path / "sys/class/drm/card9").symlink_to(".")
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    (nodes / "99").symlink_to("..")
    os.mkfifo(nodes / "2" / "mem_banks" / "pipe")
    (nodes / "3" / "gpu_id").unlink()
    os.mkfifo(nodes / "3" / "gpu_id")
    devices = read(tmp_path).devices
    assert len(devices) == 8 and devices[1].processes is None


def test_a_first_reading_follows_links_once_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    followed: list[str] = []
    real = os.path.realpath
    monkeypatch.setattr(
        os.path, "realpath", lambda path, **how: (followed.append(path), real(path, **how))[1]
    )
    AmdSource(Root(str(tmp_path))).read()
    assert len(followed) <= 100


def test_eight_devices_are_read_in_a_few_milliseconds(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    source = AmdSource(Root(str(tmp_path)))
    source.read()
    wanted = Want.LOAD | Want.PROCESSES | Want.SENSORS
    assert_costs(0.005, lambda: min(cpu_seconds(lambda: source.read(wanted)) for _ in range(5)))
