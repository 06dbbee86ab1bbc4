"""Devices with the owners of their processes and the processes' use of the host.

For sources whose kernel lists pids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Process
from gputui.system.processes import HostUse, ProcessTable
from gputui.system.root import Root


def owners_of(root: Root) -> ProcessTable:
    """Return the process table of a machine: from psutil for this machine; from /proc for a recorded machine,
    or a machine that is being recorded."""
    if root.here:
        return ProcessTable()
    from gputui.system.root_processes import RootProcesses

    return RootProcesses(root)


def with_owners(devices: Sequence[Device], owners: ProcessTable, look_up: bool) -> tuple[Device, ...]:
    """Return the devices with users, commands and start times, looked up now or as of the last look."""
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
    """Return the current host use of the processes on the devices with these keys."""
    return owners.uses({process.pid for d in devices if d.key in keys for process in d.processes or ()})


def with_uses(
    devices: Sequence[Device],
    keys: Collection[str],
    uses: Mapping[int, HostUse],
    activities: Mapping[str, Mapping[int, int] | None] | None = None,
) -> tuple[Device, ...]:
    """Return the devices; those with these keys have the host use and the device use of their processes.

    `activities` is each process's percentage of the device's time, by pid; None where the driver does not
    report it.
    """

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
