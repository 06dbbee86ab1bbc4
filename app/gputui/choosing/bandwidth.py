"""NCCL's model of the bandwidth of a link, in GB/s one way: for comparisons, not a measurement. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.inventory.device import Device
from gputui.inventory.link import direct_links
from gputui.inventory.snapshot import Snapshot

Rates = Mapping[tuple[str, str], float]
"""GB/s by the keys of (source, target)."""

_PER_NVLINK: dict[int, float] = {1: 18.0, 2: 20.0, 3: 20.0, 4: 20.6, 5: 40.0}
"""GB/s of one NVLink by generation (NCCL, graph/topo.h; nominal: 20, 25, 25, 25, 50)."""

_PER_BRIDGE_LINK = 12.0
"""GB/s of one NVLink of a GA102 bridge (RTX 3090, A6000), which is slower than its generation."""

_PER_PCIE: dict[int, float] = {1: 3.0, 2: 6.0, 3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""GB/s of PCIe x16 by generation, as NCCL models it."""

_LANES = 16


def nvlink_generation(device: Device) -> int | None:
    """The generation of a device's NVLinks: 1 Pascal, 2 Volta and Turing, 3 Ampere, 4 Hopper, 5 Blackwell.

    The compute capability decides, because NVML's NvLinkVersion is an enumeration, not a generation. None
    for GPUs without NVLink, and for unknown GPUs.
    """
    capability = device.capability
    if capability is None or capability == (8, 9):
        return None
    return {6: 1, 7: 2, 8: 3, 9: 4, 10: 5}.get(capability[0])


def generation(snapshot: Snapshot, one: Device, other: Device) -> int | None:
    """The generation of the link between two devices, NVLink or else PCIe: that of the older end."""
    word = snapshot.link(one, other) or ""
    if _is_unmodelled(word):
        return None
    if direct_links(word):
        ends = [nvlink_generation(one), nvlink_generation(other)]
    else:
        ends = [_pcie(snapshot, one)[0], _pcie(snapshot, other)[0]]
    known = [end for end in ends if end is not None]
    return min(known) if len(known) == len(ends) else None


def bandwidth(snapshot: Snapshot, one: Device, other: Device) -> float | None:
    """The bandwidth between two devices in GB/s one way.

    The kernel's own figure is used where it exists. None where a fact that decides the bandwidth is unknown.
    """
    word = snapshot.link(one, other)
    told = snapshot.link_bandwidth(one, other)
    if told:
        return round(told / 1000, 1)
    if word is None or _is_unmodelled(word):
        # There is no model of AMD's and Intel's links, and the kernel reports direct links only.
        return None
    count, oldest = direct_links(word), generation(snapshot, one, other)
    if oldest is None:
        return None
    if count:
        ga102 = any(device.capability == (8, 6) for device in (one, other))
        return round(count * (_PER_BRIDGE_LINK if ga102 else _PER_NVLINK[oldest]), 1)
    lanes = [_pcie(snapshot, end)[1] for end in (one, other)]
    if None in lanes or oldest not in _PER_PCIE:
        return None
    over_pcie = _PER_PCIE[oldest] * min(lane for lane in lanes if lane is not None) / _LANES
    if word != "SYS":
        # NCCL counts NODE as PHB: the path between host bridges of one socket is not narrower.
        return round(over_pcie, 1)
    between = snapshot.topology.between_cpus if snapshot.topology else None
    return None if between is None else round(min(over_pcie, between), 1)


def _is_unmodelled(word: str) -> bool:
    """Whether the link is a direct link other than NVLink."""
    return direct_links(word) > 0 and not word.startswith("NV")


def _pcie(snapshot: Snapshot, device: Device) -> tuple[int | None, int | None]:
    """The PCIe generation of a device and its number of lanes; None for an unknown value."""
    if snapshot.topology is None:
        return None, None
    place = snapshot.topology.localities[snapshot.position[device.key]]
    return place.pcie_generation, place.pcie_width
