"""Devices with the owners of their processes, and what these do on the host: for sources whose kernel lists
pids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Process
from gputui.system.processes import HostUse, ProcessTable
from gputui.system.root import Root


def owners_of(root: Root) -> ProcessTable:
    """Those of a machine: of this one by psutil, of a recorded one, or one that is recorded, by its /proc."""
    if root.here:
        return ProcessTable()
    from gputui.system.root_processes import RootProcesses

    return RootProcesses(root)


def with_owners(devices: Sequence[Device], owners: ProcessTable, look_up: bool) -> tuple[Device, ...]:
    """With users, commands and starts, looked up now, or as they were at the last look."""
    ask = owners.owner if look_up else owners.still

    owned = tuple(
        replace(d, processes=tuple(ask(p.pid).named(p) for p in d.processes)) if d.processes else d
        for d in devices
    )
    if look_up:
        owners.forget_all_but({p.pid for d in owned for p in d.processes or ()})
    return owned


def host_uses(
    devices: Iterable[Device], keys: Collection[str], owners: ProcessTable
) -> Mapping[int, HostUse]:
    """What the processes of the devices with these keys take of the host now."""
    return owners.uses({process.pid for d in devices if d.key in keys for process in d.processes or ()})


def with_uses(
    devices: Sequence[Device],
    keys: Collection[str],
    uses: Mapping[int, HostUse],
    activities: Mapping[str, Mapping[int, int] | None] | None = None,
) -> tuple[Device, ...]:
    """The devices, those with these keys with what their processes take of the host, and of the device
    itself: percent of its time by pid, None where the driver does not tell."""

    def used(process: Process, activity: Mapping[int, int] | None) -> Process:
        use = uses.get(process.pid, _NO_USE)
        sm = None if activity is None else activity.get(process.pid, 0)
        return replace(process, sm=sm, host_cpu=use.cpu, host_memory=use.memory)

    return tuple(
        replace(d, processes=tuple(used(p, (activities or {}).get(d.key)) for p in d.processes))
        if d.processes and d.key in keys
        else d
        for d in devices
    )


_NO_USE = HostUse()
