"""The verdict on a device: whether it is free, and if not, the cause. Pure; made from one snapshot.

Unknown is never free. Processes come before utilization and memory, because a job that has just started
still shows 0 %. Only `verdict_text` turns a verdict into text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.device import Apart, Device, Fault
from gputui.inventory.formatting import UNKNOWN
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.process import Process, known_sum
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    # `pick` must start quickly, and mostly there is no claim.
    from gputui.choosing.claimed_use import UnclaimedUse
    from gputui.inventory.claim import Claim

State = Literal["free", "busy", "held", "claimed", "cooling", "unknown", "lost"]
"""One reading yields all states but "cooling", which takes several (`state_times.with_cooling`)."""

Shown = State | Literal["idle"]
"""What a table shows: a busy device whose user does not use it is "idle"."""

GLYPHS: dict[Shown, str] = {
    "free": "○",
    "busy": "●",
    "idle": "◔",
    "held": "◐",
    "claimed": "◆",
    "cooling": "◌",
    "unknown": "?",
    "lost": "✕",
}
"""The sign of what is shown, the same in every table: colour alone never shows a state."""


_EXCLUSIVE = ("exclusive_process", "exclusive_thread")
"""Compute modes in which a device accepts one program only."""

# Causes. Named tuples, because `pick` must start quickly: a dataclass takes 0.7 ms to define, these 0.1.


class Idle(NamedTuple):
    """free: no process, and no more utilization and memory in use than the rules allow.

    `display`: a monitor is attached to it. `unseen`: processes cannot be listed, so memory use decides.
    `load_unknown`: it is a part of a GPU (MIG instance, partition), whose utilization is not known.
    """

    display: bool = False
    unseen: bool = False
    load_unknown: bool = False


class DesktopOnly(NamedTuple):
    """free: only graphics programs are on it, and the `memory` in use, in bytes, is within the rules.

    With unified memory these are the bytes of those programs, None where they are not known.
    """

    memory: int | None


class NotCounted(NamedTuple):
    """free: only processes of these users are on it, and the rules ignore them. `own` is our own user."""

    users: tuple[str, ...]
    own: str | None = None


class UsedBy(NamedTuple):
    """busy: processes are on it: the most memory first, the earliest start first among equals.

    `exclusive`: its compute mode accepts one program only, so a second program would not start.
    `unclaimed_use`: one of the processes belongs to a job that has claimed other devices.
    `idle_since`: since when (epoch seconds; a `Seen` where that may be earlier) the user of the first has not
    used it, None where that is less than a minute ago or not known. `idle`: whether that is long.
    """

    processes: tuple[Process, ...]
    exclusive: bool = False
    unclaimed_use: UnclaimedUse | None = None
    idle_since: float | None = None
    idle: bool = False


class Utilized(NamedTuple):
    """busy: utilized to `percent`, by no process that can be seen."""

    percent: int


class Divided(NamedTuple):
    """busy: a GPU in MIG mode with this number of instances. A program can only use an instance."""

    instances: int


class Prohibited(NamedTuple):
    """busy: its compute mode allows no program."""


class Cooling(NamedTuple):
    """cooling: free since this time (epoch seconds), less than the rules' `window` of seconds ago."""

    since: float
    window: float

    def passed(self, now: float) -> int:
        """The whole seconds of the window that have passed; every text counts with these."""
        return int(min(max(0.0, now - self.since), self.window))

    def left(self, now: float) -> float:
        """The seconds of the window that are left; together with `passed` they make the window."""
        return self.window - self.passed(now)


class MemoryHeld(NamedTuple):
    """held: `memory` bytes are in use by no process that can be seen.

    The driver does not list processes that have crashed, nor those of containers and other users that are
    hidden from us; such a process still has the device file open.
    """

    memory: int


class ClaimedBy(NamedTuple):
    """claimed: another job has a lease on it.

    `runs_on`: the labels of the devices on which that job is seen, where it has not claimed all of them.
    """

    claim: Claim
    runs_on: tuple[str, ...] = ()


