"""The folder of the jobs: where it is, and how a new job gets an id in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from gputui.jobs.job import JobError
from gputui.system.files import NoHomeError, state_folder

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
        for part in (*reversed(jobs.parents), jobs):
            if not part.is_dir():
                part.mkdir(0o700, exist_ok=True)
                part.chmod(0o700)  # whatever the umask left of it
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
        " set XDG_STATE_HOME to a folder that can be written"
    )
