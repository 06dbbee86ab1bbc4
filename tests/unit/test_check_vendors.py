"""A check of a command on devices that are not NVIDIA's: the program asked, and what its answer proves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import simhip
from gputui.checking.check import check
from gputui.checking.render import lines, to_document
from gputui.checking.report import Report
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.vendors.registry import vendor_named
from unit.fakebackends import install
from unit.fakeframeworks import install as install_frameworks

TYPES = {"amd": "cuda", "intel": "xpu", "gaudi": "hpu", "apple": "mps"}


def level_zero_uuid(device: Device) -> str:
    """The UUID as torch.xpu writes it.

    It contains the vendor, model, revision, domain, bus, device and function, and the tile.
    """
    assert device.pci_bus_id is not None
    domain, bus, rest = device.pci_bus_id.split(":")
    own = bytes.fromhex("8680da0b2f00") + int(domain, 16).to_bytes(2, "little")
    tile = 0 if device.partition is None else device.partition + 1
    own += bytes([int(bus, 16), *(int(part, 16) for part in rest.split(".")), 0, 0, 0, 0, tile])
    digits = own.hex()
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


def rocm_uuid(device: Device) -> str:
    """The UUID as torch writes HIP's bytes, which are text."""
    digits = simhip.uuid_bytes(device)
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


class Machine:
    """A simulated box, and an interpreter whose torch sees its devices as the vendor's runtime would."""

    def __init__(self, folder: Path, box: str, vendor: str | None = None, habana: bool = True) -> None:
        self.snapshot: Snapshot = at(BOXES[box], 30.0, 1_700_000_000.0)
        self.vendor = vendor_named(vendor or box)
        self.folder = folder
        self.devices = [d for d in self.snapshot.devices if d.vendor == self.vendor.name]
        kind = TYPES[self.vendor.name]
        uuid = {"cuda": rocm_uuid, "xpu": level_zero_uuid}.get(kind, lambda _: None)
        visibility = self.vendor.visibility
        counted = sorted((d for d in self.devices if d.apart is None), key=visibility.number)
        self.told: dict[str, Any] = {
            "type": kind,
            "variable": visibility.variable,
            "sorted": kind == "xpu",
            "first": None,
            "built": True,
            "devices": [
                {"uuid": uuid(d), "bus": None, "name": f"as {kind} says", "memory": d.memory_total}
                for d in counted
            ],
        }
        self.environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(install(folder, habana))}

    def check(self, *places: int, **changes: Any) -> Report:
        devices = tuple(self.devices[place] for place in places)
        launch = compose(
            devices, LaunchOptions((sys.executable, "train.py")), self.environ, box=(self.vendor,)
        )
        environ = self.environ | {"FAKE_BACKEND": json.dumps(self.told | changes)}
        return check(launch, self.snapshot, environ)


def states(report: Report) -> list[str]:
    return [each.state for each in report.comparisons]


@pytest.mark.parametrize(("name", "places"), [("amd", (5, 2)), ("intel", (1, 2)), ("apple", (0,))])
def test_the_devices_of_each_vendor_are_proved(tmp_path: Path, name: str, places: tuple[int, ...]) -> None:
    machine = Machine(tmp_path, name)
    report = machine.check(*places)
    assert report.status == "equal" and states(report) == ["equal"] * len(places), lines(report)
    document = to_document(report)
    assert document["framework"]["devices"] == len(places)
    assert [each["device"] for each in document["devices"]] == list(
        map(machine.vendor.device, range(len(places)))
    )


@pytest.mark.parametrize(("name", "places"), [("amd", (5, 2)), ("intel", (0, 1))])
def test_a_runtime_that_counts_otherwise_is_found_out(
    tmp_path: Path, name: str, places: tuple[int, ...]
) -> None:
    machine = Machine(tmp_path, name)
    report = machine.check(*places, first=places[1])
    assert report.status == "differs" and states(report) == ["differs"] * 2
    assert machine.vendor.device(1) in report.comparisons[0].why


