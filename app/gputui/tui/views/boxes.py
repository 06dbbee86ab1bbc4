"""Other boxes as lines: a summary of each, and below one that is unfolded its devices."""

from __future__ import annotations

from collections import Counter
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
from gputui.tui.views.text import Line, clip, fit, place_mark, title, wrap

_STATE_LOOKS = {"live": "free", "connecting": "dim", "stale": "warn", "dead": "lost"}
_WIDEST = 20
"""The column of names at most."""


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


def headline(shown: Sequence[ShownBox], only_free: bool, hidden: tuple[int, int], width: int) -> Line:
    """The rule at the top; `hidden` are the numbers of lines above and below what is seen."""
    free = sum(box.free for box in shown)
    tail = f"{free} free on {sum(box.free > 0 for box in shown)} of {len(shown)}"
    more = " ".join(f"{mark} {count}" for mark, count in zip("▲▼", hidden, strict=True) if count > 0)
    tail = f"{tail}  {more}" if more else tail
    return title("boxes with free devices" if only_free else "boxes", width, tail)


class Row(NamedTuple):
    """A line of the list. `key` is the box and the `Device.key` of what it shows, "" for the box itself; None
    for what is only read."""

    key: tuple[str, str] | None
    line: Line


def box_rows(
    shown: Sequence[ShownBox], unfolded: frozenset[str], rank: Callable[[str, str], int | None]
) -> list[Row]:
    """The rows; `rank` says which place of the selection a device of a box has."""
    wide = min(_WIDEST, max((len(box.state.alias) for box in shown), default=0))
    rows: list[Row] = []
    for box in shown:
        alias = box.state.alias
        rows.append(Row((alias, ""), _summary(box, alias in unfolded, wide)))
        if alias in unfolded:
            rows += _devices(box, rank)
    return rows


def selected_lines(
    box: str | None, selected: AppState, line: str, why_not: str | None, width: int
) -> list[Line]:
    """The strip of the selected devices, the call that starts the command on them, and what is in the way."""
    if not line:
        words = " nothing selected: space or 0-9 selects, b the best of the box at the cursor"
        return [clip(((words, "dim"),), width)]
    account = strip(selected, width).lines[1:]
    wrapped = wrap(line, width - 4)
    told = [*([why_not] if why_not else ()), *selected.warnings]
    return [
        title(f"selected on {box}", width, "started only if all are free"),
        *account,
        *(
            clip(((" $ " if not place else "   ", "prompt"), (text, "")), width)
            for place, text in enumerate(wrapped)
        ),
        *(clip((("   ! ", "warn"), (printable(text), "warn")), width) for text in told),
    ]


def needs_a_person(state: BoxState, width: int) -> list[Line]:
    """What can be done where ssh would ask something."""
    words = f" {state.alias}: ⏎ lends this terminal to ssh, which asks or says what it lacks"
    return [clip(((words, "warn"),), width)]


def _summary(box: ShownBox, unfolded: bool, wide: int) -> Line:
    state, snapshot = box.state, box.snapshot
    look = _STATE_LOOKS[state.state]
    head: Line = ((f" {'-' if unfolded else '+'} {fit(state.alias, wide)}  ", ""),)
    if snapshot is None:
        return (*head, (f"{state.state}", look), (f"  {state.error}" if state.error else "", "dim"))
    counted = Counter(verdict.state for verdict in box.verdicts.values())
    busy = len(box.verdicts) - counted["free"]
    counts = f"{counted['free']:>2} free  {busy:>2} not" + (f"  {box.mine} yours" if box.mine else "")
    words = "" if state.state == "live" else f"  {state.state} since {_clock(state, snapshot)}"
    why = f"  {state.error}" if state.error else ""
    known = state.state == "live"
    return (
        *head,
        (fit(counts, 24), "free" if known and counted["free"] else "dim"),
        (f"  {snapshot.models}", "" if known else "dim"),
        (words, look),
        (why, "dim"),
    )


def _clock(state: BoxState, snapshot: Snapshot) -> str:
    """When a box that is not live was heard of last."""
    return strftime("%H:%M:%S", localtime(min(state.since, snapshot.time)))


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
        words = f"{GLYPHS[verdict.state]} {brief(verdict, snapshot.time)}"
        mark = place_mark(rank(alias, device.key))
        spans = (
            (" ", ""),
            *mark,
            (facts, "" if known else "dim"),
            (words, verdict.state if known else "dim"),
        )
        rows.append(Row((alias, device.key), spans))
    return [*rows, *(Row(None, ((f"     {printable(error)}", "dim"),)) for error in snapshot.errors)]
