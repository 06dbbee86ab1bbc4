"""Everything about one device: its identity, its state, and its facts in as many columns as fit."""

from __future__ import annotations

from itertools import combinations, pairwise, zip_longest

from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.device import Device
from gputui.inventory.device_facts import Fact, Group, fact_groups, facts_elsewhere
from gputui.inventory.formatting import UNKNOWN, duration, printable, short_bus_id
from gputui.inventory.job import Job
from gputui.inventory.text_table import packed
from gputui.tui.app_state import AppState
from gputui.tui.views.table import state_of
from gputui.tui.views.text import Line, bar, cells_of, clip, fit, title, width_of, wrap
from gputui.vendors.registry import vendor_named

_NAME = 13
"""Cells of the names of facts."""

_TEXT = 16
"""Cells that remain for the text next to a bar: "101.1 of 141.1G"."""

_LONGEST_BAR = 24


def device_facts(app_state: AppState, device: Device, width: int) -> list[Line]:
    """The facts of the page, in one, two or three columns."""
    every = _groups(app_state, device)
    count = min(len(every), 1 if width < 74 else 2 if width < 120 else 3)
    each = (width - 2) // count - 1
    blank: Line = ()
    lines: list[Line] = []
    for cells in zip_longest(*_balanced([_group(group, each) for group in every], count), fillvalue=blank):
        line: Line = ((" ", ""),)
        for cell in cells:
            line = (*line, *cell, (" " * (each + 1 - width_of(cell)), ""))
        lines.append(clip(line, width))
    return lines


# The panel beside the table


