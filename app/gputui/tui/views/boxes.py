"""Other boxes as lines: a summary of each, and below one that is unfolded its devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from time import localtime, strftime
from typing import NamedTuple

from gputui.choosing.verdict import GLYPHS, Verdict
from gputui.choosing.verdict_text import brief
from gputui.inventory.formatting import UNKNOWN, printable, short_name, size
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState
from gputui.tui.app_state import AppState
from gputui.tui.views.selection import strip
from gputui.tui.views.text import Line, Span, clip, fit, place_mark, title, width_of, wrap

_STATE_LOOKS = {"live": "free", "connecting": "dim", "stale": "warn", "dead": "lost"}
_WIDEST = 20
"""The column of names at most."""
_SINCE = len("stale since 12:00:00")
_UNKNOWN_STATE = f"{GLYPHS['unknown']} unknown"
"""A device of a box that is not live: what it was says nothing of what it is."""


@dataclass(frozen=True, slots=True)
class ShownBox:
    """A box and what is made of its reading: verdicts by `Device.key`; how many devices are our own."""

    state: BoxState
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    mine: int = 0

    def now(self, state: BoxState) -> ShownBox:
        """The same reading in another state."""
        return self if state is self.state else replace(self, state=state)

    @property
    def snapshot(self) -> Snapshot | None:
        """Its last reading."""
        return self.state.reading.snapshot if self.state.reading else None

    @property
    def free(self) -> int:
        """How many of its devices are free, as far as that is known now."""
        if self.state.state != "live":
            return 0
        return sum(verdict.state == "free" for verdict in self.verdicts.values())


def headline(shown: Sequence[ShownBox], only_free: bool, end: str, width: int) -> Line:
    """The rule at the top, with something at its end."""
    free = sum(box.free for box in shown)
    tail = f"{free} free on {sum(box.free > 0 for box in shown)} of {len(shown)}"
    return title("boxes with free devices" if only_free else "boxes", width, tail, end)


class Row(NamedTuple):
    """A line of the list. `key` is the box and the `Device.key` of what it shows, "" for the box itself; None
    for what is only read."""

    key: tuple[str, str] | None
    line: Line


def box_rows(
    shown: Sequence[ShownBox], unfolded: frozenset[str], rank: Callable[[str, str], int | None]
) -> list[Row]:
    """The rows; `rank` says which place of the selection a device of a box has."""
    # (Below one that is unfolded the marks of the devices are seen.)
    folded = {box.state.alias: _selected(box, rank) for box in shown if box.state.alias not in unfolded}
    columns = _Columns(
        min(_WIDEST, max((len(box.state.alias) for box in shown), default=0)),
        max((len(_free(box)) for box in shown), default=0),
        max(map(len, folded.values()), default=0),
        max((len(_yours(box)) for box in shown), default=0),
    )
    rows: list[Row] = []
    for box in shown:
        alias = box.state.alias
        rows.append(Row((alias, ""), _summary(box, alias in unfolded, columns, folded.get(alias, ""))))
        if alias in unfolded:
            rows += _devices(box, rank)
    return rows


class _Columns(NamedTuple):
    """The cells of the columns of the boxes; 0 for one that no box needs."""

    name: int
    free: int
    selected: int
    yours: int


def _selected(box: ShownBox, rank: Callable[[str, str], int | None]) -> str:
    """How many devices of a box are selected, "[2]"; "" for none."""
    devices = box.snapshot.devices if box.snapshot else ()
    count = sum(rank(box.state.alias, device.key) is not None for device in devices)
    return f"[{count}]" if count else ""


def launch_lines(
    box: str | None,
    selected: AppState,
    launcher: str,
    line: str,
    missing: str,
    why_not: str | None,
    width: int,
) -> list[Line]:
    """The selected devices, the call that starts the command on them, what it lacks, and what is in the way.

    launcher  the name of the command's, "" where there is no command
    line      the call; an outline of it where something is missing
    missing   what it takes until something can be started, "" for nothing
    """
    name = f"launch: {launcher}" if launcher else "launch"
    chosen = bool(selected.selection.keys)
    rule = title(f"{name}, on {box}" if chosen else name, width, missing or "started only if all are free")
    account = strip(selected, width).lines[1:] if chosen else []
    told = [*([why_not] if why_not and chosen else ()), *selected.warnings]
    return [
        rule,
        *account,
        *(
            (((" $ " if not place else "   "), "prompt"), (text, "dim" if missing else ""))
            for place, text in enumerate(_broken(line, width - 4) if line else ())
        ),
        *(clip((("   ! ", "warn"), (printable(text), "warn")), width) for text in told),
    ]


def _broken(line: str, width: int) -> list[str]:
    """The call in pieces of that many cells: between words, and in a list of devices behind a comma."""
    pieces = [""]
    for word in re.findall(r"[^ ,]*[ ,]|[^ ,]+$", line):
        if width_of(((pieces[-1] + word.rstrip(), ""),)) <= width:
            pieces[-1] += word
        else:
            *full, last = wrap(word.rstrip(), width)
            pieces += [*full, last + " " * word.endswith(" ")]
    return [piece.rstrip() for piece in pieces if piece.strip()]


def trouble_lines(state: BoxState, width: int) -> list[Line]:
    """Why the box at the cursor is not live, all of it, and what can be done; nothing of one that is."""
    if state.error is None or state.state not in ("stale", "dead"):
        return []
    words = f"{state.alias}: {state.error}"
    brief_error = f"{state.alias}: {_brief_error(state)}"
    if state.asks:
        words = f"{brief_error}. ⏎ runs `ssh {state.alias} true` here, so that you can answer what it asks"
    elif state.kind == "changed key":
        words = f"{brief_error}. If that is expected, `ssh-keygen -R HOST` removes the old one"
    elif state.state == "dead":
        words = f"{words}. ⏎ tries again now"
    return [((f" {piece}", "warn"),) for piece in wrap(printable(words), width - 2)]


def _brief_error(state: BoxState) -> str:
    """The error without the remedy, which is told of the box at the cursor."""
    return (state.error or "").partition("; ")[0]


def _free(box: ShownBox) -> str:
    """How many devices are free; of a box that is not live nobody knows."""
    if box.snapshot is None:
        return ""
    free = f"{box.free}" if box.state.state == "live" else "?"
    return f"{free} of {len(box.verdicts)} free"


def _yours(box: ShownBox) -> str:
    return f"{box.mine} yours" if box.mine else ""


def _summary(box: ShownBox, unfolded: bool, columns: _Columns, selected: str) -> Line:
    state, snapshot = box.state, box.snapshot
    known = state.state == "live"
    mark = f"  {fit(selected, columns.selected)}" if columns.selected else ""
    yours = f"  {fit(_yours(box), columns.yours)}" if columns.yours else ""
    facts: tuple[Span, ...]
    if known and snapshot is not None:
        facts = ((snapshot.models, ""),)
    else:
        since = f" since {strftime('%H:%M:%S', localtime(state.since))}" if state.error else ""
        error = _brief_error(state)
        look = _STATE_LOOKS[state.state]
        facts = (fit(f"{state.state}{since}", _SINCE), look), (f"  {error}" if error else "", "dim")
    return (
        (f" {'-' if unfolded else '+'} {fit(state.alias, columns.name)}  ", ""),
        (fit(_free(box), columns.free, right=True), "free" if box.free else "dim"),
        (mark, "slot"),
        (f"{yours}  ", "" if known else "dim"),
        *facts,
    )


def _devices(box: ShownBox, rank: Callable[[str, str], int | None]) -> list[Row]:
    snapshot, alias = box.snapshot, box.state.alias
    if snapshot is None:
        return []
    known = box.state.state == "live"
    rows: list[Row] = []
    for device in snapshot.devices:
        verdict = box.verdicts[device.key]
        used, total = snapshot.memory(device)
        memory = UNKNOWN if used is None or total is None else f"{size(used)} of {size(total)}"
        load = UNKNOWN if device.utilization is None else f"{device.utilization}%"
        name = fit(short_name(device.name or "?"), 18)
        facts = f"{snapshot.label(device):>3}  {name} {load:>4}  {memory:>15}  "
        words = f"{GLYPHS[verdict.state]} {brief(verdict, snapshot.time)}" if known else _UNKNOWN_STATE
        mark = place_mark(rank(alias, device.key))
        spans = (
            (" ", ""),
            *mark,
            (facts, "" if known else "dim"),
            (words, verdict.state if known else "dim"),
        )
        rows.append(Row((alias, device.key), spans))
    return [*rows, *(Row(None, ((f"     {printable(error)}", "dim"),)) for error in snapshot.errors)]
