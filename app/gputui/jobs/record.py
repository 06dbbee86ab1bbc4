"""A job's record: the files of its folder, written and read. Malformed files and other users' are refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.untrusted_json import LAST_MOMENT, DocumentError, JsonValue
from gputui.jobs.job import (
    CLAIMS,
    FINISHED,
    GIVEN,
    NOTIFY,
    STARTED,
    STEPS,
    TAKEN,
    WORDS,
    Job,
    JobDevice,
    PidScope,
    State,
    Trouble,
)
from gputui.jobs.process_tree import alive
from gputui.jobs.record_fields import (
    any_text,
    check_schema,
    identity_of,
    maybe_text,
    maybe_whole,
    scope_of,
    texts,
)
from gputui.jobs.record_folders import RecordError, read_document, refuse_of_others
from gputui.system.files import write_private

if TYPE_CHECKING:
    from gputui.inventory.device import Device
    from gputui.launching.launch import Launch

SCHEMA = 1
_MOST_BYTES = 16 * 1024 * 1024
"""A command line has 2 MiB at most (execve(2)), and JSON writes a byte as six characters at worst."""
_MOST_DEVICES = 1024
_MOST_CHANGES = 10_000


def without_secrets_of(launch: Launch) -> Launch:
    """The launch as a record may have it."""
    # (To read a record, nobody needs the launchers, which tell what in a command is secret.)
    from gputui.launching.secrets import secret_changes, without_secrets

    return replace(launch, argv=without_secrets(launch.argv)[0], changes=secret_changes(launch.changes))


def devices_document(devices: Iterable[Device | JobDevice]) -> list[Mapping[str, object]]:
    """Devices as a record names them."""
    return [{"index": each.index, "uuid": each.uuid, "name": each.name} for each in devices]


def write_given(job: Job) -> None:
    """Write what is known before the start, from which secrets are removed already. Raises OSError."""
    document = {
        "schema": SCHEMA,
        "name": job.name,
        "line": job.line,
        "argv": job.argv,
        "changes": job.changes,
        "directory": job.directory,
        "devices": devices_document(job.devices),
        "launcher": job.launcher,
        "user": job.user,
        "host": job.scope.host,
        "boot": job.scope.boot,
        "pids": job.scope.pids,
        "starter": {"pid": job.starter.pid, "ticks": job.starter.ticks},
        "created": job.created,
        "waits": job.waits,
        "launch": job.launch,
        "constraints": job.constraints,
        "withheld": job.withheld,
        "confined": job.confined,
    }
    write_private(job.folder / GIVEN, json.dumps(document))


def write_taken(folder: Path, launch: Launch, now: float) -> None:
    """Write what a job that has waited for devices runs on, and as what. Raises OSError."""
    launch = without_secrets_of(launch)
    document = {
        "taken": now,
        "line": launch.line,
        "changes": launch.changes,
        "devices": devices_document(launch.devices),
        "confined": launch.inside is not None,
    }
    write_private(folder / TAKEN, json.dumps(document))


def write_claims(folder: Path, records: Iterable[str]) -> None:
    """Write where the records of its claims are. Raises OSError."""
    write_private(folder / CLAIMS, "\n".join(records))


def write_words(folder: Path, words: Iterable[str]) -> None:
    """Write what a job that waits for devices is called with. Raises OSError."""
    write_private(folder / WORDS, json.dumps(list(words)))


def take_words(folder: Path) -> list[str]:
    """What `write_words` wrote, which is removed: it is read once. Raises RecordError."""
    file = folder / WORDS
    try:
        words = _document(file)
        if words is None:
            raise RecordError("its launch record is gone")
        file.unlink()
        return list(texts(words))
    except (DocumentError, ValueError) as error:
        raise RecordError(str(error)) from None
    except OSError as error:
        raise RecordError(f"its launch record cannot be read: {error.strerror}") from None


def write_notify(folder: Path, title: str, words: Iterable[str]) -> None:
    """Write what its supervisor starts when the job has ended. Raises OSError."""
    write_private(folder / NOTIFY, "".join(f"{word}\0" for word in (title, *words)))


def write_finished(folder: Path, ended: float, **facts: object) -> None:
    """Write how a job ended where there is no supervisor to do it. Raises OSError."""
    write_private(folder / FINISHED, json.dumps({"ended": ended, **facts}))


def read_job(folder: Path, scope: PidScope) -> Job:
    """The job of `folder` as a process of that scope sees it. Raises RecordError, and nothing else."""
    try:
        refuse_of_others(folder)
        job = _read(folder)
        state = _state(job, scope)
        if state == "ended" and job.ended is None:
            # It may have ended, and its end been written, while we looked.
            job = _read(folder)
            state = _state(job, scope)
    except OSError as error:
        raise RecordError(f"it cannot be read: {error.strerror}") from None
    except (DocumentError, ValueError, RecursionError) as error:
        raise RecordError(str(error)) from None
    return replace(job, state=state)


def _state(job: Job, scope: PidScope) -> State:
    if job.ended is not None:
        if job.stop is not None:
            return "stopped"
        if job.exit_status is None:
            return "ended"
        return "done" if job.exit_status == 0 else "failed"
    if job.scope.boot != scope.boot:
        # This machine after a reboot, or another one that shares the folder (NFS).
        return "ended" if job.scope.host == scope.host else "elsewhere"
    if job.scope.pids != scope.pids:
        return "elsewhere"
    if job.started is None:
        return "starting" if alive(job.starter) else "ended"
    if not any(alive(p) for p in (job.supervisor, job.command) if p):
        return "ended"
    return "running" if job.waits is None or job.taken is not None else "waiting"


def _read(folder: Path) -> Job:
    given = _document(folder / GIVEN)
    if given is None:
        raise RecordError("there is no record in it")
    check_schema(given, SCHEMA)
    started, finished = _document(folder / STARTED), _document(folder / FINISHED)
    waits = maybe_whole(given.get("waits", None))
    taken = _document(folder / TAKEN) if waits is not None else None
    has = given if taken is None else taken
    return Job(
        id=folder.name,
        folder=folder,
        name=maybe_text(given["name"]),
        line=any_text(has["line"]),
        argv=texts(given["argv"]),
        changes=tuple(_change(node) for node in has["changes"].items(_MOST_CHANGES)),
        directory=maybe_text(given["directory"]),
        devices=tuple(_device(node) for node in has["devices"].items(_MOST_DEVICES)),
        waits=waits,
        taken=None if taken is None else _moment(taken["taken"]),
        launch=given.get("launch", None).value,
        constraints=_words(given.get("constraints", None)),
        withheld=_words(given.get("withheld", None)),
        confined=has.get("confined", False).yes(),
        launcher=any_text(given["launcher"]),
        user=any_text(given["user"]),
        scope=scope_of(given),
        starter=identity_of(given["starter"]),
        created=_moment(given["created"]),
        **(_started(started) if started else {}),
        **(_finished(finished) if finished else {}),
        state="starting",
    )


def _started(node: JsonValue) -> dict[str, Any]:
    return {
        "supervisor": identity_of(node["supervisor"]),
        "command": identity_of(node["command"]),
        "started": _moment(node["started"]),
    }


def _finished(node: JsonValue) -> dict[str, Any]:
    trouble = node.get("trouble", None)
    return {
        "ended": _moment(node["ended"]),
        "status": maybe_whole(node.get("status", None)),
        "signal": _signal(node.get("signal", None)),
        "stop": _signal(node.get("stop", None)),
        "why": maybe_text(node.get("why", None)),
        "killed": maybe_whole(node.get("killed", None)) or 0,
        "left": maybe_whole(node.get("left", None)) or 0,
        "peak_process_memory": maybe_whole(node.get("peak_process_memory", None)),
        "trouble": _trouble(trouble) if trouble.known else None,
    }


def _document(file: Path) -> JsonValue | None:
    return read_document(file, _MOST_BYTES)


def _moment(node: JsonValue) -> float:
    if type(node.value) not in (int, float) or not 0 <= node.value <= LAST_MOMENT:
        raise node.wrong("seconds since 1970")
    return float(node.value)


def _signal(node: JsonValue) -> int | None:
    number = maybe_whole(node)
    if number is not None and not 0 < number < signal.NSIG:
        raise node.wrong("the number of a signal")
    return number


def _change(node: JsonValue) -> tuple[str, str | None]:
    pair = node.items(2)
    if len(pair) != 2:
        raise node.wrong("a name and a value")
    return any_text(pair[0]), maybe_text(pair[1])


def _device(node: JsonValue) -> JobDevice:
    return JobDevice(node["index"].whole(), any_text(node["uuid"]), maybe_text(node["name"]))


def _words(node: JsonValue) -> tuple[str, ...]:
    return texts(node) if node.known else ()


def _trouble(node: JsonValue) -> Trouble:
    step = node["step"].word(STEPS)
    return Trouble(next(each for each in STEPS if each == step), node["errno"].whole())
