"""Measures copies between the selected devices, and an all-reduce over them, in the launch's interpreter.

GB/s are 10^9 bytes a second, one way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from gputui.checking import SCRIPTS
from gputui.checking.check import SECONDS
from gputui.checking.report import Report
from gputui.choosing.bandwidth import Rates
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import Verdicts, verdicts
from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.formatting import GIB
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import DocumentError, Form, Positive, Record, check, form_of, whole
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch import Launch
from gputui.system import child_process as process
from gputui.system.child_process import Cancelled
from gputui.system.environment import Environ
from gputui.vendors.visibility import with_changes

_LATENCY_SIZE = 64 * 1024
"""The largest copy in bytes whose time is latency, not bandwidth."""


@frozen
class Point:
    """A transfer of `size` bytes in `seconds`."""

    size: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        return self.size / self.seconds / 1e9


@frozen
class Copy:
    """Copies from one device to another, by their `Device.key`.

    peer      whether the target can read the source's memory directly
    verified  whether the data arrived unchanged
    """

    source: str
    target: str
    points: tuple[Point, ...]
    peer: bool
    verified: bool

    @property
    def gb_per_s(self) -> float | None:
        """The best of the sizes: the bandwidth of the link. None where only latency was measured."""
        return max((each.gb_per_s for each in self.points if each.size > _LATENCY_SIZE), default=None)

    @property
    def latency(self) -> float | None:
        """The seconds of the smallest copy."""
        return next((each.seconds for each in self.points if each.size <= _LATENCY_SIZE), None)


@frozen
class AllReduce:
    """An all-reduce over `ranks` processes in the selected order. A size takes the slowest rank's time."""

    backend: str
    ranks: int
    points: tuple[Point, ...]
    verified: bool

    @property
    def best(self) -> Point | None:
        """The size with the highest rate."""
        return max(self.points, key=lambda point: point.gb_per_s, default=None)

    @property
    def algorithm(self) -> float | None:
        """The GB/s that the program sees: size divided by time."""
        return self.best.gb_per_s if self.best else None

    @property
    def bus(self) -> float | None:
        """The GB/s on the links: 2 (n - 1) / n times as much (nccl-tests, doc/PERFORMANCE.md)."""
        return self.best.gb_per_s * 2 * (self.ranks - 1) / self.ranks if self.best else None


@frozen
class Measured:
    """All measurements, and the reasons for missing ones.

    devices   keys of the devices that were measured, in the selected order
    skipped   (key, reason) of the devices that were not measured
    remarks   why there are fewer results than expected, although nothing failed
    problems  the failures
    """

    devices: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    all_reduce: AllReduce | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def pairs(self) -> Rates:
        """The known GB/s by (source, target)."""
        found = {(c.source, c.target): c.gb_per_s for c in self.copies}
        return MappingProxyType({pair: speed for pair, speed in found.items() if speed is not None})

    @property
    def verified(self) -> bool:
        """Whether nothing failed, and all data arrived unchanged."""
        parts = [copy.verified for copy in self.copies]
        parts += [self.all_reduce.verified] if self.all_reduce else []
        return not self.problems and all(parts)


_Seconds = Annotated[float, check(float, bool, "a time")]
_Points = Annotated[
    tuple[Point, ...],
    Form(
        lambda value: tuple(
            Point(*pair) for pair in form_of(tuple[tuple[Positive, _Seconds], ...]).read(value)
        )
    ),
]
_COPY = Record(Copy, source=int, target=int, points=_Points)
ALL_REDUCE = Record(AllReduce, ranks=Annotated[int, whole(2)], points=_Points)


def read_copies(answer: Any, keys: Mapping[int, str]) -> tuple[Copy, ...]:
    """The copies of an answer; `keys` maps numbers in a program to devices. Raises DocumentError."""
    found = form_of(tuple[Copy, ...]).read(answer)
    for place, each in enumerate(found):
        if not {each.source, each.target} <= keys.keys():
            raise DocumentError("expected devices that were to be measured", place)
    return tuple(replace(each, source=keys[each.source], target=keys[each.target]) for each in found)


_ALONE = 2
"""The number of processes of an all-reduce where the devices do not determine it."""


