"""The facts on a job as text, and the list of jobs as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import localtime, strftime
from types import MappingProxyType

from gputui.choosing.claimed_use import USE_KEYS, USE_KINDS, ClaimedUse, use_document
from gputui.inventory.formatting import duration, energy, number, peak_size, printable
from gputui.inventory.job import Job
from gputui.inventory.quoting import quote
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import Document, Json, View, WordList, Words
from gputui.jobs.columns import on_devices, reason_of, status_text
from gputui.jobs.record import TOLD_KEYS, TOLD_KINDS
from gputui.jobs.record_folders import Unreadable

_UNREADABLE = View(Unreadable, "id reason")
_JOB = View(
    Job,
    f"{TOLD_KEYS} energy utilization peak_memory environment {USE_KEYS} host=scope.host"
    " pid=command.pid supervisor=supervisor.pid reason log until",
    environment=dict[str, Words | None],
    reason=Words | None,
    log=Words,
    utilization=float | None,
    **TOLD_KINDS,
    **USE_KINDS,
)
JOBS = Document("jobs unreadable", jobs=_JOB.list, unreadable=_UNREADABLE.list)
"""Several jobs: `jobs --json`, and what `jobs stop` and `jobs forget` were about."""
JOB = Document("job", job=_JOB.one)
"""One job: `run --detach --json`, and `jobs wait`, `jobs show` and `jobs rerun`."""
CALL = Document("id call", id=str, call=WordList)
"""`jobs show --command --json`: the words of the call that starts the same job again."""
LOG = Document("id state log lines", Job, log=Words, lines=tuple[str, ...])
"""`jobs log --json`: the lines as a terminal would show them."""
NO_USES: Mapping[str, ClaimedUse] = MappingProxyType({})
_LINES = 20
"""The number of last log lines that are searched for the reason of a failure."""


def facts(job: Job, box: Snapshot) -> list[str]:
    """Return all facts on a job, one per line; `box` has the queue."""
    rows = [
        ("id", printable(job.id)),
        ("name", printable(job.name) if job.name else None),
        ("state", job.state),
        ("status", status_text(job) if job.over else None),
        ("reason", printable(reason_of(job) or "") or None),
        ("confined", confinement_trouble(job)),
        ("peak RAM", _peak(job)),
        ("peak memory", None if job.peak_memory is None else f"{peak_size(job.peak_memory)} on a GPU"),
        ("utilization", None if job.utilization is None else f"{number(job.utilization, '%')} on average"),
        ("energy", None if job.energy is None else energy(job.energy)),
        ("time limit", None if job.time_limit is None else duration(job.time_limit)),
        ("idle release", None if job.idle_release is None else duration(job.idle_release)),
        ("after", printable(", ".join(job.after)) or None),
        ("after ok", printable(", ".join(job.after_ok)) or None),
        ("devices", on_devices(job, box).removeprefix("GPU ")),
        ("asked by", printable(job.client) if job.client else None),
        ("directory", quote(job.directory) if job.directory else None),
        ("launch line", printable(job.line)),
        ("created" if job.waits is None else "queued", _clock(job.created)),
        ("started", _clock(job.began)),
        ("ended", _clock(job.ended)),
        ("pid", str(job.command.pid) if job.command and not job.over else None),
        ("log", quote(str(job.log))),
    ]
    return aligned([(name, value) for name, value in rows if value is not None])


def confinement_trouble(job: Job) -> str | None:
    """Return why a confined job has failed, where its last lines blame the confinement; otherwise None."""
    if job.state != "failed" or not job.confined:
        return None
    from gputui.jobs.last_lines import last_lines
    from gputui.launching.confine import explained

    return explained(last_lines(job.log, _LINES))


def _clock(moment: float | None) -> str | None:
    return None if moment is None else strftime("%Y-%m-%d %H:%M:%S", localtime(moment))


def _peak(job: Job) -> str | None:
    most = job.peak_process_memory
    return None if most is None else f"{peak_size(most)} (its largest process)"


def document(
    jobs: Sequence[Job], unreadable: Sequence[Unreadable] = (), uses: Mapping[str, ClaimedUse] = NO_USES
) -> Json:
    """Return the JSON of jobs: ISO 8601 times, null for unknown values. `uses` is by job id."""
    return JOBS.write(jobs=[_row(job, uses.get(job.id)) for job in jobs], unreadable=unreadable)


def job_document(job: Job, use: ClaimedUse | None = None) -> Json:
    """Return the JSON of one job."""
    return JOB.write(job=_row(job, use))


def _row(job: Job, use: ClaimedUse | None) -> Json:
    return _JOB.write(
        job,
        started=job.began,
        environment=dict(job.changes),
        reason=reason_of(job),
        log=str(job.log),
        **use_document(use),
    )
