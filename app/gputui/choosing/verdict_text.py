"""The text of verdicts and refusals, for the screen, the command line and JSON. Pure.

No decision depends on this text. Foreign text (users, commands, driver messages) is made printable here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gputui.choosing.verdict import (
    Cause,
    ClaimedBy,
    Cooling,
    DesktopOnly,
    Divided,
    Idle,
    MemoryHeld,
    NotCounted,
    NotOffered,
    Prohibited,
    Unreadable,
    UsedBy,
    Utilized,
    Verdict,
    Verdicts,
)
from gputui.inventory.device import GROUP_SIZES, Apart, Device, Fault
from gputui.inventory.formatting import (
    UNKNOWN,
    YOU,
    Seen,
    at_least,
    duration,
    person,
    person_or_job,
    printable,
    program,
    size,
)
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import ENDED, OWNER_UNKNOWN

if TYPE_CHECKING:
    # `pick` must start quickly, and mostly there is no claim.
    from gputui.choosing.claimed_use import ClaimedUse, UnclaimedUse
    from gputui.choosing.people import Person
    from gputui.choosing.pick import Refusal, Refusals
    from gputui.choosing.selection import NotFree
    from gputui.inventory.claim import Claim
    from gputui.inventory.job import Job
    from gputui.inventory.process import Process
    from gputui.inventory.snapshot import Snapshot
    from gputui.vendors.vendor import Trouble

NO_PROCESS = "no visible process"

_UNREADABLE = {
    "processes": ("the driver does not list its processes", "processes unreadable"),
    "memory": ("the driver does not report its memory", "memory unreadable"),
    "utilization": ("the driver does not report its utilization", "utilization unreadable"),
}

_NOT_OFFERED: dict[Apart, tuple[str, str]] = {
    "integrated": ("an integrated GPU is selected only if it is named", "integrated, not offered"),
    "no runtime": (
        "the vendor's runtime does not list it: no program can compute on it",
        "not for computing",
    ),
    "no access": (
        "you may not open its device files; on most systems the groups render and video may",
        "no access",
    ),
    "display": ("it only drives a display", "display only"),
}


def reason(verdict: Verdict, now: float) -> str:
    """Why the device is in its state, for a sentence and for JSON; `now` (epoch seconds) gives the ages."""
    remedy = remedy_of(verdict)
    return _texts(verdict.cause, now)[0] + (f" ({remedy})" if remedy else "")


def brief(verdict: Verdict, now: float) -> str:
    """The reason in a few words, for the last column of a row, next to the state's glyph."""
    return _texts(verdict.cause, now)[1]


def state_and_reason(verdict: Verdict, now: float, was: str = "", ask: str = "; ask {}") -> str:
    """ "busy: mira runs python (pid 4242, 3h)"; of a device that its user has long not used, first for how
    long, and last whom to ask for it. `was` follows the state."""
    why = reason(verdict, now)
    idle = verdict.shown == "idle" and idle_text(verdict.cause, now)
    if idle:
        why = why.replace(f", {idle}", "", 1)
    return f"{idle or verdict.shown}{was}: {why}{_whom_to_ask(verdict.cause, ask)}"


def state_and_brief(verdict: Verdict, now: float) -> str:
    """ "busy: mira python 3h", or "claimed by ana 2h", where the brief text already begins with the state;
    "bo's, unused 40m: ask bo" of a device that its user has long not used."""
    few, cause = brief(verdict, now), verdict.cause
    if (
        (ask := _whom_to_ask(cause, ": ask {}"))
        and isinstance(cause, UsedBy)
        and cause.idle_since is not None
    ):
        user = printable(cause.processes[0].user or UNKNOWN)
        return f"{user}'s, unused {at_least(Seen.span(cause.idle_since, now))}{ask}"
    return few if _says_state(cause) else f"{verdict.shown}: {few}"


def _whom_to_ask(cause: Cause, ask: str) -> str:
    """ "; ask bo", in that form, of a device that another user has long not used; "" of any other."""
    if isinstance(cause, UsedBy) and cause.idle:
        user, own = cause.processes[0].user, cause.processes[0].own
        return "" if user is None or own else ask.format(printable(user))
    return ""


def for_document(verdicts: Verdicts, now: float) -> dict[str, tuple[str, str]]:
    """The state and the reason of every verdict, by device key, for `ls --json`."""
    return {key: (verdict.state, reason(_with_names(verdict), now)) for key, verdict in verdicts.items()}