def measure(
    launch: Launch,
    report: Report,
    snapshot: Snapshot,
    rules: Rules,
    environ: Environ,
    *,
    python: str | None = None,
    processes: int | None = None,
    max_memory: int = GIB,
    force: bool = False,
    seconds: float = SECONDS,
    cancelled: Cancelled = None,
) -> Measured:
    """Measure the devices of `launch`; `report` has proved that the interpreter sees them.

    `snapshot` is read just before, with loads and links: a device that is not free by `rules` is skipped
    unless `force`. Tensors take at most `max_memory` bytes on a device, in addition to the runtime's own
    memory. With a CPU build of torch, or without devices, `processes` processes all-reduce on the CPU. May be
    called on any thread.
    """
    schedule = _scheduled(report, snapshot, verdicts(snapshot, rules), processes, force)
    if schedule.empty.problems or schedule.ranks < 2:
        return schedule.empty
    environment = launch.environment(environ)
    visibility = launch.vendor.visibility
    if launch.devices and visibility.variable not in environment:
        # A launcher would have set it.
        environment = with_changes(environment, visibility.changes(launch.devices))
    try:
        found = interpreter(launch.argv, environment, launch.directory, python)
    except InterpreterError as error:
        return replace(schedule.empty, problems=(str(error),))
    spec = {
        "backend": schedule.backend,
        "device_type": launch.vendor.device_type,
        "devices": list(schedule.keys),
        "ranks": schedule.ranks,
        "max_memory": max_memory,
        "seconds": seconds,
    }
    with process.answers() as folder:
        argv = (*found.argv, str(SCRIPTS / "bandwidth.py"), str(folder), json.dumps(spec))
        ended = process.run(argv, environment, launch.directory, seconds + 10, cancelled)
        return _read(folder, ended, schedule)


@frozen
class _Schedule:
    """The planned measurements: devices by their number in a program, and the result without measurements."""

    backend: str
    keys: Mapping[int, str]
    ranks: int
    empty: Measured


def _scheduled(
    report: Report,
    snapshot: Snapshot,
    judged: Verdicts,
    processes: int | None,
    force: bool,
) -> _Schedule:
    torch = report.seen.torch if report.seen else None
    if report.seen is None or torch is None or torch.version is None:
        own = report.seen.framework if report.seen else None
        why = "this interpreter has no torch" if report.seen else "the interpreter did not answer"
        if own is not None and torch is None:
            why = f"measuring needs torch, and the command uses {own.name}"
        return _Schedule("gloo", {}, 0, Measured(problems=(f"cannot measure: {why}",)))
    if torch.cpu_build or not report.devices:
        ranks = max(_ALONE, processes or len(report.devices))
        cpu_build = f"no device is measured: this torch is a CPU build; {report.vendor.torch_build}"
        return _Schedule("gloo", {}, ranks, Measured(remarks=(cpu_build,) if report.devices else ()))
    if not report.equal:
        # Otherwise devices of others would be measured.
        why = "nothing is measured: the interpreter does not see the selected devices"
        return _Schedule(report.vendor.backend, {}, 0, Measured(problems=(why,)))
    skipped: list[tuple[str, str]] = []
    keys: dict[int, str] = {}
    for number, device in enumerate(report.devices):
        verdict = judged.get(device.key)
        if force or (verdict is not None and verdict.free):
            keys[number] = device.key
        else:
            why = state_and_reason(verdict, snapshot.time) if verdict else "not there"
            skipped.append((device.key, why))
    alone = ("copies and all-reduce need at least two devices",) if len(keys) < 2 else ()
    empty = Measured(tuple(keys.values()), skipped=tuple(skipped), remarks=alone)
    return _Schedule(report.vendor.backend, keys, len(keys), empty)


def _read(folder: Path, ended: process.Ended, schedule: _Schedule) -> Measured:
    """All results, even where another measurement failed."""
    problems = [ended.trouble] if ended.trouble else []
    for path in sorted(folder.glob("*.error")):
        text = path.read_text(encoding="utf-8", errors="replace")[:500].strip()
        role = path.stem.partition("-")[0].replace("_", "-")
        problems.append(f"{role}: {text.splitlines()[0] if text else 'failed'}")
    measured = schedule.empty
    try:
        if (folder / "copies.json").exists():
            copies = read_copies(process.read_answer(folder / "copies.json"), schedule.keys)
            measured = replace(measured, copies=copies)
        if (folder / "all_reduce.json").exists():
            reduced = ALL_REDUCE.read(process.read_answer(folder / "all_reduce.json"))
            measured = replace(measured, all_reduce=reduced)
        elif not problems:
            last = f": {ended.last_line}" if ended.last_line else ""
            problems.append(f"the all-reduce ended without a result{last}")
    except DocumentError as error:
        problems.append(f"an answer cannot be read: {error}")
    # A failure of every rank is reported once.
    return replace(measured, problems=tuple(dict.fromkeys(problems)))
