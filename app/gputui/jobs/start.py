"""Start a job: its record, its log and its supervisor, which reports whether the command has started."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gputui.allocating.settings import Settings, SettingsError, settings
from gputui.inventory.errors import reason_of
from gputui.inventory.formatting import read_duration
from gputui.inventory.job import STEPS, Job, JobDevice, JobError, Part, Trouble
from gputui.inventory.light_dataclasses import replace
from gputui.jobs import FOLDER
from gputui.jobs.own_call import OwnCall, this_gputui
from gputui.jobs.process_tree import identity, own_scope
from gputui.jobs.record import (
    read_job,
    without_secrets_of,
    write_claims,
    write_finished,
    write_given,
    write_limit,
    write_notify,
    write_words,
)
from gputui.jobs.record_folders import RecordError, cannot_keep, new_folder
from gputui.jobs.rerun import as_kept
from gputui.jobs.store import jobs_folder
from gputui.launching.history import name_problem
from gputui.launching.launch import Launch
from gputui.launching.launch_options import NEVER
from gputui.launching.secrets import program_and_script, without_secrets
from gputui.launching.start import StartError, cannot_start
from gputui.requesting.launch_request import LaunchRequest, jobs_of
from gputui.system.environment import Environ
from gputui.system.files import create_private
from gputui.system.trust import program
from gputui.system.users import own_name

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease

_SUPERVISE = Path(__file__).with_name("supervise.py")
_LIVE = "PYTHONUNBUFFERED"
_EVERY = "30 30"
"""Seconds before the first check of a job's devices, and the most between two: where it can stop the job."""
_NOTED = "10 120"
"""Seconds before the first reading for the usage, and the most between two: a reading takes 0.15 s of CPU."""


def detached(launch: Launch, environ: Environ) -> Launch:
    """The launch as a job runs it: Python's output is unbuffered, unless the user has set that variable."""
    if _LIVE in environ or any(name == _LIVE for name, _ in launch.changes):
        return launch
    remark = f"{_LIVE}=1, so that the log shows output as soon as it is printed"
    return replace(launch.with_changes((_LIVE, "1")), remarks=(*launch.remarks, remark))


def check_name(name: str) -> None:
    """Raise JobError where no job can have that name."""
    if (problem := name_problem("job", name)) is not None:
        raise JobError(problem)
    if ":" in name:
        raise JobError(f"not a valid job name: {name!r} (BOX:ID is a job of another box)")


def start_job(
    launch: Launch,
    environ: Environ,
    name: str | None = None,
    pass_fds: Sequence[int] = (),
    queued: OwnCall | None = None,
    claims: Sequence[str] = (),
    request: LaunchRequest | None = None,
    tie: int | None = None,
    part: Part | None = None,
) -> Job:
    """Start `launch` with its changes to `environ`. The job keeps running when this process ends.

    `pass_fds` are open descriptors that the command and its descendants inherit under the same numbers; the
    supervisor closes them. `claims` are the paths of a lease's records: the supervisor empties them when the
    job has ended. `request` is the launch request that the launch was made from, for a rerun. `tie` is the
    read end of a pipe: the job is stopped once no process has the write end open. `part` is the part of an
    experiment that the job is.

    Raises StartError when the command could not be started (the record says so too), and JobError when no
    record can be written.
    """
    if name is not None:
        check_name(name)
    if queued is None:
        # Else it starts the command itself, which then has that variable on its line.
        launch = detached(launch, environ)
    kept, own = without_secrets_of(launch), _settings(environ)
    given = replace(
        _given(kept, new_folder(jobs_folder(environ)), name),
        launch=as_kept(request) if request is not None else queued and queued.kept,
        withheld=without_secrets(launch.argv)[1],
        idle_release=_idle_release(own, request),
        client=None if request is None else request.client,
        part=part,
    )
    if queued is not None:
        given = _waiting(given, queued, request)
        launch = launch.with_changes((FOLDER, str(given.folder)))
    try:
        words = launch.argv if queued is None else queued.words
        values = (value for _, value in launch.changes if value)
        if any("\0" in word for word in (*words, launch.directory or "", *values)):
            raise StartError(f"cannot start {launch.argv[0]!r}: an argument contains a NUL byte", 126)
        _write(given, claims, queued, _notify_words(own, environ))
        look = _look(own, launch, given)
        answer = _supervise(given, launch.started, environ, pass_fds, tie, own.log_cap, look)
    except OSError as error:
        _remove(given.folder)
        raise cannot_keep(given.folder.parent, error) from None
    except StartError:
        _remove(given.folder)
        raise
    if answer != "started":
        raise _not_started(given, answer)
    try:
        return read_job(given.folder, given.scope)
    except RecordError as error:
        raise JobError(f"job {given.id} has started, but its record is gone: {error}") from None


