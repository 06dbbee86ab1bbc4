"""The text of the queue, one for the panel, the page and the command line: who waits, why, and when devices
will be free.

The decisions about the queue are in `queue_outlook`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.choosing.pick import Refusals
from gputui.choosing.queue_outlook import Occupied, Outlook, Turn
from gputui.choosing.verdict import UsedBy, Verdicts
from gputui.choosing.verdict_text import refusals, state_and_brief, unused_text
from gputui.inventory.columns import Column, T
from gputui.inventory.device import Among, Device
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
)
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter

_MOST_LABELS = 6
_MOST_USER = 12
"""The most cells of a user name on the screen."""
_LATE = 60.0
"""Seconds of free devices after which a request should have started: longer than the window, and a look."""
SILENT = "has lost its place: it is stopped, or its driver does not answer"
"""The text for a waiting request that has given no sign of life for too long."""


def describe_request(waiter: Waiter, snapshot: Snapshot | None) -> str:
    """The devices that a request waits for, as `wanted` describes them."""
    return wanted(waiter.count, waiter.devices, snapshot)


def wanted(count: int, keys: Among, snapshot: Snapshot | None) -> str:
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


def turn_columns(snapshot: Snapshot) -> tuple[Column[Turn], ...]:
    """The columns of the line; a waiter without a sign of life says so before its command."""

    def mine(turn: Turn) -> str:
        return "strong" if turn.waiter.ours else ""

    def command(waiter: Waiter) -> str:
        silent = f"({SILENT}) " if waiter.silent else ""
        return silent + printable(waiter.command or UNKNOWN) + by(waiter.client)

    return (
        Column("PLACE", lambda turn: str(turn.place), lambda t: "dim" if t.ahead else "strong", right=True),
        Column("USER", lambda turn: person(turn.waiter.user, turn.waiter.ours), mine, most=_MOST_USER),
        Column("WANTS", lambda turn: describe_request(turn.waiter, snapshot), mine),
        _since(lambda turn: turn.waiter.since, snapshot, mine),
        Column("JOB", lambda turn: printable(turn.waiter.job or UNKNOWN), "dim", optional=True),
        Column("COMMAND", lambda turn: command(turn.waiter), "dim"),
    )


def occupied_columns(snapshot: Snapshot) -> tuple[Column[Occupied], ...]:
    """The columns of devices that are not free: the device, its user, since when, when it is expected to be
    free again, and last the command.

    ("3", "bo", "7h13m", "idle 40m: ask bo", "python serve.py")
    """

    def hoarded(each: Occupied) -> str:
        return "warn" if each.hoarded else ""

    return (
        Column("GPU", lambda each: snapshot.label(each.device), "dim"),
        Column("USER", _user, most=_MOST_USER),
        _since(lambda each: each.since, snapshot, hoarded),
        # No column moves when another text of the usual length takes the place of one.
        Column("EXPECTED FREE", lambda each: free_again(each, snapshot.time) or "unknown", hoarded, least=24),
        Column("COMMAND", _command, "dim"),
    )


def _since(moment: Callable[[T], float | None], snapshot: Snapshot, tone: Callable[[T], str]) -> Column[T]:
    return Column("FOR", lambda row: age(moment(row), snapshot.time), tone, right=True, least=6)


def next_in_line(found: Outlook, snapshot: Snapshot) -> list[tuple[str, str]]:
    """Who has nobody ahead, and why they have no devices yet: ("next: ana · ", "GPU 4 free, …")."""
    return [(f"next: {_waiter_name(t.waiter)} · ", blocking_reason(t, snapshot)) for t in found.next]


def _waiter_name(waiter: Waiter) -> str:
    """The user of a waiting request, and which of their jobs it is."""
    job = f" ({printable(waiter.job)})" if waiter.job and not waiter.ours else ""
    return person_or_job(waiter.user, waiter.ours, waiter.job) + job


def blocking_reason(turn: Turn, snapshot: Snapshot) -> str:
    """Why a request with nobody ahead has no devices yet: "GPUs 4 and 5 free, needs 2 more"."""
    waiter, could = turn.waiter, len(turn.could or ())
    if waiter.silent:
        return SILENT
    if turn.could is None:
        return "waits for a step within its own job's devices"
    if could < waiter.count:
        matching = (
            f"{f'only {could}' if could else 'none'} of the GPUs here {'match' if could > 1 else 'matches'}"
        )
        return f"{matching}: it can never start"
    missing = waiter.count - len(turn.free)
    free = f"{gpus([*map(snapshot.label, turn.free)])} free"
    if missing <= 0 and turn.ready < _LATE:
        recent = waiter.since is None or snapshot.time - waiter.since < _LATE
        return f"{free}, {'starts soon' if recent else 'should start within a minute if that lasts'}"
    if missing <= 0:
        says = f": gputui jobs log {printable(waiter.job)} says why" if waiter.ours and waiter.job else ""
        return f"{free} for {duration(turn.ready)}, not started: its own rules may ask for more{says}"
    if waiter.devices is not None and could <= _MOST_LABELS and not turn.lacking and not turn.free:
        # Other devices may be free, and are shown; the request waits for these.
        return f"{gpus([*map(snapshot.label, turn.could)])} {'is' if could == 1 else 'are'} not free"
    return too_few(turn.free, waiter.count, turn.lacking, snapshot, any_do=waiter.devices is None)


def too_few(
    free: Sequence[Device],
    count: int,
    lacking: Refusals,
    snapshot: Snapshot,
    any_do: bool,
) -> str:
    """The text where fewer than `count` suitable devices are free: "GPUs 4 and 5 free, needs 2 more".

    `lacking` are other free devices, each with the condition that it does not meet. `any_do` says that every
    device is suitable.
    """
    more = f"; {refusals(lacking, snapshot)}" if lacking else ""
    if free:
        return f"{gpus([*map(snapshot.label, free)])} free, needs {count - len(free)} more{more}"
    such = "" if any_do and not lacking else "such "
    return f"no {such}GPU is free{f', needs {count}' if count > 1 else ''}{more}"


def still_taken(free: Sequence[Device], keys: Among, judged: Verdicts, snapshot: Snapshot) -> str:
    """Who has the devices that a request waits for: "GPU 2 free; GPU 3 is still busy: chen eval.py 8m". ""
    for a request for any device, and for many."""
    if keys is None or len(keys) > _MOST_LABELS:
        return ""
    told = [f"{gpus([*map(snapshot.label, free)])} free"] if free else []
    alike: dict[str, list[str]] = {}
    for device in snapshot.devices:
        if device.key in keys and device not in free and device.key in judged:
            alike.setdefault(state_and_brief(judged[device.key], snapshot.time), []).append(
                snapshot.label(device)
            )
    for why, labels in alike.items():
        told.append(f"{gpus(labels)} {'is' if len(labels) == 1 else 'are'} still {why}")
    return "; ".join(told)


def _user(each: Occupied) -> str:
    return person(each.user, each.own) if each.user is not None else UNKNOWN


def free_again(each: Occupied, now: float) -> str:
    """When a device is expected to be free again; where nobody can say, who may be asked for it; else ""."""
    claim = each.claim
    if each.free_in is not None:
        return f"in {duration(each.free_in)}"
    if claim is not None and claim.ended:
        return "its command has ended, but a process it started keeps the claim"
    asked = each.hoarded and each.user is not None and not each.own
    ends, use = in_time(each.until, now), ""
    if ends:
        ends += " at the latest"
    elif claim is not None and claim.job and claim.user == each.user and not asked:
        ends = f"when job {printable(claim.job)} ends"
    if each.hoarded:
        # (The job of a claim may run all the same, on the CPU.)
        use = "not in use" if each.device.processes == () else unused_text(each.unused or 0.0, True)
    elif each.user is None:
        use = state_and_brief(each.verdict, now)
    elif not ends and each.device.processes == ():
        use = "no process on it yet"
    if asked:
        use += f": ask {printable(each.user or '')}"
    if claim is not None and claim.user != each.user:
        ends = ends or "unknown"
        use += f"{', ' * bool(use)}claimed by {person(claim.user, claim.own)}"
    return ", ".join(filter(None, (ends, use)))


def _command(each: Occupied) -> str:
    cause, claim = each.verdict.cause, each.claim
    if isinstance(cause, UsedBy):
        return printable(cause.processes[0].command or "") + by(claim.client if claim else None)
    return printable(claim.command or "") + by(claim.client) if claim and each.free_in is None else ""
