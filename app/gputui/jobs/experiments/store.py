"""Write, read, find and remove the experiments in the state folder, where each has a folder.

The record is written as a whole when its experiment begins and ends. A change in between is one line more in
a second file, so that its cost does not grow with the number of variants.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gputui.inventory.formatting import MIB, printable
from gputui.inventory.job import JobError
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.typed_json import SCHEMA, DocumentError, loads
from gputui.jobs.experiments.record import CHANGE, STORED, Change, Experiment, read
from gputui.jobs.experiments.request import SUBCOMMANDS, Kind
from gputui.jobs.record_folders import (
    RecordError,
    Unreadable,
    cannot_keep,
    find_by_word,
    new_folder,
    read_document,
    read_folders,
    readable,
    refuse_of_others,
    remove,
)
from gputui.jobs.store import jobs_folder
from gputui.system.environment import Environ
from gputui.system.file_stamp import stamp_of
from gputui.system.files import alone, append_private, open_own, read_own, write_private

_MOST_BYTES = 64 * MIB
_MOST_CHANGES = 4 * MIB
"""Bytes of changes after which the record is written as a whole."""
_CHANGES, _LOCK = "changes.jsonl", "lock"


@frozen
class Kept:
    """Experiments, the oldest first, and the folders that cannot be read. `stamps` are the states of the
    files from before they were read, by folder."""

    records: tuple[Experiment, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    stamps: Mapping[Path, object] = field(default_factory=dict)


def folder(kind: Kind, environ: Environ) -> Path:
    """Return the folder of the experiments of a kind. Raises JobError if there is no home directory."""
    return jobs_folder(environ).with_name(f"{kind}s")


def _record(own: Path) -> Path:
    """The file of the record in an experiment's folder."""
    return own / f"{own.parent.name[:-1]}.json"


def begin(experiment: Experiment, environ: Environ) -> Experiment:
    """Write the record of a new experiment, and return the experiment with its folder. Raises JobError."""
    experiment = replace(experiment, folder=new_folder(folder(experiment.request.kind, environ)))
    keep(experiment)
    return experiment


def keep(experiment: Experiment, change: Change | None = None) -> None:
    """Write the last change of a recorded experiment, or the whole record. Raises JobError."""
    own, size = experiment.folder, 0
    try:
        if change is not None:
            # A line that was cut off by a full disk does not spoil the next one.
            size = append_private(own / _CHANGES, f"\n{json.dumps(CHANGE.write(change))}")
        if change is None or size > _MOST_CHANGES:
            write_private(_record(own), json.dumps({"schema": SCHEMA, **STORED.write(experiment)}))
            # If we are killed before this, the changes are applied once more, with the same result.
            (own / _CHANGES).unlink(missing_ok=True)
    except OSError as error:
        raise cannot_keep(own.parent, error) from None


def kept(environ: Environ, before: Kept | None = None, *kinds: Kind) -> Kept:
    """Read the experiments of these kinds, or of all kinds. Raises JobError if a folder cannot be listed.

    Experiments of `before` whose files have not changed are not read again.
    """
    before, stamps = before or Kept(), dict[Path, object]()
    known = {each.folder: each for each in before.records}

    def read_again(folder: Path) -> Experiment:
        stamp = stamps[folder] = _stamp(folder)
        return _read(folder, known.get(folder) if stamp == before.stamps.get(folder) else None)

    records, unreadable = list[Experiment](), list[Unreadable]()
    for kind in kinds or SUBCOMMANDS:
        found, others = read_folders(folder(kind, environ), read_again, ())
        records += found
        unreadable += others
    return Kept(tuple(sorted(records, key=lambda each: (each.created, each.id))), tuple(unreadable), stamps)


def _stamp(folder: Path) -> object:
    return stamp_of(_record(folder)), stamp_of(folder / _CHANGES)


def find(kind: Kind, word: str, environ: Environ) -> Experiment | Unreadable:
    """Find an experiment by its id or the beginning of its id. Raises JobError."""
    among = kept(environ, None, kind)
    everything: tuple[Experiment | Unreadable, ...] = (*among.records, *among.unreadable)
    return find_by_word(word, everything, kind, f"gputui {SUBCOMMANDS[kind]} --list")


def forget(found: Experiment | Unreadable) -> None:
    """Remove the experiment if it exists; its jobs and their logs stay. Raises JobError while it runs."""
    if isinstance(found, Experiment) and found.state == "running":
        raise JobError(f"{found.name} is running; stop it first (Ctrl-C where it runs)")
    remove(found.folder)


@contextlib.contextmanager
def running_alone(experiment: Experiment) -> Iterator[None]:
    """Hold the lock of the experiment, so that no other process runs it. Raises JobError if another process
    does."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(experiment.folder / _LOCK))
        except TimeoutError:
            raise runs_already(experiment) from None
        except OSError as error:
            raise JobError(f"{experiment.name} cannot be locked: {error.strerror}") from None
        yield


def _is_run(own: Path) -> bool:
    """Whether a process holds the lock of the experiment in this folder, or that cannot be known (some NFS).
    Raises OSError."""
    try:
        lock = open_own(own / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def runs_already(experiment: Experiment) -> JobError:
    """Return the error that another process runs the experiment."""
    show = f"gputui {SUBCOMMANDS[experiment.request.kind]} --show {experiment.id}"
    return JobError(f"{experiment.name} is running already: `{show}` shows it")


def cannot_read(kind: Kind, found: Unreadable) -> JobError:
    """Return the error with the reason why an experiment cannot be read, and the command that removes it."""
    return JobError(
        f"{found.id} is not a readable {kind}: {printable(found.reason)};"
        f" `gputui {SUBCOMMANDS[kind]} --forget {found.id}` removes it"
    )


def _read(folder: Path, found: Experiment | None) -> Experiment:
    """Read the experiment of a folder, unless it is `found`. One that no process runs any more is stopped.
    Raises RecordError."""
    with readable():
        refuse_of_others(folder)
        if found is None:
            changes, file = _changes(folder / _CHANGES), _record(folder)
            found = read_document(file, _MOST_BYTES, lambda value: read(value, folder, changes))
        if found is None:
            raise RecordError("there is no record in it")
        over = found.state == "running" and not _is_run(folder)
        return replace(found, state="stopped") if over else found


def _changes(file: Path) -> list[object]:
    """The documents of the changes. A line that was not written completely is left out: the jobs have the
    same information. Raises OSError."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in read_own(file, _MOST_BYTES).splitlines():
            with contextlib.suppress(DocumentError):
                found.append(loads(line))
    return found
