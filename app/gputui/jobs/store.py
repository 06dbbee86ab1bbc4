"""The jobs that there are: all of them, the one that a person means, and those to be forgotten."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gputui.jobs.folder import jobs_folder
from gputui.jobs.job import Job, JobError
from gputui.jobs.process_tree import here
from gputui.jobs.record import RecordError, read_job


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder among the jobs that has no record we could read, and why."""

    id: str
    folder: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What the folder of the jobs has; the jobs in the order they were started."""

    jobs: tuple[Job, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def stored(environ: Mapping[str, str], before: Stored | None = None) -> Stored:
    """Everything in the folder of the jobs. Raises JobError when it cannot be looked into.

    Of what was read `before`, jobs that had ended are not read again: nothing happens to them any more.
    """
    folder = jobs_folder(environ)
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return Stored()
    except OSError as error:
        raise JobError(f"cannot look into {str(folder)!r}: {error.strerror}") from None
    place = here()
    jobs: list[Job] = []
    unreadable: list[Unreadable] = []
    known = {job.id: job for job in before.jobs if job.over} if before else {}
    for entry in entries:
        if entry.name in known:
            jobs.append(known[entry.name])
            continue
        try:
            jobs.append(read_job(entry, place))
        except RecordError as error:
            if entry.exists():  # else it was forgotten meanwhile
                unreadable.append(Unreadable(entry.name, entry, str(error)))
    return Stored(tuple(sorted(jobs, key=lambda job: (job.created, job.id))), tuple(unreadable))


def all_jobs(environ: Mapping[str, str]) -> list[Job]:
    """Our jobs in the order they were started. Raises JobError when their folder cannot be looked into."""
    return list(stored(environ).jobs)


def found(word: str, among: Stored, newest: bool = False) -> Job | Unreadable:
    """The job that `word` means: its id, its name, or the beginning of its id. Raises JobError.

    Of several jobs of one name the one that has not ended is meant; where all have, with `newest` the last
    one (a name is given again every night), else none.
    """
    everything: tuple[Job | Unreadable, ...] = (*among.jobs, *among.unreadable)
    exact = [one for one in everything if one.id == word]
    if exact:
        return exact[0]
    named = [job for job in among.jobs if job.name == word]
    current = [job for job in named if not job.over]
    begins = [one for one in everything if word and one.id.startswith(word)]
    if newest and named and not current:
        current = named[-1:]
    for candidates in (current or named, begins):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            ids = ", ".join(one.id for one in candidates)
            raise JobError(f"{word!r} is more than one job: {ids}")
    raise JobError(f"there is no job {word!r}; `gputui jobs` lists them")


def forget(job: Job | Unreadable, force: bool = False) -> None:
    """Remove the record and the log. Raises JobError when the job has not ended, or cannot be removed.

    `force`: also of a job that belongs to another machine or container, which may be gone for good.
    """
    if isinstance(job, Job) and not job.over and not (force and job.state == "elsewhere"):
        remedy = (
            f"it belongs to {job.place.host!r}, where it may be running; --force forgets it"
            if job.state == "elsewhere"
            else f"`gputui jobs stop {job.id}` stops it"
        )
        raise JobError(f"job {job.id} has not ended: {remedy}")
    try:
        shutil.rmtree(job.folder)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise JobError(f"cannot remove {str(job.folder)!r}: {error.strerror}") from None
