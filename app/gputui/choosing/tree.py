"""The PCIe tree of a box: NUMA nodes, host bridges and switches with the GPUs and NICs below them. Pure.

The tree is derived from the PCIe class of every pair, because NVML and recordings report no bridges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, permutations

from gputui.choosing.links import on_one_node
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import PCIE_CLASSES, direct_links, family, joined_groups, strength
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Nic

_JOINED_BY: tuple[tuple[str, str], ...] = (
    ("NODE", "NUMA node"),
    ("PHB", "host bridge"),
    ("PXB", "PCIe switches"),
    ("PIX", "PCIe switch"),
)
"""From the outermost level: a class, and the component that devices with this class or a closer one share."""


@frozen
class Branch:
    """A node of the tree. `members` are branches, whole devices and NICs, in the box's order."""

    name: str
    members: tuple[Branch | Device | Nic, ...]


Classes = Mapping[tuple[str, str], str]
"""The last known PCIe classes of pairs of devices, by their keys (`Watch.pcie`)."""


def tree(snapshot: Snapshot, before: Classes | None = None) -> tuple[Branch, ...]:
    """The NUMA nodes of the box with everything below them; () if the links have not been read.

    A lost device no longer has classes: it stays where it was `before`, else at its NUMA node.
    """
    if not snapshot.pcie:
        return ()
    things: list[Device | Nic] = [device for device in snapshot.devices if device.parent is None]
    topology = snapshot.topology
    things += topology.nics if topology else ()
    words = _words(snapshot, things, before or {})
    branches = []
    for group in joined_groups(
        range(len(things)), lambda i, j: on_one_node(things[i], things[j], words[i][j])
    ):
        joined = _joined(things, words, group, 0)
        on_node = joined.members if joined.name == _JOINED_BY[0][1] or len(group) == 1 else (joined,)
        branches.append(Branch(_node_name([things[i] for i in group]), on_node))
    return tuple(branches)


Drawn = tuple[str, Device | Nic | None]


def lines(snapshot: Snapshot, before: Classes | None = None) -> list[Drawn]:
    """The tree as lines: (indentation, a device or NIC), or (the whole text of a branch, None).

    The MIG instances of a GPU appear below it.
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
    """The direct links by kind: the name, and the pairs, or "between all of" the GPUs that the kind joins, or
    "between all 8 GPUs" of the box."""
    devices = [device for device in snapshot.devices if device.parent is None]
    described = []
    words = {word for a, b in permutations(devices, 2) if (word := snapshot.link(a, b))}
    for word in sorted(filter(direct_links, words), key=strength, reverse=True):
        # A link that either side of a pair reports counts: the two sides of a recording may differ.
        joined = {
            (i, j)
            for i, j in combinations(range(len(devices)), 2)
            if word in (snapshot.link(devices[i], devices[j]), snapshot.link(devices[j], devices[i]))
        }
        parts = []
        for group in joined_groups(range(len(devices)), lambda i, j: (j, i) in joined):  # noqa: B023
            pairs = [pair for pair in combinations(group, 2) if pair in joined]
            if len(group) < 3 or len(pairs) < len(group) * (len(group) - 1) // 2:
                parts += [f"{snapshot.label(devices[i])}━{snapshot.label(devices[j])}" for i, j in pairs]
            elif len(group) == len(devices):
                parts.append(f"between all {len(group)} GPUs")
            else:
                parts.append(f"between all of {snapshot.labels([devices[i] for i in group])}")
        name = family(word)
        described.append((name, "  ".join([*parts] if name == word else [f"{word} {parts[0]}", *parts[1:]])))
    return tuple(described)


def _joined(
    things: Sequence[Device | Nic], words: Sequence[Sequence[str | None]], group: Sequence[int], level: int
) -> Branch:
    """A group that is joined at this level of `_JOINED_BY`, named by the innermost level that joins it all.

    It contains a branch for each set of members that are joined more closely, and the other members directly.
    """

    def near(i: int, j: int, word: str) -> bool:
        cell = words[i][j]
        return cell in PCIE_CLASSES and strength(cell) >= strength(word)

    inside: list[list[int]] = [[i] for i in group]
    for deeper in range(level + 1, len(_JOINED_BY)):
        closer = joined_groups(group, partial(near, word=_JOINED_BY[deeper][0]))
        if len(closer) > 1:
            inside = closer
            break
        level = deeper
    members = (
        things[each[0]] if len(each) == 1 else _joined(things, words, each, level + 1) for each in inside
    )
    return Branch(_JOINED_BY[level][1], tuple(members))


def _words(snapshot: Snapshot, things: Sequence[Device | Nic], before: Classes) -> list[list[str | None]]:
    """The PCIe class of every pair of devices and NICs, None where it is unknown."""
    topology = snapshot.topology

    def word(i: int, j: int) -> str | None:
        one, other = things[i], things[j]
        if isinstance(one, Device) and isinstance(other, Device):
            return snapshot.pcie_class(one, other) or before.get((one.key, other.key))
        if isinstance(one, Nic):
            one, other = other, one
        if topology is None or not isinstance(other, Nic):
            return None
        nics = topology.nics
        row = (
            snapshot.position[one.key] if isinstance(one, Device) else len(snapshot.devices) + nics.index(one)
        )
        return topology.nic_links[row][nics.index(other)]

    return [[word(i, j) for j in range(len(things))] for i in range(len(things))]


def _node_name(things: Sequence[Device | Nic]) -> str:
    nodes = sorted({thing.numa_node for thing in things if thing.numa_node is not None})
    return f"NUMA node {', '.join(map(str, nodes))}" if nodes else "NUMA node unknown"
