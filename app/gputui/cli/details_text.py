"""The text of `gputui ls --details`: a block for each device below the table, and the machine's load."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.columns import Column, printed
from gputui.inventory.device_facts import Group, fact_groups, facts_elsewhere
from gputui.inventory.formatting import (
    GIB,
    UNKNOWN,
    number,
    person,
    printable,
    short_name,
    size,
    without_path,
)
from gputui.inventory.process import Process
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.inventory.text_table import cut, packed
from gputui.vendors.registry import vendor_named


def details_text(snapshot: Snapshot, width: int | None) -> str:
    """Return the blocks, each line ended by a newline; a `width` wraps facts and cuts processes.

    Unknown values are left out.
    """
    lines: list[str] = []
    load = _load(snapshot.host.load) if snapshot.host.load else ""
    if load:
        lines += ["", f"host: {load}"]
    for device in snapshot.devices:
        lines += ["", f"GPU {snapshot.label(device)}: {short_name(device.name or UNKNOWN)}"]
        vendor = vendor_named(device.vendor)
        groups = fact_groups(snapshot.with_memory(device), snapshot.time, vendor.fact_names(device))
        lines += _facts(groups, width) or ["  no details"]
        elsewhere = facts_elsewhere(device, snapshot) or vendor.untold(device)
        lines += [f"  {line}" for line in _wrapped(elsewhere, width)]
        if device.processes:
            lines += [f"  {line}" for line in printed(_PROCESSES, device.processes)]
    return "".join(f"{cut(line, width)}\n" for line in lines)


def _facts(groups: Iterable[Group], width: int | None) -> list[str]:
    """Return the known facts of each group after its name."""
    known = [
        (
            group.name,
            [f"{fact.name} {fact.text.strip()}{fact.more}" for fact in group.facts if fact.text != UNKNOWN],
        )
        for group in groups
    ]
    name_width = max(len(name) for name, _ in known) + 2
    room = None if width is None else max(8, width - name_width - 2)
    lines = []
    for name, facts in known:
        for place, text in enumerate(packed(facts, room)):
            lines.append(f"  {'' if place else name:<{name_width}}{text}")
    return lines


def _wrapped(text: str, width: int | None) -> list[str]:
    import textwrap

    return ([text] if width is None else textwrap.wrap(text, max(8, width - 2))) if text else []


def _load(load: HostLoad) -> str:
    memory = None
    if load.memory_used is not None and load.memory_total is not None:
        memory = f"RAM {load.memory_used / GIB:.0f}/{load.memory_total / GIB:.0f}G"
    average = None if load.load is None else f"load {load.load:.1f}"
    if average and load.cpus:
        average += f" on {load.cpus} CPUs"
    cpu = None if load.cpu is None else f"CPU {load.cpu:.0f}%"
    return ", ".join(part for part in (cpu, average, memory) if part)


_PROCESSES: tuple[Column[Process], ...] = (
    Column("PID", lambda process: str(process.pid), right=True),
    Column("USER", lambda process: person(process.user or UNKNOWN, process.own)),
    Column("LOAD", lambda process: number(process.sm, "%"), right=True),
    Column("MEMORY", lambda process: size(process.memory), right=True),
    Column("CPU", lambda process: number(process.host_cpu, "%"), right=True),
    Column("RAM", lambda process: size(process.host_memory), right=True),
    Column("CONTAINER", lambda process: printable(process.container or "")),
    Column("COMMAND", lambda process: without_path(printable(process.told or UNKNOWN))),
)
