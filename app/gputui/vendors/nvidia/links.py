"""The matrix of links, made from NVML's answers about each GPU and each pair. Pure: `wiring.py` calls NVML.

The rules, in this order (measured on real boxes; vLLM #4159 shipped without them): if both GPUs have links to
NVSwitches, the smaller number; else active links whose remote bus id is the peer's; else active links that
end at a switch on both sides; else, where no remote id can be read (GB200, virtual machines) but the driver
grants NVLink peer access, the smaller number; else the PCIe letters. Inferred links (all rules but the
second) are dropped where the driver denies NVLink peer access.
"""

from __future__ import annotations

from collections.abc import Callable

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import SELF, LinkMatrix

UNREADABLE_BUS_ID = "FFFFFFFF:FF:FF.0"
"""GB200's answer for every remote end."""

PCIE_BY_LEVEL: dict[int, str] = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t; "internal" (two GPUs on one board) counts as one switch."""


@frozen
class NvLinks:
    """One GPU's NVLinks. `to_switches`: field NVSWITCH_CONNECTED_LINK_COUNT, None where there is none.

    `remotes` has one entry for each active link: the peer's bus id, "switch", or None where the driver does
    not report it.
    """

    bus_id: str
    to_switches: int | None = None
    remotes: tuple[str | None, ...] = ()

    @property
    def switched(self) -> bool:
        """Whether it has links to NVSwitches."""
        return bool(self.to_switches) or "switch" in self.remotes


def matrix(
    gpus: list[NvLinks | None],
    level: Callable[[int, int], int | None],
    by_nvlink: Callable[[int, int], bool | None],
) -> LinkMatrix:
    """Return the link of every pair; a GPU that is None (lost, a MIG instance) has no known links.

    `level(i, j)` is the common ancestor's level; `by_nvlink(i, j)` is whether NVLink peer access works, None
    where the driver does not report it.
    """
    cells: list[list[str | None]] = [[None] * len(gpus) for _ in gpus]
    fabric = _Fabric(by_nvlink)
    for i, one in enumerate(gpus):
        cells[i][i] = SELF
        for j in range(i):
            other = gpus[j]
            if one is None or other is None:
                continue
            # Unreadable ends may or may not be switches, so each such pair is queried.
            ask = fabric.joins if one.switched and other.switched else by_nvlink
            count = nvlinks_between(one, other, lambda i=i, j=j, ask=ask: ask(i, j))  # type: ignore[misc]
            word = f"NV{count}" if count else pcie_word(level(i, j))
            cells[i][j] = cells[j][i] = word
    return tuple(tuple(row) for row in cells)


def pcie_word(level: int | None) -> str | None:
    """Return the class of a common ancestor's level; None where it is not known."""
    return None if level is None else PCIE_BY_LEVEL.get(level)


class _Fabric:
    """The GPUs that reach each other through switches.

    GPUs that reach the same GPU reach each other, so in a box with one fabric each GPU is queried once, and
    not each pair.
    """

    def __init__(self, by_nvlink: Callable[[int, int], bool | None]) -> None:
        self._ask = by_nvlink
        self._home: dict[int, int] = {}

    def joins(self, i: int, j: int) -> bool | None:
        if self._home.get(i, i) == self._home.get(j, j):
            return True
        answer = self._ask(i, j)
        if answer and i not in self._home:
            self._home[i] = self._home.get(j, j)
        return answer


def nvlinks_between(one: NvLinks, other: NvLinks, by_nvlink: Callable[[], bool | None]) -> int:
    """Return the number of NVLinks that join two GPUs, 0 where none is known.

    Links that end at switches join only GPUs of one fabric: a partitioned box, or a box whose fabric manager
    does not run, has the links and no peer access through them.
    """
    if one.to_switches and other.to_switches:
        return min(one.to_switches, other.to_switches) if by_nvlink() is not False else 0
    # Either end may be unreadable: the other end still has the answer.
    direct = max(one.remotes.count(other.bus_id), other.remotes.count(one.bus_id))
    if direct:
        return direct
    switched = min(one.remotes.count("switch"), other.remotes.count("switch"))
    if switched:
        return switched if by_nvlink() is not False else 0
    dark = min(one.remotes.count(None), other.remotes.count(None))
    return dark if dark and by_nvlink() else 0
