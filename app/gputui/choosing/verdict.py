"""The verdict on a device: can I have it, and if not, why not. Pure; judged by what one reading can tell.

Unknown is never free. A process settles it before any number does: a job that has just started shows 0 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.device import Device, Fault
from gputui.inventory.formatting import duration, printable, program, size
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    # (`pick`, which must be quick, may find none.)
    from gputui.inventory.claim import Claim

State = Literal["free", "busy", "held", "claimed", "unknown", "lost"]
STATES: tuple[str, ...] = get_args(State)

GLYPHS: dict[State, str] = {
    "free": "○",
    "busy": "●",
    "held": "◐",
    "claimed": "◆",
    "unknown": "?",
    "lost": "✕",
}
"""The sign of each state, the same in every table: state is never told by colour alone."""


_EXCLUSIVE = ("exclusive_process", "exclusive_thread")
"""Compute modes in which a device takes one program only."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is for a sentence or JSON; `brief` for the last column of a row, beside the state's glyph."""

    state: State
    reason: str
    brief: str

    @property
    def free(self) -> bool:
        return self.state == "free"


def verdicts(snapshot: Snapshot, rules: Rules = DEFAULT_RULES) -> dict[str, Verdict]:
    """The verdict on every device of the snapshot, by `Device.key`."""
    # An instance of a GPU that is lost is lost with it.
    lost = {d.key: d for d in snapshot.devices if d.fault and d.fault.kind != "error"}
    found = {
        device.key: judge(
            lost.get(device.parent or "", device),
            snapshot.time,
            rules,
            instances=len(snapshot.instances(device)),
        )
        for device in snapshot.devices
    }
    for key, claim in snapshot.claimed.items():
        # What is to be seen on a device says more than that it is promised.
        if key in found and found[key].state in ("free", "unknown"):
            found[key] = _claimed(claim, snapshot.time)
    return found


def judge(device: Device, now: float, rules: Rules = DEFAULT_RULES, instances: int = 0) -> Verdict:
    """The verdict on one device; `now` (seconds since the epoch) is for "since when"."""
    if device.fault:
        return _faulted(device.fault)
    if device.mig:
        what = f"divided into {instances} MIG instances" if instances else "MIG is on, with no instance"
        return Verdict("busy", f"{what}: only an instance can be given", f"split in {instances}")
    if device.compute_mode == "prohibited":
        reason = "its compute mode lets no program use it (nvidia-smi -c 0 does)"
        return Verdict("busy", reason, "prohibited")
    if device.processes is None:
        return _unknown("its processes cannot be listed", "processes")
    computing = [process for process in device.processes if process.kind != "graphics"]
    counting = [process for process in computing if rules.counts(process.user)]
    if counting:
        return _exclusive(_busy(counting, now), device)
    if computing:
        return _passed_over(device, computing, now, rules)
    if device.memory_used is None or device.memory_free is None:
        return _unknown("the driver does not report its memory", "memory")
    if device.utilization is None and device.parent is None:
        return _unknown("the driver does not report its utilization", "load")
    return _by_load(device, device.processes, device.memory_used, now, rules)


def _by_load(device: Device, drawing: Sequence[Process], used: int, now: float, rules: Rules) -> Verdict:
    load = device.utilization or 0
    if drawing:
        if used > rules.desktop_memory or load > rules.desktop_utilization:
            return _busy(drawing, now)
        return Verdict("free", f"only a desktop is on it, {size(used)}", "free, desktop")
    if load > rules.utilization:
        return Verdict("busy", f"{load} % busy, by no process that can be seen", f"busy {load} %, unseen")
    if used > rules.memory:
        return _held(used)
    if device.display:
        return Verdict("free", "no process, no load; a display is attached", "free, display")
    return Verdict("free", "no process, no load", "free")


def _held(used: int) -> Verdict:
    """The driver lists processes of this machine that have ended badly, of containers and of others not at
    all; the device file is still open in them."""
    find = "`sudo fuser -v /dev/nvidia*` may find it"
    return Verdict("held", f"{size(used)} in use by no process that can be seen; {find}", "held, no process")


def _exclusive(verdict: Verdict, device: Device) -> Verdict:
    """A second program would not only be slow there: it would not start."""
    if device.compute_mode not in _EXCLUSIVE:
        return verdict
    return Verdict(verdict.state, f"{verdict.reason}; exclusive: no second program starts", verdict.brief)


def _passed_over(device: Device, processes: Sequence[Process], now: float, rules: Rules) -> Verdict:
    """By the rules these processes do not count. What is in use beyond theirs still does."""
    named = ", ".join(sorted({printable(process.user or "?") for process in processes}))
    theirs = sum(process.memory or 0 for process in processes)
    if device.memory_used is None:
        return _unknown("the driver does not report its memory", "memory")
    drawing = [process for process in device.processes or () if process.kind == "graphics"]
    rest = device.memory_used - theirs
    if rest > (rules.desktop_memory if drawing else rules.memory):
        return _busy(drawing, now) if drawing else _held(rest)
    if device.compute_mode in _EXCLUSIVE:
        return _exclusive(_busy(processes, now), device)
    return Verdict("free", f"only processes that do not count are on it ({named})", f"free, but {named}")


def _faulted(fault: Fault) -> Verdict:
    since = f" {_clock(fault.since)}" if fault.since is not None else ""
    message = printable(fault.message)
    if fault.kind == "lost":
        return Verdict("lost", f"{message}: fallen off the bus{since and ' at' + since}", f"lost{since}")
    if fault.kind == "reset":
        return Verdict("lost", f"{message} (nvidia-smi --gpu-reset)", f"needs reset{since}")
    return _unknown(message, "state, driver error")


def _unknown(reason: str, brief: str) -> Verdict:
    return Verdict("unknown", reason, f"unknown {brief}")


def _busy(processes: Sequence[Process], now: float) -> Verdict:
    # The one that takes the most is the one to talk about; of equals the one that was there first.
    main = max(processes, key=lambda p: (p.memory or 0, -(p.started or now)))
    more = len(processes) - 1
    age = f" {duration(now - main.started)}" if main.started is not None else ""
    if main.user is None:
        who = f", {printable(main.note)}" if main.note else ""
        reason, brief = f"pid {main.pid}{who}{age and ' for' + age}", f"pid {main.pid}{who}"
    else:
        user, what = printable(main.user), program(main.command or "?")
        reason = f"{user} runs {what} (pid {main.pid}){age and ' for' + age}"
        brief = f"{user} {what}{age}"
    if main.memory is not None:
        reason += f", {size(main.memory)}"
    if more:
        reason += f", and {more} more process{'es' if more > 1 else ''}"
        brief += f" +{more}"
    return Verdict("busy", reason, brief)


def _claimed(claim: Claim, now: float) -> Verdict:
    age = f" {duration(max(0.0, now - claim.since))}" if claim.since is not None else ""
    return Verdict("claimed", claimed_by(claim, now), f"claimed {printable(claim.user)}{age}")


def claimed_by(claim: Claim, now: float) -> str:
    """By whom, for how long already, and until when: "by ana for 2h, until the job ends: python x.py"."""
    age = f" for {duration(max(0.0, now - claim.since))}" if claim.since is not None else ""
    what = f": {printable(claim.command)[:80]}" if claim.command else ""
    return f"by {printable(claim.user)}{age}, until the job ends{what}"


def _clock(moment: float) -> str:
    """Local time of day: a colleague is asked about "14:01:40", not about an offset."""
    import time

    return time.strftime("%H:%M:%S", time.localtime(moment))
