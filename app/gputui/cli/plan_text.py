"""A plan as text: the model and workload, the devices, a row per strategy, DeepSpeed's own estimates.

There are two forms: with all parts of the memory and the reasons, or, for a narrow terminal, with the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gputui.inventory.columns import Column, printed
from gputui.inventory.formatting import GIB, UNKNOWN, printable, size
from gputui.inventory.text_table import cut
from gputui.planning.devices import PlannedDevices
from gputui.planning.estimators import Estimate
from gputui.planning.plan import Plan, Row, workload_words
from gputui.planning.serving import Serving, served

WIDE = 140
"""The least width in columns for the parts of the memory and the reasons."""

_OFFLOADS = {"none": "", "optimizer": "optimizer", "all": "optimizer and weights"}


def plan_lines(plan: Plan, found: PlannedDevices, width: int | None) -> Iterator[str]:
    """Yield the lines, at most `width` characters long; None: no limit."""
    wide = width is None or width >= WIDE
    heading = [f"{printable(plan.model.name)}  {plan.model.facts}", *_workload(plan)]
    if wide:
        heading = ["  ".join(heading)]
    yield from (cut(line, width) for line in (*heading, _devices(plan, found)))
    yield ""
    serves = isinstance(plan.workload, Serving)
    yield from printed(_columns(plan, wide), plan.rows, width)
    what = (
        "the cache's tokens, requests of the whole context at once, the longest context"
        if serves
        else "what each device sends per step, and the time on the links"
    )
    yield cut(f"  GiB per device; {what}", width)
    best = plan.best or (plan.rows[0] if serves else None)
    told = [f"{best.name}: {best.reason}"] if best is not None else []
    told += [f"{row.name}: {row.what}" for row in plan.rows if row.name == "dp" and row is not best]
    for text in told:
        yield ""
        yield from _wrapped(text, width)
    if plan.estimates:
        yield ""
        yield from printed(_ESTIMATES, plan.estimates, width)


def _workload(plan: Plan) -> tuple[str, ...]:
    if isinstance(plan.workload, Serving):
        return (served(plan.workload),)
    words = [text for _, text in workload_words(plan.workload, len(plan.box))]
    return "  ".join(words[:3]), "  ".join(words[3:])


def _devices(plan: Plan, found: PlannedDevices) -> str:
    """Return "4× RTX 3090  23.7G free on each  NV4, PHB  host memory 239.0G  GPU 0,1,2,3"."""
    host = plan.box.host_memory
    nodes, network = plan.box.nodes, plan.box.network * 8
    machines = f"{nodes} machines, {network:g} Gbit/s, each " if nodes > 1 else ""
    parts = [
        f"{machines}{len(found.devices)}× {found.names}",
        plan.box.free_words,
        plan.box.link_words,
        f"host memory {size(host)}" if host is not None else "",
        f"GPU {','.join(map(found.snapshot.label, found.devices))}",
    ]
    return "  ".join(part for part in parts if part)


_PARTS = {
    "weights": "WEIGHTS",
    "gradients": "GRADS",
    "optimizer": "OPTIM",
    "buffers": "BUFFERS",
    "activations": "ACTIV",
    "fixed": "FIXED",
}


_SERVED = {"weights": "WEIGHTS", "activations": "PEAK", "fixed": "FIXED", "cache": "CACHE"}
_HELD = {"TOKENS": "{0.tokens:,}", "REQUESTS": "{0.requests:.1f}", "LONGEST": "{0.longest:,}"}


def _columns(plan: Plan, wide: bool) -> list[Column[Row]]:
    """The columns of the strategies: with all parts of the memory and the reasons, or with the sums."""

    def part(name: str) -> Callable[[Row], str]:
        return lambda row: _gib(getattr(row.bytes, name))

    def held(form: str) -> Callable[[Row], str]:
        return lambda row: form.format(row.serving) if row.fits else UNKNOWN

    serves = isinstance(plan.workload, Serving)
    heads = _SERVED if serves else _PARTS
    parts = [Column[Row](head, part(name), right=True) for name, head in heads.items()]
    if serves:
        parts += [Column[Row](head, held(form), right=True) for head, form in _HELD.items()]
        return [Column("  STRATEGY", _name), *parts, Column("", lambda row: "" if row.fits else row.outcome)]
    last = "WOULD FIT WITH" if any(row.would_fit_with for row in plan.rows) else ""
    return [
        Column("  STRATEGY", _name),
        *([Column[Row]("N", lambda row: str(row.strategy.devices), right=True), *parts] if wide else ()),
        Column("TOTAL", lambda row: _gib(row.bytes.total), right=True),
        Column("LEFT", _left, right=True),
        Column("SENT", lambda row: row.traffic.amount, right=True),
        Column("TIME", lambda row: row.traffic.time, right=True),
        Column("WHY", _why) if wide else Column(last, _short),
    ]


def _name(row: Row) -> str:
    return f"{'?' if row.fits is None else '✓' if row.fits else '✗'} {row.name}"


def _left(row: Row) -> str:
    return UNKNOWN if row.margin is None else f"{row.margin / GIB:+.1f}"


def _why(row: Row) -> str:
    """Return the advantage of the strategy; where it does not fit, a change that would make it fit."""
    if row.fits:
        return f"tight; {row.what}" if row.tight else row.what
    return f"would fit with {row.would_fit_with}" if row.would_fit_with else _lacking(row)


def _short(row: Row) -> str:
    """Return the reason in the form for a narrow table."""
    if row.fits:
        return f"({row.apart})" if row.apart else ""
    return row.would_fit_with or _lacking(row)


def _lacking(row: Row) -> str:
    """Return why it does not fit, where the column of the margin does not already say so."""
    return row.lacking or (UNKNOWN if row.margin is not None and row.margin < 0 else row.outcome)


def _gib(amount: int) -> str:
    return f"{amount / GIB:.1f}" if amount else UNKNOWN


_ESTIMATES: tuple[Column[Estimate], ...] = (
    Column("DeepSpeed's estimates", lambda each: f"zero{each.stage}"),
    Column("IN HOST MEMORY", lambda each: _OFFLOADS[each.offload]),
    Column("DEVICE", lambda each: size(each.gpu), right=True),
    Column("HOST", lambda each: size(each.cpu), right=True),
)


def _wrapped(text: str, width: int | None) -> Iterator[str]:
    if width is None:
        yield text
        return
    from textwrap import wrap

    yield from wrap(text, max(20, width), subsequent_indent="  ")
