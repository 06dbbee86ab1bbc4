"""The device files of each device, by vendor (`Vendor.nodes`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.source import Want
from gputui.system.root import Root
from gputui.vendors.nvidia.source import NvmlSource
from gputui.vendors.registry import vendor_named
from simnvml import SimulatedNvml

MINORS = ("config 1", "monitor 2", "gpu4/gi1/access 30", "gpu4/gi1/ci0/access 31", "gpu4/gi2/access 39")


def machine(folder: Path, *files: str) -> Root:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    (folder / "proc/driver/nvidia-caps").mkdir(parents=True, exist_ok=True)
    (folder / "proc/driver/nvidia-caps/mig-minors").write_text("\n".join(MINORS))
    return Root(str(folder))


def device(vendor: str = "nvidia", **facts: object) -> Device:
    return replace(Device(index=0, uuid="GPU-1", vendor=vendor), **facts)


def test_an_nvidia_gpu_is_opened_by_its_minor_number(tmp_path: Path) -> None:
    root = machine(tmp_path, "dev/nvidia0", "dev/nvidia4", "dev/nvidiactl", "dev/nvidia-uvm")
    nvidia = vendor_named("nvidia")
    assert nvidia.nodes(device(minor=4), root) == ("/dev/nvidia4",)
    assert nvidia.nodes(device(minor=3), root) == () == nvidia.nodes(device(), root)
    assert set(nvidia.all_nodes(root)) == {"/dev/nvidia0", "/dev/nvidia4"}
    assert nvidia.unready_to_confine(root) is None
    (tmp_path / "dev/nvidia-uvm").unlink()
    assert nvidia.unready_to_confine(root) is not None


def test_an_instance_is_opened_by_its_gpu_and_its_capabilities(tmp_path: Path) -> None:
    caps = [f"dev/nvidia-caps/nvidia-cap{number}" for number in (1, 2, 30, 31, 39)]
    root = machine(tmp_path, "dev/nvidia4", *caps)
    nvidia = vendor_named("nvidia")
    instance = device(parent="GPU-1", minor=4, gpu_instance=1, compute_instance=0)
    assert set(nvidia.nodes(instance, root)) == {
        "/dev/nvidia4",
        "/dev/nvidia-caps/nvidia-cap30",
        "/dev/nvidia-caps/nvidia-cap31",
    }
    # The driver has not reported the device file of its second instance's compute instance.
    assert nvidia.nodes(replace(instance, gpu_instance=2), root) == ()
    assert nvidia.nodes(replace(instance, gpu_instance=None), root) == ()
    assert "/dev/nvidia-caps/nvidia-cap1" not in nvidia.all_nodes(root)
    assert "/dev/nvidia-caps/nvidia-cap39" in nvidia.all_nodes(root)


def test_only_the_capabilities_that_have_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver lists those of each instance that there could be: 36 ms went by at each launch on an H200."""
    root = machine(tmp_path, "dev/nvidia0", "dev/nvidia-caps/nvidia-cap31")
    every = (f"gpu{gpu}/gi{gi}/access {gpu * 100 + gi}" for gpu in range(32) for gi in range(100))
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").write_text("\n".join(every))
    looked, exists = list[str](), os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: looked.append(path) or exists(path))
    found = vendor_named("nvidia").all_nodes(root)
    assert set(found) == {"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap31"} and len(looked) < 5


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_a_graphics_card_is_opened_by_its_render_node_and_its_card(tmp_path: Path, vendor: str) -> None:
    root = machine(tmp_path, "dev/dri/renderD129", "dev/dri/card2", "dev/dri/card1")
    for name in ("renderD129", "card2", "by-path"):
        (tmp_path / "sys/class/drm/renderD129/device/drm" / name).mkdir(parents=True)
    found = vendor_named(vendor).nodes(device(vendor, render="renderD129"), root)
    assert set(found) == {"/dev/dri/renderD129", "/dev/dri/card2"}
    assert vendor_named(vendor).nodes(device(vendor), root) == ()
    assert vendor_named(vendor).nodes(device(vendor, render="renderD128"), root) == ()


def test_a_gaudi_is_opened_by_both_of_its_files(tmp_path: Path) -> None:
    root = machine(tmp_path, "dev/accel/accel3", "dev/accel/accel_controlD3", "dev/accel/accel4")
    gaudi = vendor_named("gaudi")
    assert set(gaudi.nodes(device("gaudi", render="accel3"), root)) == {
        "/dev/accel/accel3",
        "/dev/accel/accel_controlD3",
    }
    assert gaudi.nodes(device("gaudi", render="accel4"), root) == ()
    assert gaudi.nodes(device("gaudi"), root) == ()


def test_the_numbers_are_read_where_they_are_wanted_only(nvml_here: SimulatedNvml) -> None:
    facts = {str(index): {"minor": 7 - index} for index in range(8)}
    nvml_here.show_box(BOXES["a100-mig"], facts=facts)
    source = NvmlSource()
    try:
        source.open()
        source.read(Want.VERDICT)
        source.read(Want.ALL)
        assert "nvmlDeviceGetMinorNumber" not in nvml_here.counts()
        devices = source.read(Want.VERDICT | Want.NODES).devices
        again = source.read(Want.VERDICT | Want.NODES).devices
    finally:
        source.close()
    gpus = [each for each in devices if each.parent is None]
    assert [gpu.minor for gpu in gpus] == [7 - gpu.index for gpu in gpus]
    minors = {gpu.uuid: gpu.minor for gpu in gpus}
    parts = [each for each in devices if each.parent is not None]
    assert parts and all(part.minor == minors[part.parent or ""] for part in parts)
    assert all(part.gpu_instance is not None and part.compute_instance is not None for part in parts)
    assert [each.minor for each in again] == [each.minor for each in devices]
    assert nvml_here.counts()["nvmlDeviceGetMinorNumber"] == len(gpus)
