"""NVIDIA behind the vendor port: its devices' files, containers, and the meaning of CUDA's errors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.system.environment import Environ
from gputui.vendors.nvidia.visibility import UUID_PREFIXES, CudaVisibility
from gputui.vendors.vendor import Containers, Vendor
from gputui.vendors.visibility import CONFINED

if TYPE_CHECKING:
    from gputui.sources.source import Source
    from gputui.system.root import Root


_SEVERAL_RANKS = "NCCL_MULTI_RANK_GPU_ENABLE"
"""NCCL's experimental variable for several ranks on one GPU."""

_NODE = re.compile("nvidia[0-9]{1,6}")
_UVM = "/dev/nvidia-uvm"
_RIGHT = re.compile("gpu[0-9]{1,6}/gi[0-9]{1,6}/\\S{1,64}")
_RIGHTS = "/dev/nvidia-caps"


def _capabilities(root: Root) -> dict[str, str]:
    """Return the device file of each access right to a MIG instance, by its name ("gpu0/gi3/ci0/access").

    The driver lists those of every instance that there could be (4,320 lines); few have a file.
    """
    files = {name.removeprefix("nvidia-cap"): f"{_RIGHTS}/{name}" for name in root.names(_RIGHTS)}
    lines = (root.text("/proc/driver/nvidia-caps/mig-minors", 2**20) or "").splitlines()
    rights = ((right, files.get(minor)) for right, _, minor in (line.partition(" ") for line in lines))
    return {right: file for right, file in rights if file is not None and _RIGHT.fullmatch(right)}


class NvidiaContainers(Containers):
    """The NVIDIA Container Toolkit: `--gpus` of docker, the container device interface of podman."""

    def docker(self, devices: Sequence[Device]) -> list[str]:
        # The inner quotes keep the comma from ending the value: docker reads it as CSV.
        return ["--gpus", f'"device={",".join(device.uuid for device in devices)}"']

    def podman(self, devices: Sequence[Device]) -> list[str]:
        return [word for device in devices for word in ("--device", f"nvidia.com/gpu={device.uuid}")]

    def gives_devices(self, option: str, value: str) -> bool:
        return option == "gpus" or bool(self.named_by(option, value))

    def named_by(self, option: str, value: str) -> tuple[str, ...]:
        kind, equals, name = value.partition("=")
        return (name,) if option == "device" and equals and kind.startswith("nvidia.com/") else ()


class Nvidia(Vendor):
    """NVIDIA's GPUs and their MIG instances, read through NVML."""

    name = "nvidia"
    title = "NVIDIA"
    runtime = "CUDA"
    device_type = "cuda"
    uuid_prefixes = UUID_PREFIXES
    visibility = CudaVisibility()
    containers = NvidiaContainers()
    kernel_module = "nvidia"
    kubernetes = "nvidia.com/gpu"
    environment_hints = (
        ("CUDA_LAUNCH_BLOCKING", "1", "errors name their line; slow"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "less fragmentation"),
    )
    remedies = {
        "held": "`sudo fuser -v /dev/nvidia*`",
        "prohibited": "`sudo nvidia-smi -c 0` allows it",
        "reset": "`sudo nvidia-smi --gpu-reset -i {index}` resets it",
    }
    one_part = "a process uses one MIG instance only, however many it sees"
    data_parallel = True
    backend = "nccl"
    driver = "the CUDA driver"
    same_names = True
    torch_build = "install a build for CUDA: https://pytorch.org/get-started/locally"

    other_builds = {
        "tensorflow": "install it with its CUDA libraries: pip install 'tensorflow[and-cuda]'",
        "jax": "install it with its CUDA libraries: pip install 'jax[cuda12]'",
    }

    def untold(self, device: Device) -> str:
        if device.unified and device.processes is None:
            return "only root can read its processes and their memory (NvMap, /sys/kernel/debug/nvmap)"
        return ""

    def source(self, root: Root) -> Source:
        from gputui.vendors.nvidia.source import NvmlSource

        return NvmlSource(confined=CONFINED in os.environ)

    def maybe_there(self, root: Root) -> bool:
        # NVML reads this machine only; the kernel's files hold neither memory nor load.
        return root.here

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        found = []
        if by_index and _mps(devices, environ):
            found.append(
                "an MPS daemon may number the devices differently; name them by UUID (--ids uuid, :uuid)"
            )
        return tuple(found)

    def part_warnings(self, devices: Sequence[Device], environ: Environ) -> tuple[str, ...]:
        parents = [device.parent for device in devices if device.parent]
        if len(set(parents)) == len(parents) or environ.get(_SEVERAL_RANKS) == "1":
            return ()
        # NCCL tells devices apart by the bus id of the GPU (NVIDIA/nccl #1716, seen with 2.31.2).
        return (
            f"NCCL accepts several ranks on instances of one GPU only with {_SEVERAL_RANKS}=1, from 2.30 on;"
            " an older NCCL fails (gloo does not)",
        )

    def nodes(self, device: Device, root: Root) -> tuple[str, ...]:
        """Return a GPU's device file, by its minor number, which is not its index.

        An instance also has the files of its capabilities (MIG User Guide, "Device Nodes and Capabilities").
        """
        if device.minor is None:
            return ()
        gpu = f"/dev/nvidia{device.minor}"
        if device.parent is None:
            return (gpu,) if root.has(gpu) else ()
        number, place = device.minor, device.gpu_instance
        ways = (f"gpu{number}/gi{place}/access", f"gpu{number}/gi{place}/ci{device.compute_instance}/access")
        caps = _capabilities(root)
        found = (gpu, *(caps[way] for way in ways if way in caps))
        return found if len(found) == 3 and root.has(gpu) else ()

    def all_nodes(self, root: Root) -> tuple[str, ...]:
        gpus = (f"/dev/{name}" for name in root.names("/dev") if _NODE.fullmatch(name))
        return (*gpus, *_capabilities(root).values())

    def unready_to_confine(self, root: Root) -> str | None:
        if root.has(_UVM):
            return None
        return (
            f"{_UVM} does not exist: nothing has used CUDA since the machine started, and a confined program"
            " cannot create it; `nvidia-modprobe -u` does"
        )

    def driver_trouble(self, code: int | None, error: str | None) -> str | None:
        from gputui.vendors.nvidia.cuda_errors import of_code, of_library

        return of_code(code) if code else of_library(error) if error else None


def _mps(devices: Sequence[Device], environ: Environ) -> bool:
    """Return whether an MPS daemon with a list of its own is between programs and devices
    (CUDA MPS guide)."""
    there = any(process.kind == "mps" for device in devices for process in device.processes or ())
    return there or bool(environ.get("CUDA_MPS_PIPE_DIRECTORY"))


VENDOR = Nvidia()