def _waiting(given: Job, queued: OwnCall, request: LaunchRequest | None) -> Job:
    """The job as a waiting job: its recorded command is the command that it will start."""
    line = without_secrets_of(Launch(queued.line)).line
    argv, withheld = without_secrets(queued.argv)
    given = replace(given, waits=queued.count, argv=argv, line=line, withheld=withheld)
    if request is None:
        return given
    limit = request.options.time_limit
    after, good = tuple(jobs_of(request.after)), tuple(jobs_of(request.after_ok))
    return replace(given, time_limit=limit, after=after, after_ok=good)


def _write(given: Job, claims: Sequence[str], queued: OwnCall | None, notify: Sequence[str]) -> None:
    """Write the files of the record that exist before the job starts. Raises OSError."""
    write_given(given)
    if claims:
        write_claims(given.folder, claims)
    if queued is not None:
        write_words(given.folder, queued.words)
    elif given.time_limit is not None:
        write_limit(given.folder, given.time_limit)
    if notify:
        write_notify(given.folder, given.name or program_and_script(given.argv), notify)


def start_leased_job(
    launch: Launch,
    environ: Environ,
    lease: Lease | None,
    name: str | None = None,
    request: LaunchRequest | None = None,
    part: Part | None = None,
) -> Job:
    """Start `launch` as a job that takes over the lease. This process gives its own hold back in any case.

    Raises StartError and JobError.
    """
    if lease is None:
        return start_job(launch, environ, name, request=request, part=part)
    try:
        job = start_job(
            launch, environ, name, lease.passed_on, claims=lease.records, request=request, part=part
        )
        if job.command is not None:
            supervisor = job.supervisor.pid if job.supervisor else None
            lease.belongs_to(job.command.pid, job.id, supervisor)
        return job
    finally:
        # This also empties the records of a job that has ended already: its supervisor found them held by us.
        lease.release()


def _notify_words(own: Settings, environ: Environ) -> tuple[str, ...]:
    """The `notify` command of the settings, which is run when a job has ended, with its program's full path.

    () where there is none."""
    words = own.notify
    if not words or any("\0" in word for word in words):
        return ()
    place = program(words[0], environ.get("PATH"))
    return (str(Path(place).absolute()), *words[1:]) if place else ()


def _look(own: Settings, launch: Launch, job: Job) -> tuple[str, tuple[str, ...]]:
    """How often the supervisor runs a command, with the seconds after which it stops an idle job, and the
    command: it records the usage, tells whether the job is idle, and stops the job if it uses devices that it
    has not claimed, where the settings ask for that. A job without devices has no such command."""
    if not (launch.devices or job.waits):
        return f"{_NOTED} 0", ()
    stray = launch.inside is None and own.stray == "stop"
    checks = ["--if-stray"] * stray + ["--if-idle"] * (job.idle_release is not None)
    words = ("record", "--note", *(f"{check}={job.id}" for check in checks))
    return f"{_EVERY if checks else _NOTED} {job.idle_release or 0}", this_gputui(words)


def _idle_release(own: Settings, request: LaunchRequest | None) -> float | None:
    """The seconds at 0 % after which a job is stopped, None for never: as its owner said at the start."""
    said = request.options.idle_release if request is not None else None
    if said is None:
        return own.rules.idle_release or None
    return None if said == NEVER else read_duration(said)