def device_panel(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule with the device at the cursor, its state, and as many groups of facts as have room, at least the
    first one."""
    device = app_state.current
    if device is None:
        return [title("device", width), clip(((" no GPU at the cursor", "dim"),), width)][:height]
    label, name = app_state.box.label(device), printable(device.name or "unknown model")
    lines = [title(f"GPU {label}", width, f"{name}  →")]
    # Two lines, whatever the state is: the facts below them stay in place.
    sign, _, look = state_of(app_state, device)
    first, *more = wrap("; ".join((_state(app_state, device), *_notes(app_state, device))), width - 4)
    lines += [((f" {sign} {first}", look),), clip(((f"   {' '.join(more)}", look),), width - 1)]
    for group in _groups(app_state, device):
        # Each fact in one line, so that no other one moves when its text gets longer.
        facts = [clip(((" ", ""), *line), width) for line in _group(group, width - 3, whole=False)]
        if len(lines) > 3 and len(lines) + len(facts) > height:
            break
        lines += facts
    return lines[:height]


def _groups(app_state: AppState, device: Device) -> tuple[Group, ...]:
    snapshot, names = app_state.box, vendor_named(device.vendor).fact_names(device)
    return fact_groups(snapshot.with_memory(device), snapshot.time, names)


_WITH_OWN_JOB = {"busy": "busy with", "claimed": "claimed by"}


def _job_in_state(app_state: AppState, device: Device) -> Job | None:
    """The user's own job, where that fully explains the device's state."""
    return app_state.own_job_on(device.key) if app_state.verdicts[device.key].state in _WITH_OWN_JOB else None


def _state(app_state: AppState, device: Device) -> str:
    verdict, now = app_state.verdicts[device.key], app_state.box.time
    job = _job_in_state(app_state, device)
    if job is None:
        return state_and_reason(verdict, now)
    age = "" if job.began is None else f", {duration(now - job.began)}"
    return printable(f"{_WITH_OWN_JOB[verdict.state]} your job {job.id}{age}: {job.title}")


# The page


def device_head(app_state: AppState, device: Device, width: int) -> list[Line]:
    """The head of the page: the identity of the device, its state and notes about it."""
    snapshot = app_state.box
    place, rank = (
        f"{snapshot.position[device.key] + 1} of {len(snapshot.devices)}",
        app_state.selection.rank(device.key),
    )
    selected = "" if rank is None else f"selected: {app_state.vendor.device(rank)}"
    name = f"GPU {snapshot.label(device)}  {printable(device.name or 'unknown model')}"
    lines = [title(name, width, selected, place)]
    lines += [((f" {piece}", "dim"),) for piece in packed(_identity(device), width - 2)]
    sign, _, look = state_of(app_state, device)
    first, *more = wrap(_state(app_state, device), width - 4)
    lines += [((f" {sign} {first}", look),), *(((f"   {piece}", look),) for piece in more)]
    notes = _notes(app_state, device)
    return lines + [((f"   {piece}", ""),) for note in notes for piece in wrap(note, width - 4)]


def _identity(device: Device) -> list[str]:
    facts = [device.uuid or "no UUID"]
    if device.pci_bus_id:
        facts.append(f"PCI {short_bus_id(device.pci_bus_id)}")
    if device.partition is not None:
        facts.append(f"part {device.partition} of its card")
    if device.module is not None:
        facts.append(f"module {device.module}")
    if device.numa_node is not None and device.numa_node >= 0:
        facts.append(f"NUMA node {device.numa_node}")
    if device.compute_capability:
        what = "compute capability" if device.capability else "architecture"
        facts.append(f"{what} {device.compute_capability}")
    if device.cores:
        facts.append(f"{device.cores} cores")
    if device.compute_mode not in (None, "default"):
        facts.append(f"compute mode {str(device.compute_mode).replace('_', ' ')}")
    if device.display:
        facts.append("a display is attached")
    return list(map(printable, facts))


def _notes(app_state: AppState, device: Device) -> list[str]:
    """Notes: whose instance it is, and more about the user's own job on it."""
    snapshot, notes = app_state.box, list[str]()
    elsewhere = facts_elsewhere(device, snapshot) or vendor_named(device.vendor).untold(device)
    if elsewhere:
        notes.append(elsewhere)
    told = _job_in_state(app_state, device)
    if told is not None and told.last_line:
        notes.append(f"its last line: {told.last_line}")
    for job in snapshot.jobs:
        if device.key in job.keys and job.ended is None and job is not told:
            age = "" if job.began is None else f" for {duration(snapshot.time - job.began)}"
            last = f", its last line: {job.last_line}" if job.last_line else ""
            notes.append(f"▶ your job {job.id}{age}: {job.title}{last}")
    return list(map(printable, notes))


# The facts


def _balanced(groups: list[list[Line]], count: int) -> list[list[Line]]:
    """The groups in their order in `count` columns, of which the longest is as short as possible."""

    def split(ends: tuple[int, ...]) -> list[list[Line]]:
        edges = (0, *ends, len(groups))
        return [[line for group in groups[start:end] for line in group] for start, end in pairwise(edges)]

    every = map(split, combinations(range(1, len(groups)), count - 1))
    return min(every, key=lambda columns: max(map(len, columns)))


def _group(group: Group, width: int, whole: bool = True) -> list[Line]:
    return [
        ((fit(group.name, width), "title"),),
        *(line for fact in group.facts for line in _fact(fact, width, whole)),
    ]


def _fact(fact: Fact, width: int, whole: bool) -> list[Line]:
    name, room = (fit(f" {fact.name}", _NAME) + " ", "dim"), width - _NAME - 1
    tone = "warn" if fact.alarm else "dim" if fact.text == UNKNOWN else ""
    long = min(_LONGEST_BAR, room - _TEXT)
    if fact.fraction is not None and long >= 4:
        full, empty = bar(fact.fraction, long)
        return [clip((name, (full, "load"), (empty, "rest"), (f" {fact.text}", tone)), width)]
    text = fact.text + fact.more
    if not whole:
        return [clip((name, (text if cells_of(text) <= room else fact.text, tone)), width)]
    first, *more = wrap(text, max(8, room))
    return [(name, (first, tone)), *(((" " * (_NAME + 1), ""), (piece, tone)) for piece in more)]
