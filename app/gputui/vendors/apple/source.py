"""The one GPU of a Mac: its load and memory from ioreg, which needs no root rights.

Its memory is the host's. The kernel's `iogpu.wired_limit_mb` limits the GPU's share where somebody has set
it; otherwise all that is known is that the share is within the host's memory. Power and temperature would
need root rights. No interface reports the memory of a process.
"""

from __future__ import annotations

from gputui.inventory.device import Among, Device, Facts
from gputui.inventory.formatting import MIB
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.link import SELF
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host
from gputui.sources.source import Want
from gputui.system.program import Program
from gputui.system.root import whole
from gputui.vendors.apple import ioreg
from gputui.vendors.machine_source import MachineSource

NO_DEVICES = "no Apple GPU: ioreg has no IOAccelerator"

_GPU, _CLIENTS = "IOAccelerator", "AGXDeviceUserClient"
"""Classes of ioreg: the GPU, and the clients that have it open."""
_FRESH = 0.5


class AppleSource(MachineSource):
    """The GPU of the Mac that `root` describes."""

    def _forget(self) -> None:
        super()._forget()
        self._ioreg = Program(self._root, "ioreg", self._deadline)
        self._sysctl = Program(self._root, "sysctl", self._deadline)
        self._device: Device | None = None

    def open(self) -> None:
        if self._device is not None:
            return
        facts = ioreg.facts(self._told(_GPU) or "")
        if not facts.keys() - {"cores"}:
            raise self._nothing_found(NO_DEVICES, *self._troubles.values())
        limit = self._number("iogpu.wired_limit_mb")
        self._device = Device(
            index=0,
            uuid="",
            uuid_usable=False,
            vendor="apple",
            unified=True,
            memory_total=limit * MIB if limit else self._number("hw.memsize"),
            **{"name": "Apple GPU", **facts},
        )
        self._host = Host(self._host_name() if self._root.here else None)
        self._is_due("load")

    def _told(self, name: str) -> str | None:
        return self._ask(self._ioreg, "ioreg", "-r", "-d", "1", "-w", "0", "-c", name)

    def _number(self, name: str) -> int | None:
        found = whole((self._sysctl.ask("-n", name) or "").strip())
        return found if found is not None and found > 0 else None

    def _read(self, want: Want, among: Among) -> tuple[Device, ...]:
        assert self._device is not None
        if want & (Want.LOAD | Want.VERDICT) and self._is_due("load", _FRESH):
            facts = ioreg.facts(self._told(_GPU) or "")
            load, used = facts.get("utilization"), facts.get("memory_used")
            self._device = replace(self._device, utilization=load, memory_used=used)
        if want & (Want.PROCESSES | Want.CHANGED_PROCESSES | Want.VERDICT):
            # The programs that have the GPU open. Every program that draws has it open, too; only the load
            # tells whether one of them computes.
            text = self._told(_CLIENTS)
            processes = None if text is None else tuple(Process(pid, "graphics") for pid in ioreg.pids(text))
            self._device = replace(self._device, processes=processes)
        return (self._device,)

    def _read_links(self) -> Facts:
        return {"links": ((SELF,),)}
