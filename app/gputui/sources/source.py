"""What a source is: something that can be opened, read into snapshots, and closed."""

from __future__ import annotations

import time
from collections.abc import Collection
from enum import Flag, auto
from typing import Protocol

from gputui.inventory.errors import GputuiError
from gputui.inventory.snapshot import Host, Snapshot

INTERVALS = (0.1, 3600.0)
"""The shortest and the longest time between two readings, in seconds."""


class Want(Flag):
    """Which facts a reading must refresh; facts that are not asked for keep their last known value.

    The parts follow their cost (facts measured on real boxes: process lists up to 4.5 ms a call, memory
    12 µs, utilization 2.5 µs), so that a monitor may ask for each at its own pace.
    """

    LOAD = auto()
    """Memory and utilization."""
    PROCESSES = auto()
    """Process lists: pids, kinds, memory."""
    CHANGED_PROCESSES = auto()
    """The same of devices whose memory or load has changed since their last list, with LOAD. OWNERS then
    looks up those lists only. A source that cannot tell may do nothing: PROCESSES follows."""
    OWNERS = auto()
    """Owners and command lines of the processes, from the operating system."""
    SENSORS = auto()
    """Temperature, power, clocks, and why they are throttled."""
    CLAIM_PROCESSES = auto()
    """Which of the processes belong to which claim, from the operating system; with OWNERS."""
    DETAILS = auto()
    """`Device.telemetry`, and of the processes `sm`, `host_cpu`, `host_memory`, for those of `among` (None:
    all devices); nothing of them is known of the others from then on. Rates need two such readings."""
    TABLE = auto()
    """With DETAILS: of a device no more than the table has columns for (fan, encoder, decoder, PCIe link, why
    the clocks are lowered), and nothing of its processes. A source may bring all the same."""
    HOST = auto()
    """How busy the machine itself is: `Host.load`."""
    QUEUE = auto()
    """Those who wait in line for devices: `Snapshot.waiters`; 40 µs each."""
    LINKS = auto()
    """Links, PCIe classes and peer access of every pair: what devices are chosen by."""
    TOPOLOGY = auto()
    """Links, and what is near each device: CPUs, PCIe, network devices. Takes seconds on some boxes."""
    NAMES = auto()
    """Who the devices are: name, bus id, limits. Read once a source."""
    MODES = auto()
    """How many devices there are, their compute mode, and whether they are divided: what an administrator may
    change while we run. With NAMES or VERDICT the first reading brings them anyway."""
    VERDICT = auto()
    """No more than a verdict needs, in the fewest calls: what `pick` reads."""

    WHOLE = auto()
    """GPUs as a whole and by index only: MIG instances and UUIDs may be left out. A job on several devices
    has no use for the first, and one that names them by index none for the others. `Device.key` is then the
    index: readings with and without it do not go together."""

    SPEED = auto()
    """Which model each GPU is and, where they are not all of one, what tells which of them is faster. `among`
    limits it, too."""
    ORDER = auto()
    """How the vendor's own runtime numbers the devices, where they are not all of one model: it is asked in a
    process of its own, once a source."""
    NODES = auto()
    """What leads to the device files of each device (`Vendor.nodes`), which a confined launch needs."""

    ALL = LOAD | PROCESSES | OWNERS | CLAIM_PROCESSES | QUEUE | SENSORS | LINKS | TOPOLOGY | NAMES | MODES
    MONITOR = LOAD | PROCESSES | OWNERS | SENSORS | NAMES


class NoSourceError(GputuiError):
    """There is nothing to read from: no library, no driver, no such box, no such file.

    The message is one line with the cause and the remedy; the command line ends with status 3.
    """


class NoHardwareError(NoSourceError):
    """The same where the machine has no device of the vendor either: beside another vendor's devices nothing
    is missing then."""


class NoDevices:
    """A box that nobody looks at, because no device of it is needed: it is there without a driver, too."""

    label = ""

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        return Snapshot(Host(), time.time(), ())

    def close(self) -> None: ...


class Source(Protocol):
    """Facts about one box. Not thread-safe: one thread opens, reads and closes it.

    `label` says where the facts come from when that is not this machine ("demo dgx-h100"), else "".
    """

    label: str

    def open(self) -> None:
        """Get ready. Raises NoSourceError with cause and remedy."""

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        """The box now. One device's trouble stays on that device; raises NoSourceError if all is gone.

        `among` (`Device.key`s) limits links to pairs of these devices: the others' may be left unknown. With
        DETAILS it says whose details, and limits nothing else.
        """

    def close(self) -> None:
        """Give everything back. Harmless when not open."""
