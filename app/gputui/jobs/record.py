"""Write and read a job's record: the files of its folder. Malformed files and other users' are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from gputui.inventory.formatting import MIB
from gputui.inventory.job import (
    CLAIMS,
    FINISHED,
    GIVEN,
    IDLE,
    LIMIT,
    NOTIFY,
    STARTED,
    TAKEN,
    WORDS,
    Job,
    JobDevice,
    PidScope,
    State,
)
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Identity
from gputui.inventory.typed_json import Epoch, Moment, Record, WordList, Words, check, form_of, schema
from gputui.jobs.process_tree import alive
from gputui.jobs.record_folders import RecordError, read_document, readable, refuse_of_others
from gputui.system.files import write_private

if TYPE_CHECKING:
    from gputui.launching.launch import Launch

SCHEMA = 1
_MOST_BYTES = 16 * MIB
"""A command line has 2 MiB at most (execve(2)), and JSON writes a byte as six characters at worst."""

T = TypeVar("T")

_DEVICE = Record(JobDevice)
_GIVEN = Record(
    Job,
    "schema name line argv changes directory devices launcher user host boot pids starter created waits"
    " launch withheld confined time_limit idle_release client after after_ok part",
    later="waits launch withheld confined time_limit idle_release client after after_ok part",
    schema=schema(SCHEMA),
    starter=Identity,
    created=Epoch,
    host=Words,
    boot=Words | None,
    pids=Words | None,
)
_STARTED = Record(Job, "supervisor command started", "", supervisor=Identity, command=Identity, started=Epoch)
_TAKEN = Record(Job, "taken line changes devices confined", "confined", taken=Epoch)
_IDLE = Record(Job, "idle_release_at", "", idle_release_at=Epoch)
_FINISHED = Record(
    Job,
    "ended status signal stop why killed left peak_process_memory trouble",
    later="status signal stop why killed left peak_process_memory trouble",
    ended=Epoch,
)
_LATER = (
    "created started ended directory status signal stop killed left peak_process_memory launcher user"
    " time_limit idle_release idle_release_at client after after_ok"
)
JOB_ID = check(str, re.compile("[a-z0-9]{1,64}").fullmatch, "a job's id")
TOLD_KEYS = f"id name state line argv devices {_LATER}"
TOLD_KINDS: dict[str, Any] = {
    "id": Annotated[str, JOB_ID],
    **dict.fromkeys(("created", "started", "ended", "idle_release_at"), Moment | None),
}
TOLD = Record(Job, TOLD_KEYS, _LATER, **TOLD_KINDS)
"""The facts of a job that `jobs --json` prints and another box reads; an older gputui prints fewer."""
_WORDS = form_of(WordList)


def without_secrets_of(launch: Launch) -> Launch:
    """The launch without its secrets, as a record may keep it."""
    # Imported here: reading a record does not need the launchers, which know the secrets of a command.
    from gputui.launching.secrets import secret_changes, without_secrets

    return replace(launch, argv=without_secrets(launch.argv)[0], changes=secret_changes(launch.changes))


def write_given(job: Job) -> None:
    """Write the facts known before the start; their secrets are removed already. Raises OSError."""
    scope = job.scope
    document = _GIVEN.write(job, schema=SCHEMA, host=scope.host, boot=scope.boot, pids=scope.pids)
    write_private(job.folder / GIVEN, json.dumps(document))


def write_taken(folder: Path, launch: Launch, now: float) -> None:
    """Write the devices and the command of a job that has waited for its devices. Raises OSError."""
    document = _TAKEN.write(without_secrets_of(launch), taken=now, confined=launch.inside is not None)
    write_private(folder / TAKEN, json.dumps(document))


def write_limit(folder: Path, seconds: float) -> None:
    """Write the seconds that it may run, as it has its devices now. Raises OSError."""
    write_private(folder / LIMIT, str(seconds))


def write_claims(folder: Path, records: Iterable[str]) -> None:
    """Write the paths of the records of its claims. Raises OSError."""
    write_private(folder / CLAIMS, "\n".join(records))


def write_words(folder: Path, words: Iterable[str]) -> None:
    """Write the arguments of a job that is a call of gputui itself. Raises OSError."""
    write_private(folder / WORDS, json.dumps(list(words)))


def take_words(folder: Path) -> list[str]:
    """Read the arguments that `write_words` wrote, and remove the file. Raises RecordError."""
    file = folder / WORDS
    with readable("its launch record"):
        words = _document(file, _WORDS.read)
        if words is None:
            raise RecordError("its launch record is gone")
        file.unlink()
        return [*words]


def write_notify(folder: Path, title: str, words: Iterable[str]) -> None:
    """Write the command that the supervisor starts when the job has ended. Raises OSError."""
    write_private(folder / NOTIFY, "".join(f"{word}\0" for word in (title, *words)))


def write_finished(folder: Path, ended: float, **facts: object) -> None:
    """Write how a job ended, where no supervisor can do so. Raises OSError."""
    write_private(folder / FINISHED, json.dumps({"ended": ended, **facts}))


def read_job(folder: Path, scope: PidScope) -> Job:
    """The job of `folder` as a process in `scope` sees it. Raises RecordError and no other error."""
    with readable():
        refuse_of_others(folder)
        job = _read(folder)
        state = _state(job, scope)
        if state == "ended" and job.ended is None:
            # It may have ended and written its end since the first read.
            job = _read(folder)
            state = _state(job, scope)
        return replace(job, state=state)


def _state(job: Job, scope: PidScope) -> State:
    if job.ended is not None:
        if job.stop is not None:
            return "stopped"
        if job.exit_status is None:
            return "ended"
        return "done" if job.exit_status == 0 else "failed"
    if job.scope.boot != scope.boot:
        # The record is from before a reboot, or from another machine that shares the folder (NFS).
        return "ended" if job.scope.host == scope.host else "elsewhere"
    if job.scope.pids != scope.pids:
        return "elsewhere"
    if job.started is None:
        return "starting" if job.starter and alive(job.starter) else "ended"
    if not any(alive(p) for p in (job.supervisor, job.command) if p):
        return "ended"
    return "running" if job.in_line_for is None else "waiting"


def _read(folder: Path) -> Job:
    given = _document(folder / GIVEN, _GIVEN.facts)
    if given is None:
        raise RecordError("there is no record in it")
    del given["schema"]
    scope = PidScope(*(given.pop(name) for name in ("host", "boot", "pids")))
    taken = _document(folder / TAKEN, _TAKEN.facts) if given.get("waits") is not None else None
    started, finished = (
        _document(folder / STARTED, _STARTED.facts),
        _document(folder / FINISHED, _FINISHED.facts),
    )
    idle = _document(folder / IDLE, _IDLE.facts) if finished is None else None
    facts = given | (taken or {}) | (idle or {}) | (started or {}) | (finished or {})
    return Job(id=folder.name, folder=folder, scope=scope, state="starting", **facts)


def _document(file: Path, read: Callable[[Any], T]) -> T | None:
    return read_document(file, _MOST_BYTES, read)