@pytest.mark.parametrize("name", ["amd", "intel"])
def test_a_runtime_that_does_not_obey_the_list_is_found_out(tmp_path: Path, name: str) -> None:
    report = Machine(tmp_path, name).check(1, variable="")
    assert (
        report.status == "differs" and states(report)[0] == "differs" and set(states(report)[1:]) == {"extra"}
    )


def test_an_order_that_is_not_kept_is_a_difference(tmp_path: Path) -> None:
    assert Machine(tmp_path, "intel").check(1, 0).status == "differs"


@pytest.mark.parametrize("name", TYPES)
def test_a_torch_without_the_backend_says_which_build_helps(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path, name)
    report = (
        machine.check(0, built=False)
        if name != "gaudi"
        else Machine(tmp_path / "x", name, None, False).check(0)
    )
    assert report.status == "differs" and states(report) == ["missing"]
    assert machine.vendor.torch_build in report.conclusion and "CUDA" not in report.conclusion


def test_cpu_only_is_proved_on_a_box_of_another_vendor(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "amd")
    assert machine.check().status == "equal"
    assert machine.check(variable="").status == "differs"


def test_what_is_only_counted_is_not_proved(tmp_path: Path) -> None:
    """torch.hpu reports neither the UUID nor the bus id of a device."""
    machine = Machine(tmp_path, "gaudi")
    report = machine.check(0, 1)
    assert report.status == "unsure" and states(report) == ["unsure"] * 2 and not report.equal
    assert machine.check(0, 1, devices=machine.told["devices"][:1]).status == "differs"


def test_devices_of_another_vendor_in_the_box_are_no_hindrance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "mixed-vendors", "intel")
    report = machine.check(0, 1)
    assert report.status == "equal" and [each.name for each in report.variables] == ["ZE_AFFINITY_MASK"]
    assert machine.check(0, 1, first=1).status == "differs"


def test_partitions_that_share_a_uuid_are_not_told_apart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "amd-cpx", "amd")
    same = machine.devices[0]
    assert sum(device.uuid == same.uuid for device in machine.devices) > 1
    assert machine.check(1, 0).status == "unsure"


# HIP itself, for frameworks that only count devices.


@pytest.fixture
def counted(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, "amd")
    machine.environ |= {"PYTHONPATH": str(install_frameworks(tmp_path))}
    machine.environ |= simhip.environment({}, tmp_path, machine.devices)
    return machine


def _tensorflow(machine: Machine, *places: int, init: int = 0) -> Report:
    (machine.folder / "train.py").write_text("import tensorflow\n")
    devices = tuple(machine.devices[place] for place in places)
    options = LaunchOptions((sys.executable, "train.py"), directory=str(machine.folder))
    launch = compose(devices, options, machine.environ)
    told = {"devices": [] if init else [device.name for device in devices]}
    environ = machine.environ | {"FAKE_FRAMEWORK": json.dumps(told), "SIMHIP_INIT": str(init)}
    return check(launch, machine.snapshot, environ)


def test_what_a_framework_counts_hip_of_its_process_names(counted: Machine) -> None:
    report = _tensorflow(counted, 6, 1)
    assert report.status == "equal", lines(report)
    assert to_document(report)["framework"]["told_by"] == "driver"
    assert report.seen is not None and report.seen.driver.version == 60342131


def test_an_error_of_hip_says_what_helps(counted: Machine) -> None:
    report = _tensorflow(counted, 0, init=100)
    assert report.status == "differs" and report.seen is not None and report.seen.driver.code == 100
    assert "HIP_VISIBLE_DEVICES" in report.conclusion and "/dev/kfd" in report.conclusion


def test_a_hip_that_a_framework_has_loaded_is_asked_in_place_of_another(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "amd")
    probe = machine.vendor.driver_probe
    assert probe is not None
    script = (
        "import ctypes, runpy, sys; ctypes.CDLL(sys.argv[1])\n"
        "print(runpy.run_path(sys.argv[2])['driver']()['devices'][0]['bus'])"
    )
    environ = simhip.environment({}, tmp_path, machine.devices) | {"LD_LIBRARY_PATH": ""}
    words = [sys.executable, "-c", script, str(simhip.build()), str(probe)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.strip() == (machine.devices[0].pci_bus_id or "")[4:].lower()
