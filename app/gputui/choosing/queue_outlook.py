"""The requests in line, the obstacles to each, and the users of the devices that are not free. Pure.

Nothing is guessed. Nobody knows when a job ends, so only a device that is cooling down has a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf

from gputui.choosing.idleness import is_long, unused_by
from gputui.choosing.most_ever import can_never_start, would_do
from gputui.choosing.rules import DEFAULT_RULES
from gputui.choosing.verdict import Cooling, Divided, Prohibited, State, UsedBy, Verdict
from gputui.inventory.claim import Claim
from gputui.inventory.columns import Column
from gputui.inventory.device import Device, Fault
from gputui.inventory.formatting import UNKNOWN, age, devices_text, duration, gpus, person, printable, size
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.process import earliest
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


@dataclass(frozen=True, slots=True)
class Turn:
    """One waiting request, and the obstacles to it.

    place   1 for the first in line
    ahead   the requests before it that could take the same devices; if there are none, it is next
    could   the devices that would do if they were free; None inside a lease, where others cannot see it
    free    the devices of `could` that are free now
    """

    waiter: Waiter
    place: int
    ahead: tuple[Waiter, ...] = ()
    could: tuple[Device, ...] | None = None
    free: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Occupied:
    """A device that is not free, and its user, as far as that can be seen.

    own     whether the user is our own
    since   the time of the claim, else of the oldest process, in epoch seconds
    unused  seconds for which the user has had it without using it, else those for which it has been seen at
            0 %; None where that is not known, or not the case
    hoarded whether the user has had it for long without using it
    free_in seconds until it counts as free, where that is known
    """

    device: Device
    verdict: Verdict
    user: str | None = None
    own: bool = False
    claim: Claim | None = None
    since: float | None = None
    unused: float | None = None
    hoarded: bool = False
    free_in: float | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """The waiting requests, the first in line first, and the devices that are not free.

    Devices for which the time of release is known come first, the soonest first; then those that nobody uses,
    which may be asked for; then the others; each in the order of the box.
    """

    turns: tuple[Turn, ...]
    occupied: tuple[Occupied, ...]

    @property
    def next(self) -> tuple[Turn, ...]:
        """The requests that have nobody ahead of them."""
        return tuple(turn for turn in self.turns if not turn.ahead)


def outlook(
    snapshot: Snapshot,
    judged: Mapping[str, Verdict],
    idle: Mapping[str, float] | None = None,
    after: float = DEFAULT_RULES.idle,
) -> Outlook:
    """The outlook; `judged` holds the verdicts, `idle` is from `idleness.idle_seconds`, or None; `after` is
    the rule for idleness."""
    usable = [device for device in snapshot.devices if not _never(judged[device.key])]
    turns = []
    in_vain = {waiter: can_never_start(waiter, snapshot) for waiter in snapshot.waiters}
    line = sorted(snapshot.waiters, key=lambda waiter: waiter.silent or in_vain[waiter])
    for place, waiter in enumerate(line, 1):
        ahead = tuple(other for other in line[: place - 1] if other.is_before(waiter) and not in_vain[other])
        if waiter.step:
            turns.append(Turn(waiter, place, ahead))
            continue
        could = tuple(device for device in usable if would_do(waiter, device))
        free = tuple(device for device in could if judged[device.key].free)
        turns.append(Turn(waiter, place, ahead, could, free))
    occupied = [
        _occupied(device, judged[device.key], snapshot, (idle or {}).get(device.key), after)
        for device in usable
        if not judged[device.key].free
    ]
    return Outlook(tuple(turns), tuple(sorted(occupied, key=_soonest)))


def _never(verdict: Verdict) -> bool:
    """Whether a device could not be used even if it were idle."""
    return isinstance(verdict.cause, Divided | Prohibited | Fault)


def _occupied(
    device: Device, verdict: Verdict, snapshot: Snapshot, idle: float | None, after: float
) -> Occupied:
    cause, claim = verdict.cause, snapshot.claimed.get(device.key)
    processes = cause.processes if isinstance(cause, UsedBy) else ()
    since = earliest(process.started for process in processes)
    if claim and claim.since is not None and (not processes or processes[0].user == claim.user):
        since = claim.since
    user = processes[0].user if processes else claim.user if claim else None
    own = processes[0].own if processes else claim is not None and claim.own
    if isinstance(cause, Cooling):
        return Occupied(device, verdict, user, own, claim, free_in=cause.left(snapshot.time))
    # Whether or not somebody has watched, nothing runs on a device with only a claim.
    empty = verdict.state == "claimed" and device.processes == ()
    unused = unused_by(user, device, inf if empty else idle, snapshot)
    seen = idle if unused is None else unused
    return Occupied(device, verdict, user, own, claim, since, seen, is_long(unused, after))


def _soonest(each: Occupied) -> tuple[float, bool]:
    return inf if each.free_in is None else each.free_in, not each.hoarded


# Text for the user


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
        text = printable(waiter.command or UNKNOWN)
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

    ("GPU 3", "bo", "38.8G", "claimed 7h13m ago", "0 % for 40m", "python serve.py")
    """

    def hoarded(each: Occupied) -> str:
        return "warn" if each.hoarded else ""

    columns: tuple[Column[Occupied], ...] = (
        Column("GPU", lambda each: f"GPU {snapshot.label(each.device)}", "dim"),
        Column("USER", _user, most=_MOST_USER),
        Column("MEMORY", _memory, right=True),
        Column("HELD", lambda each: _held(each, snapshot.time), hoarded),
        Column("USE", _use, hoarded),
        Column("COMMAND", _command, "dim"),
    )
    return columns if commands else (*columns[:3], columns[4], columns[3])


