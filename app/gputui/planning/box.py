"""The devices of a plan: their free memory, their links, and the host's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputui.choosing.bandwidth import Rates, bandwidth
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, size
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import LinkMatrix, direct_links
from gputui.inventory.snapshot import Snapshot

CONTEXT, LARGE_CONTEXT = GIB // 2, 3 * GIB // 4
"""Bytes of a CUDA context with lazily loaded kernels, and of the libraries that it loads: 0.3 to 0.5 GiB.
On an H200 (driver 580, PyTorch 2.11) it is 610 MiB for a first tensor and 758 MiB while it trains, so devices
of compute capability 9 and above count as that large."""

COLLECTIVES_PCIE, COLLECTIVES_DIRECT = GIB // 2, 3 * GIB // 2
"""Bytes of NCCL's buffers on a device: for links over PCIe, and for a ring of direct links."""

NOMINAL_PCIE = 12.0
"""GB/s one way of PCIe where the generation or the number of lanes is unknown: 3.0 x16."""


@frozen
class Box:
    """Devices in the order in which a launch numbers them. None means not known.

    uuids, memory_free  one value for each device; bytes
    links               row i, column j: the link between two of them, as in `Snapshot.links`
    bandwidths          GB/s (10^9 bytes a second) one way for each pair; the diagonal is None
    measured            whether some of the bandwidths were measured
    host_memory         bytes of host memory that are available
    capability          the lowest compute capability (CUDA) of the devices
    unified             whether a device's memory is the host's: offloading gains nothing
    nodes, network      equal machines, and the GB/s of the network of each: the other fields are of the first
                        of them, and each has as many consecutive devices
    memory_total        the least bytes of a device that programs can use, 0 where they are not known
    a100                whether a device is an A100
    """

    uuids: tuple[str, ...]
    memory_free: tuple[int | None, ...]
    links: LinkMatrix
    bandwidths: tuple[tuple[float | None, ...], ...]
    measured: bool = False
    host_memory: int | None = None
    capability: tuple[int, int] | None = None
    unified: bool = False
    nodes: int = 1
    network: float = 0.0
    memory_total: int = 0
    a100: bool = False

    def __len__(self) -> int:
        return len(self.uuids) * self.nodes

    @property
    def local(self) -> int:
        """The number of devices of one machine."""
        return len(self.uuids)

    @property
    def memory_free_min(self) -> int | None:
        """The least free memory of the devices, which decides; None where any is not known."""
        known = [free for free in self.memory_free if free is not None]
        return min(known) if known and len(known) == self.local else None

    @property
    def free_words(self) -> str:
        """ "23.7G free on each"."""
        return f"{size(self.memory_free_min)} free{' on each' if self.local > 1 else ''}"

    @property
    def link_words(self) -> str:
        """The kinds of links between the devices that are known, and the speed: "NV4, PHB 24 GB/s"."""
        found = {self.links[i][j] or "" for i in range(self.local) for j in range(i)}
        speed = self.slowest([range(self.local)])
        words = f"{speed:.0f} GB/s{' measured' if self.measured else ''}" if speed else ""
        return f"{', '.join(sorted(filter(None, found)))} {words}".strip()

    def direct(self, one: int, other: int) -> bool:
        """Whether a direct link (NVLink, XGMI) joins two devices."""
        return direct_links(self.links[one][other]) > 0

    def groups_are_direct(self, size: int) -> bool:
        """Whether consecutive groups of `size` devices have direct links throughout."""
        return self.local % size == 0 and all(
            self.direct(start + i, start + j)
            for start in range(0, self.local, size)
            for i in range(size)
            for j in range(i)
        )

    @property
    def all_direct(self) -> bool:
        """Whether a ring through the devices, in their order, has direct links only."""
        ring = self._ring(range(self.local))
        return self.nodes == 1 and all(self.direct(*step) for step in ring)

    @property
    def slow(self) -> bool:
        """Whether the links are known, and not all direct. A network is slow where a device's part of it is
        slower than PCIe."""
        if self.nodes > 1:
            return self.network < NOMINAL_PCIE * self.local
        known = all(self.links[i][j] is not None for i, j in self._ring(range(len(self))))
        return known and not self.all_direct

    @property
    def links_words(self) -> str:
        """The links that the ring through the devices uses, in words."""
        if self.nodes > 1:
            return f"{'slow' if self.slow else 'fast'} links between machines"
        if self.all_direct:
            return "direct links"
        return "slow links" if self.slow else "links that are not known"

    @property
    def context(self) -> int:
        """The bytes that a process takes of a device before it has a tensor."""
        return LARGE_CONTEXT if self.capability is not None and self.capability >= (9, 0) else CONTEXT

    def fixed(self, count: int) -> int:
        """The bytes that a process takes of each of `count` devices before the model is loaded."""
        if count < 2:
            return self.context
        return self.context + (COLLECTIVES_DIRECT if self.all_direct else COLLECTIVES_PCIE)

    @staticmethod
    def _ring(members: Sequence[int]) -> list[tuple[int, int]]:
        following = [*members[1:], *members[:1]] if len(members) > 2 else list(members[1:])
        return list(zip(members, following, strict=False))

    def slowest(self, groups: Iterable[Sequence[int]]) -> float | None:
        """The GB/s of the slowest of the rings through these groups, all used at once; None where one is not
        known. Rings between machines share the network of each; of equal machines the first one is enough."""
        local, leaving, known = self.local, [0] * self.nodes, []
        rings = (self._ring(members) for members in groups if members[0] < local)
        for one, other in (step for ring in rings for step in ring):
            machine, start = divmod(one, local)
            if other // local != machine:
                leaving[machine] += 1
                continue
            rate = self.bandwidths[start][other % local]
            if not rate:
                return None
            known.append(rate)
        if any(leaving):
            known.append(self.network / max(leaving))
        return min(known, default=None)


def box_of(
    snapshot: Snapshot,
    devices: Sequence[Device],
    measured: Rates | None = None,
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
        host_memory=snapshot.host.memory_free,
        capability=min((each.capability for each in devices if each.capability is not None), default=None),
        unified=any(device.unified for device in devices),
        memory_total=min((_usable(snapshot, device) for device in devices), default=0),
        a100=any("A100" in (device.name or "") for device in devices),
    )


def _usable(snapshot: Snapshot, device: Device) -> int:
    """The bytes that programs can use, without what the driver reserves; 0 where they are not known."""
    (used, total), free = snapshot.memory(device), snapshot.memory_free(device)
    if used is None or total is None or free is None:
        return 0
    return min(total, used + free) - (device.memory_idle or 0)
