"""A snapshot as the box file that the library reads. `native/box.c` describes the file.

This module makes up the facts that NVML has and a snapshot lacks (architecture, ECC, CPUs, the end of each
NVLink) from the device's name and compute capability, as the real products answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from gputui.inventory.device import COMPUTE_MODES, Device
from gputui.inventory.formatting import MIB
from gputui.inventory.link import PEER_WORDS, SELF, connected_components, direct_links
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, ranges
from gputui.sources.simulated.spec import Box

Facts = Mapping[str, int | None]
"""Numbers of the box file by key; None: not supported."""

RESERVED = 256 * MIB
"""Bytes of each GPU that the driver reserves, reported as `nvmlMemory_v2_t.reserved`."""

CPUS_A_NODE = 32

UNREADABLE = "FFFFFFFF:FF:FF.0"
"""The answer of GB200 for the remote end of every NVLink."""

_PEERS = {word: status for status, word in enumerate(PEER_WORDS)}
_LEVELS = {SELF: 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
_FAULTS = {"lost": 15, "reset": 16, "error": 999}
_LISTS = {"compute": "c", "graphics": "g", "compute+graphics": "cg", "mps": "m"}
_ARCHITECTURES = {"6.": 4, "7.0": 5, "7.5": 6, "8.9": 8, "8.": 7, "9.": 9, "10.": 10, "12.": 10}
_NVLINK_VERSIONS = {"6.": 1, "7.": 2, "8.": 4, "9.": 6, "10.": 7}
_MIG_CAPABLE = ("8.0", "9.0", "10.0")
_GEFORCE, _TESLA, _NVIDIA = 5, 2, 14
_MOST_INSTANCES = 7
_MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
_ENERGY_SINCE = 1_700_000_000
_BYTES_PER_SECOND = 2**30
_REASONS = {"power limit": 0x4, "hardware slowdown": 0x8, "thermal": 0x20, "thermal, hardware": 0x40}
_IDLE = 0x1


def render(
    snapshot: Snapshot,
    box: Box | None = None,
    facts: Mapping[str, Facts] | None = None,
    unreadable_links: bool = False,
) -> str:
    """The box file of `snapshot`.

    box               adds facts that the snapshot lacks: whether NVLinks go to switches, and which
    facts             numbers to add or to replace, by label ("3", "0:1"); None takes one away
    unreadable_links  the driver does not report the ends of NVLinks, as on GB200 and in virtual machines
    """
    host = snapshot.host
    lines = [f"driver {host.driver or '550.54.15'}"]
    if host.cuda:
        major, _, minor = host.cuda.partition(".")
        lines.append(f"cuda {int(major) * 1000 + int(minor) * 10}")
    gpus = [device for device in snapshot.devices if device.parent is None]
    for device in snapshot.devices:
        lines += _device(snapshot, device, gpus, box, unreadable_links, facts or {})
    return "\n".join(lines) + "\n"


def _device(
    snapshot: Snapshot,
    device: Device,
    gpus: list[Device],
    box: Box | None,
    unreadable_links: bool,
    facts: Mapping[str, Facts],
) -> Iterator[str]:
    label = snapshot.label(device)
    yield f"{'instance' if device.parent else 'gpu'} {device.index} {device.uuid or f'lost-{label}'}"
    yield f"name {_line(device.name or 'Unknown')}"
    if device.pci_bus_id:
        yield f"bus {device.pci_bus_id}"
    place = _place(snapshot, device)
    numbers = _numbers(device) | _hung(place)
    numbers |= _instance(device) if device.parent else _gpu(device, snapshot.time)
    numbers |= _telemetry(device, snapshot.time)
    for key, value in {**numbers, **facts.get(label, {})}.items():
        if value is not None:
            yield f"{key} {value}"
    yield from _near(place)
    if device.parent is None:
        yield "levels " + " ".join(str(_level(snapshot, device, other)) for other in gpus)
        if snapshot.peers:
            yield "peers " + " ".join(str(_PEERS.get(snapshot.peer(device, o), -1)) for o in gpus)
        yield from _links(snapshot, device, gpus, _switch(box, device), unreadable_links)
    for process in device.processes or ():
        yield _process(process)


def _numbers(device: Device) -> dict[str, int | None]:
    """The numbers of the snapshot itself, and those derived from it for GPUs and instances alike."""
    major, _, minor = (device.compute_capability or "").partition(".")
    return {
        "fault": _FAULTS[device.fault.kind] if device.fault else None,
        "memory_total": device.memory_total,
        "memory_reserved": RESERVED if device.memory_total else None,
        "memory_used": device.memory_used,
        "memory_free": device.memory_free,
        "utilization": device.utilization,
        "memory_utilization": device.memory_utilization,
        "temperature": device.temperature,
        "power": _milli(device.power),
        "sm_clock": device.sm_clock,
        "max_sm_clock": device.max_sm_clock,
        "cores": device.cores,
        "capability_major": int(major) if major else None,
        "capability_minor": int(minor) if minor else None,
        "lists_processes": None if device.processes is None else 1,
    }


def _gpu(device: Device, moment: float) -> dict[str, int | None]:
    name, capability = device.name or "", device.compute_capability or ""
    consumer = "GeForce" in name or "GB10" in name
    limit = _milli(device.power_limit)
    capable = bool(device.mig) or capability in _MIG_CAPABLE
    return {
        "power_limit": limit,
        "power_limit_min": limit // 2 if limit else None,
        "power_limit_max": limit,
        "mig": int(bool(device.mig)) if capable else None,
        "instances_most": _MOST_INSTANCES if capable else None,
        "brand": _GEFORCE if "GeForce" in name else _TESLA if "Tesla" in name else _NVIDIA,
        "architecture": _by_capability(_ARCHITECTURES, capability),
        "nvlink_version": _by_capability(_NVLINK_VERSIONS, capability),
        "ecc": None if consumer else 1,
        "display": int(bool(device.display)),
        "compute_mode": 0 if device.compute_mode is None else COMPUTE_MODES.index(device.compute_mode),
        # The counter of a real GPU only ever grows: 100 W since a moment long ago.
        "energy": None if device.power is None else max(0, int((moment - _ENERGY_SINCE) * 100_000)),
    }


def _telemetry(device: Device, moment: float) -> dict[str, int | None]:
    """The values of the page of a device. Counters grow evenly: the reader computes the rates."""
    told = device.telemetry
    if told is None:
        return {"clock_reasons": _clock_reasons(device)}
    counted = max(0, int((moment - _ENERGY_SINCE) * _BYTES_PER_SECOND))
    return {
        "clock_reasons": _clock_reasons(device),
        "encoder": told.encoder,
        "decoder": told.decoder,
        "memory_clock": told.memory_clock,
        "max_memory_clock": told.max_memory_clock,
        "fan": told.fan,
        "memory_temperature": told.memory_temperature,
        "ecc_corrected": told.ecc_corrected,
        "ecc_uncorrected": told.ecc_uncorrected,
        "retired": told.retired_pages,
        "remapped": told.remapped_rows,
        "pcie_generation_now": told.pcie_generation,
        "pcie_width_now": told.pcie_width,
        "pcie_sent": None if told.pcie_sent is None else counted,
        "pcie_received": None if told.pcie_received is None else counted // 2,
        "nvlink_sent": None if told.nvlink_sent is None else counted // 1024,
        "nvlink_received": None if told.nvlink_received is None else counted // 2048,
        "gpm": None if told.sm_active is None else 1,
        "sm_active": _milli(told.sm_active),
        "sm_occupancy": _milli(told.sm_occupancy),
        "tensor_active": _milli(told.tensor_active),
        "samples_processes": None if device.mig or device.processes is None else 1,
    }


def _clock_reasons(device: Device) -> int | None:
    if device.throttled is None:
        return None
    bits = sum(_REASONS[word] for word in device.throttled)
    return bits or (0 if device.utilization else _IDLE)


def _instance(device: Device) -> dict[str, int | None]:
    slices = re.search(r"MIG (\d)g\.", device.name or "")
    return {
        "gpu_instance": device.index + 1,
        "compute_instance": 0,
        "slices": int(slices[1]) if slices else None,
    }


def _place(snapshot: Snapshot, device: Device) -> Locality:
    """The locality of the device; without a topology in the snapshot it follows from the NUMA node."""
    if snapshot.topology:
        return snapshot.topology.localities[snapshot.position[device.key]]
    node = device.numa_node
    first = (node or 0) * CPUS_A_NODE
    cpus = tuple(range(first, first + CPUS_A_NODE))
    return Locality(cpus, None if node is None else (node,), pcie_generation=4, pcie_width=16)


def _hung(place: Locality) -> dict[str, int | None]:
    return {
        "gpu_numa_node": place.own_node,
        "pcie_generation": place.pcie_generation,
        "pcie_width": place.pcie_width,
        "pcie_generation_now": place.pcie_generation,
        "pcie_width_now": place.pcie_width,
    }


def _near(place: Locality) -> Iterator[str]:
    if place.cpus is not None:
        yield f"cpus {ranges(place.cpus)}"
    if place.memory_nodes is not None:
        yield f"nodes {ranges(place.memory_nodes)}"


def _switch(box: Box | None, device: Device) -> str | None:
    """The bus id of the switches that the device's NVLinks go to, None where they go from GPU to GPU."""
    if box is None or not box.switched:
        return None
    return f"00000000:FE:{_fabrics(box)[device.index]:02X}.0"


