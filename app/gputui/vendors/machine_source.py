"""The common base of the sources that read a machine's files and run its vendor's program."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gputui.inventory.device import Among, Device, Facts
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import Clock, NoHardwareError, NoSourceError, Want
from gputui.system.program import DEADLINE, Program
from gputui.system.root import HERE, Root

if TYPE_CHECKING:
    from gputui.inventory.topology import Locality, Topology
    from gputui.system.drm import GpuFiles
    from gputui.system.processes import ProcessTable


class MachineSource:
    """Devices of the machine whose files `root` has.

    `clock` returns seconds since the epoch, `ticks` seconds of a clock that never jumps. A vendor's program
    has `deadline` seconds to answer. `_forget` resets everything that was read, so that a source can be
    opened again after it was closed.
    """

    label = ""

    def __init__(
        self,
        root: Root = HERE,
        clock: Clock = time.time,
        ticks: Clock = time.monotonic,
        deadline: float = DEADLINE,
        owners: ProcessTable | None = None,
    ) -> None:
        self._root, self._clock, self._ticks, self._deadline = root, clock, ticks, deadline
        self._given_owners = owners
        self._forget()

    def close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Reset to the state before the first reading."""
        self._owners, self._looked_at = self._given_owners, frozenset[str]()
        self._host = Host()
        self._troubles: dict[str, str] = {}
        """The problems of the box, by the question that failed."""
        self._done_at: dict[str, float] = {}
        self._keys: tuple[str, ...] = ()
        self._wired: Facts = {}
        """The matrices and the topology of the devices with the keys `_keys`, by their fields
        of `Snapshot`."""

    def open(self) -> None:
        """Find the devices. Raise NoSourceError where there are none."""
        raise NotImplementedError

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        self.open()
        devices = self._owned(self._read(want, among), want, among)
        keys = tuple(device.key for device in devices)
        if keys != self._keys:
            self._keys, self._wired = keys, {}
        if want & Want.WIRING and not self._wired:
            self._wired = self._read_links()
        if Want.TOPOLOGY in want and "topology" not in self._wired:
            self._wired["topology"] = self._read_topology()
        errors = tuple(dict.fromkeys(self._troubles.values()))
        return Snapshot(self._host, self._clock(), devices, errors=errors, **self._wired)

    def _read(self, want: Want, among: Among) -> tuple[Device, ...]:
        """Return the devices, with the wanted facts read again."""
        raise NotImplementedError

    def _read_links(self) -> Facts:
        """Return the matrices that are known, by their fields of `Snapshot`."""
        raise NotImplementedError

    def _read_topology(self) -> Topology | None:
        return None

    def _is_due(self, what: str, seconds: float = float("inf")) -> bool:
        """Return whether `what` was not done in the last `seconds` (default: never), and mark
        it as done now."""
        now = self._ticks()
        due = now - self._done_at.get(what, float("-inf")) >= seconds
        if due:
            self._done_at[what] = now
        return due

    def _ask(self, program: Program, what: str, *words: str) -> str | None:
        """Return a program's answer. Note the reason for a missing answer as an error, one per question."""
        text = program.ask(*words)
        if program.trouble is not None:
            self._troubles[what] = program.trouble
        elif text is not None:
            self._troubles.pop(what, None)
        return text

    def _nothing_found(self, why: str, *troubles: str | None) -> NoSourceError:
        """Return the error to raise where there is no device.

        Where only files are read (another machine's, or this machine's while they are packed) and no file
        points to the vendor, the machine has no such device.
        """
        told = [trouble for trouble in troubles if trouble]
        kind = NoHardwareError if not self._root.here and not told else NoSourceError
        return kind("; ".join([why, *told]))

    def _host_name(self) -> str | None:
        if self._root.here:
            return os.uname().nodename
        return self._root.text("/proc/sys/kernel/hostname", 256) or None

    def _near(self, node: int | None, files: GpuFiles | None, folder: str | None = None) -> Locality:
        """Return what is near a device on that NUMA node, from its files or its sysfs folder
        (a PCI device)."""
        from gputui.inventory.topology import Locality, from_ranges

        folder = files.card.folder if files else folder
        text = self._root.text(f"{folder}/local_cpulist") if folder else None
        try:
            cpus = from_ranges(text) if text else None
        except ValueError:
            cpus = None
        nodes = None if node is None else (node,)
        link = files.link() if files else (None, None)
        return Locality(cpus, nodes, pcie_generation=link[0], pcie_width=link[1])

    def _owned(self, devices: tuple[Device, ...], want: Want, among: Among) -> tuple[Device, ...]:
        """Return the devices with the users of their processes, where users are wanted or were wanted before.

        The devices whose details were last wanted also have their processes' use of the host.
        """
        if Want.DETAILS in want:
            self._looked_at = frozenset(d.key for d in devices if among is None or d.key in among)
        if (Want.OWNERS not in want and self._owners is None) or not any(d.processes for d in devices):
            return devices
        # Imported here: `pick` does not ask for owners.
        from gputui.sources.process_owners import host_uses, owners_of, with_owners, with_uses

        if self._owners is None:
            self._owners = owners_of(self._root)
        owned = with_owners(devices, self._owners, Want.OWNERS in want)
        return with_uses(owned, self._looked_at, host_uses(owned, self._looked_at, self._owners))


def left_of(total: int | None, used: int | None) -> int | None:
    """Return what is not in use; None where that is not known."""
    return None if total is None or used is None else max(0, total - used)
