"""The box by people: who has which devices, for how long, and what is held by somebody who does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.people import Person
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.wording import duration, printable, size
from gputui.tui.board import Board
from gputui.tui.views.text import Line, bar, clip, fit, title

_BAR = 12


def headline(found: Sequence[Person], width: int) -> Line:
    """The rule at the top."""
    return title("people", width, f"{len(found)} on this box" if found else "")


def listed(found: Sequence[Person], board: Board, width: int) -> tuple[list[Line], list[int]]:
    """The lines of each person, and the first line of each."""
    snapshot = board.snapshot
    if snapshot is None or not found:
        return [clip(((" nobody is on this box", "dim"),), width)], []
    wide = min(14, max(len(printable(person.user or "?")) for person in found))
    total = sum(device.memory_total or 0 for device in snapshot.devices if device.parent is None)
    lines: list[Line] = []
    places = []
    for person in found:
        places.append(len(lines))
        lines += [clip(line, width) for line in _person(person, snapshot, wide, total)]
    return lines, places


def _person(person: Person, snapshot: Snapshot, wide: int, total: int) -> list[Line]:
    age = "–" if person.since is None else duration(snapshot.time - person.since)
    full, rest = bar(person.memory / total if total else None, _BAR)
    labels = ",".join(snapshot.label(holding.device) for holding in person.holdings)
    count = f"{len(person.holdings)} GPU{'s' if len(person.holdings) != 1 else ''}"
    lines: list[Line] = [
        (
            (f" {fit(printable(person.user or '?'), wide)}  ", "strong"),
            (full, "memory"),
            (rest, "rest"),
            (f" {size(person.memory):>7}  {age:>6}  ", ""),
            (f"{count}  {labels}" if labels else "no process", "dim"),
        )
    ]
    for holding in person.holdings:
        main = max(holding.processes, key=lambda process: process.memory or 0)
        used = "–" if holding.memory is None else size(holding.memory)
        age = "–" if holding.since is None else duration(snapshot.time - holding.since)
        more = f" +{len(holding.processes) - 1}" if len(holding.processes) > 1 else ""
        idle = holding in person.idle and holding.idle is not None
        told = (f"  0 % for {duration(holding.idle)}" if idle and holding.idle is not None else "", "warn")
        what = printable(main.command or main.note or "?")
        lines.append(
            (
                (f"   GPU {snapshot.label(holding.device):<5}", "dim"),
                (f"{used:>7}  {age:>6}", ""),
                told,
                (f"  {what}{more}", "dim"),
            )
        )
    if person.claims:
        claimed = ",".join(map(snapshot.label, person.claims))
        lines.append(((f"   GPU {claimed:<5}", "dim"), ("claimed", "claimed")))
    return lines


def idle_words(found: Sequence[Person], board: Board) -> str:
    """Whom to ask: the largest holding of somebody who does nothing with it."""
    snapshot = board.snapshot
    idle = [(person, holding) for person in found for holding in person.idle]
    if snapshot is None or not idle:
        return ""
    person, holding = max(idle, key=lambda pair: pair[1].memory or 0)
    used = size(holding.memory or 0)
    label = snapshot.label(holding.device)
    who, how_long = printable(person.user or "?"), duration(holding.idle or 0)
    return f"{used} held on GPU {label} by {who}, 0 % for {how_long}"