class Unreadable(NamedTuple):
    """unknown: the driver does not report this fact, and without it the device cannot be called free."""

    fact: Literal["processes", "memory", "utilization"]


class NotOffered(NamedTuple):
    """unknown: it is listed, but no program is given it unless the user names it (`Device.apart`)."""

    why: Apart


Cause = (
    Idle
    | DesktopOnly
    | NotCounted
    | UsedBy
    | Utilized
    | Divided
    | Prohibited
    | Cooling
    | MemoryHeld
    | ClaimedBy
    | Unreadable
    | NotOffered
    | Fault
)
"""Why a device is in its state. A `Fault` makes it lost (off the bus, or in need of a reset) or unknown."""


_Judged = tuple[State, Cause]


@frozen
class Verdict:
    """The state of a device and its cause. Without text or ages, it stays equal while nothing changes.

    `device` is the device that was judged, for the remedy; it is not compared.
    """

    state: State
    cause: Cause
    device: Device | None = field(default=None, compare=False)

    @property
    def free(self) -> bool:
        return self.state == "free"

    @property
    def unseen(self) -> bool:
        """Whether the device is in use with no visible process."""
        return isinstance(self.cause, MemoryHeld | Utilized)

    @property
    def shown(self) -> Shown:
        """The state, or "idle"."""
        return "idle" if isinstance(self.cause, UsedBy) and self.cause.idle else self.state


Verdicts = Mapping[str, Verdict]
"""By `Device.key`."""


def verdicts(snapshot: Snapshot, rules: Rules = DEFAULT_RULES) -> Verdicts:
    """The verdict on every device of the snapshot, by `Device.key`."""
    # An instance of a GPU that is lost is lost with it.
    lost = {d.key: d for d in snapshot.devices if d.fault and d.fault.kind in ("lost", "reset")}
    parents = [device.parent for device in snapshot.devices if device.parent]
    found = {
        device.key: judge(lost.get(device.parent or "", device), rules, parents.count(device.uuid))
        for device in snapshot.devices
    }
    for key, claim in snapshot.claimed.items():
        # Processes on a device say more than its claim; where none is seen or can be seen, the claim decides.
        if key in found and found[key].state in ("free", "unknown"):
            found[key] = replace(found[key], state="claimed", cause=ClaimedBy(claim))
    if any(claim.pids for claim in snapshot.claims):
        _add_unclaimed_uses(found, snapshot)
    if any(device.idle_since is not None for device in snapshot.devices):
        # Imported here, because the readings of `pick` know no past.
        from gputui.choosing.idleness import known_idle

        return with_idle(found, snapshot, known_idle(snapshot), rules.idle)
    return found


def with_idle(found: Verdicts, snapshot: Snapshot, idle: Mapping[str, float], after: float) -> Verdicts:
    """The verdicts, each with since when the device's user has not used it, and whether that is `after`
    seconds ago. `idle`: by keys, the seconds for which a device has been at 0 %."""
    from gputui.choosing.idleness import is_long, is_worth_saying, unused_by
    from gputui.inventory.formatting import Seen

    named = dict(found)
    for key, seconds in idle.items():
        cause = found[key].cause if key in found else None
        if isinstance(cause, UsedBy):
            unused = unused_by(cause.processes[0].user, snapshot.by_key[key], seconds, snapshot)
            if unused is not None and is_worth_saying(unused, after):
                # In whole seconds, so that equal verdicts stay equal.
                since = float(round(snapshot.time - unused))
                since = Seen(since) if isinstance(unused, Seen) else since
                cause = cause._replace(idle_since=since, idle=is_long(unused, after))
                named[key] = replace(found[key], cause=cause)
    return named