@lru_cache(maxsize=4)
def _fabrics(box: Box) -> tuple[int, ...]:
    """The group of each GPU, as a number: NVLinks join the GPUs of a group, directly or through others."""
    return connected_components(len(box.gpus), lambda i, j: direct_links(box.links[i][j]) > 0)


def _level(snapshot: Snapshot, one: Device, other: Device) -> int:
    """The common ancestor of two GPUs on PCIe; for a pair with NVLinks only, the NUMA nodes decide."""
    if snapshot.pcie:
        return _LEVELS.get(snapshot.pcie_class(one, other) or "", -1)
    word = snapshot.link(one, other)
    if word is None:
        return -1
    if direct_links(word):
        return _LEVELS["NODE" if one.numa_node == other.numa_node else "SYS"]
    return _LEVELS[word]


def _links(
    snapshot: Snapshot, device: Device, gpus: Iterable[Device], switch: str | None, unreadable: bool
) -> Iterator[str]:
    counts = {
        other.pci_bus_id: direct_links(snapshot.link(device, other)) for other in gpus if other != device
    }
    if switch:
        for _ in range(max(counts.values(), default=0)):
            yield f"link unknown {UNREADABLE}" if unreadable else f"link switch {switch}"
        return
    if sum(counts.values()) > _MOST_LINKS:
        raise ValueError(f"a GPU has no {sum(counts.values())} direct NVLinks; show its switched box with it")
    for bus_id, count in counts.items():
        for _ in range(count):
            yield f"link unknown {UNREADABLE}" if unreadable else f"link gpu {bus_id}"


def _process(process: Process) -> str:
    memory = "-" if process.memory is None else str(process.memory)
    sm = "" if process.sm is None else f" {process.sm}"
    return f"process {_LISTS[process.kind]} {process.pid} {memory}{sm}"


def _by_capability(table: Mapping[str, int], capability: str) -> int | None:
    return next((value for start, value in table.items() if capability.startswith(start)), None)


def _milli(watts: float | None) -> int | None:
    return None if watts is None else round(watts * 1000)


def _line(text: str) -> str:
    if "\n" in text:
        raise ValueError(f"a name of one line is wanted, not {text!r}")
    return text
