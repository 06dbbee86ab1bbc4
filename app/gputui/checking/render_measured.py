"""A measurement as lines of text and as JSON, beside what the model expects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from gputui.checking.measured import Measured
from gputui.choosing.bandwidth import bandwidth
from gputui.inventory.formatting import GIB, MIB, printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned


def measured_lines(measured: Measured, snapshot: Snapshot) -> tuple[str, ...]:
    """The matrix, measured and modelled, the all-reduce, and what there is to say."""
    told = (*_matrix(measured, snapshot), *_latency(measured), *_all_reduce(measured))
    return tuple(printable(line) for line in ("", *told, *measured.remarks, *measured.problems))


def _matrix(measured: Measured, snapshot: Snapshot) -> Iterator[str]:
    if not measured.copies:
        return
    names = [name_of(key, snapshot) for key in measured.devices]
    rows = [["", *names]]
    for source, name in zip(measured.devices, names, strict=True):
        cells = [_cell(measured, snapshot, source, target) for target in measured.devices]
        rows.append([name, *cells])
    yield "copies from row to column: GB/s measured (modelled)"
    yield from aligned(rows)
    wrong = sum(not copy.verified for copy in measured.copies)
    if wrong:
        yield f"wrong data arrived in {wrong} of {len(measured.copies)} copies"


def _cell(measured: Measured, snapshot: Snapshot, source: str, target: str) -> str:
    if source == target:
        return "X"
    speed = measured.pairs.get((source, target))
    return f"{_number(speed)} ({_number(_modelled(snapshot, source, target))})"


def name_of(key: str, snapshot: Snapshot) -> str:
    """The device as a person names it, also when it has been lost meanwhile."""
    device = snapshot.by_key.get(key)
    return f"GPU {snapshot.label(device)}" if device else key


def _modelled(snapshot: Snapshot, source: str, target: str) -> float | None:
    ends = [snapshot.by_key.get(key) for key in (source, target)]
    return None if ends[0] is None or ends[1] is None else bandwidth(snapshot, ends[0], ends[1])


def _number(speed: float | None) -> str:
    return "?" if speed is None else f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"


def _latency(measured: Measured) -> Iterator[str]:
    found = [copy.latency for copy in measured.copies if copy.latency is not None]
    if found:
        spread = f"{min(found) * 1e6:.1f} to {max(found) * 1e6:.1f}"
        yield f"16 KiB take {median(found) * 1e6:.1f} µs ({spread})"


def _all_reduce(measured: Measured) -> Iterator[str]:
    reduced = measured.all_reduce
    if reduced is None or reduced.best is None:
        return
    right = "data verified" if reduced.verified else "the sums are WRONG"
    yield (
        f"all-reduce over {reduced.backend}, {reduced.ranks} processes, {_size(reduced.best.size)}: "
        f"{_number(reduced.algorithm)} GB/s algorithm, {_number(reduced.bus)} GB/s bus; {right}"
    )


def _size(amount: int) -> str:
    if amount >= GIB:
        return f"{amount // GIB} GiB"
    return f"{amount // MIB} MiB" if amount >= MIB else f"{amount // 1024} KiB"


def to_measured_document(measured: Measured, snapshot: Snapshot) -> dict[str, Any]:
    """`Measured.to_document`, each copy with the model's GB/s."""
    document = measured.to_document()
    for each in document["copies"]:
        each["modelled_gb_per_s"] = _modelled(snapshot, each["source"], each["target"])
    return document
