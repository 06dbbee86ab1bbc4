"""A plan as text: the answer, the model with its workload, the devices, and a row for each strategy.

There are two forms. The short one fits into 80 columns, and has the best strategies. The whole one is for
`--all`: all strategies, the parts of their memory and their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from gputui.inventory.columns import Column, printed
from gputui.inventory.formatting import GIB, UNKNOWN, printable, size
from gputui.inventory.text_table import aligned, packed
from gputui.planning.answer import answer, device_words, work_words
from gputui.planning.devices import PlannedDevices
from gputui.planning.plan import Plan, Row, listed
from gputui.planning.serving import Serving

_LEAST, _FIRST = 3, 6
"""The fewest and the most strategies of the short form."""
_AROUND = 4
"""The most lines of the short form around its strategies: a blank one, the heading, two below."""
_ROOM = {False: 38, True: 24}
"""The columns that 80 leave for a reason, by whether it is the plan of a server."""

_OFFLOADS = {"none": "", "optimizer": "optimizer", "all": "optimizer and weights"}


def answer_lines(plan: Plan, found: PlannedDevices, width: int | None) -> Iterator[str]:
    """Yield the answer, and the effect of its strategy."""
    yield from packed([answer(plan, found)], width)
    if plan.able is not None:
        yield from _indented(plan.able.what, width)


def table_lines(
    plan: Plan,
    found: PlannedDevices,
    said: Collection[str],
    width: int | None,
    whole: bool,
    room: int = 24,
) -> Iterator[str]:
    """Yield the lines of the short form, at most `width` characters long (None: no limit), or of the whole
    one, which has no limit. The short form has fewer strategies where it would need more than `room` lines:
    the answer above it stays in view. What nothing has `said` of the training is assumed."""
    width = None if whole else width
    serves = isinstance(plan.workload, Serving)
    # (The global batch follows from the others.)
    work: dict[bool, list[str]] = {True: [], False: []}
    for name, text in work_words(plan.workload, len(plan.box)):
        work[name in said or name in ("", "accumulation")].append(text)
    assumed = [f"assumed: {', '.join(work[False])}"] if work[False] else []
    labels = ",".join(map(found.snapshot.label, found.devices))
    about = [
        *packed((printable(plan.model.name), plan.model.facts, *work[True], *assumed), width),
        *packed((*device_words(plan, found), f"GPU {labels}"), width),
    ]
    yield from (*about, "")
    room -= len(about) + _AROUND
    room -= plan.able not in (None, *plan.rows[: min(_FIRST, room)])
    first = max(_LEAST, min(_FIRST, room))
    rows = [row for place, row in enumerate(plan.rows) if whole or place < first or row is plan.able]
    numbers = _SERVED if serves else _TRAINED
    shown = [column for column in numbers if whole or column.name not in _LEFT_OUT[serves].split()]
    yield from printed((*shown, _WHY if whole else _HELPS), rows, width)
    meaning = (
        "REQUESTS of the whole context at once, the LONGEST of one"
        if serves
        else "LINKS: communication per step"
    )
    if not whole:
        left_out = len(plan.rows) - len(rows)
        more = f"{left_out} more, all columns" if left_out else "all columns"
        yield from _indented(f"GiB per device; {meaning}; --all: {more}", width)
        return
    yield from _indented(f"GiB per device; {meaning}", width)
    if not serves:
        yield "  PEAK is what a step needs in addition to the other columns: activations, minus the GRADS"
        yield "  that are allocated while these are freed (little on one device, more where GRADS is divided)"
    for row in plan.rows:
        # (Where it fits, its row has the sentence.)
        if row.name == "dp" and not row.fits:
            yield from ("", f"{row.name}: {row.what}")
    if plan.estimates:
        cells = [("DeepSpeed's estimates", "IN HOST MEMORY", "DEVICE", "HOST")]
        for each in plan.estimates:
            cells.append((f"zero{each.stage}", _OFFLOADS[each.offload], size(each.gpu), size(each.cpu)))
        yield from ("", *aligned(cells, right=(2, 3)))


def _name(row: Row) -> str:
    return f"{'?' if row.fits is None else '✓' if row.fits else '✗'} {row.name}"


def _short(row: Row) -> str:
    """Return the reason in the short form; of several changes, the smallest for which there is room."""
    serves = row.serving is not None
    if row.fits:
        return "" if serves else row.brief
    changes = [each.text for each in row.remedies]
    some = [listed(changes[:count], "or") for count in range(len(changes), 0, -1)]
    lacks = row.lacking or ("" if row.margin is None else f"{size(-row.margin)} too much")
    able = [*some, row.would_fit_with] if row.would_fit_with else [lacks]
    return next((text for text in able if len(text) <= _ROOM[serves]), "several changes")


def _gib(amount: int) -> str:
    return f"{amount / GIB:.1f}" if amount else UNKNOWN


def _part(head: str, name: str) -> Column[Row]:
    return Column(head, lambda row: _gib(getattr(row.bytes, name)), right=True)


def _number(head: str, text: Callable[[Row], str]) -> Column[Row]:
    return Column(head, text, right=True)


def _held(head: str, form: str) -> Column[Row]:
    """What the cache of a server holds."""
    return _number(head, lambda row: form.format(row.serving) if row.fits else UNKNOWN)


_NAME: Column[Row] = Column("  STRATEGY", _name)
_WHY: Column[Row] = Column("WHY", lambda row: f"{'tight; ' * row.tight}{row.why}")
_HELPS: Column[Row] = Column("WHY / FITS WITH", _short)
_TRAINED = (
    _NAME,
    _number("N", lambda row: str(row.strategy.devices)),
    _part("WEIGHTS", "weights"),
    _part("GRADS", "gradients"),
    _part("OPTIM", "optimizer"),
    _part("BUFFERS", "buffers"),
    _part("PEAK", "activations"),
    _part("FIXED", "fixed"),
    _part("TOTAL", "total"),
    _number("LEFT", lambda row: UNKNOWN if row.margin is None else f"{row.margin / GIB:+.1f}"),
    _number("SENT", lambda row: row.traffic.amount),
    _number("LINKS", lambda row: row.traffic.time),
)
_SERVED = (
    _NAME,
    _part("WEIGHTS", "weights"),
    _part("PEAK", "activations"),
    _part("FIXED", "fixed"),
    _part("CACHE", "cache"),
    _held("TOKENS", "{0.tokens:,}"),
    _held("REQUESTS", "{0.requests:.1f}"),
    _held("LONGEST", "{0.longest:,}"),
)
_LEFT_OUT = {False: "N WEIGHTS GRADS OPTIM BUFFERS PEAK FIXED SENT", True: "PEAK FIXED"}
"""The columns that the short form leaves out, by whether it is the plan of a server."""


def _indented(text: str, width: int | None) -> Iterator[str]:
    yield from (f"  {line}" for line in packed([text], None if width is None else max(20, width - 2)))