def _with_names(verdict: Verdict) -> Verdict:
    """The verdict with our own user named like any other, because a document is read by others."""
    cause = verdict.cause
    if not isinstance(cause, UsedBy) or not cause.processes[0].own:
        return verdict
    main, *more = cause.processes
    return replace(verdict, cause=cause._replace(processes=(replace(main, own=False), *more)))


def refusal(why: Refusal, now: float) -> str:
    """Why a device is not picked."""
    # Imported here, because `ls` shows verdicts and picks nothing.
    from gputui.choosing.pick import (
        NeverTaken,
        OtherVendor,
        OutsideGroup,
        SingleInstance,
        TooLittleMemory,
    )

    if isinstance(why, Verdict):
        return state_and_reason(why, now)
    if isinstance(why, NeverTaken):
        return "free, but excluded (settings or --never)"
    if isinstance(why, SingleInstance):
        return "a MIG instance: a process can use only one"
    if isinstance(why, OtherVendor):
        return f"free, but a command can use only one vendor's devices ({why.vendor})"
    if isinstance(why, OutsideGroup):
        if why.size not in GROUP_SIZES:
            return (
                f"free, but only {', '.join(map(str, GROUP_SIZES[:-1]))} or {GROUP_SIZES[-1]} work together"
            )
        return f"free, but in no free aligned group of {why.size}"
    if isinstance(why, TooLittleMemory):
        free = "free memory unknown" if why.free is None else f"{size(why.free)} free"
        return f"{free}, {size(why.least)} required"
    return (
        f"utilization {'unknown' if why.percent is None else f'{why.percent}%'}, at most {why.limit}% allowed"
    )


def refusals(refused: Refusals, snapshot: Snapshot) -> str:
    """Why each device is not picked. A reason for several devices is given once: "GPU 0-3,6 free, but …"."""
    alike: dict[str, list[Device]] = {}
    for device, why in refused:
        alike.setdefault(refusal(why, snapshot.time), []).append(device)
    return "; ".join(f"GPU {snapshot.labels(devices)} {why}" for why, devices in alike.items())


def not_free_lines(found: Mapping[str, NotFree], now: Snapshot) -> dict[str, str]:
    """A line for each selected device that is not free: its name, its cause, and its state before."""
    # Imported here, because `ls` names no program's devices.
    from gputui.choosing.own_jobs import own_job_on
    from gputui.vendors.registry import vendor_named

    lines = {}
    for key, each in found.items():
        name = vendor_named(each.vendor).device(each.rank)
        if each.device is None or each.verdict is None:
            lines[key] = f"{key} ({name}) is no longer present"
            continue
        line = f"GPU {now.label(each.device)} ({name}) is "
        job = own_job_on(now, each.verdict, key)
        if job is not None:
            lines[key] = line + in_use_by(job, now.time)
            continue
        was = f" (was {each.before})" if each.before and each.before != each.verdict.state else ""
        verdict, cause = each.verdict, each.verdict.cause
        if isinstance(cause, ClaimedBy):
            # The line stays while a question is open: an age in it would stand still.
            verdict = replace(verdict, cause=cause._replace(claim=replace(cause.claim, since=None)))
        lines[key] = line + state_and_reason(verdict, now.time, was, ". Ask {}.")
    return lines


def your_job(job: Job, now: float) -> str:
    """ "your job m6u5 3h", for one of the user's own jobs."""
    return f"your job {printable(job.id)}{warned(job, now) or _age(job.began, now)}"


def warned(job: Job, now: float) -> str:
    """ " idle, stopped in 4m" for a job that was warned, else ""."""
    at = job.idle_release_at
    return "" if at is None else f" idle, stopped in {duration(at - now)}"


def in_use_by(job: Job, now: float) -> str:
    """ "in use by your job m6u5, 3h", for a sentence."""
    age = _age(job.began, now)
    return f"in use by your job {printable(job.id)}{age and f',{age}'}"


def claimed(name: str, claim: Claim | None, now: float) -> str:
    """A sentence that the device called `name` is claimed, and by whom, where that is known."""
    return f"{name} is claimed {_claimed_by(claim, now) if claim else 'by another job'}"


def _says_state(cause: Cause) -> bool:
    """Whether the brief text of a cause begins with the state."""
    if isinstance(cause, Fault):
        return cause.kind == "lost"
    if isinstance(cause, ClaimedBy):
        return not cause.runs_on and not (cause.claim.own and cause.claim.job)
    return isinstance(cause, Utilized | Cooling | MemoryHeld)