def waiter_name(waiter: Waiter) -> str:
    """The user of a waiting request, and which of their jobs it is."""
    if waiter.ours and waiter.job:
        return f"your job {printable(waiter.job)}"
    return person(waiter.user, waiter.ours) + (f" ({printable(waiter.job)})" if waiter.job else "")


def blocking_reason(turn: Turn, snapshot: Snapshot) -> str:
    """Why a request has no devices yet, as a clause: "GPUs 4 and 5 free, needs 2 more"."""
    waiter, could = turn.waiter, len(turn.could or ())
    never = f"only {could} of the devices here {'matches' if could == 1 else 'match'}: it can never start"
    if waiter.silent:
        return SILENT
    if can_never_start(waiter, snapshot):
        return never
    if turn.ahead:
        first = turn.ahead[0]
        more = f" and {len(turn.ahead) - 1} more" if len(turn.ahead) > 1 else ""
        return f"after {waiter_name(first) if first.ours else printable(first.user)}{more}"
    if turn.could is None:
        return "waits for a step within its own job's devices"
    if could < waiter.count:
        return never
    missing = waiter.count - len(turn.free)
    free = f"{gpus([*map(snapshot.label, turn.free)])} free"
    if missing <= 0:
        return f"{free}, starts soon"
    if turn.free:
        return f"{free}, needs {missing} more"
    if waiter.devices is not None and could <= _MOST_LABELS:
        # Other devices may be free, and are shown; the request waits for these.
        return f"{gpus([*map(snapshot.label, turn.could)])} {'is' if could == 1 else 'are'} not free"
    such = "" if waiter.devices is None else "such "
    return f"no {such}device is free" + (f", needs {missing}" if waiter.count > 1 else "")


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
        return "claimed" if each.since is None else f"claimed {duration(now - each.since)} ago"
    if each.user is not None:
        held = "" if each.since is None else f"for {duration(now - each.since)}"
    else:
        held = _NOBODY.get(each.verdict.state, each.verdict.state)
    return held if claim is None else f"{held}, claimed by {person(claim.user, claim.own)}"


def _use(each: Occupied) -> str:
    """The kind of use of a device; "" where it is in use or that is not known."""
    device, claim = each.device, each.claim
    if each.free_in is not None:
        return f"counts as free in {each.free_in:g} s"
    if claim is not None and claim.ended:
        return "its command has ended, but a process it started keeps the claim"
    if each.verdict.state == "claimed" and device.processes == ():
        return "nothing runs on it"
    if each.unused is not None and each.unused >= 60:
        return f"0 % for {duration(each.unused)}"
    return "0 % now" if device.utilization == 0 else ""


def _command(each: Occupied) -> str:
    cause, claim = each.verdict.cause, each.claim
    if isinstance(cause, UsedBy):
        return printable(cause.processes[0].command or "")
    return printable(claim.command or "") if claim and each.free_in is None else ""


def expectation(occupied: Sequence[Occupied]) -> str:
    """A sentence about when devices become free; "" where all of that is known."""
    if not occupied:
        return ""
    known = sum(each.free_in is not None for each in occupied)
    if known == len(occupied):
        return ""
    return f"No job says when {'the others' if known else 'these'} will be free."
