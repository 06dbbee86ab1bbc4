"""The order of devices that links leave open: that of an exported list, else the fastest first.

On the simulated driver. The decisions of links come first (`test_order.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gputui.inventory.matrix_text import read
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import Box
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from unit.calling import Call, best_on_screen
from unit.simulated_gpus import RTX_3090_GPU, RTX_4090_GPU
from unit.unlike_boxes import idle_box
from unit.wired import TOPOLOGIES

LIST, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BUS = {ORDER: "PCI_BUS_ID"}


@pytest.fixture
def driver(nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedNvml]:
    monkeypatch.delenv(LIST, raising=False)
    monkeypatch.delenv(ORDER, raising=False)
    yield nvml_here


@pytest.mark.parametrize(("listed", "count"), [("2,0", 2), ("7,1,3", 3), ("5,4", 1), ("6,2", 2)])
def test_an_exported_order_is_kept(
    driver: SimulatedNvml, call: Call, monkeypatch: pytest.MonkeyPatch, listed: str, count: int
) -> None:
    driver.show_box(BOXES["dgx-h100"])
    for name, value in {**BUS, LIST: listed}.items():
        monkeypatch.setenv(name, value)
    expected = ",".join(listed.split(",")[:count])
    for words in ((), ("--order", "given"), ("--ids", "index", "--why")):
        assert call("pick", "-n", str(count), *words).out.strip() == expected
    line = call("run", "-n", str(count), "--dry-run", "--", "python", "train.py").out
    assert f"{LIST}={expected} " in line
    assert best_on_screen(NvmlSource(), count, {**BUS, LIST: listed}) == list(map(int, expected.split(",")))


def test_links_come_before_an_exported_order(
    driver: SimulatedNvml, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NVLink joins the last two of the four.
    recorded = box_of(read((TOPOLOGIES / "a100_pcie_4gpu_nv12_pairs.txt").read_text()), "pairs")
    driver.show_box(recorded)
    best = call("pick", "-n", "2").out.strip()
    first, second = best.split(",")
    other = next(str(number) for number in range(4) if str(number) not in (first, second))
    monkeypatch.setenv(ORDER, "PCI_BUS_ID")
    monkeypatch.setenv(LIST, f"{other},{second},{first}")
    assert call("pick", "-n", "2").out.strip() == f"{second},{first}"


UNLIKE = [
    (idle_box(RTX_3090_GPU, RTX_4090_GPU), "1,0"),
    (idle_box(RTX_4090_GPU, RTX_3090_GPU), "0,1"),
    (idle_box(RTX_3090_GPU, RTX_3090_GPU, RTX_4090_GPU), "2,0"),
]


@pytest.mark.parametrize(("box", "expected"), UNLIKE, ids=lambda value: value if type(value) is str else "")
@pytest.mark.parametrize("order", [None, "FASTEST_FIRST"])
def test_of_unlike_devices_the_fastest_is_the_first(
    driver: SimulatedNvml,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    box: Box,
    expected: str,
    order: str | None,
) -> None:
    driver.show_box(box)
    if order is not None:
        monkeypatch.setenv(ORDER, order)
    assert call("pick", "-n", "2").out.strip() == expected
    assert call("pick", "-n", "2", "--order", "given").out.strip() == ",".join(sorted(expected.split(",")))
    assert best_on_screen(NvmlSource(), 2) == list(map(int, expected.split(",")))


@pytest.mark.parametrize("utilization", [0, None])
def test_a_device_that_answers_no_memory_at_all_is_unknown(
    driver: SimulatedNvml, call: Call, utilization: int | None
) -> None:
    none = dict.fromkeys(("memory_total", "memory_reserved", "memory_used", "memory_free"), 0)
    driver.show_box(BOXES["idle"], facts={"0": {**none, "utilization": utilization}})
    first = json.loads(call("ls", "--json").out)["devices"][0]
    assert first["verdict"]["state"] == "unknown"
    assert (first["memory_total"], first["memory_used"], first["memory_free"]) == (None, None, None)
    assert call("pick", "-n", "1", "--gpus", "0").status == 4


def test_an_instance_is_taken_by_the_number_that_ls_shows(driver: SimulatedNvml, call: Call) -> None:
    shown = driver.show_box(BOXES["a100-mig"])
    instance = next(device for device in shown.devices if shown.label(device) == "0:1")
    line = call("run", "--gpus", "0:1", "--dry-run", "--", "python", "train.py").out
    assert f"{LIST}={instance.uuid} " in line
