"""Where jobs are kept: their folder, the id of a new one, which job a person means, and forgetting one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gputui.inventory.light_dataclasses import dataclass
from gputui.jobs.job import Job, JobError
from gputui.jobs.process_tree import here
from gputui.jobs.record import RecordError, read_job
from gputui.jobs.typed_name import typed_list, typed_name
from gputui.system.files import NoHomeError, private_folder, state_folder

_LETTERS, _DIGITS = "abcdefghjkmnpqrstuvwxyz", "23456789"
"""Without those that are taken for one another (l 1, o 0, i)."""
_TRIES = 1000


def jobs_folder(environ: Mapping[str, str]) -> Path:
    """The folder of our user's jobs. Raises JobError when there is no home."""
    try:
        return state_folder(environ) / "jobs"
    except NoHomeError as error:
        raise JobError(str(error)) from None


def new_folder(jobs: Path) -> Path:
    """An empty folder for a new job, made by nobody else; its name is the job's id.

    Letter, digit, letter, digit ("k3f9"): short, no word, no number that could be a device or a count, and
    not soon given again, so that an id that a script kept means no other job. Raises JobError.
    """
    try:
        private_folder(jobs.parent)
        private_folder(jobs)
        for _ in range(_TRIES):
            drawn = zip((_LETTERS, _DIGITS) * 2, os.urandom(4), strict=True)
            folder = jobs / "".join(signs[number % len(signs)] for signs, number in drawn)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(0o700)
                folder.chmod(0o700)
                return folder
    except OSError as error:
        raise cannot_keep(jobs, error) from None
    raise JobError(f"there are too many jobs in {str(jobs)!r}; `gputui jobs forget --all-ended` removes them")


def cannot_keep(jobs: Path, error: OSError) -> JobError:
    """That the folder cannot be written, as a message."""
    return JobError(
        f"cannot keep a job's record in {str(jobs)!r}: {error.strerror};"
        " set XDG_STATE_HOME to a writable folder"
    )


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
        raise JobError(f"cannot read {str(folder)!r}: {error.strerror}") from None
    scope = here()
    jobs: list[Job] = []
    unreadable: list[Unreadable] = []
    known = {job.id: job for job in before.jobs if job.over} if before else {}
    for entry in entries:
        if entry.name in known:
            jobs.append(known[entry.name])
            continue
        try:
            jobs.append(read_job(entry, scope))
        except RecordError as error:
            if entry.exists():  # else it was forgotten meanwhile
                unreadable.append(Unreadable(entry.name, entry, str(error)))
    return Stored(tuple(sorted(jobs, key=lambda job: (job.created, job.id))), tuple(unreadable))


def all_jobs(environ: Mapping[str, str]) -> list[Job]:
    """Our jobs in the order they were started. Raises JobError when their folder cannot be looked into."""
    return list(stored(environ).jobs)


def find_job(word: str, among: Stored, newest: bool = False) -> Job | Unreadable:
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
            raise JobError(f"{word!r} matches more than one job: {ids}")
    raise JobError(f"no job is called {word!r}; `{typed_list()}` lists them")


def forget(job: Job | Unreadable, force: bool = False) -> None:
    """Remove the record and the log. Raises JobError when the job has not ended, or cannot be removed.

    `force`: also of a job that belongs to another machine or container, which may be gone for good.
    """
    if isinstance(job, Job) and not job.over and not (force and job.state == "elsewhere"):
        remedy = (
            f"it belongs to {job.scope.host!r}, where it may be running; --force forgets it"
            if job.state == "elsewhere"
            else f"`gputui jobs stop {typed_name(job.id)}` stops it"
        )
        raise JobError(f"job {job.id} has not ended: {remedy}")
    try:
        shutil.rmtree(job.folder)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise JobError(f"cannot remove {str(job.folder)!r}: {error.strerror}") from None
