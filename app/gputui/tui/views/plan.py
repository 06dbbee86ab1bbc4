"""The plan page: the request and its devices, the ranked strategies, and the strategy at the cursor."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from gputui.inventory.formatting import UNKNOWN, devices_text, printable, size
from gputui.launching.intent import DeviceCount
from gputui.planning.answer import answer, device_words, work_words
from gputui.planning.devices import PlannedDevices
from gputui.planning.memory import Bytes
from gputui.planning.plan import Plan, Row
from gputui.tui.app_state import AppState
from gputui.tui.plan_request import PlanRequest
from gputui.tui.views.selection import runs
from gputui.tui.views.text import Line, Span, cells_of, clip, fit, flow, hanging, title, told_lines

PARTS: tuple[tuple[str, str, str], ...] = (
    ("weights", "█", "load"),
    ("gradients", "▓", "link-nv"),
    ("optimizer", "▒", "warn"),
    ("buffers", "▄", "claimed"),
    ("activations", "▆", "memory"),
    ("fixed", "▂", "dim"),
    ("cache", "▒", "memory"),
)
"""The parts of a device's memory need, in the order of a bar, each with its sign and style."""

_NAME, _VERDICT, _NUMBER = 13, 12, 8
_LEAST_BAR, _MOST_BAR, _WHY = 8, 60, 40
"""Cells of the bar; of the text after the numbers, for which a wide page has room."""
_TIME_FROM, _WHY_FROM = 70, 110
"""Widths from which a row shows how long it sends, and why."""


class Columns(NamedTuple):
    """Cells of a row's parts: the bar, which represents the free memory, and the text after the numbers."""

    bar: int
    time: bool
    why: int


def columns_of(plan: Plan, width: int) -> Columns:
    """The columns of the table in `width` cells."""
    time = width >= _TIME_FROM and bool(plan.estimates)
    why = _WHY if width >= _WHY_FROM else 0
    # The marks, gaps of two cells, the name, the need, the verdict; a number; the text.
    taken = 3 + _NAME + 2 + 2 + 7 + 2 + _VERDICT + (_NUMBER + 1 if time else 0) + (why + 2 if why else 0) + 1
    bar = min(_MOST_BAR, max(_LEAST_BAR, width - taken))
    return Columns(bar, time, why and why + width - taken - bar)


def heading(request: PlanRequest, width: int) -> Line:
    """The rule at the top."""
    model = request.model
    tail = "" if model is None else model.facts
    name = printable(request.name) if request.name else "no model"
    return title(f"plan: {fit(name, min(cells_of(name), max(8, width // 2)))}", width, tail)


def settings(request: PlanRequest, found: PlannedDevices | str, width: int) -> list[Line]:
    """The request; devices and batch with the keys that change them, the rest by its words in the palette.
    Parts that were given explicitly stand out."""
    devices = f"{UNKNOWN} GPUs" if isinstance(found, str) else devices_text(len(found.devices))
    items = [("←→", devices, request.count is not None)]
    words = work_words(request.planned(request.model), 0 if isinstance(found, str) else len(found.devices))
    items += [("+-" if name == "batch" else "", text, name in request.said) for name, text in words]
    return flow(
        [((key, "key"), (f" {text}" if key else text, "strong" if own else "")) for key, text, own in items],
        width,
    )


def where(app_state: AppState, plan: Plan | None, found: PlannedDevices, width: int) -> Line:
    """The devices, how much of each is free, and their links; the parts that do not fit are left out."""
    name = "GPU" if len(found.devices) == 1 else "GPUs"
    selected = [device for device in found.devices if device.key in app_state.selection]
    if selected and found.how == "free":
        # A selected device may be in use, so only those that were added are known to be free.
        added = [device for device in found.devices if device not in selected]
        texts = [f" {name} {runs(app_state, selected)} selected, {runs(app_state, added)} free"]
    else:
        texts = [f" {name} {runs(app_state, found.devices)}: {found.how}"]
    if found.in_use:
        texts.append(f"{runs(app_state, found.in_use)} in use now")
    texts += device_words(plan, found) if plan is not None else (found.names,)
    style = "dim" if found.how in ("selected", "free") else "warn"
    while len(texts) > 1 and cells_of(" · ".join(texts)) > width:
        texts.pop()
    return clip(((" · ".join(texts), style),), width)


def table_heading(plan: Plan, columns: Columns, width: int) -> Line:
    """The names of the columns; the text for free memory ends where free memory ends in the bars."""
    free = plan.box.memory_free_min
    text = "" if free is None else f"{size(free)} free▕"
    bar = fit(text if cells_of(text) <= columns.bar else "", columns.bar, right=True)
    words = f"   {fit('STRATEGY', _NAME)}  {bar}  {fit('TOTAL', 7, right=True)}  {fit('LEFT', _VERDICT)}"
    words += f" {fit('LINKS', _NUMBER, right=True)}" if columns.time else ""
    words += "  WHY / FITS WITH" if columns.why else ""
    return clip(((words, "dim"),), width)


