"""A plan as text: the model and workload, the devices, a row per strategy, DeepSpeed's own estimates.

There are two forms: with all parts of the memory and the reasons, or, for a narrow terminal, with the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, UNKNOWN, printable, short_name, size
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned, cut
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
    rows = _wide(plan) if wide else _narrow(plan)
    yield from (cut(line, width) for line in aligned(rows, right=range(1, len(rows[0]) - 1)))
    yield cut("  GiB of each device; what each sends in a step, and its time on the links", width)
    best = plan.best
    if best is not None:
        yield ""
        yield from _wrapped(f"{best.name}: {best.reason}", width)
    yield ""
    yield from (cut(line, width) for line in _estimates(plan))


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


_PARTS = ("weights", "gradients", "optimizer", "buffers", "activations", "fixed")


def _wide(plan: Plan) -> list[tuple[str, ...]]:
    heads = ("WEIGHTS", "GRADS", "OPTIM", "BUFFERS", "ACTIV", "FIXED")
    rows: list[tuple[str, ...]] = [
        ("  STRATEGY", "N", *heads, "TOTAL", "LEFT", "SENT", "TIME", "WHY"),
    ]
    for row in plan.rows:
        parts = (_gib(getattr(row.bytes, part)) for part in _PARTS)
        rows.append(
            (
                _name(row),
                str(row.strategy.devices),
                *parts,
                *_sums(row),
                _why(row),
            )
        )
    return rows


def _narrow(plan: Plan) -> list[tuple[str, ...]]:
    last = "WOULD FIT WITH" if any(row.would_fit_with for row in plan.rows) else ""
    rows: list[tuple[str, ...]] = [("  STRATEGY", "TOTAL", "LEFT", "SENT", "TIME", last)]
    for row in plan.rows:
        rows.append((_name(row), *_sums(row), _short(row)))
    return rows


def _name(row: Row) -> str:
    glyph = UNKNOWN_FIT if row.fits is None else FITS if row.fits else LACKS
    return f"{glyph} {row.name}"


def _sums(row: Row) -> tuple[str, ...]:
    left = UNKNOWN if row.margin is None else f"{row.margin / GIB:+.1f}"
    return (_gib(row.bytes.total), left, row.traffic.amount, row.traffic.time)


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


def _estimates(plan: Plan) -> list[str]:
    rows = [
        (f"zero{each.stage}", _OFFLOADS[each.offload], size(each.gpu), size(each.cpu))
        for each in plan.estimates
    ]
    return aligned(
        [("DeepSpeed's estimates", "IN HOST MEMORY", "DEVICE", "HOST"), *rows], right=(2, 3), least=(0, 0)
    )


def _wrapped(text: str, width: int | None) -> Iterator[str]:
    if width is None:
        yield text
        return
    from textwrap import wrap

    yield from wrap(text, max(20, width), subsequent_indent="  ")
