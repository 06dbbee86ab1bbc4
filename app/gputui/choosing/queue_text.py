"""The text of the queue: its columns, why a request has no devices yet, and who uses those that are not free.

The decisions about the queue are in `queue_outlook`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gputui.choosing.queue_outlook import Occupied, Turn
from gputui.choosing.verdict import State, UsedBy
from gputui.choosing.verdict_text import refusals
from gputui.inventory.columns import Column
from gputui.inventory.formatting import (
    UNKNOWN,
    age,
    by,
    devices_text,
    duration,
    gpus,
    in_time,
    person,
    person_or_job,
    printable,
    size,
)
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter

_MOST_LABELS = 6
_MOST_USER = 12
"""The most cells of a user name on the screen."""
_NOBODY: dict[State, str] = {
    "held": "held, no visible process",
    "busy": "busy, no visible owner",
    "unknown": "unreadable",
}
"""The text for a device that no visible user holds."""
SILENT = "has lost its place: it is stopped, or its driver does not answer"
"""The text for a waiting request that has given no sign of life for too long."""


def describe_request(waiter: Waiter, snapshot: Snapshot | None) -> str:
    """The devices that a request waits for, as `wanted` describes them."""
    return wanted(waiter.count, waiter.devices, snapshot)


def wanted(count: int, keys: Collection[str] | None, snapshot: Snapshot | None) -> str:
    """`count` of the devices with these keys (None: any): "2 devices", "GPU 4,5", "2 of GPU 4,5,6"."""
    any_of = devices_text(count)
    if keys is None:
        return any_of
    there = [d for d in snapshot.devices if d.key in keys] if snapshot else []
    labels = [snapshot.label(device) for device in there] if snapshot else []
    gone = len(keys) - len(labels)
    if gone or not labels or len(labels) > _MOST_LABELS:
        return f"{any_of}, of {len(keys)}"
    named = f"GPU {','.join(labels)}"
    return named if len(labels) == count else f"{count} of {named}"


def turn_columns(snapshot: Snapshot, silent: str = "") -> tuple[Column[Turn], ...]:
    """The columns of the line; `silent` is added to the command of a waiter without a sign of life."""

    def mine(turn: Turn) -> str:
        return "strong" if turn.waiter.ours else ""

    def command(waiter: Waiter) -> str:
        text = printable(waiter.command or UNKNOWN) + by(waiter.client)
        return f"{text}{silent}" if waiter.silent else text

    return (
        Column("PLACE", lambda turn: str(turn.place), lambda t: "dim" if t.ahead else "strong", right=True),
        Column("USER", lambda turn: person(turn.waiter.user, turn.waiter.ours), mine, most=_MOST_USER),
        Column("WANTS", lambda turn: describe_request(turn.waiter, snapshot), mine),
        Column("FOR", lambda turn: age(turn.waiter.since, snapshot.time), mine, right=True, least=6),
        Column("JOB", lambda turn: printable(turn.waiter.job or UNKNOWN), "dim", optional=True),
        Column("COMMAND", lambda turn: command(turn.waiter), "dim"),
    )


def occupied_columns(snapshot: Snapshot, commands: bool = True) -> tuple[Column[Occupied], ...]:
    """The columns of devices that are not free: the device, its user, the memory in use, since when, the
    kind of use, and with `commands` the command. Without it there is little room, and the end may be cut: the
    kind of use, which says whom to ask, then comes first.

    ("GPU 3", "bo", "38.8G", "claimed 7h13m", "idle 40m", "python serve.py")
    """

    def hoarded(each: Occupied) -> str:
        return "warn" if each.hoarded else ""

    columns: tuple[Column[Occupied], ...] = (
        Column("GPU", lambda each: f"GPU {snapshot.label(each.device)}", "dim"),
        Column("USER", _user, most=_MOST_USER),
        Column("MEMORY", _memory, right=True),
        # No column moves when a duration gets another length.
        Column("HELD", lambda each: _held(each, snapshot.time), hoarded, least=13),
        Column("USE", lambda each: _use(each, snapshot.time), hoarded, least=11),
        Column("COMMAND", _command, "dim"),
    )
    return columns if commands else (*columns[:3], columns[4], columns[3])


def waiter_name(waiter: Waiter) -> str:
    """The user of a waiting request, and which of their jobs it is."""
    job = f" ({printable(waiter.job)})" if waiter.job and not waiter.ours else ""
    return person_or_job(waiter.user, waiter.ours, waiter.job) + job


def blocking_reason(turn: Turn, snapshot: Snapshot) -> str:
    """Why a request has no devices yet, as a clause: "GPUs 4 and 5 free, needs 2 more"."""
    waiter, could = turn.waiter, len(turn.could or ())
    if waiter.silent:
        return SILENT
    if first := turn.first:
        more = f" and {turn.ahead - 1} more" if turn.ahead > 1 else ""
        return f"after {person_or_job(first.user, first.ours, first.job)}{more}"
    if turn.could is None:
        return "waits for a step within its own job's devices"
    if could < waiter.count:
        return f"only {could} of the devices here {'matches' if could == 1 else 'match'}: it can never start"
    missing = waiter.count - len(turn.free)
    free = f"{gpus([*map(snapshot.label, turn.free)])} free"
    if missing <= 0:
        return f"{free}, starts soon"
    lacking = f"; {refusals(turn.lacking, snapshot)}" if turn.lacking else ""
    if turn.free:
        return f"{free}, needs {missing} more{lacking}"
    if waiter.devices is not None and could <= _MOST_LABELS and not lacking:
        # Other devices may be free, and are shown; the request waits for these.
        return f"{gpus([*map(snapshot.label, turn.could)])} {'is' if could == 1 else 'are'} not free"
    such = "such " if waiter.devices is not None or lacking else ""
    return f"no {such}device is free{f', needs {missing}' if waiter.count > 1 else ''}{lacking}"


def _user(each: Occupied) -> str:
    if each.free_in is not None:
        return ""
    return person(each.user, each.own) if each.user is not None else UNKNOWN


def _memory(each: Occupied) -> str:
    used = each.device.memory_used
    return size(used) if used and each.free_in is None and each.verdict.state != "claimed" else ""


def _held(each: Occupied, now: float) -> str:
    """Since when the device is in use, or its state where no user is known."""
    if each.free_in is not None:
        return "cooling down"
    claim = each.claim
    if claim is not None and claim.user == each.user:
        return "claimed" if each.since is None else f"claimed {duration(now - each.since)}"
    if each.user is not None:
        held = "" if each.since is None else f"for {duration(now - each.since)}"
    else:
        held = _NOBODY.get(each.verdict.state, each.verdict.state)
    return held if claim is None else f"{held}, claimed by {person(claim.user, claim.own)}"


def _use(each: Occupied, now: float) -> str:
    """When its job ends, and the kind of use of a device; "" where it is in use or that is not known."""
    claim = each.claim
    if each.free_in is not None:
        return f"counts as free in {each.free_in:g} s"
    if claim is not None and claim.ended:
        return "its command has ended, but a process it started keeps the claim"
    ends = in_time(each.until, now)
    unused = _unused(each)
    return ", ".join(filter(None, (ends and f"ends {ends} at the latest", unused)))


def _unused(each: Occupied) -> str:
    """Whether a device is not used; "" where it is in use or that is not known."""
    device = each.device
    if each.verdict.state == "claimed" and device.processes == ():
        return "nothing runs on it"
    if each.unused is not None and (each.hoarded or each.unused >= 60):
        return f"{'idle' if each.hoarded else '0 % for'} {duration(each.unused)}"
    return "0 % now" if device.utilization == 0 else ""


def _command(each: Occupied) -> str:
    cause, claim = each.verdict.cause, each.claim
    if isinstance(cause, UsedBy):
        return printable(cause.processes[0].command or "") + by(claim.client if claim else None)
    return printable(claim.command or "") + by(claim.client) if claim and each.free_in is None else ""


def expectation(occupied: Sequence[Occupied]) -> str:
    """A sentence about when devices become free; "" where all of that is known."""
    if not occupied:
        return ""
    known = sum(each.free_in is not None or each.until is not None for each in occupied)
    if known == len(occupied):
        return ""
    return f"No job says when {'the others' if known else 'these'} will be free."
