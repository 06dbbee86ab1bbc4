"""The devices that can be had, as numbers to compare: how strong each pair is, and what it is worth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB
from gputui.inventory.link import LinkMatrix, PeerMatrix, connected_components, direct_links, strength
from gputui.inventory.snapshot import Snapshot

T = TypeVar("T")

_NO_PEER_ACCESS = 1000
_NOT_KNOWN = -10_000
_WORTH: dict[str, int] = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50}
_WORTH_OF_NVLINK = 100
"""What a pair is worth: its PCIe class, and 100 for each NVLink (NVIDIA's go-gpuallocator)."""


@dataclass(frozen=True)
class Pairs:
    """Numbers of `devices`, which are in the box's order. Everything below goes by their place in it.

    rank   how strong the link of a pair is, to be compared only: usable at all (peer access), then the kind
           of link, then how many; what is not known ranks below everything that is
    worth  what the pair adds to a sum of links
    """

    devices: tuple[Device, ...]
    words: LinkMatrix
    peers: PeerMatrix
    rank: tuple[tuple[int, ...], ...]
    worth: tuple[tuple[int, ...], ...]
    node: tuple[int, ...]
    memory: tuple[int, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, devices: Sequence[Device]) -> Pairs:
        """The pairs of these devices of the snapshot."""
        return cls(
            devices=tuple(devices),
            words=tuple(tuple(snapshot.link(one, other) for other in devices) for one in devices),
            peers=tuple(tuple(snapshot.peer(one, other) for other in devices) for one in devices),
            rank=tuple(tuple(_rank(snapshot, one, other) for other in devices) for one in devices),
            worth=tuple(tuple(_worth(snapshot, one, other) for other in devices) for one in devices),
            node=_nodes(snapshot, devices),
            # To the nearest GiB: a few MiB that a driver keeps on one of two equal GPUs are no reason.
            memory=tuple(round((device.memory_free or 0) / GIB) for device in devices),
        )

    def among(self, places: Sequence[int]) -> Pairs:
        """The same numbers of some of the devices only."""

        def square(table: Sequence[Sequence[T]]) -> tuple[tuple[T, ...], ...]:
            return tuple(tuple(table[i][j] for j in places) for i in places)

        return Pairs(
            devices=tuple(self.devices[i] for i in places),
            words=square(self.words),
            peers=square(self.peers),
            rank=square(self.rank),
            worth=square(self.worth),
            node=tuple(self.node[i] for i in places),
            memory=tuple(self.memory[i] for i in places),
        )

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Every rank that a pair has, the strongest first."""
        count = len(self)
        return tuple(sorted({self.rank[i][j] for i in range(count) for j in range(i)}, reverse=True))

    @cached_property
    def degree(self) -> tuple[int, ...]:
        """What all pairs of a device are worth: what is lost to the others when it is taken."""
        return tuple(sum(row) for row in self.worth)

    @cached_property
    def total(self) -> int:
        """What all pairs are worth."""
        return sum(self.degree) // 2

    @cached_property
    def twins(self) -> tuple[tuple[int, ...], ...]:
        """Devices in classes of those that are all the same to a choice: of a class the first are taken."""
        classes: list[list[int]] = []
        for i in range(len(self)):
            for group in classes:
                if self._alike(group[0], i):
                    group.append(i)
                    break
            else:
                classes.append([i])
        return tuple(map(tuple, classes))

    def _alike(self, i: int, j: int) -> bool:
        if (self.node[i], self.memory[i]) != (self.node[j], self.memory[j]):
            return False
        if (self.devices[i].parent is None) != (self.devices[j].parent is None):
            return False
        return all(
            self.rank[i][k] == self.rank[j][k] and self.worth[i][k] == self.worth[j][k]
            for k in range(len(self))
            if k not in (i, j)
        )

    def sum(self, members: Sequence[int]) -> int:
        """What the pairs among `members` are worth."""
        return sum(self.worth[i][j] for place, i in enumerate(members) for j in members[:place])

    def nodes(self, members: Sequence[int]) -> int:
        """On how many NUMA nodes they are."""
        return len({self.node[i] for i in members})

    def weakest(self, members: Sequence[int]) -> int | None:
        """The rank of the weakest pair among `members`, None for fewer than two."""
        ranks = (self.rank[i][j] for place, i in enumerate(members) for j in members[:place])
        return min(ranks, default=None)

    def word_of(self, members: Sequence[int], rank: int | None) -> str | None:
        """The link of that rank among `members`, None where there is none."""
        words = (
            self.words[i][j]
            for place, i in enumerate(members)
            for j in members[:place]
            if self.rank[i][j] == rank
        )
        return next(words, None)

    def denied(self, members: Sequence[int], rank: int) -> bool:
        """Whether the driver says that a pair of that rank has no peer access."""
        return any(
            self.rank[i][j] == rank and self.peers[i][j] not in (None, "OK", "U")
            for place, i in enumerate(members)
            for j in members[:place]
        )

    def left(self, members: Sequence[int]) -> int:
        """What the pairs of all the others are worth."""
        return self.total - sum(self.degree[i] for i in members) + self.sum(members)


def _rank(snapshot: Snapshot, one: Device, other: Device) -> int:
    if one is other:
        return _NOT_KNOWN
    word = snapshot.link(one, other)
    if word is None:
        return _NOT_KNOWN
    return strength(word) - (0 if snapshot.peer(one, other) == "OK" else _NO_PEER_ACCESS)


def _worth(snapshot: Snapshot, one: Device, other: Device) -> int:
    if one is other:
        return 0
    word = snapshot.link(one, other)
    pcie = snapshot.pcie_class(one, other) or word
    return _WORTH.get(pcie or "", 0) + _WORTH_OF_NVLINK * direct_links(word)


def _nodes(snapshot: Snapshot, devices: Sequence[Device]) -> tuple[int, ...]:
    """A number for each device's NUMA node: who is nearer than SYS is on the same one.

    By the links, which every reading has; without them by what the devices say. Not known is a node apart.
    """
    if not snapshot.pcie:
        return tuple(-1 - i if d.numa_node is None else d.numa_node for i, d in enumerate(devices))
    return connected_components(
        len(devices), lambda i, j: snapshot.pcie_class(devices[i], devices[j]) not in (None, "SYS")
    )
