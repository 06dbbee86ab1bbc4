"""A real H200 (driver 580.159.04), recorded by `gputui record --anonymous`: what nvidia-smi printed at that
moment, and what the simulated driver makes of the recording."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gputui.choosing.verdict import verdicts
from gputui.inventory.document_reader import from_json
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Want
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from unit.builders import MIB

RECORDINGS = Path(__file__).parent.parent / "data" / "h200"


def recorded(name: str) -> Snapshot:
    return from_json((RECORDINGS / f"{name}.json").read_bytes())


def test_the_facts_are_those_of_nvidia_smi() -> None:
    with (RECORDINGS / "nvidia_smi.csv").open() as file:
        (said,) = csv.DictReader(file, skipinitialspace=True)
    (device,), told = recorded("idle").devices, {name.partition(" ")[0]: text for name, text in said.items()}
    assert (device.uuid, device.name, device.pci_bus_id) == (told["uuid"], told["name"], told["pci.bus_id"])
    sizes = (device.memory_total, device.memory_used, device.memory_free)
    assert [round(size / MIB) for size in sizes if size is not None] == [
        int(told[f"memory.{which}"].split()[0]) for which in ("total", "used", "free")
    ]
    assert (device.utilization, device.memory_utilization) == (0, 0)
    assert device.temperature == int(told["temperature.gpu"])
    assert (
        f"{device.power:.2f} W" == told["power.draw"] and f"{device.power_limit:.2f} W" == told["power.limit"]
    )
    assert f"{device.sm_clock} MHz" == told["clocks.current.sm"]
    assert device.compute_capability == told["compute_cap"]
    details = device.telemetry
    assert details is not None and f"{details.memory_clock} MHz" == told["clocks.current.memory"]
    assert details.ecc_uncorrected == int(told["ecc.errors.uncorrected.volatile.total"])
    assert (details.pcie_generation, details.pcie_width) == (5, 16)
    assert details.throttle == (), "0x1 is GPU_IDLE, no throttling"


@pytest.mark.parametrize(("name", "state"), [("idle", "free"), ("busy", "busy")])
def test_the_state_is_known(name: str, state: str) -> None:
    snapshot = recorded(name)
    assert [verdict.state for verdict in verdicts(snapshot).values()] == [state]


@pytest.mark.parametrize("name", ["idle", "busy"])
def test_the_simulated_driver_answers_as_the_real_one_did(nvml_here: SimulatedNvml, name: str) -> None:
    real = recorded(name)
    nvml_here.show(real)
    source = NvmlSource()
    source.open()
    try:
        # The loads of processes are known from the second reading on.
        for _ in range(2):
            read = source.read(Want.ALL | Want.DETAILS)
    finally:
        source.close()

    def comparable(snapshot: Snapshot) -> object:
        (device,) = snapshot.devices
        assert device.telemetry is not None
        # The simulated driver counts energy, has one limit for all GPUs, and lets an idle GPU sleep.
        same = replace(device.telemetry, energy=None, slowdown_temperature=None, performance_state=None)
        # The process does not run here.
        used = [(process.pid, process.memory, process.sm) for process in device.processes or ()]
        return replace(device, telemetry=same, processes=()), used

    assert comparable(read) == comparable(real)
