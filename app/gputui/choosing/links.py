"""What the links of a selection are worth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gputui.choosing.rings import strongest_ring
from gputui.inventory.device import Device
from gputui.inventory.link import direct_links, strength
from gputui.inventory.snapshot import Snapshot

MOST_BRIDGED = 12
"""NVLinks that bridges give a pair at most."""


def weakest(snapshot: Snapshot, devices: Sequence[Device]) -> str | None:
    """The weakest link between any two of the devices; None for fewer than two, or where one is not known.

    A link that is not known could be the weakest: then nothing is claimed.
    """
    if len(devices) < 2 or not snapshot.links:
        return None
    words = [snapshot.link(one, other) for one, other in combinations(devices, 2)]
    return min(words, key=strength)


def weakest_ring(snapshot: Snapshot, devices: Sequence[Device]) -> str | None:
    """The weakest link of the best ring through the devices, which is what a collective over all of them
    runs at: NCCL builds its own rings, whatever the order. None as for `weakest`."""
    overall = weakest(snapshot, devices)
    if overall is None or len(devices) < 4:
        return overall
    rank = [[strength(snapshot.link(one, other)) for other in devices] for one in devices]
    found = strongest_ring(rank, range(len(devices)))
    words = (snapshot.link(one, other) for one, other in combinations(devices, 2))
    return next((word for word in words if strength(word) == found), None)


def permuted_behind_switches(snapshot: Snapshot, devices: Sequence[Device]) -> bool:
    """Whether the devices are in another order than the box's where NVSwitches reduce by themselves (NVLS).

    From Hopper on, and behind NVSwitches: a single GPU has 18 links, and more than 12 to one other are never
    a bridge. There a permuted list of visible devices can give AllGather and ReduceScatter results in a wrong
    order (nccl #1906, open).
    """
    places = [snapshot.position[device.key] for device in devices]
    if len(devices) < 2 or places == sorted(places):
        return False
    hopper = all((device.capability or (0, 0)) >= (9, 0) for device in devices)
    counts = [direct_links(snapshot.link(one, other)) for one, other in combinations(devices, 2)]
    topology = snapshot.topology
    switched = [topology.localities[place].switched if topology else None for place in places]
    return hopper and all(counts) and (all(switched) or min(counts) > MOST_BRIDGED)


PERMUTED = (
    "NCCL behind NVSwitches can return AllGather and ReduceScatter in a wrong order when"
    " the devices are not ascending (nccl #1906); ascending loses nothing on this box"
)
"""What there is to say about such an order."""


def numa_nodes(devices: Sequence[Device]) -> tuple[int, ...]:
    """The host NUMA nodes that the devices hang on, ascending; () where one of them is not known."""
    nodes = {device.numa_node for device in devices}
    return tuple(sorted(node for node in nodes if node is not None)) if None not in nodes else ()
