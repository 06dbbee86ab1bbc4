"""The page of a simulated device, and the load of the simulated machine: pure, as in `motion.py`."""

from __future__ import annotations

from gputui.inventory.device import Among, Device
from gputui.inventory.formatting import GIB, MIB
from gputui.inventory.light_dataclasses import fields, replace
from gputui.inventory.link import direct_links
from gputui.inventory.process import Process
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.sources.simulated.motion import noise
from gputui.sources.simulated.spec import Box, Gpu

_SLOWDOWN, _SHUTDOWN = 92, 95
_IDLE_MEMORY_CLOCK = 405
_PCIE, _NVLINK = 3e9, 60e9
"""Bytes per second of a GPU that is busy all the time."""
_JOULES_SINCE = 1_700_000_000
"""When the driver of every simulated box was loaded; its GPUs have drawn 100 W since."""
_CPUS_A_NODE = 32
_HOST_MEMORY = 64 * GIB
"""RAM per GPU."""


def detailed(snapshot: Snapshot, box: Box, elapsed: float, among: Among = None) -> Snapshot:
    """Return the snapshot with telemetry of GPUs and their processes' activity, for the
    devices of `among`."""
    return replace(
        snapshot,
        devices=tuple(
            _detailed(snapshot, box, device, elapsed) if among is None or device.key in among else device
            for device in snapshot.devices
        ),
    )


def host_load(snapshot: Snapshot, box: Box, elapsed: float) -> HostLoad:
    """Return the load of the machine: each busy GPU keeps some CPUs busy, too."""
    loads = [device.utilization or 0 for device in snapshot.devices if device.parent is None]
    cpus = _CPUS_A_NODE * len({gpu.numa for gpu in box.gpus})
    cpu = min(100.0, max(1.0, sum(loads) * 0.06 + 3 + 2 * noise(box, "host", elapsed, 0)))
    total = _HOST_MEMORY * max(1, len(box.gpus)) if box.ram is None else box.ram * MIB
    # Where GPUs have no memory of their own, a process's memory on a GPU is also the machine's.
    used = sum(
        (_host_memory(p) or 0) if box.ram is None else p.memory or 0
        for d in snapshot.devices
        for p in d.processes or ()
    )
    return HostLoad(
        cpu=round(cpu, 1),
        load=round(cpus * cpu / 100 * (1 + 0.1 * noise(box, "host", elapsed, 1)), 2),
        cpus=cpus,
        memory_used=min(total, total // 16 + used),
        memory_total=total,
    )


def _detailed(snapshot: Snapshot, box: Box, device: Device, elapsed: float) -> Device:
    if device.fault:
        return device
    label = snapshot.label(device)
    processes = device.processes and tuple(
        _active(box, device, process, label, elapsed) for process in device.processes
    )
    if device.parent is not None:
        return replace(device, processes=processes)
    gpu = box.gpus[box.place(device)]
    if "telemetry" in gpu.unsupported:
        return replace(device, processes=processes)
    telemetry = _telemetry(snapshot, box, device, gpu, elapsed)
    return replace(device, processes=processes, telemetry=telemetry)


def _telemetry(snapshot: Snapshot, box: Box, device: Device, gpu: Gpu, elapsed: float) -> Telemetry:
    label, busy, hot = str(device.index), device.utilization or 0, device.temperature
    rests = gpu.rests and not busy
    linked = any(direct_links(snapshot.link(device, other)) for other in snapshot.devices if other != device)

    def moved(most: float, salt: int) -> float:
        return round(most * busy / 100 * (1 + 0.15 * noise(box, label, elapsed, salt)))

    def percent(share: float, salt: int) -> float | None:
        if device.mig:
            return None
        return round(min(100.0, max(0.0, busy * share * (1 + 0.05 * noise(box, label, elapsed, salt)))), 1)

    by_bus = sorted(d.pci_bus_id or "" for d in snapshot.devices if d.vendor == "amd")
    told = Telemetry(
        tool_index=by_bus.index(device.pci_bus_id or "") if device.vendor == "amd" else None,
        encoder=0,
        decoder=0,
        memory_clock=_IDLE_MEMORY_CLOCK if gpu.memory_clock and rests else gpu.memory_clock,
        max_memory_clock=gpu.memory_clock,
        fan=min(100, max(0, hot - 30) * 2) if hot else None,
        memory_temperature=hot + 8 if hot else None,
        slowdown_temperature=_SLOWDOWN if hot else None,
        shutdown_temperature=_SHUTDOWN if hot else None,
        throttle=device.throttled,
        performance_state=0 if busy else 8,
        persistence=True,
        ecc_corrected=2 if device.index == 1 else 0,
        ecc_uncorrected=0,
        retired_pages=0,
        remapped_rows=0,
        pcie_generation=1 if rests else gpu.generation,
        pcie_width=gpu.lanes,
        max_pcie_generation=gpu.generation,
        max_pcie_width=16,
        pcie_sent=moved(_PCIE / 3, 10),
        pcie_received=moved(_PCIE, 11),
        nvlink_sent=moved(_NVLINK, 12) if linked else None,
        nvlink_received=moved(_NVLINK, 13) if linked else None,
        sm_active=percent(0.84, 14),
        sm_occupancy=percent(0.42, 15),
        tensor_active=percent(0.31, 16),
        energy=max(0.0, (snapshot.time - _JOULES_SINCE) * 100 * (1 + 0.3 * noise(box, label, 0.0, 17))),
    )
    return replace(told, **{fact.name: None for fact in fields(Telemetry) if fact.name in gpu.unsupported})


def _active(box: Box, device: Device, process: Process, label: str, elapsed: float) -> Process:
    """Return the process with its activity: the processes of a GPU share its time by their memory."""
    whole = sum(each.memory or 1 for each in device.processes or ())
    share = (process.memory or 1) / whole
    sm = None if device.utilization is None or device.mig else round(device.utilization * share)
    works = process.kind != "graphics" and (sm is None or sm > 0)
    if device.parent is None and "sm" in box.gpus[box.place(device)].unsupported:
        sm = None
    cpu = (105 if works else 2) + (15 if works else 1) * noise(box, label, elapsed, process.pid + 20)
    return replace(process, sm=sm, host_cpu=round(cpu, 1), host_memory=_host_memory(process))


def _host_memory(process: Process) -> int:
    """Return 1.0 to 8.9 GiB, always the same for one process."""
    return GIB if process.kind == "graphics" else (10 + process.pid % 80) * GIB // 10
