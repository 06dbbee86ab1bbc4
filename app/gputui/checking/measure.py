"""Measuring: copies between the chosen devices, and an all-reduce over them, in the launch's interpreter."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.checking import child
from gputui.checking.check import SECONDS
from gputui.checking.measured import Measured, read_all_reduce, read_copies
from gputui.checking.report import CUDA_BUILD, Report
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import Verdict, verdicts
from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.formatting import GIB
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.untrusted_json import DocumentError
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch import Launch
from gputui.vendors.nvidia.visibility import VISIBLE, variables

_ALONE = 2
"""Processes of an all-reduce where no device says how many."""


def measure(
    launch: Launch,
    report: Report,
    snapshot: Snapshot,
    rules: Rules,
    environ: Mapping[str, str],
    *,
    python: str | None = None,
    processes: int | None = None,
    max_memory: int = GIB,
    force: bool = False,
    seconds: float = SECONDS,
    cancelled: threading.Event | None = None,
) -> Measured:
    """Measure the devices of `launch`, of which `report` has proved that the interpreter sees them.

    `snapshot` is read just before, with loads and links: a device that is not free by `rules` is left alone
    unless `force`. At most `max_memory` bytes of tensors on a device; CUDA's own memory comes on top. On a
    CPU build of torch, and without devices, `processes` of them all-reduce on the CPU. May be called on any
    thread.
    """
    schedule = _scheduled(report, snapshot, verdicts(snapshot, rules), processes, force)
    if schedule.empty.problems or schedule.ranks < 2:
        return schedule.empty
    environment = launch.environment(environ)
    if launch.devices and VISIBLE not in environment:
        # A launcher would have set it.
        environment |= {name: value for name, value in variables(launch.devices) if value is not None}
    try:
        found = interpreter(launch.argv, environment, launch.directory, python)
    except InterpreterError as error:
        return replace(schedule.empty, problems=(str(error),))
    spec = {
        "backend": schedule.backend,
        "devices": list(schedule.keys),
        "ranks": schedule.ranks,
        "max_memory": max_memory,
        "seconds": seconds,
    }
    with child.answers() as folder:
        argv = (*found.argv, str(child.SCRIPTS / "bandwidth.py"), str(folder), json.dumps(spec))
        ended = child.run(argv, environment, launch.directory, seconds + 10, cancelled)
        return _read(folder, ended, schedule)


@dataclass(frozen=True, slots=True)
class _Schedule:
    """What is to be measured: devices by their n of `cuda:n`, and what the answer is without numbers."""

    backend: str
    keys: Mapping[int, str]
    ranks: int
    empty: Measured


def _scheduled(
    report: Report,
    snapshot: Snapshot,
    judged: Mapping[str, Verdict],
    processes: int | None,
    force: bool,
) -> _Schedule:
    torch = report.seen.torch if report.seen else None
    if report.seen is None or torch is None or torch.version is None:
        why = "there is no torch in this interpreter" if report.seen else "the interpreter did not answer"
        return _Schedule("gloo", {}, 0, Measured(problems=(f"nothing can be measured: {why}",)))
    if torch.cpu_build or not report.devices:
        ranks = max(_ALONE, processes or len(report.devices))
        no_cuda = f"no device is measured: this torch is a CPU build; {CUDA_BUILD}"
        return _Schedule("gloo", {}, ranks, Measured(remarks=(no_cuda,) if report.devices else ()))
    if not report.equal:
        # What would be measured then is somebody else's.
        why = "nothing is measured: the interpreter does not see the chosen devices"
        return _Schedule("nccl", {}, 0, Measured(problems=(why,)))
    skipped: list[tuple[str, str]] = []
    keys: dict[int, str] = {}
    for number, device in enumerate(report.devices):
        verdict = judged.get(device.key)
        if force or (verdict is not None and verdict.free):
            keys[number] = device.key
        else:
            why = state_and_reason(verdict, snapshot.time) if verdict else "not there"
            skipped.append((device.key, why))
    alone = ("copies and all-reduce are between two devices or more",) if len(keys) < 2 else ()
    empty = Measured(tuple(keys.values()), skipped=tuple(skipped), remarks=alone)
    return _Schedule("nccl", keys, len(keys), empty)


def _read(folder: Path, ended: child.Ended, schedule: _Schedule) -> Measured:
    """Whatever was measured, also where something else failed."""
    problems = [ended.trouble] if ended.trouble else []
    for path in sorted(folder.glob("*.error")):
        text = path.read_text(encoding="utf-8", errors="replace")[:500].strip()
        role = path.stem.partition("-")[0].replace("_", "-")
        problems.append(f"{role}: {text.splitlines()[0] if text else 'failed'}")
    measured = schedule.empty
    try:
        if (folder / "copies.json").exists():
            copies = read_copies(child.read_answer(folder / "copies.json"), schedule.keys)
            measured = replace(measured, copies=copies)
        if (folder / "all_reduce.json").exists():
            reduced = read_all_reduce(child.read_answer(folder / "all_reduce.json"))
            measured = replace(measured, all_reduce=reduced)
        elif not problems:
            last = f": {ended.last_line}" if ended.last_line else ""
            problems.append(f"the all-reduce ended and did not answer{last}")
    except (DocumentError, ValueError) as error:
        problems.append(f"an answer cannot be read: {error}")
    # What fails in every rank is said once.
    return replace(measured, problems=tuple(dict.fromkeys(problems)))
