"""A check and a measurement as lines of text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Annotated, Any, Literal

from gputui.checking.answer import Driver, Framework, SeenDevice
from gputui.checking.measurement import AllReduce, Copy, Measured, Point
from gputui.checking.report import Comparison, Report, Variable
from gputui.choosing.bandwidth import bandwidth
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, MIB, UNKNOWN, printable, short_name
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import Document, Form, Json, OrNull, View


def lines(report: Report) -> tuple[str, ...]:
    """A line for each device of the program, and a concluding sentence."""
    return tuple(printable(line) for line in (*_head(report), *_table(report), report.conclusion))


def _head(report: Report) -> Iterator[str]:
    """The heading: an interpreter by its path, and its framework."""
    seen = report.seen
    if seen is None:
        return
    parts = [f"Python {seen.python}", seen.executable or " ".join(report.argv)]
    own = seen.framework
    if own is None:
        parts.append(
            f"no {seen.asked}, and the driver cannot be queried instead"
            if report.vendor.driver_probe is None
            else f"no {seen.asked}: {report.vendor.driver} was asked instead"
        )
    elif own.version:
        kinds = (("CUDA", own.cuda), ("ROCm", own.hip))
        versions = next((f"{kind} {version}" for kind, version in kinds if version), None)
        built = versions or (f"for {report.vendor.runtime}" if own.built else "CPU build")
        parts.append(f"{own.name} {own.version} ({built})")
    if report.ranks > 1:
        parts.append(f"{report.ranks} processes, all with the same result")
    yield ", ".join(parts)


def _table(report: Report) -> Iterator[str]:
    yield from aligned([_row(report, number, each) for number, each in enumerate(report.comparisons)])


def _row(report: Report, number: int, each: Comparison) -> tuple[str, ...]:
    """The row of a device as the interpreter sees it; an unseen device as it was selected, in brackets."""
    device, seen = each.chosen, each.seen
    if seen is None:
        uuid, bus, name, amount = _as_chosen(device)
    else:
        # The driver's UUID has no prefix, so an equal device shows the chosen UUID.
        uuid = device.uuid if device and each.state == "equal" and device.uuid else seen.uuid or "-"
        bus, name = seen.bus or "-", short_name(seen.name or "-")
        amount = f"{seen.memory / GIB:.1f} GiB" if seen.memory else "-"
    chosen = each.selected_in(report.snapshot)
    return (report.vendor.device(number), chosen, uuid, bus, name, amount, each.verdict)


def _as_chosen(device: Device | None) -> tuple[str, str, str, str]:
    if device is None:
        return "-", "-", "-", "-"
    return f"({device.uuid})" if device.uuid else "-", f"({device.pci_bus_id or '-'})", "-", "-"


_VARIABLE = View(Variable, "name launch seen equal")
_TORCH = View(Framework, "version cuda hip error")
_FRAMEWORK = View(
    Framework, "name version error devices told_by", devices=int, told_by=Literal["driver", "framework"]
)
_DRIVER = View(Driver, "version code error devices", devices=int)
_SEEN = View(SeenDevice, "uuid pci_bus_id=bus name memory_total=memory")
_CHOSEN = View(Device, "index uuid pci_bus_id parent name", uuid=OrNull)
_COMPARISON = View(
    Comparison,
    "cuda device state why chosen seen",
    cuda=int,
    device=str,
    why=OrNull,
    chosen=_CHOSEN.one | None,
    seen=_SEEN.one | None,
)
_INTERPRETER = View(
    Report,
    "argv executable=seen.executable python=seen.python doubt processes",
    argv=tuple[str, ...],
    processes=int | None,
)
_Speed = Annotated[float, Form(float, lambda speed: round(speed, 3))]
_POINTS = View(Point, "bytes=size seconds").list
_COPY = View(
    Copy,
    "source target gb_per_s latency_s=latency peer_access=peer verified sizes=points modelled_gb_per_s",
    gb_per_s=_Speed | None,
    points=_POINTS,
    modelled_gb_per_s=float | None,
)
_ALL_REDUCE = View(
    AllReduce,
    "backend processes=ranks algorithm_gb_per_s=algorithm bus_gb_per_s=bus verified sizes=points",
    algorithm=_Speed | None,
    bus=_Speed | None,
    points=_POINTS,
)
_SKIPPED = View(None, "device why", device=str, why=str)
_MEASURED = View(
    Measured,
    "devices copies all_reduce skipped remarks problems",
    copies=_COPY.list,
    all_reduce=_ALL_REDUCE.one | None,
    skipped=_SKIPPED.list,
)
CONFINEMENT = View(
    None,
    "confined why left_out kernel driver",
    confined=bool,
    why=str | None,
    left_out=tuple[str, ...],
    kernel=str,
    driver=str | None,
)
"""The facts on the confinement of a launch, also for a bug report: whether it was confined, why not, and the
device files that it could not open."""
CHECK = Document(
    "equal status conclusion interpreter torch=seen.torch framework driver devices environment=variables"
    " measured confinement",
    Report,
    interpreter=_INTERPRETER.one,
    torch=_TORCH.one | None,
    framework=_FRAMEWORK.one | None,
    driver=_DRIVER.one | None,
    devices=_COMPARISON.list,
    variables=_VARIABLE.list,
    measured=_MEASURED.one | None,
    confinement=CONFINEMENT.one | None,
)


def to_document(report: Report, **more: Any) -> Json:
    """JSON-ready values; `more` has the measurement and the confinement. Memory in bytes; unknown is null."""
    seen = report.seen
    own = seen and seen.framework
    told_by = "driver" if seen and seen.told_by_driver else "framework"
    return CHECK.write(
        report,
        conclusion=printable(report.conclusion),
        interpreter=_INTERPRETER.write(report, processes=report.ranks if seen else None),
        framework=own and _FRAMEWORK.write(own, devices=len(own.devices), told_by=told_by),
        driver=seen and _DRIVER.write(seen.driver, devices=len(seen.driver.devices)),
        devices=[
            _COMPARISON.write(each, cuda=number, device=report.vendor.device(number))
            for number, each in enumerate(report.comparisons)
        ],
        **{"measured": None, "confinement": None, **more},
    )


def measured_lines(measured: Measured, snapshot: Snapshot) -> tuple[str, ...]:
    """The matrix, measured and modelled, the all-reduce, and any remarks and problems."""
    text = (*_matrix(measured, snapshot), *_latency(measured), *_all_reduce(measured))
    return tuple(printable(line) for line in ("", *text, *measured.remarks, *measured.problems))


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
    """The user's name for the device, even when it has been lost since."""
    device = snapshot.by_key.get(key)
    return f"GPU {snapshot.label(device)}" if device else key


def _modelled(snapshot: Snapshot, source: str, target: str) -> float | None:
    ends = [snapshot.by_key.get(key) for key in (source, target)]
    return None if ends[0] is None or ends[1] is None else bandwidth(snapshot, ends[0], ends[1])


def _number(speed: float | None) -> str:
    return UNKNOWN if speed is None else f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"


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


def to_measured_document(measured: Measured, snapshot: Snapshot) -> Json:
    """JSON-ready values: bytes, seconds, GB/s; each copy also has the modelled GB/s of its link."""
    return _MEASURED.write(
        measured,
        copies=[
            _COPY.write(each, modelled_gb_per_s=_modelled(snapshot, each.source, each.target))
            for each in measured.copies
        ],
        skipped=[_SKIPPED.write(device=key, why=why) for key, why in measured.skipped],
    )
