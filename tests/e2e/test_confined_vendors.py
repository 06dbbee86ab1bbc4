"""The proof of confinement on simulated drivers of other vendors than NVIDIA, each in a confined process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import simhip
import simze
from confinement import Machine, needs_landlock
from gputui.inventory.device import Device
from gputui.launching.confine_proof import _is
from gputui.vendors.driver_process import DriverDevice
from table_tests import each_row

pytestmark = [pytest.mark.e2e, needs_landlock]

PROVES = """
import os, sys
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Host, Snapshot
from gputui.launching.confine_proof import left_out, proved
from gputui.system.root import Root
from gputui.vendors.registry import vendor_named
devices = tuple(eval(sys.argv[2]))
box, root = Snapshot(Host(), 0.0, devices), Root(sys.argv[1])
for device in devices:
    print(proved(device, box, os.environ, root, again=True))
print(*left_out(devices[1:2], box, root))
"""


def cards(vendor: str) -> list[Device]:
    return [
        Device(
            index=number,
            uuid=f"GPU-{number:016x}" if vendor == "amd" else "",
            uuid_usable=vendor == "amd",
            name=f"card {number}",
            vendor=vendor,
            memory_total=2**34,
            render=f"renderD{128 + number}",
            pci_bus_id=f"00000000:{3 + number:02X}:00.0",
        )
        for number in range(3)
    ]


@pytest.mark.parametrize("sees_all", [False, True])
@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_a_card_is_proved_by_its_render_node(tmp_path: Path, vendor: str, sees_all: bool) -> None:
    devices, tree = cards(vendor), tmp_path / "tree"
    nodes = [f"dri/renderD{128 + number}" for number in range(3)] + [f"dri/card{n}" for n in range(3)]
    machine = Machine(tmp_path / "machine", nodes)
    (tree / "dev" / "dri").mkdir(parents=True)
    for node in nodes:
        (tree / "dev" / node).touch()
    for number in range(3):
        for name in (f"renderD{128 + number}", f"card{number}"):
            (tree / f"sys/class/drm/renderD{128 + number}/device/drm/{name}").mkdir(parents=True)
    simulated = simhip if vendor == "amd" else simze
    environ = simulated.environment({**os.environ, "XDG_STATE_HOME": str(tmp_path)}, tmp_path, devices)
    if not sees_all:
        environ["SIM_RENDER_NODES"] = "/dev/dri"
    words = [*machine.before, sys.executable, "-c", PROVES, str(tree), repr(devices)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *proofs, left_out = done.stdout.splitlines()
    if sees_all:
        assert all("was shown 3 devices" in proof for proof in proofs), proofs
    else:
        assert proofs == ["None"] * 3
    assert sorted(left_out.split()) == [
        *("/dev/dri/card0", "/dev/dri/card2", "/dev/dri/renderD128", "/dev/dri/renderD130")
    ]


def test_of_a_driver_that_cannot_be_asked_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "dev" / "accel").mkdir(parents=True)
    for number in range(2):
        for name in (f"accel{number}", f"accel_controlD{number}"):
            (tmp_path / "dev" / "accel" / name).touch()
    devices = [Device(index=n, uuid=f"G-{n}", vendor="gaudi", render=f"accel{n}") for n in range(2)]
    words = [sys.executable, "-c", PROVES, str(tmp_path), repr(devices)]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    assert all("cannot ask the Gaudi driver" in line for line in done.stdout.splitlines()[:2])


@each_row("bus", [None, "", "0", "04:00.0", "0000:03:00.1"])
def test_a_device_without_uuid_is_known_by_its_place_only(
    bus: str | None,
) -> None:
    """A device with any other bus id is not this device."""
    (device, *_) = cards("intel")
    assert _is(DriverDevice(None, "0000:03:00.0"), device)
    assert not _is(DriverDevice(None, bus), device)
