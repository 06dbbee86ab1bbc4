"""The box by user: who has which devices, for how long, who is idle, and memory with no visible process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gputui.choosing.people import Person
from gputui.choosing.verdict_text import NO_PROCESS, job_claimed_and_runs_on, remedy_of, user_name
from gputui.inventory.columns import Column
from gputui.inventory.formatting import UNKNOWN, age, duration, printable, size
from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, bar, clip, column_widths, table_lines, title

_BAR = 12


class _Row(NamedTuple):
    """A user, or one of their devices, or a device that is held without a visible user."""

    label: str
    memory: str
    age: str
    what: str
    tone: str = "dim"
    share: str = ""

    @property
    def label_tone(self) -> str:
        return "strong" if self.share else "dim"


_COLUMNS = (
    Column[_Row]("USER", lambda row: row.label, lambda row: row.label_tone, most=18),
    Column[_Row]("SHARE", lambda row: row.share, "memory", least=_BAR),
    Column[_Row]("MEMORY", lambda row: row.memory, right=True),
    Column[_Row]("FOR", lambda row: row.age, right=True, least=6),
    Column[_Row]("WITH", lambda row: row.what, lambda row: row.tone),
)


def headline(found: Sequence[Person], width: int) -> Line:
    """The rule at the top."""
    return title("people", width, f"{len(found)} on this box" if found else "")


def listed(found: Sequence[Person], app_state: AppState, width: int) -> tuple[list[Line], list[int | None]]:
    """The lines of each user, then the devices whose memory is in use by no visible process; and for each
    line the place of its user, None for a line without one."""
    snapshot = app_state.snapshot
    if snapshot is None:
        return [], []
    total = sum(device.memory_total or 0 for device in snapshot.devices if device.parent is None)
    told = [(place, row) for place, person in enumerate(found) for row in _person(person, snapshot, total)]
    held = _held(app_state, snapshot)
    rows = [row for _, row in told]
    widths = column_widths(_COLUMNS, [*rows, *held])
    lines = table_lines([], rows, widths=widths) or [((" no processes or claims on this box", "dim"),)]
    items: list[int | None] = [place for place, _ in told] or [None]
    if held:
        lines += [title("held", width), *table_lines([], held, widths=widths)]
        items += [None] * (len(lines) - len(items))
    return [clip(line, width) for line in lines], items


def _held(app_state: AppState, snapshot: Snapshot) -> list[_Row]:
    rows = []
    for device in snapshot.devices:
        verdict = app_state.verdicts[device.key]
        if verdict.state == "held":
            helps = remedy_of(verdict)
            what = f"{NO_PROCESS}{helps and '; ' + helps}"
            label = f"  GPU {snapshot.label(device)}"
            rows.append(_Row(label, size(device.memory_used or 0), UNKNOWN, what))
    return rows


def _person(person: Person, snapshot: Snapshot, total: int) -> list[_Row]:
    now, count = snapshot.time, len(person.holdings)
    share = "".join(bar((person.memory or 0) / total if total else 0.0, _BAR))
    labels = ",".join(snapshot.label(holding.device) for holding in person.holdings)
    has = f"{count} GPU{'s' if count != 1 else ''}: {labels}" if labels else "no process"
    memory = size(person.memory or None)
    rows = [_Row(user_name(person), memory, age(person.since, now), has, "dim", share)]
    for holding in person.holdings:
        what = printable(holding.main.command or holding.main.note or "?")
        what += f" +{len(holding.processes) - 1}" if len(holding.processes) > 1 else ""
        idle = holding in person.idle
        what = f"idle for {duration(holding.idle or 0)}  {what}" if idle else what
        label = f"  GPU {snapshot.label(holding.device)}"
        tone = "warn" if idle else "dim"
        rows.append(_Row(label, size(holding.memory), age(holding.since, now), what, tone))
    rows += [
        _Row("", "", "", job_claimed_and_runs_on(use, snapshot), "warn") for use in person.unclaimed_uses
    ]
    if person.claims:
        claimed = ",".join(map(snapshot.label, person.claims))
        rows.append(_Row(f"  GPU {claimed}", "", "", "claimed", "claimed"))
    return rows


def idle_notice(found: Sequence[Person], app_state: AppState) -> str:
    """Whom to ask for a device: the user of the largest idle holding."""
    snapshot = app_state.snapshot
    idle = [(person, holding) for person in found for holding in person.idle]
    if snapshot is None or not idle:
        return ""
    person, holding = max(idle, key=lambda pair: pair[1].memory or 0)
    name = f"GPU {snapshot.label(holding.device)}"
    what = name if holding.memory is None else f"{size(holding.memory)} on {name}"
    who = f"process {holding.processes[0].pid}" if person.user is None else user_name(person)
    return f"{who} {'hold' if person.own else 'holds'} {what}, idle for {duration(holding.idle or 0)}"
