"""The store of our jobs: its folder, reading all jobs, finding one by a word, and forgetting one."""

from __future__ import annotations

from pathlib import Path

from gputui.inventory.job import FINISHED, Job, JobError
from gputui.inventory.light_dataclasses import frozen
from gputui.jobs.process_tree import own_scope
from gputui.jobs.record import read_job
from gputui.jobs.record_folders import Unreadable, find_by_word, read_folders, remove
from gputui.jobs.typed_name import typed_list, typed_name
from gputui.system.environment import Environ
from gputui.system.files import NoHomeError, state_folder


def jobs_folder(environ: Environ) -> Path:
    """The folder of our user's jobs. Raises JobError when the user has no home."""
    try:
        return state_folder(environ) / "jobs"
    except NoHomeError as error:
        raise JobError(str(error)) from None


@frozen
class Stored:
    """The contents of the jobs' folder; the jobs in the order they were started."""

    jobs: tuple[Job, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def stored(environ: Environ, before: Stored | None = None, since: float = 0.0) -> Stored:
    """Read everything in the jobs' folder. Raises JobError when the folder cannot be read.

    Jobs that had ended in `before` are final and are not read again. Jobs that ended before `since` (seconds
    since the epoch) are left out unread.
    """

    def wanted(folder: Path) -> bool:
        try:
            return (folder / FINISHED).stat().st_mtime >= since
        except OSError:
            return True

    scope = own_scope()
    ended = [job for job in before.jobs if job.over] if before else []
    return Stored(*read_folders(jobs_folder(environ), lambda folder: read_job(folder, scope), ended, wanted))


def all_jobs(environ: Environ) -> list[Job]:
    """Our jobs in the order they were started. Raises JobError when their folder cannot be read."""
    return list(stored(environ).jobs)


def find_job(word: str, among: Stored, newest: bool = False) -> Job | Unreadable:
    """The job that `word` means: its id, its name, or the beginning of its id. Raises JobError.

    Of several jobs with one name, the job that has not ended is meant. Where all have ended, `newest` takes
    the last one (a script may give a name again every night); without `newest` the word is ambiguous.
    """
    named = [job for job in among.jobs if job.name == word]
    current = [job for job in named if not job.over] or (named[-1:] if newest else named)
    return find_by_word(word, (*among.jobs, *among.unreadable), "job", typed_list(), current)


def readable_job(word: str, among: Stored, newest: bool = False) -> Job:
    """The job of `find_job`. Raises JobError, also where its record cannot be read."""
    job = find_job(word, among, newest)
    if isinstance(job, Unreadable):
        raise cannot_read(job)
    return job


def cannot_read(job: Unreadable) -> JobError:
    """The error with the reason why a job cannot be read, and the call that removes it."""
    name = typed_name(job.id)
    return JobError(f"{job.id} is not a readable job: {job.reason}; `gputui jobs forget {name}` removes it")


def forget(job: Job | Unreadable, force: bool = False) -> None:
    """Remove a job's record and log. Raises JobError when the job has not ended, or cannot be removed.

    `force` also removes a job that belongs to another machine or container, which may no longer exist.
    """
    if isinstance(job, Job) and not job.over and not (force and job.state == "elsewhere"):
        remedy = (
            f"it belongs to {job.scope.host!r}, where it may be running; --force forgets it"
            if job.state == "elsewhere"
            else f"`gputui jobs stop {typed_name(job.id)}` stops it"
        )
        raise JobError(f"job {job.id} has not ended: {remedy}")
    remove(job.folder)
