"""`launch()`: a command on the best free devices, started as `gputui run` starts it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    # (To import `launch` costs a caller next to nothing: what it needs is imported when it is called.)
    from gputui.allocating.allocation import Allocation
    from gputui.choosing.order import Order
    from gputui.inventory.device import Device
    from gputui.inventory.job import Job
    from gputui.launching.launch import Launch
    from gputui.launching.launch_options import LaunchOptions
    from gputui.library.request import File, Names, Quiet
    from gputui.requesting.launch_request import LaunchRequest
    from gputui.requesting.prepared_launch import PreparedLaunch
    from gputui.vendors.vendor import Vendor
    from gputui.vendors.visibility import Confine

    class _Others(TypedDict, total=False):
        """The arguments of all kinds of launches: see `launch`."""

        devices: Names | None
        launcher: str
        processes: int | None
        python: str | None
        directory: File | None
        time: float | str | None
        env: Mapping[str, str] | None
        min_free: int | str | None
        max_util: int | None
        group: str | None
        order: Order | None
        vendor: str | None
        confine: Confine | None
        never: Names
        wait: float | bool | None
        window: float | None
        after: str | Job | None
        after_ok: str | Job | None
        force: bool
        demo: str | None
        recording: File | None


@overload
def launch(
    command: Sequence[str],
    n: int | None = None,
    *,
    detach: Literal[False] = ...,
    dry_run: Literal[False] = ...,
    name: None = ...,
    **others: Unpack[_Others],
) -> int: ...


@overload
def launch(
    command: Sequence[str],
    n: int | None = None,
    *,
    detach: Literal[True],
    dry_run: Literal[False] = ...,
    name: str | None = ...,
    **others: Unpack[_Others],
) -> Job: ...


@overload
def launch(
    command: Sequence[str],
    n: int | None = None,
    *,
    detach: bool = ...,
    dry_run: Literal[True],
    name: str | None = ...,
    **others: Unpack[_Others],
) -> Launch: ...


def launch(
    command: Sequence[str],
    n: int | None = None,
    *,
    devices: Names | None = None,
    launcher: str = "auto",
    processes: int | None = None,
    python: str | None = None,
    directory: File | None = None,
    time: float | str | None = None,
    env: Mapping[str, str] | None = None,
    min_free: int | str | None = None,
    max_util: int | None = None,
    group: str | None = None,
    order: Order | None = None,
    vendor: str | None = None,
    confine: Confine | None = None,
    never: Names = (),
    wait: float | bool | None = None,
    window: float | None = None,
    after: str | Job | None = None,
    after_ok: str | Job | None = None,
    force: bool = False,
    detach: bool = False,
    dry_run: bool = False,
    name: str | None = None,
    demo: str | None = None,
    recording: File | None = None,
) -> int | Job | Launch:
    """Start a command on the best `n` free devices (or on `devices`), as `gputui run` does: the devices are
    claimed, and the command is completed for its launcher; the devices agree with those that it names itself.

    The call waits for the command, which has this process's standard streams, and returns its exit status (-n
    after signal n). With `detach` the command becomes a background job (`gputui jobs`) with this `name`, and
    the Job is returned; with `dry_run` nothing is claimed or started, and the Launch is returned:
    `launch.line`, `launch.argv`, `launch.environment(os.environ)`.

    launcher, processes, python, directory   the options of `gputui run` with these names
    time     how long the command may run, in seconds or as "4h": then SIGTERM, and SIGKILL ten seconds later
    env      variables for the command
    confine  "always", "auto" or "never": whether the command can open its own devices only (`--confine`);
             None: the value of the settings
    wait     seconds to wait in the queue before the command is started; True: without a timeout
    after    a Job, or jobs by id or name ("k3f9,nightly"), that must have ended; then it waits in the queue
    after_ok   the jobs that must have ended well, else JobError; with `detach` the call returns at once
    force    use named devices that others use or have claimed, even if the command names other devices
    The other arguments are those of `pick`.

    Raises StartError (the command could not be started), JobError, and the errors of `pick`; RequestError
    also where the command requests other devices. Warns as `pick` does.
    """
    from gputui.allocating.errors import RequestError
    from gputui.inventory.light_dataclasses import replace
    from gputui.jobs.start import start_leased_job
    from gputui.launching.start import run_child
    from gputui.library.request import device_request, warn
    from gputui.requesting.launch_request import LaunchRequest
    from gputui.system.environment import given_environment

    if isinstance(command, str):
        raise TypeError("the command is a sequence of words: shlex.split makes them from a string")
    if n is not None and devices is not None:
        raise RequestError("n and devices: give either the number or the devices, not both")
    how = {"launcher": launcher, "processes": processes, "python": python, "confine": confine}
    options = options_of(command, env, directory, time, **how)
    asked = LaunchRequest(
        options,
        replace(
            device_request(n, devices, min_free, max_util, group, order, vendor, never, wait, force, window),
            demo=demo,
        ),
        after=_named(after),
        after_ok=_named(after_ok),
    )
    environ = given_environment()
    if asked.awaited:
        from gputui.jobs.after import settled, wait_for_jobs
        from gputui.jobs.queued import queue_job

        asked = settled(asked, os.environ, not detach)
        if detach and not dry_run:
            return queue_job(asked, _prepared(asked).request.size, environ, name)
        if not dry_run:
            wait_for_jobs(asked, os.environ)
    with launched(asked, demo, recording, not dry_run, detach) as (made, allocation):
        warn(allocation, 2)
        if dry_run:
            return made
        if detach:
            return allocation.start(lambda lease: start_leased_job(made, environ, lease, name, asked))
        passed_on = () if allocation.lease is None else allocation.lease.passed_on
        return run_child(made, environ, passed_on)


def _named(jobs: str | Job | None) -> str | None:
    return jobs.id if jobs is not None and not isinstance(jobs, str) else jobs


def _prepared(asked: LaunchRequest, here: bool = True) -> PreparedLaunch:
    from gputui.allocating.settings import settings
    from gputui.requesting.prepared_launch import how_confined, prepare, read_command

    own = settings(os.environ)
    return prepare(read_command(asked, os.environ, how_confined(asked.options, own, here)), own)


@contextmanager
def launched(
    asked: LaunchRequest,
    demo: str | None = None,
    recording: File | None = None,
    holds: bool = True,
    detach: bool = True,
    listener: Quiet | None = None,
    may_use: Callable[[int], object] = bool,
) -> Iterator[tuple[Launch, Allocation]]:
    """The launch of a request on its devices, which are held for the block, or until what is started there
    ends. `may_use` is told their number before the box is read, and before any is waited for or claimed; it
    may raise an error."""
    from gputui.jobs.start import detached
    from gputui.library.hold import allocated, held
    from gputui.system.environment import given_environment

    prepared = _prepared(asked, demo is None and recording is None)
    may_use(prepared.request.size)
    agreed = prepared.approve(os.environ)

    def approve(devices: Sequence[Device] | int, box: Sequence[Vendor]) -> None:
        may_use(devices if isinstance(devices, int) else len(devices))
        agreed(devices, box)

    allocation = allocated(prepared.request, demo, recording, holds, approve, listener)
    with held(allocation):
        made = prepared.launch(allocation, os.environ, prove=holds)
        yield detached(made, given_environment()) if detach else made, allocation


def options_of(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    directory: File | None = None,
    time: float | str | None = None,
    **given: Any,
) -> LaunchOptions:
    """Return the launch options; `given` are those that need no conversion. Raises RequestError for an
    invalid value."""
    from gputui.allocating.errors import RequestError
    from gputui.launching.launch_options import LaunchOptions, OptionError, table

    if not command:
        raise RequestError("no command")
    given["time"] = None if time is None else str(time)
    given["directory"] = None if directory is None else os.fspath(directory)
    known = table()
    for name, value in given.items():
        try:
            if value is not None and not known[name].accepts(value):
                known[name].typed(str(value))
        except OptionError as error:
            raise RequestError(f"{name}: {error}") from None
    return LaunchOptions(tuple(command), additions=tuple((env or {}).items()), **given)
