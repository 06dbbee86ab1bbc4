"""What Slurm knows at one moment: nodes with their devices, partitions, and jobs. Immutable."""

from __future__ import annotations

from gputui.inventory.light_dataclasses import dataclass

_NOT_NOW = frozenset(
    (
        *("DOWN", "ERROR", "UNKNOWN", "FUTURE", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"),
        *("MAINT", "MAINTENANCE", "NOT_RESPONDING", "NO_RESPOND", "INVALID_REG", "BLOCKED"),
        *("POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
    )
)
"""States (slurm.h: node_states) in which Slurm starts nothing on a node. One that sleeps it wakes up."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The devices of one type of a node or a job.

    type     as the site calls it ("h100"), "" where it has no types
    total    how many the node has, or a job has or asks for
    used     how many of them jobs have
    indices  which of the node's these are, as Slurm counts them; None where it only counts
    """

    type: str
    total: int
    used: int = 0
    indices: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. `states` are Slurm's words, the first one the base state: ("MIXED", "DRAIN"). `reason` is
    why somebody has taken it out, "" for nothing."""

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
        """One word for people, as `sinfo` has it: "mixed", "draining", "drained", "down"."""
        base = self.states[0] if self.states else "UNKNOWN"
        if base in ("DOWN", "ERROR", "UNKNOWN", "FUTURE"):
            return base.lower()
        if "DRAIN" in self.states:
            return "drained" if base == "IDLE" else "draining"
        apart = next((word for word in self.states if word in _NOT_NOW), base)
        return apart.lower().replace("_", " ")

    def total(self, kind: str = "") -> int:
        """How many devices it has, of a type or of all."""
        return sum(each.total for each in self.gpus if kind in ("", each.type))

    def free(self, kind: str = "") -> int:
        """How many a job could have there now, of a type or of all."""
        return sum(free_of(self, each) for each in self.gpus if kind in ("", each.type))

    def device_types(self) -> tuple[str, ...]:
        """The type of each device, by Slurm's index: types have their indices in the order of `Gres`."""
        return tuple(each.type for each in self.gpus for _ in range(each.total))

    def in_use(self) -> frozenset[int] | None:
        """The indices that jobs have; None where Slurm tells only how many, and that is some of them."""
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
    """How many of one type a job could have on the node now."""
    return max(0, gpus.total - gpus.used) if node.usable else 0


@dataclass(frozen=True, slots=True)
class Partition:
    """A queue of nodes. `limit` is the longest that a job may take, in Slurm's form; "" for no limit."""

    name: str
    up: bool = True
    default: bool = False
    limit: str = ""


JobDevices = tuple[tuple[str, tuple[int, ...]], ...]
"""The devices that a job has: of each node its name, and which of its devices, as Slurm counts them."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of Slurm's. `devices` are those that it has, by node; () where Slurm does not tell, or it waits.

    `count` is how many it has asked for on each node, None where it has asked in another way.
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
        """The devices of a node that it has."""
        return next((indices for name, indices in self.devices if name == node), ())


@dataclass(frozen=True, slots=True)
class Cluster:
    """All of it. `errors` says in sentences what could not be read."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...] = ()
    jobs: tuple[Job, ...] = ()
    errors: tuple[str, ...] = ()

    def node(self, name: str) -> Node | None:
        """The node of that name."""
        return next((node for node in self.nodes if node.name == name), None)

    def partition(self, name: str) -> Partition | None:
        """The partition of that name."""
        return next((each for each in self.partitions if each.name == name), None)
