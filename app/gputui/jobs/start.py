"""Start a job: its record, its log and its supervisor, which reports whether the command has started."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gputui.allocating.settings import Settings, SettingsError, settings
from gputui.inventory.job import STEPS, Job, JobDevice, JobError, Trouble
from gputui.inventory.light_dataclasses import replace
from gputui.jobs import FOLDER
from gputui.jobs.again import as_kept
from gputui.jobs.own_call import OwnCall, this_gputui
from gputui.jobs.process_tree import here, identity
from gputui.jobs.record import (
    read_job,
    without_secrets_of,
    write_claims,
    write_finished,
    write_given,
    write_notify,
    write_words,
)
from gputui.jobs.record_folders import RecordError, cannot_keep, new_folder
from gputui.jobs.store import jobs_folder
from gputui.launching.history import name_problem
from gputui.launching.launch import Launch
from gputui.launching.secrets import program_and_script, without_secrets
from gputui.launching.start import StartError, cannot_start
from gputui.requesting.launch_request import LaunchRequest
from gputui.system.files import create_private
from gputui.system.users import own_name

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease

_SUPERVISE = Path(__file__).with_name("supervise.py")
_LIVE = "PYTHONUNBUFFERED"
_EVERY = 30.0
"""Seconds between two checks of the devices that a job runs on."""


def detached(launch: Launch, environ: Mapping[str, str]) -> Launch:
    """The launch as a job runs it: Python's output is unbuffered, unless the user has set that variable."""
    if _LIVE in environ or any(name == _LIVE for name, _ in launch.changes):
        return launch
    remark = f"{_LIVE}=1 so that the log shows what is printed when it is printed"
    return replace(launch.with_changes((_LIVE, "1")), remarks=(*launch.remarks, remark))


def check_name(name: str) -> None:
    """Raise JobError where no job can have that name."""
    if (problem := name_problem("job", name)) is not None:
        raise JobError(problem)


def start_job(
    launch: Launch,
    environ: Mapping[str, str],
    name: str | None = None,
    pass_fds: Sequence[int] = (),
    queued: OwnCall | None = None,
    claims: Sequence[str] = (),
    request: LaunchRequest | None = None,
    tie: int | None = None,
) -> Job:
    """Start `launch` with its changes to `environ`. The job goes on when this process ends.

    `pass_fds` are open descriptors that the command and its descendants inherit under the same numbers; the
    supervisor closes them. `claims` are the paths of a lease's records: the supervisor empties them when the
    job has ended. `request` is the launch request that the launch was made from, for a rerun. `tie` is the
    read end of a pipe: the job is stopped once no process has the write end open.

    Raises StartError when the command could not be started (the record says so too), and JobError when no
    record can be written.
    """
    if name is not None:
        check_name(name)
    launch = detached(launch, environ)
    kept = without_secrets_of(launch)
    given = replace(
        _given(kept, new_folder(jobs_folder(environ)), name),
        launch=as_kept(request) if request is not None else queued and queued.kept,
        withheld=without_secrets(launch.argv)[1],
    )
    if queued is not None:
        given = _waiting(given, queued)
        launch = launch.with_changes((FOLDER, str(given.folder)))
    try:
        words = launch.argv if queued is None else queued.words
        if any("\0" in word for word in (*words, launch.directory or "")):
            raise StartError(f"cannot start {launch.argv[0]!r}: an argument contains a null byte", 126)
        own = _settings(environ)
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


def _waiting(given: Job, queued: OwnCall) -> Job:
    """The job as a waiting job: its recorded command is the command that it will start."""
    line = without_secrets_of(Launch(queued.line)).line
    argv, withheld = without_secrets(queued.argv)
    return replace(given, waits=queued.count, argv=argv, line=line, withheld=withheld)


def _write(given: Job, claims: Sequence[str], queued: OwnCall | None, notify: Sequence[str]) -> None:
    """Write the files of the record that exist before the job starts. Raises OSError."""
    write_given(given)
    if claims:
        write_claims(given.folder, claims)
    if queued is not None:
        write_words(given.folder, queued.words)
    if notify:
        write_notify(given.folder, given.name or program_and_script(given.argv), notify)


def start_leased_job(
    launch: Launch,
    environ: Mapping[str, str],
    lease: Lease | None,
    name: str | None = None,
    request: LaunchRequest | None = None,
) -> Job:
    """Start `launch` as a job that takes over the lease. This process gives its own hold back in any case.

    Raises StartError and JobError.
    """
    if lease is None:
        return start_job(launch, environ, name, request=request)
    try:
        job = start_job(launch, environ, name, lease.passed_on, claims=lease.records, request=request)
        if job.command is not None:
            supervisor = job.supervisor.pid if job.supervisor else None
            lease.belongs_to(job.command.pid, job.id, supervisor)
        return job
    finally:
        # This also empties the records of a job that has ended already: its supervisor found them held by us.
        lease.release()


def _notify_words(own: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The `notify` command of the settings, which is run when a job has ended, with its program's full path.

    () where there is none."""
    words = own.notify
    if not words or any("\0" in word for word in words):
        return ()
    import shutil

    program = shutil.which(words[0], path=environ.get("PATH"))
    return (str(Path(program).absolute()), *words[1:]) if program else ()


def _look(own: Settings, launch: Launch, job: Job) -> tuple[str, ...]:
    """The command that the supervisor runs at intervals, to stop the job if it uses devices that it has not
    claimed. () where the settings do not ask for that, or the job cannot reach such devices."""
    gets_there = launch.inside is None and (launch.devices or job.waits)
    looks = gets_there and own.stray == "stop"
    return this_gputui(("jobs", "stop", "--if-stray", job.id)) if looks else ()


def _settings(environ: Mapping[str, str]) -> Settings:
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
        user=own_name(),
        scope=here(),
        starter=identity(os.getpid()),
        created=time.time(),
        state="starting",
    )


def _supervise(
    job: Job,
    launch: Launch,
    environ: Mapping[str, str],
    pass_fds: Sequence[int],
    tie: int | None,
    log_cap: int,
    look: Sequence[str],
) -> str:
    """Start the supervisor and wait for its answer. Raises OSError when no log can be made, and
    StartError."""
    import subprocess

    log = create_private(job.log, os.O_WRONLY | os.O_APPEND)
    environment = launch.environment(environ)
    answer, reply = os.pipe()
    with open(answer, encoding="ascii") as answers:  # noqa: PTH123 - a descriptor
        try:
            process = subprocess.Popen(
                # -I -S: Python's variables in the job's environment are for the job, not for its supervisor.
                [sys.executable, "-I", "-S", str(_SUPERVISE), str(job.folder), *map(str, (reply, *pass_fds))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(reply, *pass_fds, *(() if tie is None else (tie,))),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StartError(f"cannot start {launch.argv[0]!r}: {reason}", 126) from None
        finally:
            os.close(reply)
            os.close(log)
        with process:
            if process.stdin is not None:
                _tell(process.stdin, launch, environment.get("LC_CTYPE"), log_cap, tie, look)
            return answers.read()


def _tell(
    stdin: IO[bytes], launch: Launch, locale: str | None, cap: int, tie: int | None, look: Sequence[str]
) -> None:
    """Send the supervisor its facts through stdin, not through files or arguments, so that no byte
    changes."""
    kept = "" if locale is None else f"={locale}"
    tied = "" if tie is None else str(tie)
    counts = map(str, (len(launch.left_out), len(look), len(launch.argv)))
    facts = (launch.directory or "", kept, str(cap), tied, str(_EVERY))
    words = [*counts, *facts, *launch.left_out, *look, *launch.argv]
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
