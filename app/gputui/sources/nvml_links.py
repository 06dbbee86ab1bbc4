"""The matrix of links out of what NVML tells of each GPU and each pair. Pure: NVML itself is in `nvml.py`.

The rules, in this order (facts measured on real boxes; vLLM #4159 shipped what happens without them):
both GPUs have links to NVSwitches: the smaller number; else active links whose remote bus id is the
peer's; else active links that end at a switch on both sides; else, where no remote id can be read (GB200,
virtual machines) but the driver grants NVLink peer access: the smaller number; else the PCIe letters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gputui.inventory.link import SELF, LinkMatrix

UNREADABLE_BUS_ID = "FFFFFFFF:FF:FF.0"
"""What GB200 answers for every remote end."""

PCIE_BY_LEVEL: dict[int, str] = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t, "internal" (two GPUs on one board) counted as one switch."""


@dataclass(frozen=True, slots=True)
class NvLinks:
    """One GPU's NVLinks. `to_switches`: field NVSWITCH_CONNECTED_LINK_COUNT, None where there is none.

    `remotes` has one entry for each active link: the peer's bus id, "switch", or None where the driver
    does not tell.
    """

    bus_id: str
    to_switches: int | None = None
    remotes: tuple[str | None, ...] = ()


def matrix(
    gpus: list[NvLinks | None],
    level: Callable[[int, int], int | None],
    nvlink_peers: Callable[[int, int], bool],
) -> LinkMatrix:
    """The link of every pair; a GPU that is None (lost, a MIG instance) has no known links.

    `level(i, j)` is the common ancestor's level, `nvlink_peers(i, j)` whether NVLink peer access works.
    """
    cells: list[list[str | None]] = [[None] * len(gpus) for _ in gpus]
    for i, one in enumerate(gpus):
        cells[i][i] = SELF
        for j in range(i):
            other = gpus[j]
            if one is None or other is None:
                continue
            count = nvlinks_between(one, other, lambda i=i, j=j: nvlink_peers(i, j))  # type: ignore[misc]
            word = f"NV{count}" if count else PCIE_BY_LEVEL.get(_known(level(i, j)))
            cells[i][j] = cells[j][i] = word
    return tuple(tuple(row) for row in cells)


def nvlinks_between(one: NvLinks, other: NvLinks, peers: Callable[[], bool]) -> int:
    """How many NVLinks join two GPUs, 0 where none is known to."""
    if one.to_switches and other.to_switches:
        return min(one.to_switches, other.to_switches)
    # Either end may be unreadable: the other one still tells.
    direct = max(one.remotes.count(other.bus_id), other.remotes.count(one.bus_id))
    if direct:
        return direct
    switched = min(one.remotes.count("switch"), other.remotes.count("switch"))
    if switched:
        return switched
    dark = min(one.remotes.count(None), other.remotes.count(None))
    return dark if dark and peers() else 0


def _known(level: int | None) -> int:
    return -1 if level is None else level
