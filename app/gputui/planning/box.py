"""The devices of a plan: their free memory, their links, and the host's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.choosing.bandwidth import bandwidth
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.link import LinkMatrix, direct_links
from gputui.inventory.snapshot import Snapshot

CONTEXT = GIB // 2
"""Bytes of a CUDA context with lazily loaded kernels, and of the libraries' workspaces (0.3 to 0.5 GiB)."""

COLLECTIVES_PCIE, COLLECTIVES_DIRECT = GIB // 2, 3 * GIB // 2
"""Bytes of NCCL's buffers on a device: for links over PCIe, and for a ring of direct links."""

NOMINAL_PCIE = 12.0
"""GB/s one way of PCIe where the generation or the number of lanes is unknown: 3.0 x16."""


@dataclass(frozen=True, slots=True)
class Box:
    """Devices in the order in which a launch numbers them. None means not known.

    uuids, memory_free  one value for each device; bytes
    links               row i, column j: the link between two of them, as in `Snapshot.links`
    bandwidths          GB/s (10^9 bytes a second) one way for each pair; the diagonal is None
    measured            whether some of the bandwidths were measured
    host_memory         bytes of host memory that are available
    capability          the lowest compute capability (CUDA) of the devices
    unified             whether a device's memory is the host's: offloading gains nothing
    context, collectives
                        bytes of a device that a process, and its communicators, take; `collectives` of None
                        is estimated from the links
    """

    uuids: tuple[str, ...]
    memory_free: tuple[int | None, ...]
    links: LinkMatrix
    bandwidths: tuple[tuple[float | None, ...], ...]
    measured: bool = False
    host_memory: int | None = None
    context: int = CONTEXT
    collectives: int | None = None
    capability: tuple[int, int] | None = None
    unified: bool = False

    def __len__(self) -> int:
        return len(self.uuids)

    @property
    def memory_free_min(self) -> int | None:
        """The least free memory of the devices, which decides; None where any is not known."""
        known = [free for free in self.memory_free if free is not None]
        return min(known) if known and len(known) == len(self) else None

    def direct(self, one: int, other: int) -> bool:
        """Whether a direct link (NVLink, XGMI) joins two devices."""
        return direct_links(self.links[one][other]) > 0

    def groups_are_direct(self, size: int) -> bool:
        """Whether consecutive groups of `size` devices have direct links throughout."""
        return len(self) % size == 0 and all(
            self.direct(start + i, start + j)
            for start in range(0, len(self), size)
            for i in range(size)
            for j in range(i)
        )

    @property
    def all_direct(self) -> bool:
        """Whether a ring through the devices, in their order, has direct links only."""
        return all(self.direct(*step) for step in self._ring(range(len(self))))

    @property
    def links_words(self) -> str:
        """The links that the ring through the devices uses, in words."""
        if self.all_direct:
            return "direct links"
        known = all(self.links[i][j] is not None for i, j in self._ring(range(len(self))))
        return "slow links" if known else "links that are not known"

    def fixed(self, count: int) -> int:
        """The bytes that a process takes of each of `count` devices before the model is loaded."""
        if count < 2:
            return self.context
        estimated = COLLECTIVES_DIRECT if self.all_direct else COLLECTIVES_PCIE
        return self.context + (estimated if self.collectives is None else self.collectives)

    @staticmethod
    def _ring(members: Sequence[int]) -> list[tuple[int, int]]:
        following = [*members[1:], *members[:1]] if len(members) > 2 else list(members[1:])
        return list(zip(members, following, strict=False))

    def ring_bandwidth(self, members: Sequence[int]) -> float | None:
        """The GB/s of the slowest step of a ring through these devices; None where a step is not known."""
        steps = [self.bandwidths[i][j] for i, j in self._ring(members)]
        known = [step for step in steps if step]
        return min(known) if known and len(known) == len(steps) else None


def box_of(
    snapshot: Snapshot,
    devices: Sequence[Device],
    *,
    host_memory: int | None = None,
    measured: Mapping[tuple[str, str], float] | None = None,
) -> Box:
    """The box of these devices of a snapshot.

    `measured` maps (key from, key to) to the GB/s that `check --bandwidth` measured. Other pairs use NCCL's
    model of their link; PCIe links that the model does not cover use `NOMINAL_PCIE`.
    """
    keys = {device.key for device in devices}
    found = {pair: speed for pair, speed in (measured or {}).items() if keys.issuperset(pair)}

    def between(one: Device, other: Device) -> float | None:
        if one.key == other.key:
            return None
        ways = [found.get(pair) for pair in ((one.key, other.key), (other.key, one.key))]
        known = [way for way in ways if way]
        if known:
            return min(known)
        word = snapshot.link(one, other)
        modelled = bandwidth(snapshot, one, other)
        return modelled or (NOMINAL_PCIE if word is not None and not direct_links(word) else None)

    return Box(
        uuids=tuple(device.uuid for device in devices),
        memory_free=tuple(snapshot.memory_free(device) for device in devices),
        links=tuple(tuple(snapshot.link(one, other) for other in devices) for one in devices),
        bandwidths=tuple(tuple(between(one, other) for other in devices) for one in devices),
        measured=bool(found),
        host_memory=host_memory,
        capability=min((each.capability for each in devices if each.capability is not None), default=None),
        unified=any(device.unified for device in devices),
    )
