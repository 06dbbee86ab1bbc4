"""How a simulated box changes: a pure function from a box and a moment to a snapshot.

Noise is derived from the box's name, the device and the second, so that a moment looks the same on every
machine, and moments may be requested in any order.
"""

from __future__ import annotations

import random
import shlex
from functools import lru_cache

from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.formatting import MIB, YOU
from gputui.inventory.job import Job, JobDevice
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Ancestor, Process
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.waiter import Waiter, Waiters
from gputui.sources.simulated.spec import Box, Gpu, OwnJob, Task, Waiting
from gputui.sources.simulated.wiring import wired

MESSAGES = {"lost": "GPU is lost", "reset": "GPU requires restart", "error": "Unknown Error"}
"""nvidia-ml-py's messages for the faults that a simulated GPU can have."""

_OF_IDENTITY = frozenset({"mig", "compute_mode", "display", "unified", "power_limit"})
"""Facts that some vendors' drivers do not report for any GPU."""

_WARM_UP = 4.0
"""Seconds for which a task that has just started shows 0 %: real tasks load their data first."""
_LOGS_EVERY, _TAIL = 3, 20
"""Seconds from one line of a job's log to the next, and the last lines that are shown."""

_PAST_PACE = 10
"""How much slower tasks came and went before the box was opened: the readings of the past are too far apart
for short ones, whose time and energy would count as nobody's."""

_FILL = 10.0
"""Seconds that a task needs to fill its memory."""


def at(box: Box, elapsed: float, opened: float) -> Snapshot:
    """Return the box `elapsed` seconds after it was opened, at `opened` seconds since the epoch."""
    snapshot = past_at(box, elapsed, opened)
    return replace(
        snapshot,
        host=Host(box.host, box.driver, box.cuda),
        **wired(box, tuple(box.place(d) for d in snapshot.devices if d.fault and d.parent is None)),
        jobs=tuple(_job(box, job, elapsed, opened) for job in box.jobs),
    )


def past_at(box: Box, elapsed: float, opened: float) -> Snapshot:
    """Return only what is remembered of the past: the devices, the claims and those in line. Negative
    `elapsed` is a time before the box was opened."""
    return Snapshot(
        Host(),
        opened + elapsed,
        tuple(
            device
            for index, gpu in enumerate(box.gpus)
            for device in _devices(box, index, gpu, elapsed, opened)
        ),
        claims=_claims(box, elapsed, opened),
        waiters=_waiters(box, elapsed, opened),
    )


def _claims(box: Box, elapsed: float, opened: float) -> tuple[Claim, ...]:
    """Return the claims of the tasks, which begin some seconds before the processes and end with them."""
    found = []
    for task in box.tasks:
        runs, taken = started(task, elapsed), claimed(task, elapsed)
        if taken is None:
            continue
        for place, label in enumerate(task.devices):
            found.append(
                Claim(
                    key=box.key(label),
                    user=task.user,
                    since=opened + taken,
                    command=_program_and_script(task.command),
                    pid=task.pid,
                    job=task.job,
                    pids=() if runs is None else (task.pid + place,),
                    own=task.job in {job.id for job in box.jobs},
                )
            )
    return tuple(sorted(found, key=lambda claim: claim.key))


def _program_and_script(command: str) -> str:
    program, *rest = command.split()
    return " ".join([program, *[word for word in rest if not word.startswith("-")][:1]])


def _waiters(box: Box, elapsed: float, opened: float) -> Waiters:
    """Return the waiters that are in line at this moment, in the order in which they came."""
    found = []
    for each in box.line:
        since = started(each, elapsed)
        if since is None:
            continue
        found.append(
            Waiter(
                place=(round((opened + since) * 1e9), each.user),
                user=each.user,
                ours=each.user == YOU,
                count=each.count,
                devices=None if each.devices is None else frozenset(map(box.key, each.devices)),
                since=opened + since,
                command=each.command,
                job=each.job,
            )
        )
    return tuple(sorted(found, key=lambda waiter: waiter.place))


