"""The PCIe tree of a box: NUMA nodes, host bridges and switches with the GPUs and NICs below them. Pure.

It is derived from the PCIe class of every pair, as NVML and recordings tell nothing else about the bridges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations

from gputui.choosing.links import on_one_node
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.link import PCIE_CLASSES, connected_components, direct_links, family, strength
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Nic, Topology

_JOINED_BY: tuple[tuple[str, str], ...] = (
    ("NODE", "NUMA node"),
    ("PHB", "host bridge"),
    ("PXB", "PCIe switches"),
    ("PIX", "PCIe switch"),
)
"""From the outermost one: a class, and what devices that are joined by it, or closer, have in common."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the tree. `members` are branches, whole devices and NICs, in the box's order."""

    name: str
    members: tuple[Branch | Device | Nic, ...]


Classes = Mapping[tuple[str, str], str]
"""The PCIe classes of pairs of devices, by their keys, as they were known once (`Watch.pcie`)."""


def tree(snapshot: Snapshot, before: Classes | None = None) -> tuple[Branch, ...]:
    """The NUMA nodes of the box with all below them; () if the links have not been read.

    A device that is lost has no classes any more: it stays where it was `before`, else at its NUMA node.
    """
    if not snapshot.pcie:
        return ()
    things: list[Device | Nic] = [device for device in snapshot.devices if device.parent is None]
    topology = snapshot.topology
    things += topology.nics if topology else ()
    words = _words(snapshot, things, before or {})
    branches = []
    home = connected_components(len(things), lambda i, j: on_one_node(things[i], things[j], words[i][j]))
    for first in sorted(set(home)):
        group = [i for i, at in enumerate(home) if at == first]
        level = _innermost(words, group, 0)
        inside = _inside(things, words, group, level)
        if level > 0 and len(group) > 1:
            inside = (Branch(_JOINED_BY[level][1], inside),)
        branches.append(Branch(_node_name([things[i] for i in group]), inside))
    return tuple(branches)


Drawn = tuple[str, Device | Nic | None]


def lines(snapshot: Snapshot, before: Classes | None = None) -> list[Drawn]:
    """The tree as lines: (indentation, its device or NIC), or (the whole text of a branch, None).

    The MIG instances of a GPU hang below it.
    """
    drawn: list[Drawn] = []
    for branch in tree(snapshot, before):
        drawn.append((branch.name, None))
        drawn += _drawn(snapshot, branch.members, "")
    return drawn


def _drawn(snapshot: Snapshot, members: Sequence[Branch | Device | Nic], indent: str) -> Iterator[Drawn]:
    for place, member in enumerate(members):
        last = place == len(members) - 1
        head, below = indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")
        if isinstance(member, Branch):
            yield head + member.name, None
            yield from _drawn(snapshot, member.members, below)
        else:
            yield head, member
            if isinstance(member, Device):
                yield from _drawn(snapshot, snapshot.instances(member), below)


def links_in_words(snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    """The direct links, each kind: what they are called, and its pairs, or "between all of" the GPUs that it
    joins, or "between all 8 GPUs" of the box."""
    devices = [device for device in snapshot.devices if device.parent is None]
    described = []
    words = {word for a, b in permutations(devices, 2) if (word := snapshot.link(a, b))}
    for word in sorted(filter(direct_links, words), key=strength, reverse=True):
        # (What one side of a pair tells counts: a recording may tell the two sides differently.)
        joined = [[word in (snapshot.link(a, b), snapshot.link(b, a)) for b in devices] for a in devices]
        home = _components(joined)
        parts = []
        for first in sorted(set(home)):
            group = [i for i, at in enumerate(home) if at == first]
            pairs = [(i, j) for i, j in combinations(group, 2) if joined[i][j]]
            if len(group) > 2 and len(pairs) == len(group) * (len(group) - 1) // 2:
                if len(group) == len(devices):
                    parts.append(f"between all {len(group)} GPUs")
                    continue
                parts.append(f"between all of {snapshot.labels([devices[i] for i in group])}")
            else:
                parts += [f"{snapshot.label(devices[i])}━{snapshot.label(devices[j])}" for i, j in pairs]
        name = family(word)
        described.append((name, "  ".join([*parts] if name == word else [f"{word} {parts[0]}", *parts[1:]])))
    return tuple(described)


def _components(joined: Sequence[Sequence[bool]]) -> tuple[int, ...]:
    """For each row the first row of its connected component."""
    return connected_components(len(joined), lambda i, j: joined[i][j])


def _inside(
    things: Sequence[Device | Nic],
    words: Sequence[Sequence[str | None]],
    group: Sequence[int],
    level: int,
) -> tuple[Branch | Device | Nic, ...]:
    """The members of a group whose things are joined at this level of `_JOINED_BY`: a branch for those that
    are joined more closely, and the others as they are."""
    if level + 1 == len(_JOINED_BY):
        return tuple(things[i] for i in group)
    members: list[Branch | Device | Nic] = []
    for cluster in _clusters(words, group, _JOINED_BY[level + 1][0]):
        inner = _innermost(words, cluster, level + 1)
        inside = _inside(things, words, cluster, inner)
        members += [Branch(_JOINED_BY[inner][1], inside)] if len(cluster) > 1 else inside
    return tuple(members)


def _innermost(words: Sequence[Sequence[str | None]], group: Sequence[int], level: int) -> int:
    """The innermost level, from this one on, at which the whole group is still joined."""
    while level + 1 < len(_JOINED_BY) and len(_clusters(words, group, _JOINED_BY[level + 1][0])) == 1:
        level += 1
    return level


def _words(snapshot: Snapshot, things: Sequence[Device | Nic], before: Classes) -> list[list[str | None]]:
    """The PCIe class of every pair of devices and NICs, None where it is unknown."""
    topology = snapshot.topology

    def word(i: int, j: int) -> str | None:
        one, other = things[i], things[j]
        if isinstance(one, Device) and isinstance(other, Device):
            return snapshot.pcie_class(one, other) or before.get((one.key, other.key))
        if isinstance(one, Nic):
            one, other = other, one
        return _to_nic(snapshot, topology, one, other) if topology else None

    return [[word(i, j) for j in range(len(things))] for i in range(len(things))]


def _to_nic(snapshot: Snapshot, topology: Topology, one: Device | Nic, nic: Device | Nic) -> str | None:
    assert isinstance(nic, Nic)
    row = (
        snapshot.position[one.key]
        if isinstance(one, Device)
        else len(snapshot.devices) + topology.nics.index(one)
    )
    return topology.nic_links[row][topology.nics.index(nic)]


def _clusters(words: Sequence[Sequence[str | None]], group: Sequence[int], word: str) -> list[list[int]]:
    """The connected components of a group, where things are joined by the class `word` or closer."""
    members = list(group)

    def near(a: int, b: int) -> bool:
        cell = words[members[a]][members[b]]
        return cell in PCIE_CLASSES and strength(cell) >= strength(word)

    home = connected_components(len(members), near)
    return [[i for i, at in zip(members, home, strict=True) if at == first] for first in sorted(set(home))]


def _node_name(things: Sequence[Device | Nic]) -> str:
    nodes = sorted({thing.numa_node for thing in things if thing.numa_node is not None})
    return f"NUMA node {', '.join(map(str, nodes))}" if nodes else "NUMA node unknown"