def remedy_of(verdict: Verdict) -> str:
    """What the user can do about it, in the vendor's own commands; "" where there is nothing to say."""
    kind: Trouble
    device = verdict.device
    if device is None:
        return ""
    match verdict.cause:
        case MemoryHeld():
            kind = "held"
        case Unreadable(fact="memory"):
            kind = "memory"
        case Prohibited():
            kind = "prohibited"
        # Without the name of a device, the command would reset all.
        case Fault(kind="reset") if device.index >= 0 or device.pci_bus_id:
            kind = "reset"
        case _:
            return ""
    # Imported here, because mostly nothing is wrong.
    from gputui.vendors.registry import vendor_named

    return vendor_named(device.vendor).remedy(kind, device)


def _texts(cause: Cause, now: float) -> tuple[str, str]:
    """The reason and the brief text of a cause."""
    match cause:
        case Idle(display, unseen, load_unknown):
            seen = "memory as on an idle device" if unseen else "no process"
            full = f"{seen}, {'load unknown' if load_unknown else 'no load'}"
            return (f"{full}, display attached", "free, display") if display else (full, "free")
        case DesktopOnly(memory):
            return f"desktop only{'' if memory is None else f', {size(memory)}'}", "free, desktop"
        case NotCounted(users, own):
            named = ", ".join(sorted(person(user, user == own) for user in users))
            return f"only processes that your rules ignore ({named})", f"free, ignoring {named}"
        case UsedBy(processes, exclusive, unclaimed_use, idle=idle):
            full, few = _used_by(processes, now, idle_text(cause, now), idle)
            if unclaimed_use is not None:
                who = person(unclaimed_use.user, unclaimed_use.own)
                claimed_what = f"claimed {_labels(unclaimed_use.claimed)}"
                full += f"; {_whose(unclaimed_use)} {claimed_what}"
                # The narrow column of an 80-column screen has no room for the user's program too.
                few = f"{who}, {claimed_what}" if unclaimed_use.main else f"{few}, {who} {claimed_what}"
            return f"{full}; exclusive mode: no other program can start" if exclusive else full, few
        case Utilized(percent):
            return f"{percent}% utilization, {NO_PROCESS}", f"busy, {NO_PROCESS}"
        case Divided(0):
            return "MIG is enabled, but there is no instance", "MIG, no instances"
        case Divided(instances):
            plural = "s" if instances > 1 else ""
            return (
                f"divided into {instances} MIG instance{plural}: select an instance",
                f"{instances} MIG instance{plural}",
            )
        case Prohibited():
            return "compute mode Prohibited: no program can use it", "compute prohibited"
        case Cooling(window=window):
            passed = cause.passed(now)
            return (
                f"free for {passed} s, counts as free after {window:g} s",
                f"cooling down ({passed}/{window:g} s)",
            )
        case MemoryHeld(memory):
            return f"{size(memory)} in use, {NO_PROCESS}", f"held, {NO_PROCESS}"
        case ClaimedBy(claim, runs_on):
            age, job = _age(claim.since, now), claim.own and claim.job
            few = f"{_holder(claim)}{age}" if job else f"claimed by {_holder(claim)}{age}"
            if runs_on:
                # The glyph of the state says "claimed", and a narrow column has 20 cells.
                few = f"{_holder(claim)}, {'' if job else 'runs '}on {_labels(runs_on)}"
            return _claimed_by(claim, now, runs_on), few
        case Unreadable(fact):
            return _UNREADABLE[fact]
        case NotOffered(why):
            return _NOT_OFFERED[why]
        case Fault():
            return _fault(cause)


def _used_by(processes: tuple[Process, ...], now: float, unused: str, idle: bool) -> tuple[str, str]:
    main, more = processes[0], len(processes) - 1
    age = _age(main.started, now)
    figures = f"{age and f',{age}'}{'' if main.memory is None else f', {size(main.memory)}'}"
    if main.user is None:
        # Without a note, the owner has not been looked up yet: the first reading does not do that.
        few = f"pid {main.pid}{f', {printable(main.note)}' if main.note else ''}"
        note = f" ({printable(main.note)})" if main.note and main.note != OWNER_UNKNOWN else ""
        full = f"pid {main.pid}, {OWNER_UNKNOWN}{note}"
        if main.note == ENDED:
            # Its number means nothing to anybody: the memory may belong to somebody in a container.
            few, full = OWNER_UNKNOWN, f"{OWNER_UNKNOWN} (process {main.pid} has {main.told})"
        full += figures
    else:
        user, what = person(main.user, main.own), program(main.command or UNKNOWN)
        full, few = (
            f"{user} {_does(user, idle)} {what} (pid {main.pid}{figures})",
            f"{user} {what}{age}",
        )
    if more:
        full += f", and {more} more process{'es' if more > 1 else ''}"
        few += f" +{more}"
    if not unused:
        return full, few
    who = person(main.user or UNKNOWN, main.own)
    return f"{full}, {unused}", f"{who} {program(main.command or UNKNOWN)}, {unused}"


