"""Other boxes as lines: a summary of each, and below one that is unfolded its devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import localtime, strftime

from gputui.choosing.verdict import GLYPHS, Verdict
from gputui.choosing.verdict_text import brief
from gputui.inventory.formatting import UNKNOWN, printable, short_name, size
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState
from gputui.tui.views.text import Line, clip, fit, title

_STATE_LOOKS = {"live": "free", "connecting": "dim", "stale": "warn", "dead": "lost"}
_WIDEST = 20
"""The column of names at most."""


@dataclass(frozen=True, slots=True)
class ShownBox:
    """A box and what is made of its reading: verdicts by `Device.key`; how many devices are our own."""

    state: BoxState
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    mine: int = 0

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


def headline(shown: Sequence[ShownBox], only_free: bool, width: int) -> Line:
    """The rule at the top."""
    free = sum(box.free for box in shown)
    tail = f"{free} free on {sum(box.free > 0 for box in shown)} of {len(shown)}"
    return title("boxes with free devices" if only_free else "boxes", width, tail)


def box_lines(shown: Sequence[ShownBox], unfolded: frozenset[str], width: int) -> list[tuple[str, Line]]:
    """The lines, each with the alias of its box."""
    wide = min(_WIDEST, max((len(box.state.alias) for box in shown), default=0))
    lines: list[tuple[str, Line]] = []
    for box in shown:
        alias = box.state.alias
        lines.append((alias, clip(_summary(box, alias in unfolded, wide), width)))
        if alias in unfolded:
            lines += [(alias, clip(line, width)) for line in _devices(box)]
    return lines


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


def _devices(box: ShownBox) -> list[Line]:
    snapshot = box.snapshot
    if snapshot is None:
        return []
    known = box.state.state == "live"
    lines: list[Line] = []
    for device in snapshot.devices:
        verdict = box.verdicts[device.key]
        used, total = snapshot.memory(device)
        memory = UNKNOWN if used is None or total is None else f"{size(used)} of {size(total)}"
        load = UNKNOWN if device.utilization is None else f"{device.utilization}%"
        facts = (
            f"     {snapshot.label(device):>4}  {fit(short_name(device.name or '?'), 18)}"
            f" {load:>4}  {memory:>15}  "
        )
        words = f"{GLYPHS[verdict.state]} {brief(verdict, snapshot.time)}"
        lines.append(((facts, "" if known else "dim"), (words, verdict.state if known else "dim")))
    return [*lines, *(((f"     {printable(error)}", "dim"),) for error in snapshot.errors)]