def _job(box: Box, job: OwnJob, elapsed: float, opened: float) -> Job:
    until = elapsed if job.ended is None else job.ended
    state = "waiting" if job.began is None else "running"
    if job.ended is not None:
        state = "stopped" if job.status is None else "failed"
    lines = 0 if job.began is None else min(job.lines, int((until - job.began) // _LOGS_EVERY))
    return Job(
        id=job.id,
        line=job.title,
        argv=tuple(shlex.split(job.title)),
        state=state,
        devices=tuple(
            JobDevice(int(label.rpartition(":")[2]), box.key(label), None) for label in job.devices
        ),
        created=opened + job.created,
        started=opened + job.created,
        waits=job.waits,
        taken=None if job.taken is None else opened + job.taken,
        ended=None if job.ended is None else opened + job.ended,
        status=job.status,
        tail=tuple(
            job.log.format(step=2 * line, loss=max(0.1, 1.46 - line / 5000))
            for line in range(max(0, lines - _TAIL), lines)
        ),
        peak_memory=None if job.peak is None else job.peak * MIB,
        peak_process_memory=None if job.ram is None else job.ram * MIB,
    )


@lru_cache(maxsize=256)
def _identity(box: Box, index: int) -> Device:
    """Return the facts of a GPU that never change."""
    label, gpu = str(index), box.gpus[index]
    identity = Device(
        index=box.index(index),
        uuid=box.uuid(label),
        name=gpu.name,
        pci_bus_id=f"00000000:{gpu.bus}" if gpu.bus else None,
        mig=bool(gpu.mig),
        power_limit=gpu.power_limit,
        compute_capability=gpu.capability or None,
        cores=gpu.cores,
        max_sm_clock=gpu.clock or None,
        compute_mode="default",
        display=any(label in task.devices and task.kind == "graphics" for task in box.tasks),
        numa_node=gpu.numa,
        unified="memory_total" in gpu.unsupported if gpu.unified is None else gpu.unified,
        memory_total=None if "memory_total" in gpu.unsupported else gpu.memory * MIB,
        vendor=gpu.vendor or box.vendor,
        uuid_usable=gpu.partition is None and gpu.has_uuid,
        board=None if gpu.partition is None else f"00000000:{gpu.bus}",
        partition=gpu.partition,
        render=None if gpu.render is None else f"renderD{gpu.render}",
        pci_id=gpu.pci_id,
        apart=gpu.apart,
        module=gpu.module,
        memory_idle=None if gpu.idle_memory is None else gpu.idle_memory * MIB,
    )
    return _with(identity, **dict.fromkeys(gpu.unsupported & _OF_IDENTITY))


def _devices(box: Box, index: int, gpu: Gpu, elapsed: float, opened: float) -> list[Device]:
    identity = _identity(box, index)
    if elapsed >= gpu.fails_after:
        # A lost GPU keeps the facts that were read before; its instances are lost with it.
        message = MESSAGES[gpu.fault]
        return [_with(identity, fault=Fault(gpu.fault, message, opened + gpu.fails_after))]
    whole = _load(box, identity, gpu, str(index), elapsed, opened, gpu.memory)
    if not gpu.mig:
        return [whole]
    parts = []
    for place, mig in enumerate(gpu.mig):
        part = Device(
            index=place,
            uuid=box.uuid(f"{index}:{place}"),
            name=f"{gpu.name} MIG {mig.profile}",
            pci_bus_id=identity.pci_bus_id,
            parent=identity.uuid,
            memory_total=mig.memory * MIB,
            compute_capability=gpu.capability or None,
            unified=identity.unified,
            numa_node=gpu.numa,
        )
        # The driver has no utilization, temperature, power or clock of an instance.
        parts.append(_load(box, part, gpu, f"{index}:{place}", elapsed, opened, mig.memory, instance=True))
    used = sum(part.memory_used or 0 for part in parts)
    parent = _with(
        whole,
        memory_used=used,
        memory_free=gpu.memory * MIB - used,
        utilization=None,
        memory_utilization=None,
        processes=(),
    )
    return [parent, *parts]


def _load(
    box: Box,
    device: Device,
    gpu: Gpu,
    label: str,
    elapsed: float,
    opened: float,
    memory: int,
    instance: bool = False,
) -> Device:
    processes, used, load, resting = [], gpu.reserve if not instance else 0, 0.0, list[float]()
    for task in box.tasks:
        began = started(task, elapsed)
        if label not in task.devices or began is None:
            continue
        running = elapsed - began
        share = None if task.memory is None else int(task.memory * min(1.0, 0.2 + running / _FILL))
        used += share or 0
        resting.append(began if task.load == task.swing == 0 else elapsed)
        if running >= _WARM_UP:
            load += task.load + noise(box, label, elapsed, task.pid) * task.swing
        if not task.hidden:
            processes.append(
                Process(
                    pid=task.pid + task.devices.index(label),
                    kind=task.kind,
                    user=task.user,
                    own=task.user == YOU,
                    memory=None if share is None else share * MIB,
                    command=task.command,
                    started=opened + began,
                    container=task.container,
                    ancestors=(Ancestor(task.pid - 1, task.starter),) if task.starter else (),
                )
            )
    busy = round(min(100.0, max(0.0, load)))
    used = min(used, memory)
    facts = {
        "memory_used": used * MIB,
        "memory_free": (memory - used) * MIB,
        "processes": tuple(processes),
    }
    if not instance:
        limit = gpu.power_limit or 60.0
        facts |= {
            "utilization": busy,
            "idle_since": opened + max(resting) if resting and max(resting) < elapsed else None,
            "memory_utilization": round(busy * 0.45),
            "temperature": round(30 + busy * 0.38 + noise(box, label, elapsed, 1)),
            "power": round(min(limit, gpu.idle_power + (limit * 1.06 - gpu.idle_power) * busy / 100), 3),
            "sm_clock": gpu.clock if busy else 345,
        }
        facts["throttled"] = ("power limit",) if facts["power"] == gpu.power_limit else ()
    for name in gpu.unsupported & facts.keys():
        facts[name] = None
    return _with(device, **facts)


def claimed(task: Task, elapsed: float) -> float | None:
    """Return when the task claimed its devices, in seconds after opening; None where it has no claim now."""
    if task.claims is None:
        return None
    # The task runs already, or it will run `claims` seconds later.
    began = started(task, elapsed)
    began = started(task, elapsed + task.claims) if began is None else began
    return None if began is None else began - task.claims


def started(task: Task | Waiting, elapsed: float) -> float | None:
    """Return when the running task started, or the waiter in line came, in seconds after
    opening; None for none."""
    if task.starts == float("-inf"):
        return -task.age if -task.age <= elapsed < task.ends else None
    pace = 1 if elapsed >= 0 else _PAST_PACE
    moment = elapsed / pace if task.every is None else elapsed / pace % task.every
    if not task.starts <= moment < task.ends:
        return None
    return elapsed - (moment - task.starts) * pace


def noise(box: Box, label: str, elapsed: float, salt: int) -> float:
    """Return noise between -1 and 1 that changes smoothly from second to second."""
    second, part = int(elapsed // 1), elapsed % 1

    def point(moment: int) -> float:
        return random.Random(f"{box.name} {label} {salt} {moment}").uniform(-1, 1)

    return point(second) * (1 - part) + (point(second + 1) * part if part else 0.0)


def _with(device: Device, **facts: object) -> Device:
    return replace(device, **facts)  # type: ignore[arg-type]
