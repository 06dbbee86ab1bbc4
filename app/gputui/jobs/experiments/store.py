"""Write, read, find and remove the experiments in the state folder, where each has a folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gputui.inventory.formatting import printable
from gputui.inventory.job import JobError
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.typed_json import DocumentError
from gputui.jobs.experiments.record import RUNNER, Experiment, Kind, Runner, document, read
from gputui.jobs.record_folders import (
    RecordError,
    Unreadable,
    cannot_keep,
    meant,
    new_folder,
    read_document,
    read_folders,
    refuse_of_others,
    remove,
)
from gputui.jobs.store import jobs_folder
from gputui.system.files import take_lock, write_private

_MOST_BYTES = 64 * 1024 * 1024
_LOCK = "lock"
SUBCOMMANDS: Mapping[Kind, str] = {"comparison": "compare", "sweep": "each"}
"""The subcommand that makes experiments of each kind; the kind also names their files and folders."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The experiments of some kinds, the oldest first, and the folders that cannot be read."""

    records: tuple[Experiment, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def folder(kind: Kind, environ: Mapping[str, str]) -> Path:
    """Return the folder of the experiments of a kind. Raises JobError if there is no home directory."""
    return jobs_folder(environ).with_name(f"{kind}s")


def new(kind: Kind, environ: Mapping[str, str]) -> str:
    """Make the folder of a new experiment and return its id. Raises JobError."""
    return new_folder(folder(kind, environ)).name


def keep(experiment: Experiment, environ: Mapping[str, str]) -> None:
    """Write the experiment, with this process as its runner. Raises JobError."""
    parent = folder(experiment.kind, environ)
    written = {**document(experiment, jobs_folder(environ)), "runner": RUNNER.write(Runner.own())}
    try:
        write_private(parent / experiment.id / f"{experiment.kind}.json", json.dumps(written))
    except OSError as error:
        raise cannot_keep(parent, error) from None


def kept(environ: Mapping[str, str], before: Kept | None = None, *kinds: Kind) -> Kept:
    """Read the experiments of these kinds, or of all kinds. Raises JobError if a folder cannot be listed.

    Experiments of `before` that have ended are not read again, as they do not change any more.
    """
    ended = [each for each in before.records if each.state != "running"] if before else []
    records, unreadable = list[Experiment](), list[Unreadable]()
    for kind in kinds or SUBCOMMANDS:
        own = [each for each in ended if each.kind == kind]
        found, others = read_folders(folder(kind, environ), _read, own)
        records += found
        unreadable += others
    return Kept(tuple(sorted(records, key=lambda each: (each.created, each.id))), tuple(unreadable))


def find(kind: Kind, word: str, environ: Mapping[str, str]) -> Experiment | Unreadable:
    """Find an experiment by its id or the beginning of its id. Raises JobError."""
    among = kept(environ, None, kind)
    everything: tuple[Experiment | Unreadable, ...] = (*among.records, *among.unreadable)
    return meant(word, everything, kind, f"gputui {SUBCOMMANDS[kind]} --list")


def forget(found: Experiment | Unreadable, environ: Mapping[str, str]) -> None:
    """Remove the experiment if it exists; its jobs and their logs stay. Raises JobError while it runs."""
    if isinstance(found, Unreadable):
        remove(found.folder)
    elif found.state == "running":
        raise JobError(f"{found.kind} {found.id} is running: end it first (Ctrl-C where it runs)")
    else:
        remove(folder(found.kind, environ) / found.id)


@contextlib.contextmanager
def running_alone(experiment: Experiment, environ: Mapping[str, str]) -> Iterator[None]:
    """Hold the lock of the experiment, so that no other process runs it. Raises JobError if another process
    does."""
    try:
        handle = take_lock(folder(experiment.kind, environ) / experiment.id / _LOCK)
    except OSError as error:
        raise JobError(f"{experiment.kind} {experiment.id} cannot be locked: {error.strerror}") from None
    if handle is None:
        raise runs_already(experiment)
    try:
        yield
    finally:
        os.close(handle)


def runs_already(experiment: Experiment) -> JobError:
    """Return the error that another process runs the experiment."""
    kind, id = experiment.kind, experiment.id
    return JobError(f"{kind} {id} is running already: `gputui {SUBCOMMANDS[kind]} --show {id}` shows it")


def cannot_read(kind: Kind, found: Unreadable) -> JobError:
    """Return the error with the reason why an experiment cannot be read, and the command that removes it."""
    return JobError(
        f"{found.id} is not a readable {kind}: {printable(found.reason)};"
        f" `gputui {SUBCOMMANDS[kind]} --forget {found.id}` removes it"
    )


def _read(folder: Path) -> Experiment:
    """Read the experiment of a folder. Raises RecordError."""
    try:
        refuse_of_others(folder)
        file = folder / f"{folder.parent.name[:-1]}.json"
        found = read_document(file, _MOST_BYTES, lambda document: read(document, folder.name))
        if found is None:
            raise RecordError("there is no record in it")
        return found
    except OSError as error:
        raise RecordError(f"it cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise RecordError(str(error)) from None
