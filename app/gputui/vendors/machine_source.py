"""What the sources that read a machine's files and ask its vendor's program have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.sources.source import NoHardwareError, NoSourceError, Want
from gputui.system.program import DEADLINE
from gputui.system.root import HERE, Root

if TYPE_CHECKING:
    from gputui.inventory.topology import Locality
    from gputui.sources.owned import Owners
    from gputui.system.drm import GpuFiles


class MachineSource:
    """Devices of the machine whose files `root` has. `clock` gives seconds since the epoch, `ticks` seconds
    of a clock that never jumps; a vendor's program has `deadline` seconds for an answer.

    What was read is set in `_forget`, so that a source that was closed can be opened again.
    """

    label = ""

    def __init__(
        self,
        root: Root = HERE,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        deadline: float = DEADLINE,
        owners: Owners | None = None,
    ) -> None:
        self._root, self._clock, self._ticks, self._deadline = root, clock, ticks, deadline
        self._given_owners = self._owners = owners
        self._forget()

    def close(self) -> None:
        self._owners = self._given_owners
        self._forget()

    def _forget(self) -> None:
        """Be as if nothing had been read yet."""
        raise NotImplementedError

    def _nothing_found(self, why: str, *troubles: str | None) -> NoSourceError:
        """What to raise where there is no device. Where only files are read (another machine's, or ours to be
        packed) and none tells of the vendor, there is none."""
        told = [trouble for trouble in troubles if trouble]
        kind = NoHardwareError if not self._root.here and not told else NoSourceError
        return kind("; ".join([why, *told]))

    def _host_name(self) -> str | None:
        if self._root.here:
            import socket

            return socket.gethostname()
        return self._root.text("/proc/sys/kernel/hostname", 256) or None

    def _near(self, node: int | None, files: GpuFiles | None, folder: str | None = None) -> Locality:
        """What is near a device on that NUMA node, by its files, or the folder of a PCI device in sysfs."""
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

    def _owned(
        self, devices: tuple[Device, ...], want: Want, among: Collection[str] | None
    ) -> tuple[Device, ...]:
        """The devices with the users of their processes, where they are wanted or were once."""
        if (Want.OWNERS not in want and self._owners is None) or not any(d.processes for d in devices):
            return devices
        # (Imported here: `pick` asks for no owners.)
        from gputui.sources.owned import owners_of, with_host_use, with_owners

        if self._owners is None:
            self._owners = owners_of(self._root)
        owned = with_owners(devices, self._owners, Want.OWNERS in want)
        return with_host_use(owned, self._owners, among) if Want.DETAILS in want else owned
