"""NVIDIA's devices through NVML, by the real nvidia-ml-py. The only file that knows pynvml.

Here: loading the library, the box as a whole, and what to do when there is none. One GPU: `nvml_gpu.py`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.link import LinkMatrix
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.nvml_gpu import Gpu
from gputui.sources.nvml_links import matrix
from gputui.sources.processes import ProcessTable
from gputui.sources.source import NoSourceError, Want

# nvmlReturn_t, nvml.h. Written out so that the remedies below can be read without the binding.
NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH = 4, 9, 12, 18

REMEDIES: dict[int, str] = {
    LIBRARY_NOT_FOUND: (
        "no NVIDIA driver here: libnvidia-ml.so.1 is not found; install the driver, or start the container"
        " with --gpus all; `gputui --demo` works anywhere"
    ),
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded; try `sudo modprobe nvidia`, or see `dmesg`",
    MISMATCH: (
        "the NVIDIA library and the loaded driver are of different versions; reboot, or reload the driver,"
        " to finish its update"
    ),
    NO_PERMISSION: (
        "no permission to talk to the NVIDIA driver; check the rights of /dev/nvidiactl and /dev/nvidia*"
    ),
}


class NvmlSource:
    """NVML on this machine. `processes` looks up owners; `clock` gives seconds since the epoch."""

    def __init__(self, processes: ProcessTable | None = None, clock: Callable[[], float] = time.time) -> None:
        self.label = ""
        self._processes = processes or ProcessTable()
        self._clock = clock
        self._nvml: Any = None
        self._host = Host()
        self._gpus: list[Gpu] = []
        self._links: LinkMatrix = ()
        self._linked: tuple[str, ...] = ()

    def open(self) -> None:
        """Load the library and start NVML. Raises NoSourceError."""
        if self._nvml is not None:
            return
        nvml = _binding()
        started = False
        try:
            nvml.nvmlInit()
            started = True
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            if started:
                _shut_down(nvml)
            raise NoSourceError(REMEDIES.get(error.value, f"NVML does not start: {error}")) from None
        self._nvml = nvml
        self._gpus = [Gpu(nvml, index, self._clock) for index in range(count)]

    def read(self, want: Want = Want.ALL) -> Snapshot:
        self.open()
        if Want.NAMES in want and self._host == Host():
            self._host = self._read_host()
        for gpu in self._gpus:
            gpu.refresh(want)
        devices = tuple(device for gpu in self._gpus for device in gpu.devices)
        if Want.LINKS in want or (self._links and tuple(d.key for d in devices) != self._linked):
            self._read_links(devices)
        if Want.OWNERS in want:
            devices = self._with_owners(devices)
        return Snapshot(self._host, self._clock(), devices, self._links)

    def close(self) -> None:
        """Stop NVML. Never while another thread is inside it: that crashes (nvitop #222)."""
        if self._nvml is None:
            return
        nvml, self._nvml = self._nvml, None
        self._gpus, self._links = [], ()
        _shut_down(nvml)

    def _read_host(self) -> Host:
        import socket

        def ask(function: Callable[[], Any]) -> Any:
            try:
                return function()
            except self._nvml.NVMLError:
                return None

        cuda = ask(self._nvml.nvmlSystemGetCudaDriverVersion_v2)
        return Host(
            name=socket.gethostname(),
            driver=ask(self._nvml.nvmlSystemGetDriverVersion),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        )

    def _with_owners(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        def named(process: Process) -> Process:
            owner = self._processes.owner(process.pid)
            return replace(
                process,
                user=owner.user,
                command=owner.command,
                started=owner.started,
                note=owner.note,
            )

        owned = tuple(
            replace(d, processes=tuple(named(p) for p in d.processes)) if d.processes else d for d in devices
        )
        self._processes.forget_all_but({p.pid for d in owned for p in d.processes or ()})
        return owned

    def _read_links(self, devices: tuple[Device, ...]) -> None:
        by_uuid = {gpu.devices[0].key: gpu for gpu in self._gpus}
        gpus = [by_uuid.get(device.key) for device in devices]

        def pair(function: Any, i: int, j: int, *more: Any) -> Any:
            one, other = gpus[i], gpus[j]
            assert one is not None and other is not None
            return one.pair(function, other, *more)

        def peers(i: int, j: int) -> bool:
            index = self._nvml.NVML_P2P_CAPS_INDEX_NVLINK
            return bool(pair(self._nvml.nvmlDeviceGetP2PStatus, i, j, index) == 0)

        def level(i: int, j: int) -> int | None:
            found: int | None = pair(self._nvml.nvmlDeviceGetTopologyCommonAncestor, i, j)
            return found

        self._links = matrix([gpu.nvlinks() if gpu else None for gpu in gpus], level, peers)
        self._linked = tuple(device.key for device in devices)


def _shut_down(nvml: Any) -> None:
    """End NVML. What it says to that changes nothing: all that was asked has been answered."""
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _binding() -> Any:
    """nvidia-ml-py's module. Raises NoSourceError when it is missing or another package has its name."""
    try:
        import pynvml
    except ImportError:
        raise NoSourceError("the package nvidia-ml-py is missing; `pip install nvidia-ml-py`") from None
    # The old PyPI package "pynvml" is a directory of that name and hides the real module (gpustat #107).
    if hasattr(pynvml, "__path__") or not hasattr(pynvml, "nvmlMemory_v2"):
        raise NoSourceError(
            f"the module pynvml at {pynvml.__file__} is not NVIDIA's; `pip uninstall pynvml` and"
            " `pip install --force-reinstall nvidia-ml-py`"
        )
    return pynvml
