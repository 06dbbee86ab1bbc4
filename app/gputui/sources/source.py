"""The `Source` protocol: something that can be opened, read into snapshots, and closed."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Flag, auto
from typing import Protocol

from gputui.inventory.device import Among
from gputui.inventory.errors import GputuiError
from gputui.inventory.snapshot import Host, Snapshot

Clock = Callable[[], float]
"""Returns the present time in seconds."""

INTERVALS = (0.1, 3600.0)
"""The shortest and the longest time between two readings, in seconds."""


class Want(Flag):
    """The facts that a reading must refresh; facts that are not requested keep their last known value.

    The parts follow their cost (measured on real boxes: process lists up to 4.5 ms a call, memory 12 µs,
    utilization 2.5 µs), so that a monitor may request each at its own interval.
    """

    LOAD = auto()
    """Memory and utilization."""
    PROCESSES = auto()
    """Process lists: pids, kinds, memory."""
    CHANGED_PROCESSES = auto()
    """PROCESSES, only for devices whose memory or load has changed since their last list; with LOAD.

    OWNERS then looks up those lists only. A source that cannot detect changes may do nothing: PROCESSES
    follows.
    """
    OWNERS = auto()
    """Owners and command lines of the processes, from the operating system."""
    SENSORS = auto()
    """Temperature, power, clocks, and why they are throttled."""
    CLAIM_PROCESSES = auto()
    """Which process belongs to which claim, from the operating system; with OWNERS."""
    DETAILS = auto()
    """`Device.telemetry`, and `sm`, `host_cpu` and `host_memory` of the processes, for the devices of
    `among`.

    None means all devices. The details of all other devices are dropped. Rates need two such readings.
    """
    TABLE = auto()
    """With DETAILS: only the details that have a column in the table, and none of the processes.

    The columns are fan, encoder, decoder, PCIe link, and why the clocks are lowered. A source may bring the
    rest, too.
    """
    HOST = auto()
    """The load of the machine itself: `Host.load`."""
    QUEUE = auto()
    """The jobs that wait in line for devices: `Snapshot.waiters`; 40 µs each."""
    LINKS = auto()
    """Links, PCIe classes and peer access of every pair: the basis for choosing devices."""
    TOPOLOGY = auto()
    """Links, and what is near each device: CPUs, PCIe, network devices. Takes seconds on some boxes."""
    NAMES = auto()
    """The identity of the devices: name, bus id, limits. Read once per source."""
    MODES = auto()
    """The number of devices, their compute mode, and whether they are divided: an administrator may change
    these while gputui runs. With NAMES or VERDICT, the first reading brings them anyway."""
    VERDICT = auto()
    """Only what a verdict needs, in the fewest calls: what `pick` reads."""

    WHOLE = auto()
    """GPUs as a whole and by index only: MIG instances and UUIDs may be left out.

    A job on several devices cannot use MIG instances, and a job that names devices by index needs no UUIDs.
    `Device.key` is then the index, so readings with and without this flag do not mix.
    """

    SPEED = auto()
    """The model of each GPU and, where there are several models, the facts that rank them by
    speed. `among` limits it, too."""
    ORDER = auto()
    """How the vendor's own runtime numbers the devices, where they are of several models. The runtime is
    asked in a separate process, once per source."""
    NODES = auto()
    """The facts that lead to the device files of each device (`Vendor.nodes`), which a
    confined launch needs."""

    WIRING = LINKS | TOPOLOGY
    MONITOR = LOAD | PROCESSES | OWNERS | SENSORS | NAMES
    ALL = MONITOR | CLAIM_PROCESSES | QUEUE | WIRING | MODES


class NoSourceError(GputuiError):
    """There is nothing to read from: no library, no driver, no such box, no such file.

    The message is one line with the cause and the remedy.
    """

    code, status = "no_source", 3


class NoHardwareError(NoSourceError):
    """There is no source, and the machine has no device of the vendor either: if another vendor's devices are
    present, nothing is missing."""

    code = "no_hardware"


class UnreachableError(NoSourceError):
    """Another box cannot be reached, or cannot answer."""

    code = "unreachable"


class NoDevices:
    """A box that is not read because no device of it is needed. It works without a driver, too."""

    label = ""

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        return Snapshot(Host(), time.time(), ())

    def close(self) -> None: ...


class Source(Protocol):
    """Facts about one box. Not thread-safe: one thread opens, reads and closes it.

    `label` names the origin of the facts when that is not this machine ("demo dgx-h100"), else it is "".
    """

    label: str

    def open(self) -> None:
        """Get ready. Raise NoSourceError with cause and remedy."""

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        """Return a snapshot of the box. A failure of one device stays on that device; raise NoSourceError if
        all fail.

        `among` (`Device.key`s) limits links to pairs of these devices; the links of the others may be left
        unknown. With DETAILS, it selects the devices whose details are read, and limits nothing else.
        """

    def close(self) -> None:
        """Release everything. Harmless when not open."""
