"""The columns of every list of jobs: on the command line, on the pages and in the panel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gputui.choosing.queue_text import describe_request
from gputui.choosing.verdict_text import warned
from gputui.inventory.columns import Column
from gputui.inventory.formatting import UNKNOWN, by, devices_text, duration, printable, size
from gputui.inventory.job import Job, signal_name
from gputui.inventory.quoting import quote
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import cut
from gputui.jobs.rerun import demo_of

SIGNS: dict[str, tuple[str, str]] = {
    "starting": ("…", "dim"),
    "waiting": ("◷", "warn"),
    "running": ("▶", "free"),
    "done": ("✓", "dim"),
    "failed": ("✕", "lost"),
    "stopped": ("■", "warn"),
    "ended": ("?", "unknown"),
    "elsewhere": ("↗", "dim"),
}
"""A glyph and a tone for each state of a job or an experiment; the state's word is next to the glyph."""
_WIDEST_BOX = 20
_LONGEST_TITLE = 40


def job_columns(
    names: str,
    now: float,
    snapshot: Snapshot | None = None,
    uses: Mapping[str, str] = MappingProxyType({}),
) -> list[Column[Job]]:
    """The columns with these names, which are separated by spaces. `now` is seconds since the epoch.

    snapshot  this box with its queue, where known: it gives the devices' labels and the waiters' requests
    uses      by job id, the text of `claimed_and_runs_on` for a job that runs on devices it has not claimed
    """

    def use(job: Job) -> str:
        return uses.get(job.id, "") if job.box is None else ""

    every = {
        "id": Column("ID", _address, "strong"),
        "name": Column("NAME", lambda job: printable(job.part.words if job.part else job.name or "")),
        "devices": Column("GPU", lambda job: on_devices(job, snapshot).removeprefix("GPU ")),
        "on": Column("GPU", lambda job: on_devices(job, snapshot), most=16),
        "state": Column("STATE", lambda job: _with_wait(job, "gave up" if job.gave_up else job.state, now)),
        "status": Column("STATUS", status_text),
        "outcome": Column("STATE", lambda job: _with_wait(job, _outcome(job), now), _tone),
        "short": Column("STATE", _state, _tone),
        "time": Column("TIME", lambda job: _time(job, now), "dim", right=True, least=5),
        "ran": Column("RAN", lambda job: _ran(job, now), "dim", right=True, least=5),
        "ended": Column(
            "ENDED", lambda job: UNKNOWN if job.ended is None else f"{duration(now - job.ended)} ago"
        ),
        "peak": Column(
            "PEAK", lambda job: "" if job.peak_memory is None else size(job.peak_memory), "dim", right=True
        ),
        "use": Column("USE", use, "warn"),
        "command": Column(
            "COMMAND",
            lambda job: (
                " ".join([f"({use(job)})"] * bool(use(job)) + [*_note(job), *map(quote, job.argv)])
                + by(job.client)
            ),
        ),
        "title": Column(
            "NAME", lambda job: printable(job.part.words if job.part else job.title), most=_LONGEST_TITLE
        ),
        "log": Column("LOG", lambda job: printable(job.last_line or ""), "dim"),
    }
    return [every[name] for name in names.split()]


def _address(job: Job) -> str:
    if job.part is not None and not job.part.whole:
        # Below the row of its experiment.
        return f"  {job.address}"
    return job.address if job.box is None else f"{cut(job.box, _WIDEST_BOX)}:{job.id}"


def on_devices(job: Job, snapshot: Snapshot | None) -> str:
    """The devices that a job runs on or waits for: "GPU 4,5", "for 2 GPUs", "for GPU 4,5", "CPU". Devices
    of a demo are marked on every other box."""
    count = job.in_line_for
    if count:
        line = next((w for w in snapshot.waiters if w.ours and w.job == job.id), None) if snapshot else None
        if line is not None and line.devices is not None:
            return f"for {describe_request(line, snapshot)}"
        return f"for {devices_text(count)}"
    if job.state == "waiting" and count is None:
        return "in line"
    if not job.devices:
        return "" if job.part is not None and job.part.whole and not job.part.number else "CPU"
    here = snapshot is not None and not snapshot.by_key.keys().isdisjoint(job.keys)
    return f"GPU {','.join(labels_of(job, snapshot))}{'' if here or demo_of(job) is None else ' (demo)'}"


def labels_of(job: Job, snapshot: Snapshot | None) -> list[str]:
    """The labels of the job's devices on this box; a device of another box has the label from its record."""
    there = snapshot.by_key if snapshot and job.box is None else {}
    return [
        snapshot.label(there[device.uuid]) if snapshot and device.uuid in there else printable(device.label)
        for device in job.devices
    ]


def status_text(job: Job) -> str:
    """ "0", "127", "SIGTERM"; "–" where it is not known, as before the end."""
    if job.signal is not None:
        return signal_name(job.signal)
    if job.status is not None:
        return str(job.status)
    return UNKNOWN


def _tone(job: Job) -> str:
    return SIGNS.get(job.state, ("?", "unknown"))[1]


def _state(job: Job) -> str:
    """The state with its glyph."""
    return f"{SIGNS.get(job.state, ('?', ''))[0]} {'gave up' if job.gave_up else job.state}"


def _outcome(job: Job) -> str:
    """The same, of a failed job with its status or signal: "✕ failed, status 1"."""
    status = "" if job.signal is not None or job.status is None else "status "
    ended = f", {status}{status_text(job)}" if job.state == "failed" and status_text(job) != UNKNOWN else ""
    return _state(job) + ended * (not job.gave_up)


def _with_wait(job: Job, words: str, now: float) -> str:
    """A state ("waiting", "stopped") with how long the job has waited: "waiting 3m", "stopped, waited 3m"."""
    if job.never_ran:
        return f"{words}, waited {how_long(job, now)}"
    # No column moves when the time grows.
    return f"{words} {how_long(job, now):5}" if job.state == "waiting" else words


def _ran(job: Job, now: float) -> str:
    return UNKNOWN if job.state == "waiting" else _time(job, now)


def _time(job: Job, now: float) -> str:
    return UNKNOWN if job.never_ran else how_long(job, now)


def how_long(job: Job, now: float) -> str:
    """The time that a job has run, and may run, and whether it is stopped soon; for a job in line, the time
    that it has waited."""
    begin = job.began or job.created
    end = job.ended if job.over else now
    limit = "" if job.until is None or job.time_limit is None else f" of {duration(job.time_limit)}"
    return UNKNOWN if end is None or not begin else duration(end - begin) + limit + warned(job, now)


def reason_of(job: Job) -> str | None:
    """The reason that a job could not be started or was stopped; None otherwise, also where a person
    stopped it."""
    # Imported here: only a job that could not be started needs it.
    from gputui.jobs.start import why_not

    return why_not(job.trouble, job) if job.trouble is not None else job.why


def _note(job: Job) -> list[str]:
    """The note that precedes a job's command, as a list of at most one text."""
    reason = reason_of(job)
    if reason is not None:
        return [f"({printable(reason)})"]
    awaited = ", ".join((*job.after, *job.after_ok))
    if job.state == "waiting" and awaited:
        return [f"(after {printable(awaited)})"]
    if job.state == "elsewhere":
        return [f"(on {printable(job.scope.host)})"]
    return [f"({job.left} of its processes went on)"] if job.left else []