def _settings(environ: Environ) -> Settings:
    """The settings; their defaults where they cannot be read, so that the job starts all the same."""
    try:
        return settings(environ)
    except SettingsError:
        return Settings()


def why_not(trouble: Trouble, job: Job) -> str:
    """Why a command could not be started, as a sentence."""
    return str(cannot_start(trouble, job.argv[0], job.directory))


def _given(launch: Launch, folder: Path, name: str | None) -> Job:
    directory = launch.directory
    with contextlib.suppress(OSError):
        # Our working directory may have been removed; the command can run in it all the same.
        directory = str(Path.cwd() / (directory or "."))
    return Job(
        id=folder.name,
        folder=folder,
        name=name,
        line=launch.line,
        argv=launch.argv,
        changes=launch.changes,
        directory=directory,
        confined=launch.inside is not None,
        devices=tuple(JobDevice(d.index, d.uuid, d.name) for d in launch.devices),
        launcher=launch.launcher,
        time_limit=launch.time_limit,
        user=own_name(),
        scope=own_scope(),
        starter=identity(os.getpid()),
        created=time.time(),
        state="starting",
    )


def _supervise(
    job: Job,
    launch: Launch,
    environ: Environ,
    pass_fds: Sequence[int],
    tie: int | None,
    log_cap: int,
    look: tuple[str, Sequence[str]],
) -> str:
    """Start the supervisor and wait for its answer. Raises OSError when no log can be made, and
    StartError."""
    import subprocess

    log = create_private(job.log, os.O_WRONLY | os.O_APPEND)
    answer, reply = os.pipe()
    with open(answer, encoding="ascii") as answers:  # noqa: PTH123 - a descriptor
        try:
            process = subprocess.Popen(
                # -I -S: Python's variables are for the job, not for its supervisor.
                [sys.executable, "-I", "-S", str(_SUPERVISE), str(job.folder), *map(str, (reply, *pass_fds))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environ,
                pass_fds=(reply, *pass_fds, *(() if tie is None else (tie,))),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise StartError(f"cannot start {launch.argv[0]!r}: {reason_of(error)}", 126) from None
        finally:
            os.close(reply)
            os.close(log)
        with process:
            if process.stdin is not None:
                _tell(process.stdin, launch, environ, log_cap, tie, look)
            return answers.read()


def _tell(
    stdin: IO[bytes],
    launch: Launch,
    environ: Environ,
    cap: int,
    tie: int | None,
    look: tuple[str, Sequence[str]],
) -> None:
    """Send the supervisor its facts through stdin, not through files or arguments, so that no byte
    changes."""
    tied = "" if tie is None else str(tie)
    every, called = look
    variables = [f"{name}={value}" for name, value in launch.environment(environ).items()]
    lists = (launch.left_out, called, launch.argv, variables)
    facts = (launch.directory or "", str(cap), tied, every)
    words = [*(str(len(each)) for each in lists), *facts, *chain(*lists)]
    # Where the supervisor has ended already, its missing answer shows that.
    with contextlib.suppress(BrokenPipeError), stdin:
        stdin.write(b"\0".join(map(os.fsencode, words)))


def _not_started(given: Job, answer: str) -> Exception:
    """The exception for an answer other than "started"."""
    step, _, number = answer.partition(" ")
    if step == "record":
        _remove(given.folder)
        return cannot_keep(given.folder.parent, OSError(int(number), os.strerror(int(number))))
    if step == "process":
        _remove(given.folder)
        return StartError(f"cannot start {given.argv[0]!r}: {os.strerror(int(number))} (`ulimit -u`)", 126)
    if step in STEPS:
        trouble = Trouble(next(each for each in STEPS if each == step), int(number))
        return cannot_start(trouble, given.argv[0], given.directory)
    with contextlib.suppress(OSError):
        write_finished(given.folder, time.time(), status=126)
    return StartError(
        f"the supervisor of job {given.id} ended at once; its log {str(given.log)!r} says why", 126
    )


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
