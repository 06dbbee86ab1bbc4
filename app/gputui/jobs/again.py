"""A job once more: what it was started from, kept in its record, and read again for a rerun or a clone."""

from __future__ import annotations

import os.path
from dataclasses import replace
from typing import NamedTuple

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import Order
from gputui.jobs.job import Job
from gputui.launching.history import PastLaunch, here
from gputui.launching.launch_options import LaunchOptions


class Again(NamedTuple):
    """What starts a job once more: its launch options, on how many devices (0: CPU only), and the words of
    `gputui run` that say which ones will do (`cli/request_options.py` reads them)."""

    options: LaunchOptions
    number: int
    constraints: tuple[str, ...]


def constraint_words(grouping: Grouping = ALL_REDUCE, order: Order | None = None) -> list[str]:
    """What devices are for, and their order, in words of `gputui run`."""
    words = [] if grouping == ALL_REDUCE else ["--group", grouping.word]
    return words if order is None else [*words, "--order", order]


def as_kept(options: LaunchOptions, job: Job) -> object:
    """The launch options of a job for its record, which only its user can read: with all of its variables."""
    from gputui.launching.history_file import row

    return row(PastLaunch(options, _count(job), job.created, where=here()))


def again(job: Job) -> Again:
    """What starts a job once more from where we are. Without launch options it is the command as it ran."""
    from gputui.launching.history_file import read_row

    kept = read_row(job.launch)
    if kept is None:
        options = LaunchOptions(job.argv, directory=_from_here(job.directory))
        return Again(options, _count(job), job.constraints)
    options = kept.options
    directory = options.directory
    if kept.where is not None:
        directory = os.path.normpath(os.path.join(kept.where, directory or "."))  # noqa: PTH118
    return Again(replace(options, directory=_from_here(directory)), _count(job), job.constraints)


def _count(job: Job) -> int:
    return len(job.devices) if job.waits is None else job.waits


def _from_here(directory: str | None) -> str | None:
    """A folder as a launch option: None for the one that we are in."""
    return None if directory == here() else directory
