"""Folders that hold one record each (jobs, experiments): make one, read all, remove one."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gputui.inventory.job import JobError, NoSuchJobError
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.typed_json import DocumentError, loads
from gputui.system.files import make_folder, private_folder, read_own
from gputui.system.trust import how_changed

_LETTERS, _DIGITS = "abcdefghjkmnpqrstuvwxyz", "23456789"
"""The characters of an id: none that is easily taken for another (l 1, o 0, i)."""
_TRIES = 1000


class RecordError(Exception):
    """The folder has no readable record; the message is one line with the reason."""


class Record(Protocol):
    """The record of a folder: a job or an experiment."""

    @property
    def id(self) -> str:
        """The name of its folder."""

    @property
    def created(self) -> float:
        """Seconds since the epoch."""


R = TypeVar("R", bound=Record)
T = TypeVar("T")


@frozen
class Unreadable:
    """A folder without a readable record, and the reason."""

    id: str
    folder: Path
    reason: str


def new_folder(parent: Path) -> Path:
    """Make an empty folder for a new record; its name is the record's id, and nobody else has made it.

    The id is letter, digit, letter, digit ("k3f9"): short, not a word, and not a number that could be a
    device or a count. An id is rarely given again soon, so that an id kept by a script means no other record.
    Raises JobError.
    """
    try:
        private_folder(parent.parent)
        private_folder(parent)
        for _ in range(_TRIES):
            drawn = zip((_LETTERS, _DIGITS) * 2, os.urandom(4), strict=True)
            folder = parent / "".join(signs[number % len(signs)] for signs, number in drawn)
            with contextlib.suppress(FileExistsError):
                make_folder(folder)
                return folder
    except OSError as error:
        raise cannot_keep(parent, error) from None
    raise JobError(f"there are too many records in {str(parent)!r}: forget those that have ended")


def cannot_keep(parent: Path, error: OSError) -> JobError:
    """The exception for a folder of records that cannot be written."""
    return JobError(
        f"cannot keep a record in {str(parent)!r}: {error.strerror}; set XDG_STATE_HOME to a writable folder"
    )


def read_folders(
    parent: Path,
    read: Callable[[Path], R],
    ended: Iterable[R],
    wanted: Callable[[Path], bool] = lambda folder: True,
) -> tuple[tuple[R, ...], tuple[Unreadable, ...]]:
    """Read the records of all folders in `parent`, the oldest first. Raises JobError when it cannot be read.

    read    reads the record of a folder. Raises RecordError
    ended   records read before that are final and are not read again
    wanted  whether a folder is read
    """
    try:
        refuse_of_others(parent)
        folders = sorted(
            entry for entry in parent.iterdir() if entry.is_dir() and entry.name[0] != "." and wanted(entry)
        )
    except (FileNotFoundError, NotADirectoryError):
        return (), ()
    except OSError as error:
        raise JobError(f"cannot read {str(parent)!r}: {error.strerror}") from None
    except RecordError as error:
        raise JobError(f"{str(parent)!r} is not read: {error}") from None
    found, unreadable = [], []
    known = {record.id: record for record in ended}
    for folder in folders:
        try:
            found.append(known.get(folder.name) or read(folder))
        except RecordError as error:
            if folder.exists():  # else it was forgotten meanwhile
                unreadable.append(Unreadable(folder.name, folder, str(error)))
    return tuple(sorted(found, key=lambda record: (record.created, record.id))), tuple(unreadable)


def find_by_word(
    word: str, among: Sequence[R | Unreadable], what: str, listed: str, named: Sequence[R] = ()
) -> R | Unreadable:
    """The record that `word` means: its id, else the one of those `named` so, else the beginning of its id.

    what    the word for such a record
    listed  the call that lists them

    Raises NoSuchJobError where there is none, or more than one.
    """
    found = (
        [one for one in among if one.id == word]
        or named
        or [one for one in among if word and one.id.startswith(word)]
    )
    if not found:
        raise NoSuchJobError(f"no {what} is called {word!r}; `{listed}` lists them")
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise NoSuchJobError(f"{word!r} matches more than one {what}: {ids}")
    return found[0]


def refuse_of_others(folder: Path) -> None:
    """Raise RecordError for a folder that other users could have changed, OSError where there is none."""
    reason = how_changed(folder.stat(), str(folder))
    if reason is not None:
        raise RecordError(f"{reason} it")


def read_document(file: Path, most: int, read: Callable[[Any], T]) -> T | None:
    """The document of a record's file, parsed by `read`; None without the file.

    Raises OSError, and DocumentError, also for a file of more than `most` bytes.
    """
    try:
        data = read_own(file, most + 1)
    except FileNotFoundError:
        return None
    try:
        if len(data) > most:
            raise DocumentError("too long")
        return read(loads(data))
    except DocumentError as error:
        raise error.within(file.name) from None


@contextlib.contextmanager
def readable(what: str = "it") -> Iterator[None]:
    """Turn the errors of reading a record into RecordError."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{what} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(str(error)) from None


def remove(folder: Path) -> None:
    """Remove a record and its whole folder, if it exists. Raises JobError."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise JobError(
            f"cannot remove {str(folder)!r}: {error.strerror or 'it is a symbolic link'}"
        ) from None
