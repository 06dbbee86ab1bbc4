"""Other programs that read NVML, on the simulated driver: they must see the box as it is, and not fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml

MIB = 1024 * 1024
MOMENT = 12.0
PATIENCE = 60.0
NAMES = ("dgx-h100", "rtx3090", "a100-mig", "shared")


def run(nvml: SimulatedNvml, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program of a peer, on the simulated driver."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        env=nvml.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_gpustat_shows_what_the_box_says(name: str, simulated_nvml: SimulatedNvml) -> None:
    snapshot = simulated_nvml.show_box(BOXES[name], MOMENT)
    result = run(simulated_nvml, "gpustat", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["driver_version"] == snapshot.host.driver
    gpus = [device for device in snapshot.devices if device.parent is None]
    assert len(told["gpus"]) == len(gpus)
    for gpu, device in zip(told["gpus"], gpus, strict=True):
        assert device.memory_used is not None
        assert device.memory_total is not None
        assert device.power is not None
        want = {
            "index": device.index,
            "uuid": device.uuid,
            "name": device.name,
            "memory.used": device.memory_used // MIB,
            "memory.total": device.memory_total // MIB,
            "utilization.gpu": device.utilization,
            "temperature.gpu": device.temperature,
            "power.draw": int(device.power),
            "enforced.power.limit": device.power_limit,
        }
        assert {key: gpu[key] for key in want} == want


def test_gpustat_says_that_a_gpu_is_lost(simulated_nvml: SimulatedNvml) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    simulated_nvml.error("nvmlDeviceGetHandleByIndex", 15, device=5)
    result = run(simulated_nvml, "gpustat", "--json")
    assert result.returncode == 0, result.stderr
    names = [gpu["name"] for gpu in json.loads(result.stdout)["gpus"]]
    assert [place for place, name in enumerate(names) if "GPU is lost" in name] == [5]


@pytest.mark.parametrize("name", NAMES)
def test_nvitop_and_nvisel_run(name: str, simulated_nvml: SimulatedNvml) -> None:
    pytest.importorskip("nvitop")
    snapshot = simulated_nvml.show_box(BOXES[name], MOMENT)
    table = run(simulated_nvml, "nvitop", "-1")
    assert table.returncode == 0, table.stderr
    for device in snapshot.devices:
        assert device.pci_bus_id is not None
        assert device.pci_bus_id in table.stdout
    chosen = run(simulated_nvml, "nvitop.select", "-n", "1")
    assert chosen.returncode == 0, chosen.stderr
    assert "ERROR" not in table.stderr + chosen.stderr
