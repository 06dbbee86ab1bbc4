"""A plan as text: the model and workload, the devices, a row per strategy, DeepSpeed's own estimates.

There are two forms: with all parts of the memory and the reasons, or, for a narrow terminal, with the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gputui.inventory.columns import Column, printed
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, UNKNOWN, printable, short_name, size
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import cut
from gputui.planning.estimators import Estimate
from gputui.planning.model import Model
from gputui.planning.plan import Plan, Row
from gputui.planning.workload import Workload

WIDE = 140
"""The least width in columns for the parts of the memory and the reasons."""

FITS, LACKS, UNKNOWN_FIT = "✓", "✗", "?"

_OFFLOADS = {"none": "", "optimizer": "optimizer", "all": "optimizer and weights"}


def plan_lines(
    plan: Plan, snapshot: Snapshot, devices: Sequence[Device], in_use: int, width: int | None
) -> Iterator[str]:
    """Yield the lines, at most `width` characters long; None: no limit.

    `in_use` devices are in use, and are planned as if they were empty.
    """
    wide = width is None or width >= WIDE
    heading = [_model(plan.model), _workload(plan.workload)]
    if wide:
        heading = ["  ".join(heading)]
    yield from (cut(line, width) for line in (*heading, _devices(plan, snapshot, devices, in_use)))
    yield ""
    yield from printed(_columns(plan, wide), plan.rows, width)
    yield cut("  GiB of each device; what each sends in a step, and its time on the links", width)
    best = plan.best
    if best is not None:
        yield ""
        yield from _wrapped(f"{best.name}: {best.reason}", width)
    yield ""
    yield from printed(_ESTIMATES, plan.estimates, width)


def _model(model: Model) -> str:
    counted = "" if model.counted == "closed form" else f" ({model.counted})"
    parts = (
        printable(model.name),
        printable(model.architecture),
        f"{model.parameters:,} parameters{counted}",
    )
    return "  ".join(part for part in parts if part)


def _workload(workload: Workload) -> str:
    parts = [
        f"batch {workload.batch} × {workload.sequence} tokens",
        workload.precision,
        workload.optimizer,
        "checkpointing" if workload.checkpointing else "",
        f"LoRA {workload.lora}" if workload.lora else "",
        f"accumulation {workload.accumulation}" if workload.accumulation > 1 else "",
        "weights only" if workload.weights_only else "",
    ]
    return "  ".join(part for part in parts if part)


def _devices(plan: Plan, snapshot: Snapshot, devices: Sequence[Device], in_use: int) -> str:
    """Return "4× RTX 3090  23.7G free on each  NV4, PHB  host memory 239.0G  GPU 0,1,2,3"."""
    models = sorted({short_name(device.name or UNKNOWN) for device in devices})
    free, host = plan.box.memory_free_min, plan.box.host_memory
    where = " on each" if len(devices) > 1 else ""
    parts = [
        f"{len(devices)}× {', '.join(models)}",
        f"{size(free)} {'if free' if in_use else 'free'}{where}",
        _links(plan),
        f"host memory {size(host)}" if host is not None else "",
        f"GPU {','.join(snapshot.label(device) for device in devices)}",
    ]
    return "  ".join(part for part in parts if part)


def _links(plan: Plan) -> str:
    """Return the kinds of links between the devices: "NV18", "NV4, PHB"."""
    links = plan.box.links
    found = {links[i][j] for i in range(len(links)) for j in range(i)}
    return ", ".join(sorted(link or UNKNOWN for link in found))


_PARTS = {
    "weights": "WEIGHTS",
    "gradients": "GRADS",
    "optimizer": "OPTIM",
    "buffers": "BUFFERS",
    "activations": "ACTIV",
    "fixed": "FIXED",
}


def _columns(plan: Plan, wide: bool) -> list[Column[Row]]:
    """The columns of the strategies: with all parts of the memory and the reasons, or with the sums."""

    def part(name: str) -> Callable[[Row], str]:
        return lambda row: _gib(getattr(row.bytes, name))

    parts = [Column[Row](head, part(name), right=True) for name, head in _PARTS.items()]
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
    glyph = UNKNOWN_FIT if row.fits is None else FITS if row.fits else LACKS
    return f"{glyph} {row.name}"


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
