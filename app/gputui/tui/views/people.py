"""The box by user: who has which devices, for how long, who is idle, and memory with no visible process."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.people import Person
from gputui.choosing.verdict_text import NO_PROCESS, job_claimed_and_runs_on, remedy_of, user_name
from gputui.inventory.formatting import UNKNOWN, age, duration, printable, size
from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, bar, clip, fit, title

_BAR = 12
_WIDEST = 16
"""The column of names at most."""


def headline(found: Sequence[Person], width: int) -> Line:
    """The rule at the top."""
    return title("people", width, f"{len(found)} on this box" if found else "")


def listed(found: Sequence[Person], app_state: AppState, width: int) -> tuple[list[Line], list[int]]:
    """The lines of each person, and the first line of each."""
    snapshot = app_state.snapshot
    if snapshot is None or not found:
        return [clip(((" no processes or claims on this box", "dim"),), width)], []
    wide = _wide(found)
    total = sum(device.memory_total or 0 for device in snapshot.devices if device.parent is None)
    lines: list[Line] = []
    places = []
    for person in found:
        places.append(len(lines))
        lines += [clip(line, width) for line in _person(person, snapshot, wide, total)]
    return lines, places


def held_lines(found: Sequence[Person], app_state: AppState, width: int) -> list[Line]:
    """The devices whose memory is in use by no process that can be seen."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return []
    wide = _wide(found)
    lines: list[Line] = []
    for device in snapshot.devices:
        verdict = app_state.verdicts[device.key]
        if verdict.state == "held":
            used = size(device.memory_used or 0)
            head = _columns(f"GPU {snapshot.label(device)}", used, "–", wide)
            helps = remedy_of(verdict)
            words = f"  {NO_PROCESS}{helps and '; ' + helps}"
            lines.append(clip((*head, (words, "dim")), width))
    return [title("held", width), *lines] if lines else []


def _wide(found: Sequence[Person]) -> int:
    """The column of names; the widest ones are cut."""
    return min(_WIDEST, max((len(user_name(person)) for person in found), default=0))


def _columns(label: str, used: str, age: str, wide: int) -> Line:
    """The beginning of a device's line; memory and time stand below those of its person."""
    return ((f"   {fit(label, wide + _BAR)}", "dim"), (f" {used:>7}  {age:>6}", ""))


def _person(person: Person, snapshot: Snapshot, wide: int, total: int) -> list[Line]:
    now = snapshot.time
    full, rest = bar((person.memory or 0) / total if total else None, _BAR)
    used = size(person.memory) if person.memory else UNKNOWN
    labels = ",".join(snapshot.label(holding.device) for holding in person.holdings)
    count = len(person.holdings)
    lines: list[Line] = [
        (
            (f" {fit(user_name(person), wide)}  ", "strong"),
            (full, "memory"),
            (rest, "rest"),
            (f" {used:>7}  {age(person.since, now):>6}  ", ""),
            (f"{count} GPU{'s' if count != 1 else ''}: {labels}" if labels else "no process", "dim"),
        )
    ]
    for holding in person.holdings:
        used = UNKNOWN if holding.memory is None else size(holding.memory)
        more = f" +{len(holding.processes) - 1}" if len(holding.processes) > 1 else ""
        idle_for = f"  idle for {duration(holding.idle or 0)}" if holding in person.idle else ""
        what = printable(holding.main.command or holding.main.note or "?")
        head = _columns(f"GPU {snapshot.label(holding.device)}", used, age(holding.since, now), wide)
        lines.append((*head, (idle_for, "warn"), (f"  {what}{more}", "dim")))
    lines += [((f"   {job_claimed_and_runs_on(use, snapshot)}", "warn"),) for use in person.unclaimed_uses]
    if person.claims:
        claimed = ",".join(map(snapshot.label, person.claims))
        lines.append(((f"   GPU {claimed}  ", "dim"), ("claimed", "claimed")))
    return lines


def idle_notice(found: Sequence[Person], app_state: AppState) -> str:
    """Whom to ask for a device: the largest holding that does nothing."""
    snapshot = app_state.snapshot
    idle = [(person, holding) for person in found for holding in person.idle]
    if snapshot is None or not idle:
        return ""
    person, holding = max(idle, key=lambda pair: pair[1].memory or 0)
    name = f"GPU {snapshot.label(holding.device)}"
    what = name if holding.memory is None else f"{size(holding.memory)} on {name}"
    who = f"process {holding.processes[0].pid}" if person.user is None else user_name(person)
    return f"{who} {'hold' if person.own else 'holds'} {what}, idle for {duration(holding.idle or 0)}"
