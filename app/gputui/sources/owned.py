"""Devices with the owners of their processes, and what these do on the host: for sources whose kernel lists
pids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Process
from gputui.system.processes import HostUse, Owner
from gputui.system.root import Root


class Owners(Protocol):
    """Who owns a pid (`ProcessTable`, `RootProcesses`)."""

    def owner(self, pid: int) -> Owner: ...
    def last(self, pid: int) -> Owner: ...
    def still(self, pid: int) -> Owner: ...
    def uses(self, pids: Collection[int]) -> dict[int, HostUse]: ...
    def forget_all_but(self, pids: set[int]) -> None: ...


def owners_of(root: Root) -> Owners:
    """Those of a machine: of this one by psutil, of a recorded one, or one that is recorded, by its /proc."""
    if root.here:
        from gputui.system.processes import ProcessTable

        return ProcessTable()
    from gputui.system.root_processes import RootProcesses

    return RootProcesses(root)


def with_owners(devices: Sequence[Device], owners: Owners, look_up: bool) -> tuple[Device, ...]:
    """With users, commands and starts, looked up now, or as they were at the last look."""
    ask = owners.owner if look_up else owners.still

    owned = tuple(
        replace(d, processes=tuple(ask(p.pid).named(p) for p in d.processes)) if d.processes else d
        for d in devices
    )
    if look_up:
        owners.forget_all_but({p.pid for d in owned for p in d.processes or ()})
    return owned


def with_host_use(
    devices: Sequence[Device], owners: Owners, among: Collection[str] | None
) -> tuple[Device, ...]:
    """With what the processes of these devices (None: of all) take of the host."""

    looked_at = [d for d in devices if among is None or d.key in among]
    uses = owners.uses({process.pid for device in looked_at for process in device.processes or ()})

    def used(process: Process) -> Process:
        use = uses[process.pid]
        return replace(process, host_cpu=use.cpu, host_memory=use.memory)

    return tuple(
        replace(d, processes=tuple(map(used, d.processes)))
        if d.processes and (among is None or d.key in among)
        else d
        for d in devices
    )
