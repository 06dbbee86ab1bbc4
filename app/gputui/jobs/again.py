"""A job once more: what it was started from, kept in its record, and read again for a rerun or a clone."""

from __future__ import annotations

import os.path
from collections.abc import Collection
from typing import NamedTuple

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import Order
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import replace
from gputui.launching.history import PastLaunch, here
from gputui.launching.history_file import read_row, row
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.secrets import is_secret, without_secrets


class Again(NamedTuple):
    """What starts a job once more: its launch options, on how many devices (0: CPU only), and the words of
    `gputui run` that say which ones will do (`cli/request_options.py` reads them).

    lost      what of the command was not kept, as it looks like a secret: a mark stands in its place
    withheld  the same of variables, which are left out
    """

    options: LaunchOptions
    number: int
    constraints: tuple[str, ...]
    lost: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    def lacks(self, variables: Collection[str]) -> str | None:
        """That secrets have to be typed again, which ones, and how; None where these variables are enough."""
        missing = [name for name in self.withheld if name not in variables]
        how = []
        if self.lost:
            how.append(f"type the command again with {', '.join(self.lost)}")
        if missing:
            how.append(f"set {', '.join(missing)}")
        return f"secrets are not saved: {' and '.join(how)}" if how else None


def constraint_words(grouping: Grouping = ALL_REDUCE, order: Order | None = None) -> list[str]:
    """What devices are for, and their order, in words of `gputui run`."""
    words = [] if grouping == ALL_REDUCE else ["--group", grouping.word]
    return words if order is None else [*words, "--order", order]


def as_kept(options: LaunchOptions, job: Job) -> object:
    """The launch options of a job for its record: all of its variables but secrets."""
    withheld = tuple(name for name, value in options.additions if is_secret(name, value))
    additions = tuple(pair for pair in options.additions if pair[0] not in withheld)
    options = replace(options, command=without_secrets(options.command)[0], additions=additions)
    return row(PastLaunch(options, _count(job), job.created, where=here(), withheld=withheld))


def again(job: Job) -> Again:
    """What starts a job once more from where we are. Without launch options it is the command as it ran."""
    kept = read_row(job.launch)
    if kept is None:
        options = LaunchOptions(job.argv, directory=_from_here(job.directory))
        return Again(options, _count(job), job.constraints, job.withheld)
    options = kept.options
    directory = options.directory
    if kept.where is not None:
        directory = os.path.normpath(os.path.join(kept.where, directory or "."))  # noqa: PTH118
    options = replace(options, directory=_from_here(directory))
    return Again(options, _count(job), job.constraints, job.withheld, kept.withheld)


def _count(job: Job) -> int:
    return len(job.devices) if job.waits is None else job.waits


def _from_here(directory: str | None) -> str | None:
    """A folder as a launch option: None for the one that we are in."""
    return None if directory == here() else directory
