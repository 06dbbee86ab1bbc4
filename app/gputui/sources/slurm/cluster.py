"""Slurm's state at one moment: nodes with their devices, partitions, and jobs. Immutable."""

from __future__ import annotations

from gputui.inventory.light_dataclasses import frozen

_NOT_NOW = frozenset(
    (
        *("DOWN", "ERROR", "UNKNOWN", "FUTURE", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"),
        *("MAINT", "MAINTENANCE", "NOT_RESPONDING", "NO_RESPOND", "INVALID_REG", "BLOCKED"),
        *("POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
    )
)
"""States (slurm.h: node_states) in which Slurm starts nothing on a node. A powered-down node is woken up."""


@frozen
class Gpus:
    """The devices of one type of a node or a job.

    type     the site's name for it ("h100"), "" where it has no types
    total    the number of devices that the node has, or that a job has or requests
    used     the number of devices that jobs have
    indices  their indices on the node, as Slurm counts them; None where it only reports numbers
    """

    type: str
    total: int
    used: int = 0
    indices: tuple[int, ...] | None = None


@frozen
class Node:
    """A machine.

    `states` are Slurm's words, the base state first: ("MIXED", "DRAIN"). `reason` is the given reason for
    taking it out of service, "" for none.
    """

    name: str
    states: tuple[str, ...]
    reason: str = ""
    partitions: tuple[str, ...] = ()
    gpus: tuple[Gpus, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether Slurm starts jobs there now."""
        return bool(self.states) and not _NOT_NOW.intersection(self.states)

    @property
    def state(self) -> str:
        """One word for people, as in `sinfo`: "mixed", "draining", "drained", "down"."""
        base = self.states[0] if self.states else "UNKNOWN"
        if base in ("DOWN", "ERROR", "UNKNOWN", "FUTURE"):
            return base.lower()
        if "DRAIN" in self.states:
            return "drained" if base == "IDLE" else "draining"
        apart = next((word for word in self.states if word in _NOT_NOW), base)
        return apart.lower().replace("_", " ")

    def total(self, kind: str = "") -> int:
        """Return the number of its devices, of a type or of all types."""
        return sum(each.total for each in self.gpus if kind in ("", each.type))

    def free(self, kind: str = "") -> int:
        """Return the number of devices that a job could have there now, of a type or of all types."""
        return sum(free_of(self, each) for each in self.gpus if kind in ("", each.type))

    def device_types(self) -> tuple[str, ...]:
        """Return the type of each device, by Slurm's index: types have their indices in the
        order of `Gres`."""
        return tuple(each.type for each in self.gpus for _ in range(each.total))

    def in_use(self) -> frozenset[int] | None:
        """Return the indices that jobs have; None where Slurm reports only a number, and that
        is some of them."""
        if any(each.used and each.indices is None and each.used < each.total for each in self.gpus):
            return None
        found: set[int] = set()
        first = 0
        for each in self.gpus:
            if each.used:
                found.update(each.indices if each.indices is not None else range(first, first + each.total))
            first += each.total
        return frozenset(found)


def free_of(node: Node, gpus: Gpus) -> int:
    """Return the number of devices of one type that a job could have on the node now."""
    return max(0, gpus.total - gpus.used) if node.usable else 0


@frozen
class Partition:
    """A queue of nodes. `limit` is the longest time of a job, in Slurm's form; "" for no limit."""

    name: str
    up: bool = True
    default: bool = False
    limit: str = ""


JobDevices = tuple[tuple[str, tuple[int, ...]], ...]
"""The devices that a job has: the name of each node, and the indices there, as Slurm counts them."""


@frozen
class Job:
    """A job of Slurm. `devices` are those that it has, by node; () where Slurm does not report them, or it
    waits.

    `count` is the number that it requests on each node, None where it requests devices in another way.
    """

    id: str
    name: str
    state: str
    partition: str
    nodes: tuple[str, ...] = ()
    count: int | None = None
    reason: str = ""
    devices: JobDevices = ()

    def indices_on(self, node: str) -> tuple[int, ...]:
        """Return the devices that it has on a node."""
        return next((indices for name, indices in self.devices if name == node), ())


@frozen
class Cluster:
    """A whole cluster. `errors` are sentences about what could not be read."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...] = ()
    jobs: tuple[Job, ...] = ()
    errors: tuple[str, ...] = ()

    def node(self, name: str) -> Node | None:
        """Return the node of that name, None for none."""
        return next((node for node in self.nodes if node.name == name), None)

    def partition(self, name: str) -> Partition | None:
        """Return the partition of that name, None for none."""
        return next((each for each in self.partitions if each.name == name), None)
