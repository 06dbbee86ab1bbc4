"""What is kept in the state folder, a folder each (comparisons, sweeps): written, read, found, forgotten."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.process import Identity
from gputui.inventory.typed_json import DocumentError, Positive, Record, Words
from gputui.jobs import record_folders
from gputui.jobs.job import JobError, PidScope
from gputui.jobs.process_tree import alive, here, identity
from gputui.jobs.record_folders import (
    RecordError,
    Unreadable,
    cannot_keep,
    new_folder,
    read_document,
    read_folders,
    refuse_of_others,
    remove,
)
from gputui.system.files import NoHomeError, open_lock, state_folder, write_private

_MOST_BYTES = 64 * 1024 * 1024
_LOCK = "lock"

State = Literal["running", "done", "stopped"]


class KeptError(Exception):
    """Something that cannot be done with comparisons or sweeps; the message is one line."""


class KeptRecord(record_folders.Record, Protocol):
    """What is kept: a comparison, a sweep."""

    @property
    def state(self) -> State:
        """Of one that is running, the process that runs it is there."""


R = TypeVar("R", bound=KeptRecord)


@dataclass(frozen=True, slots=True)
class Kept(Generic[R]):
    """Our records, the oldest first."""

    records: tuple[R, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class Store(Generic[R]):
    """The records of one kind.

    word        what one is called ("sweep"): its file is "sweep.json", and the folder of all of them "sweeps"
    subcommand  the one with --list, --show and --forget
    document    what is written of a record; the environment says where its jobs are
    made        the record of such a document and of its folder's name. Raises DocumentError
    """

    word: str
    subcommand: str
    document: Callable[[R, Mapping[str, str]], Mapping[str, object]]
    made: Callable[[dict[str, Any], str], R]

    def folder(self, environ: Mapping[str, str]) -> Path:
        """Where they are kept. Raises KeptError when there is no home."""
        try:
            return state_folder(environ) / f"{self.word}s"
        except NoHomeError as error:
            raise KeptError(str(error)) from None

    def new(self, environ: Mapping[str, str]) -> str:
        """The id of a new one, which has a folder now. Raises KeptError."""
        try:
            return new_folder(self.folder(environ)).name
        except JobError as error:
            raise KeptError(str(error)) from None

    def keep(self, record: R, environ: Mapping[str, str]) -> None:
        """Write a record as it stands; while it is running, this process runs it. Raises KeptError."""
        folder = self.folder(environ)
        try:
            document = {**self.document(record, environ), "runner": RUNNER.write(Runner.own())}
            write_private(folder / record.id / self._file, json.dumps(document))
        except OSError as error:
            raise KeptError(str(cannot_keep(folder, error))) from None
        except JobError as error:
            raise KeptError(str(error)) from None

    def kept(self, environ: Mapping[str, str], before: Kept[R] | None = None) -> Kept[R]:
        """Everything in their folder. Raises KeptError when it cannot be looked into.

        Of what was read `before`, those that have ended are not read again: nothing happens to them any more.
        """
        ended = [each for each in before.records if each.state != "running"] if before else []
        try:
            return Kept(*read_folders(self.folder(environ), self._read, ended))
        except JobError as error:
            raise KeptError(str(error)) from None

    def find(self, word: str, among: Kept[R]) -> R | Unreadable:
        """The one that a word means: its id, or the beginning of one. Raises KeptError."""
        everything: tuple[R | Unreadable, ...] = (*among.records, *among.unreadable)
        like = [each for each in everything if each.id == word] or [
            each for each in everything if word and each.id.startswith(word)
        ]
        if len(like) == 1:
            return like[0]
        if like:
            ids = ", ".join(each.id for each in like)
            raise KeptError(f"{word!r} matches more than one {self.word}: {ids}")
        raise KeptError(f"no {self.word} is called {word!r}; `gputui {self.subcommand} --list` lists them")

    def forget(self, record: R | Unreadable, environ: Mapping[str, str]) -> None:
        """Remove it, if it is there; its jobs and their logs stay. Raises KeptError while it runs."""
        if not isinstance(record, Unreadable) and record.state == "running":
            raise KeptError(f"{self.word} {record.id} is running: end it first (Ctrl-C where it runs)")
        try:
            remove(self.folder(environ) / record.id)
        except JobError as error:
            raise KeptError(str(error)) from None

    @contextlib.contextmanager
    def running_alone(self, id: str, environ: Mapping[str, str]) -> Iterator[None]:
        """Nobody else runs it meanwhile. Raises KeptError where somebody does."""
        try:
            handle = open_lock(self.folder(environ) / id / _LOCK)
        except OSError as error:
            raise KeptError(f"{self.word} {id} cannot be locked: {error.strerror}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self.runs_already(id) from None
            yield
        finally:
            os.close(handle)

    def runs_already(self, id: str) -> KeptError:
        """That somebody runs it, as an error."""
        return KeptError(
            f"{self.word} {id} is running already: `gputui {self.subcommand} --show {id}` shows it"
        )

    def unreadable(self, found: Unreadable) -> KeptError:
        """Why one cannot be read, and what removes it, as an error."""
        return KeptError(
            f"{found.id} is not a readable {self.word}: {printable(found.reason)};"
            f" `gputui {self.subcommand} --forget {found.id}` removes it"
        )

    @property
    def _file(self) -> str:
        return f"{self.word}.json"

    def _read(self, folder: Path) -> R:
        """The record of a folder. Raises RecordError."""
        try:
            refuse_of_others(folder)
            found = read_document(
                folder / self._file, _MOST_BYTES, lambda document: self.made(document, folder.name)
            )
            if found is None:
                raise RecordError("there is no record in it")
            return found
        except OSError as error:
            raise RecordError(f"it cannot be read: {error.strerror}") from None
        except DocumentError as error:
            raise RecordError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that runs what a record tells of."""

    host: Words
    boot: Words | None
    pids: Words | None
    pid: Positive
    ticks: int | None

    @classmethod
    def own(cls) -> Runner:
        """This process."""
        scope, process = here(), identity(os.getpid())
        return cls(scope.host, scope.boot, scope.pids, process.pid, process.ticks)

    @property
    def runs(self) -> bool:
        """Whether it is there; on another machine nobody can tell, and it counts."""
        now = here()
        if PidScope(self.host, self.boot, self.pids) == now:
            return alive(Identity(self.pid, self.ticks))
        # (This machine after a reboot.)
        return not (self.host == now.host and self.boot != now.boot)


RUNNER = Record(Runner)


def state_of(facts: dict[str, Any]) -> State:
    """The state that a record has; one that nobody runs any more is stopped. `runner` is taken out."""
    state, runner = facts["state"], facts.pop("runner", None)
    return "stopped" if state == "running" and not (runner and runner.runs) else state
