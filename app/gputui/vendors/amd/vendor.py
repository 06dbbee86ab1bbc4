"""AMD behind the vendor port: its source, its wording, and how containers are given the devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.system.environment import Environ
from gputui.vendors.amd.visibility import HipVisibility, reads_uuids
from gputui.vendors.render_nodes import RenderNodes
from gputui.vendors.vendor import Vendor, renumbered
from gputui.vendors.visibility import Changes, Visibility

if TYPE_CHECKING:
    from gputui.sources.source import Source
    from gputui.system.root import Root

_TEXT_AS_BYTES = r"(?:3[0-9]|6[1-6]){16}"
"""Sixteen hexadecimal digits as ASCII: HIP's content of the sixteen bytes of a UUID."""

_OPENCL = "GPU_DEVICE_ORDINAL"

_OF_A_PARTITION = "load, power, temperature, clocks and errors are those of the whole GPU, not of a partition"

_NOT_TOLD = (
    "SM active",
    "SM occupancy",
    "tensor cores",
    "video",
    "state",
    "PCIe traffic",
    "NVLink",
    "driver error",
)
_FACTS = {"SM": "GPU", **dict.fromkeys(_NOT_TOLD, "")}
_OF_THE_WHOLE = (
    *("utilization", "bandwidth", "power", "energy", "temperature", "memory, fan", "fan", "SM", "memory"),
    *("throttling", "PCIe", "ECC errors", "bad memory"),
)
_FACTS_OF_A_PARTITION = dict.fromkeys((*_NOT_TOLD, *_OF_THE_WHOLE), "")
"""Facts that are never reported for an AMD GPU, and for a partition of one (`Vendor.fact_names`)."""

_HIP_ERRORS = {
    3: "it cannot be initialized; check that amdgpu is loaded, in a version that this ROCm supports",
    100: (
        "no device; HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES name none of this machine, or /dev/kfd and"
        " /dev/dri/renderD* cannot be opened (groups render and video; in a container, --device)"
    ),
    101: "no such device",
}
"""The meaning and the remedy, by hipError_t (hip_runtime_api.h)."""


class AmdContainers(RenderNodes):
    """The device files themselves (ROCm, "Running ROCm Docker containers"), so AMD's toolkit is not needed.

    The container is given all files where a device's own file is not known; HIP's list then counts as on the
    machine.
    """

    shared = ("/dev/kfd",)
    groups = ("video", "render")

    def gives_devices(self, option: str, value: str) -> bool:
        return super().gives_devices(option, value) or (option == "runtime" and value == "amd")

    def changes(self, devices: Sequence[Device], visibility: Visibility, by_number: bool = False) -> Changes:
        """Return HIP's list for a container: it has only its own devices, renumbered in the
        order of their nodes."""
        if not devices or not self.by_node(devices):
            return visibility.changes(devices)
        inside = renumbered(devices)
        in_order = [device.index for device in inside] == list(range(len(inside)))
        return () if in_order else visibility.changes(inside)


class Amd(Vendor):
    """AMD's GPUs and their partitions, read from amdkfd and amdgpu."""

    name = "amd"
    title = "AMD"
    runtime = "ROCm"
    # torch uses this name for ROCm's devices.
    device_type = "cuda"
    uuid_prefixes = ("GPU-",)
    visibility = HipVisibility()
    containers = AmdContainers()
    kernel_module = "amdgpu"
    kubernetes = "amd.com/gpu"
    environment_hints = (
        ("AMD_SERIALIZE_KERNEL", "3", "errors name their line; slow"),
        ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True", "less fragmentation"),
    )
    remedies = {
        "held": "`sudo fuser -v /dev/kfd`",
        "reset": "`sudo amd-smi reset --gpureset -g {bus}` resets it",
    }
    data_parallel = True
    backend = "nccl"
    driver = "the ROCm runtime"
    torch_build = "install a build for ROCm: https://pytorch.org/get-started/locally"
    other_builds = {
        "tensorflow": "install AMD's build: pip install tensorflow-rocm",
        "jax": "install AMD's build: pip install 'jax[rocm]'",
    }

    def source(self, root: Root) -> Source:
        from gputui.vendors.amd.source import AmdSource

        return AmdSource(root)

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        found: list[str] = []
        if any(device.apart == "integrated" for device in devices):
            found.append(
                "an integrated GPU has the host's memory, and many builds for ROCm do not support it"
            )
        if environ.get(_OPENCL):
            # OpenCL reads this list; HIP reads its own (ROCm/clr, rocdevice.cpp).
            found.append(f"{_OPENCL}={environ[_OPENCL]} is OpenCL's list: HIP does not read it")
        return tuple(found)

    def fact_names(self, device: Device) -> Mapping[str, str]:
        return _FACTS_OF_A_PARTITION if device.board else _FACTS

    def untold(self, device: Device) -> str:
        return _OF_A_PARTITION if device.board else ""

    def driver_trouble(self, code: int | None, error: str | None) -> str | None:
        if code is not None:
            remedy = _HIP_ERRORS.get(code, "see `dmesg`")
            return f"HIP does not start, hipError_t {code}: {remedy}"
        return (
            f"no HIP: {error}; install ROCm, and make its lib folder known to the linker" if error else None
        )

    def by_uuid_warning(self, devices: Sequence[Device]) -> str:
        if all(reads_uuids(device) for device in devices):
            return ""
        return "HIP reads UUIDs from 6.2 on; an older HIP then sees no device (--ids index)"

    def bare_uuid(self, uuid: str) -> str:
        digits = super().bare_uuid(uuid).replace("-", "")
        if re.fullmatch(_TEXT_AS_BYTES, digits):
            return bytes.fromhex(digits).decode()
        return digits


VENDOR = Amd()
