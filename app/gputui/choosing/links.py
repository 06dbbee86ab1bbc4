"""What the links of a selection are worth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gputui.inventory.device import Device
from gputui.inventory.link import strength
from gputui.inventory.snapshot import Snapshot


def weakest(snapshot: Snapshot, devices: Sequence[Device]) -> str | None:
    """The weakest link between any two of the devices; None for fewer than two, or where one is not known.

    A link that is not known could be the weakest: then nothing is claimed.
    """
    if len(devices) < 2 or not snapshot.links:
        return None
    words = [snapshot.link(one, other) for one, other in combinations(devices, 2)]
    return min(words, key=strength)


def numa_nodes(devices: Sequence[Device]) -> tuple[int, ...]:
    """The host NUMA nodes that the devices hang on, ascending; () where one of them is not known."""
    nodes = {device.numa_node for device in devices}
    return tuple(sorted(node for node in nodes if node is not None)) if None not in nodes else ()
