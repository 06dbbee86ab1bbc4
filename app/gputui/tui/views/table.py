"""The device table: one row a device, the selected ones on top in their order."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.choosing.verdict import GLYPHS
from gputui.choosing.verdict_text import brief
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, duration, short_name
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Span, bar, clip, fit, shorten, width_of, wrap

UNKNOWN = "–"

_LONG_ENOUGH = 60
"""Seconds after which "free" says since when it has been seen so."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The widths of one table, in cells. What is left goes to the state."""

    label: int
    name: int
    util: int
    memory: int
    amount: int
    gap: int
    sensors: bool

    @classmethod
    def of(cls, app_state: AppState, width: int) -> Columns:
        """The columns that fit into `width`: bars and gaps grow before names, names before the state."""
        devices = app_state.snapshot.devices if app_state.snapshot else ()
        label = max([2, *(len(app_state.snapshot.label(d)) for d in devices)]) if app_state.snapshot else 2
        longest = max([4, *(len(short_name(d.name or "?")) for d in devices)])
        amount = max([6, *(len(_amount(d)) for d in devices)])
        roomy, tight = width >= 100, width < 72
        return cls(
            label=label,
            name=0 if width < 56 else min(longest, 20 if roomy else 9 if width < 90 else 12),
            util=10 if roomy else 0 if tight else 6,
            memory=10 if roomy else 0 if tight else 5,
            amount=amount,
            gap=2 if roomy else 1,
            sensors=width >= 64,
        )


def heading(columns: Columns, width: int) -> Line:
    """The names of the columns."""
    c, gap = columns, " " * columns.gap
    text = (
        f"      {fit('#', c.label, right=True)}{gap}{fit('NAME', c.name)}{gap}{fit('UTIL', c.util + 5)}{gap}"
        f"{fit('MEMORY', c.memory + 1 + c.amount)}{f'{gap} °C{gap}   W' if c.sensors else ''}{gap} STATE"
    )
    return ((fit(text, width), "dim"),)


def nothing(app_state: AppState, width: int) -> list[Line]:
    """What stands in the place of the devices when there are none."""
    if app_state.problem:
        words = app_state.problem
    elif app_state.snapshot is None:
        words = "reading the box …"
    else:
        words = "no devices in this box"
    return [((" ", ""),), *(((f"  {piece}", "dim"),) for piece in wrap(words, width - 4))]


def facts_shown(app_state: AppState, device: Device) -> object:
    """All that a row depends on beside its columns: equal facts give equal rows."""
    return (
        device,
        _state_words(app_state, device),
        app_state.selection.rank(device.key),
        device.key == app_state.cursor,
        app_state.limits is None or device.key in app_state.limits.keys,
    )


def row(app_state: AppState, device: Device, columns: Columns, width: int) -> Line:
    """One device in exactly `width` cells. Equal boards give equal lines, so that unchanged rows stay."""
    c, gap = columns, " " * columns.gap
    verdict = app_state.verdicts[device.key]
    mark = "on" if device.key == app_state.cursor else ""
    rank = app_state.selection.rank(device.key)
    given = not app_state.limits or device.key in app_state.limits.keys
    tone = "" if given and verdict.state not in ("lost",) and not device.mig else "dim"
    slot = "" if rank is None else f"[{rank + 1}]"
    assert app_state.snapshot is not None
    label = app_state.snapshot.label(device)
    spans: list[Span] = [
        ("▸" if mark else " ", "cursor"),
        (fit(slot, 4, right=True) + " ", "slot"),
        (fit(label, c.label, right=True) + gap, "strong" if rank is not None else tone),
        (shorten(short_name(device.name or "?"), c.name) + gap, tone),
        *_load(device, columns, tone),
        (gap, ""),
        *_memory(device, columns, tone),
        *_sensors(device, columns, tone),
        (gap, ""),
    ]
    state = f" {GLYPHS[verdict.state]} "
    words = _state_words(app_state, device) if given else f"not yours, {verdict.state}"
    spans += [(state, verdict.state), (words, verdict.state if verdict.state != "busy" else tone)]
    return _padded(clip(tuple(spans), width), width)


def _load(device: Device, columns: Columns, tone: str) -> list[Span]:
    if device.utilization is None:
        # A bar of nothing would say 0 %.
        return [(fit(UNKNOWN, columns.util + 5, right=True), "dim")]
    full, empty = bar(device.utilization / 100, columns.util)
    return [(full, "load"), (empty, "rest"), (f"{device.utilization:>4}%", tone)]


def _memory(device: Device, columns: Columns, tone: str) -> list[Span]:
    if device.memory_used is None or not device.memory_total:
        return [(fit(UNKNOWN, columns.memory + 1 + columns.amount, right=True), "dim")]
    full, empty = bar(device.memory_used / device.memory_total, columns.memory)
    return [
        (full, "memory"),
        (empty, "rest"),
        (" " + fit(_amount(device), columns.amount, right=True), tone),
    ]


def _sensors(device: Device, columns: Columns, tone: str) -> list[Span]:
    if not columns.sensors:
        return []
    gap = " " * columns.gap
    return [(f"{gap}{_or_dash(device.temperature):>3}{gap}{_or_dash(device.power):>4}", tone)]


def _amount(device: Device) -> str:
    if device.memory_used is None or device.memory_total is None:
        return UNKNOWN
    return f"{device.memory_used / GIB:.1f}/{device.memory_total / GIB:.1f}G"


def _state_words(app_state: AppState, device: Device) -> str:
    """The brief text of the verdict; of a free device also for how long it has been free."""
    assert app_state.snapshot is not None
    verdict, now = app_state.verdicts[device.key], app_state.snapshot.time
    words = brief(verdict, now)
    lasting = app_state.watch.seconds_in_state(device.key, now) or 0
    return f"{words} {duration(lasting)}" if verdict.free and lasting >= _LONG_ENOUGH else words


def _or_dash(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _padded(line: Line, width: int) -> Line:
    missing = width - width_of(line)
    return (*line, (" " * missing, "")) if missing > 0 else line
