"""The one GPU of a Mac: its load and memory from ioreg, which needs no root rights.

Its memory is the host's; how much of it the GPU may have says the kernel's `iogpu.wired_limit_mb` where
somebody has set it, and otherwise is no more than known to be within all of it. Power and temperature would
need root rights. What a process has of the memory nobody tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import NoSourceError, Want
from gputui.system.program import DEADLINE, Program
from gputui.system.root import HERE, Root, whole
from gputui.vendors.apple import ioreg

if TYPE_CHECKING:
    from gputui.sources.owned import Owners

NO_DEVICES = "no Apple GPU: ioreg has no IOAccelerator"

_MIB = 1024 * 1024
_FRESH = 0.5


class AppleSource:
    """The GPU of the Mac whose programs `root` has. `clock` gives seconds since the epoch, `ticks` seconds of
    a clock that never jumps."""

    label = ""

    def __init__(
        self,
        root: Root = HERE,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        deadline: float = DEADLINE,
        owners: Owners | None = None,
    ) -> None:
        self._arguments = (root, clock, ticks, deadline, owners)
        self._root, self._clock, self._ticks, self._owners = root, clock, ticks, owners
        self._ioreg, self._sysctl = Program(root, "ioreg", deadline), Program(root, "sysctl", deadline)
        self._device: Device | None = None
        self._asked_at = float("-inf")
        self._total: int | None = None
        self._troubles: dict[str, str] = {}

    def open(self) -> None:
        """Find the GPU. Raises NoSourceError where there is none."""
        if self._device is not None:
            return
        text = self._ask("IOAccelerator")
        if text is None or not ioreg.is_accelerator(text):
            raise NoSourceError("; ".join([NO_DEVICES, *self._troubles.values()]))
        limit = self._number("iogpu.wired_limit_mb")
        self._total = limit * _MIB if limit else self._number("hw.memsize")
        self._device = Device(
            index=0,
            uuid="",
            uuid_usable=False,
            vendor="apple",
            name=ioreg.name(text) or "Apple GPU",
            cores=ioreg.cores(text),
            unified=True,
            memory_total=self._total,
        )
        self._see(text)

    def close(self) -> None:
        self.__init__(*self._arguments)  # type: ignore[misc]

    def _ask(self, name: str) -> str | None:
        text = self._ioreg.ask("-r", "-d", "1", "-w", "0", "-c", name)
        if self._ioreg.trouble is not None:
            self._troubles["ioreg"] = self._ioreg.trouble
        else:
            self._troubles.pop("ioreg", None)
        return text

    def _number(self, name: str) -> int | None:
        found = whole((self._sysctl.ask("-n", name) or "").strip())
        return found if found is not None and found > 0 else None

    def _see(self, text: str | None) -> None:
        assert self._device is not None
        self._asked_at = self._ticks()
        self._device = replace(
            self._device,
            utilization=ioreg.utilization(text) if text else None,
            memory_used=ioreg.memory_used(text) if text else None,
        )

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.open()
        if want & (Want.LOAD | Want.VERDICT) and self._ticks() - self._asked_at >= _FRESH:
            self._see(self._ask("IOAccelerator"))
        if want & (Want.PROCESSES | Want.CHANGED_PROCESSES | Want.VERDICT):
            self._read_processes()
        assert self._device is not None
        linked = bool(want & (Want.LINKS | Want.TOPOLOGY))
        return Snapshot(
            self._host(),
            self._clock(),
            self._owned(want, among),
            (("X",),) if linked else (),
            errors=tuple(self._troubles.values()),
        )

    def _read_processes(self) -> None:
        """Who has the GPU open: every program that draws does, too, and nothing tells them from others but
        the load."""
        assert self._device is not None
        text = self._ioreg.ask("-r", "-d", "1", "-w", "0", "-c", "AGXDeviceUserClient")
        processes = None if text is None else tuple(Process(pid, "graphics") for pid in ioreg.pids(text))
        self._device = replace(self._device, processes=processes)

    def _host(self) -> Host:
        if self._root.here:
            import socket

            return Host(socket.gethostname(), None, None)
        return Host()

    def _owned(self, want: Want, among: Collection[str] | None) -> tuple[Device, ...]:
        assert self._device is not None
        if not self._device.processes or (Want.OWNERS not in want and self._owners is None):
            return (self._device,)
        from gputui.sources.owned import owners_of, with_host_use, with_owners

        if self._owners is None:
            self._owners = owners_of(self._root)
        owned = with_owners((self._device,), self._owners, Want.OWNERS in want)
        return with_host_use(owned, self._owners, among) if Want.DETAILS in want else owned