def _add_unclaimed_uses(found: dict[str, Verdict], snapshot: Snapshot) -> None:
    """Add the jobs that use devices which they have not claimed to the causes. States do not change."""
    # Imported here, because `pick` asks for no processes of claims.
    from gputui.choosing.claimed_use import UnclaimedUse, differing, labels

    for use in differing(snapshot):
        for key in use.claimed:
            cause = found[key].cause if key in found else None
            if isinstance(cause, ClaimedBy) and use.has(cause.claim):
                runs_on = labels(snapshot, use.used or ())
                found[key] = replace(found[key], cause=cause._replace(runs_on=runs_on))
        for key in use.outside:
            cause = found[key].cause
            if isinstance(cause, UsedBy):
                main = cause.processes[0].pid in use.pids
                added = UnclaimedUse(use.user, use.job, labels(snapshot, use.claimed), main, use.own)
                found[key] = replace(found[key], cause=cause._replace(unclaimed_use=added))


def judge(device: Device, rules: Rules = DEFAULT_RULES, instances: int = 0) -> Verdict:
    """The verdict on one device with `instances` MIG instances. Claims and other devices are ignored."""
    return Verdict(*_judged(device, rules, instances), device)


def _judged(device: Device, rules: Rules, instances: int) -> _Judged:
    if device.fault:
        return "lost" if device.fault.kind in ("lost", "reset") else "unknown", device.fault
    if device.apart is not None:
        return "unknown", NotOffered(device.apart)
    if device.mig:
        return "busy", Divided(instances)
    if device.compute_mode == "prohibited":
        return "busy", Prohibited()
    if device.processes is None and device.memory_idle is None:
        return "unknown", Unreadable("processes")
    computing = device.computing
    counting = [process for process in computing if rules.counts(process.user)]
    if counting:
        return _used_by(counting, device.compute_mode in _EXCLUSIVE)
    if computing:
        return _not_counted(device, computing, rules)
    if device.memory_total == 0 or (
        # Jetson's driver reports 0 of 0: its memory is the host's, and nobody knows how much of it is in use.
        not device.unified and (device.memory_used is None or device.memory_free is None)
    ):
        return "unknown", Unreadable("memory")
    if device.utilization is None and device.parent is None and device.board is None:
        return "unknown", Unreadable("utilization")
    return _by_load(device, device.processes or (), rules)


def _by_load(device: Device, drawing: Sequence[Process], rules: Rules) -> _Judged:
    """The verdict on a device on which nothing computes.

    Unified memory in use is mostly the host's: only the memory of the device's processes counts.
    """
    load = device.utilization or 0
    used = known_sum(process.memory for process in drawing) if device.unified else _beyond_idle(device)
    if drawing:
        if (used or 0) > rules.desktop_memory or load > rules.desktop_utilization:
            return _used_by(drawing)
        return "free", DesktopOnly(used)
    if load > rules.utilization:
        return "busy", Utilized(load)
    if used is not None and used > rules.memory:
        return "held", MemoryHeld(used)
    return "free", Idle(bool(device.display), device.processes is None, device.utilization is None)


def _beyond_idle(device: Device) -> int | None:
    """Bytes in use beyond those that an idle device has in use."""
    return None if device.memory_used is None else max(0, device.memory_used - (device.memory_idle or 0))


def _not_counted(device: Device, processes: Sequence[Process], rules: Rules) -> _Judged:
    """The verdict on a device whose `processes` do not count. Memory in use beyond theirs does."""
    if device.memory_used is None and not device.unified:
        return "unknown", Unreadable("memory")
    drawing = [process for process in device.processes or () if process.kind == "graphics"]
    rest = (
        known_sum(process.memory for process in drawing) or 0
        if device.unified
        else (_beyond_idle(device) or 0) - sum(process.memory or 0 for process in processes)
    )
    if rest > (rules.desktop_memory if drawing else rules.memory):
        return _used_by(drawing) if drawing else ("held", MemoryHeld(rest))
    if device.compute_mode in _EXCLUSIVE:
        return _used_by(processes, exclusive=True)
    users = sorted({process.user or UNKNOWN for process in processes})
    return "free", NotCounted(tuple(users), next((p.user for p in processes if p.own), None))


def _used_by(processes: Sequence[Process], exclusive: bool = False) -> _Judged:
    def weight(process: Process) -> tuple[int, float]:
        return -(process.memory or 0), float("inf") if process.started is None else process.started

    return "busy", UsedBy(tuple(sorted(processes, key=weight)), exclusive)
