"""The list of jobs as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from gputui.choosing.claimed_use import ClaimedUse, use_document
from gputui.inventory.formatting import duration, peak_size, printable
from gputui.inventory.job_summary import signal_name
from gputui.inventory.text_table import aligned, cut
from gputui.jobs.job import Job, JobDevice
from gputui.jobs.record import SCHEMA, devices_document
from gputui.jobs.start import why_not
from gputui.jobs.store import Stored
from gputui.launching.quoting import quote

_LINES = 20
"""Lines of a log in which the reason of a failure is looked for."""
_HEADINGS = ("ID", "NAME", "DEVICES", "STATE", "STATUS", "RAN", "ENDED", "COMMAND")


def table(
    jobs: Sequence[Job],
    now: float,
    width: int | None,
    uses: Mapping[str, str] | None = None,
    waits: Mapping[str, str] | None = None,
) -> list[str]:
    """A line a job, the newest last; cut at `width` columns. `now` is seconds since the epoch.

    Two texts by a job's id: `uses`, that it runs on other devices than it claimed; `waits`, which devices it
    waits for, where not any will do.
    """
    rows = [_HEADINGS, *(_row(job, now, (uses or {}).get(job.id, ""), waits or {}) for job in jobs)]
    return [cut(line, width) for line in aligned(rows)]


def _row(job: Job, now: float, use: str, waits: Mapping[str, str]) -> tuple[str, ...]:
    began, until = job.began, job.ended if job.over else now
    return (
        job.id,
        printable(job.name or "–"),
        ",".join(map(_device, job.devices)) or (_waits(job, waits) or "CPU"),
        job.state,
        status_text(job),
        duration(until - began) if began is not None and until is not None else "–",
        f"{duration(now - job.ended)} ago" if job.ended is not None else "–",
        (f"({use}) " if use else "") + _note(job) + " ".join(map(quote, job.argv)),
    )


def _waits(job: Job, named: Mapping[str, str]) -> str | None:
    """What a job in line waits for; None for one that is not."""
    return f"for {named.get(job.id, job.waits)}" if job.waits is not None and job.taken is None else None


def _device(device: JobDevice) -> str:
    # The index of a MIG instance is one within its GPU.
    return printable(device.uuid[:12]) if device.uuid.startswith("MIG-") else str(device.index)


def status_text(job: Job) -> str:
    """ "0", "127", "SIGTERM"; "?" of a job whose end is not known, "–" before the end."""
    if job.signal is not None:
        return signal_name(job.signal)
    if job.status is not None:
        return str(job.status)
    return "?" if job.over else "–"


def facts(job: Job, waits: Mapping[str, str] | None = None) -> list[str]:
    """Everything that is known of a job, a fact a line; `waits` as in `table`."""
    moments = (("created", job.created), ("started", job.started), ("ended", job.ended))
    rows = [
        ("id", job.id),
        ("name", printable(job.name) if job.name else None),
        ("state", job.state),
        ("status", status_text(job) if job.over else None),
        ("reason", printable(_reason(job) or "") or None),
        ("confined", confinement_trouble(job)),
        ("peak RAM", _peak(job)),
        ("devices", ",".join(map(_device, job.devices)) or _waits(job, waits or {}) or "CPU"),
        ("directory", quote(job.directory) if job.directory else None),
        ("launch line", job.line),
        *((name, _moment(when)) for name, when in moments),
        ("pid", str(job.command.pid) if job.command and not job.over else None),
        ("log", quote(str(job.log))),
    ]
    return aligned([(name, value) for name, value in rows if value is not None])


def _reason(job: Job) -> str | None:
    """Why it could not be started, or was stopped, None where nobody decided that but a person."""
    return why_not(job.trouble, job) if job.trouble is not None else job.why


def confinement_trouble(job: Job) -> str | None:
    """What a confined job that failed says in its last lines that confinement explains, None for nothing."""
    if job.state != "failed" or not job.confined:
        return None
    from gputui.jobs.last_lines import last_lines
    from gputui.launching.confine import explained

    return explained(last_lines(job.log, _LINES))


def _peak(job: Job) -> str | None:
    most = job.peak_process_memory
    return None if most is None else f"{peak_size(most)} (its largest process)"


def _note(job: Job) -> str:
    """What else is to be said of a job, before its command."""
    reason = _reason(job)
    if reason is not None:
        return f"({printable(reason)}) "
    if job.state == "elsewhere":
        return f"(on {printable(job.scope.host)}) "
    if job.left:
        return f"({job.left} of its processes went on) "
    return ""


def document(jobs: Stored, uses: Mapping[str, ClaimedUse]) -> dict[str, Any]:
    """`jobs --json`: schema 1, times in ISO 8601, null for what is not known. `uses` are by job id."""
    return {
        "schema": SCHEMA,
        "jobs": [_document(job, uses.get(job.id)) for job in jobs.jobs],
        "unreadable": [{"id": one.id, "reason": one.reason} for one in jobs.unreadable],
    }


def _document(job: Job, use: ClaimedUse | None) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "state": job.state,
        "line": job.line,
        "argv": list(job.argv),
        "environment": dict(job.changes),
        "directory": job.directory,
        "devices": devices_document(job.devices),
        **use_document(use),
        "launcher": job.launcher,
        "user": job.user,
        "host": job.scope.host,
        "pid": job.command.pid if job.command else None,
        "supervisor": job.supervisor.pid if job.supervisor else None,
        "created": _moment(job.created),
        "started": _moment(job.started),
        "ended": _moment(job.ended),
        "status": job.status,
        "signal": job.signal,
        "stop": job.stop,
        "killed": job.killed,
        "left": job.left,
        "peak_process_memory": job.peak_process_memory,
        "reason": _reason(job),
        "log": str(job.log),
    }


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