def rows(plan: Plan, columns: Columns, width: int) -> list[Line]:
    """A line for each strategy."""
    scale = plan.box.memory_free_min or max((row.bytes.total for row in plan.rows), default=1)
    lines = []
    for row in plan.rows:
        sign, words, style = verdict_of(row)
        tone = "dim" if row.fits is False else ""
        spans: list[Span] = [
            (f" {sign} ", style),
            (f"{fit(row.name, _NAME)}  ", "strong" if row.fits else tone),
            *stacked(row.bytes, scale, columns.bar),
            (f"  {fit(size(row.bytes.total), 7, right=True)}  ", tone),
            (fit(words, _VERDICT), style if not row.fits or row.tight else tone),
        ]
        if columns.time:
            spans.append((f" {fit(row.traffic.time, _NUMBER, right=True)}", tone))
        if columns.why:
            spans.append(
                (f"  {fit(row.brief if row.fits else row.would_fit_with or row.outcome, columns.why)}", "dim")
            )
        lines.append(clip(tuple(spans), width))
    return lines


def verdict_of(row: Row) -> tuple[str, str, str]:
    """A sign, words and a style for whether a strategy fits."""
    if row.fits is None or row.margin is None:
        return "?", "unknown", "unknown"
    if row.tight:
        return "!", f"{size(row.margin)} tight", "warn"
    if row.fits:
        return "✓", size(row.margin), "free"
    return "✗", "host memory" if row.margin >= 0 else f"{size(-row.margin)} over", "lost"


def stacked(parts: Bytes, scale: int, width: int) -> list[Span]:
    """The parts as one bar of `width` cells, which represent `scale` bytes. A bar that is too long ends in
    "»"."""
    amounts = [(getattr(parts, name), sign, style) for name, sign, style in PARTS]
    cells: list[tuple[str, str]] = []
    reached = 0
    for amount, sign, style in amounts:
        reached += amount
        # Computed from the end of each part, so that rounding errors do not add up.
        end = min(width + 1, round(reached * width / scale)) if scale > 0 else 0
        cells += [(sign, style)] * (end - len(cells))
    if parts.total and not cells:
        cells = [("▏", "load")]
    if len(cells) > width:
        cells = [*cells[: width - 1], ("»", "lost")]
    cells += [("░", "rest")] * (width - len(cells))
    runs_of_one = groupby(cells, key=lambda cell: cell[1])
    return [("".join(sign for sign, _ in run), style) for style, run in runs_of_one]


def detail(row: Row, plan: Plan, below: int, width: int, height: int, lacks: str = "") -> list[Line]:
    """The strategy at the cursor in `height` lines: its parts, the reason, notices. `below`: how many
    strategies are below the visible ones; `lacks`: why it cannot be started here, "" where it can."""
    more = f"▼ {below} more  " if below > 0 else ""
    parts = [
        ((f"{sign} ", style), (f"{name} ", "dim"), (f"{getattr(row.bytes, name) / 2**30:.1f}", ""))
        for name, sign, style in PARTS
        if getattr(row.bytes, name)
    ]
    if row.traffic.bytes:
        amounts = f"{row.traffic.amount} in {row.traffic.time} a step"
        parts.append(((" ", ""), (" sent ", "dim"), (amounts, "")))
    reason = told_lines(row.reason, "" if row.fits else "warn", width)
    blocks = [flow(parts, width), [*told_lines(lacks, "warn", width), *reason]]
    blocks += [hanging(((" · ", "dim"), (text, "dim")), width) for text in plan.notices]
    per_step = "" if row.serving is not None else "; LINKS: communication per step"
    lines = [title(row.name, width, f"{more}GiB per device{per_step}")]
    for place, block in enumerate(blocks):
        # A sentence is shown whole or not at all; the need and the effects of the strategy are always shown.
        if place > 1 and len(lines) + len(block) > height:
            break
        lines += block
    return lines[:height]


def doubts(
    request: PlanRequest, found: PlannedDevices | str, count: DeviceCount | None, refused: str, width: int
) -> list[Line]:
    """What the plan does not know of the command, and that it is for other devices than these."""
    differs: Iterable[str] = ()
    if request.training.serving is None and refused:
        differs = (f"as it is, the command is refused: {refused}",)
    elif request.training.serving is None and count is not None and not isinstance(found, str):
        differs = count.beside(len(found.devices))
    texts = (*differs, *request.training.doubts)
    return [line for text in texts for line in told_lines(text, "warn", width)]


def answered(plan: Plan, found: PlannedDevices, width: int) -> list[Line]:
    """Which strategy to use; where none can be, what would help."""
    return told_lines(answer(plan, found), "strong" if plan.able else "warn", width)[:2]


def missing(
    request: PlanRequest, found: PlannedDevices | str, busy: str, problem: str, width: int
) -> list[Line]:
    """The text in place of the table: why there is no plan."""
    if busy:
        return [((" ", ""),), *told_lines(busy, "dim", width)]
    if request.model is None:
        why = request.problem or "the command names no model"
    else:
        why = found if isinstance(found, str) else problem
    return [((" ", ""),), *told_lines(why, "warn", width)]
