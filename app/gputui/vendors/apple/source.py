"""The one GPU of a Mac: its load and memory from ioreg, which needs no root rights.

Its memory is the host's; how much of it the GPU may have says the kernel's `iogpu.wired_limit_mb` where
somebody has set it, and otherwise is no more than known to be within all of it. Power and temperature would
need root rights. What a process has of the memory nobody tells.
"""

from __future__ import annotations

from collections.abc import Collection

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import Want
from gputui.system.program import Program
from gputui.system.root import whole
from gputui.vendors.apple import ioreg
from gputui.vendors.machine_source import MachineSource

NO_DEVICES = "no Apple GPU: ioreg has no IOAccelerator"

_MIB = 1024 * 1024
_FRESH = 0.5


class AppleSource(MachineSource):
    """The GPU of the Mac whose programs the root has."""

    def _forget(self) -> None:
        self._ioreg = Program(self._root, "ioreg", self._deadline)
        self._sysctl = Program(self._root, "sysctl", self._deadline)
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
            raise self._nothing_found(NO_DEVICES, *self._troubles.values())
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
            Host(self._host_name() if self._root.here else None),
            self._clock(),
            self._owned((self._device,), want, among),
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