def _does(user: str, idle: bool) -> str:
    """The verb before a program: of one that does nothing, nobody says that it runs."""
    verb = ("hold", " it with") if idle else ("run", "")
    return ("" if user == YOU else "s").join(verb)


def idle_text(cause: Cause, now: float) -> str:
    """ "idle 40m", of a device whose user has long not used it, before that "0% 3m"; "" of any other."""
    if isinstance(cause, UsedBy) and cause.idle_since is not None:
        return unused_text(Seen.span(cause.idle_since, now), cause.idle)
    return ""


def unused_text(unused: float, idle: bool) -> str:
    """ "idle 40m" of a user who has not used a device for long (`idle`), "0% 3m" of another; with "≥"
    where it may be longer."""
    return f"{'idle' if idle else '0%'} {at_least(unused)}"


def _claimed_by(claim: Claim, now: float, runs_on: Sequence[str] = ()) -> str:
    """The holder, the age and the end of a claim: "by ana, 2h ago, until the job ends: python x.py".

    With the devices that the job runs on: "by ana, 2h ago, until job m6u5 ends, which runs on 0,1".
    """
    own_job = claim.own and claim.job
    until = f"until {'it' if own_job else _job(claim.job) if claim.job else 'the job'} ends"
    if claim.ended:
        until = "whose command has ended, but a process it started keeps the claim (see `gputui claims`)"
    elif runs_on:
        until += f"; it runs on {_labels(runs_on)}" if own_job else f", which runs on {_labels(runs_on)}"
    age = _age(claim.since, now)
    what = f": {printable(claim.command)[:80]}" if claim.command else ""
    return f"by {_holder(claim)}{age and f',{age} ago'}, {until}{what}"


def _holder(claim: Claim) -> str:
    """The holder of a claim: "your job m6u5", "you", or the name of another user."""
    return person_or_job(claim.user, claim.own, claim.job)


def claimed_and_runs_on(use: ClaimedUse, snapshot: Snapshot) -> str:
    """ "claimed 6,7, runs on 0,1"; "" where a job runs on no device that it has not claimed."""
    from gputui.choosing.claimed_use import labels

    if not use.differs:
        return ""
    runs_on = labels(snapshot, use.used or ())
    return f"claimed {_labels(labels(snapshot, use.claimed))}, runs on {_labels(runs_on)}"


def job_claimed_and_runs_on(use: ClaimedUse, snapshot: Snapshot) -> str:
    """ "job m6u5 claimed 6,7, runs on 0,1", where several jobs are possible."""
    return f"{_job(use.job)} {claimed_and_runs_on(use, snapshot)}"


def user_name(found: Person) -> str:
    """The name of the user, where the owner of the processes is visible."""
    return OWNER_UNKNOWN if found.user is None else person(found.user, found.own)


def _whose(unclaimed_use: UnclaimedUse) -> str:
    """ "its job m6u5" after the process in question, "job m6u5 of ana" after another, or "your job m6u5"."""
    if unclaimed_use.own:
        return f"your {_job(unclaimed_use.job)}"
    return (
        f"its {_job(unclaimed_use.job)}"
        if unclaimed_use.main
        else f"{_job(unclaimed_use.job)} of {printable(unclaimed_use.user)}"
    )


def _job(job: str | None) -> str:
    return f"job {printable(job)}" if job else "job"


def _labels(labels: Sequence[str]) -> str:
    return ",".join(map(printable, labels))


def _fault(fault: Fault) -> tuple[str, str]:
    since = f" {_clock(fault.since)}" if fault.since is not None else ""
    message = printable(fault.message) or "the driver reports an error"
    if fault.kind == "lost":
        return f"{message}: fell off the bus{since and ' at' + since}", f"lost{since and ' at' + since}"
    if fault.kind == "reset":
        return message, f"needs a reset{since and ' since' + since}"
    if fault.kind == "processes":
        return f"the driver cannot list its processes ({message})", _UNREADABLE["processes"][1]
    return message, "driver error"


def _age(since: float | None, now: float) -> str:
    """ " 3h", with its leading space; "" where it is not known."""
    return "" if since is None else f" {duration(now - since)}"


def _clock(moment: float) -> str:
    """The local time of day: a colleague can be asked about "14:01:40", not about an offset."""
    import time

    return time.strftime("%H:%M:%S", time.localtime(moment))
