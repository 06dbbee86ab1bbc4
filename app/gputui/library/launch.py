"""`launch()`: a command on the best free devices, started as `gputui run` starts it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    # (To import `launch` costs a caller next to nothing: what it needs is imported when it is called.)
    from gputui.choosing.order import Order
    from gputui.inventory.job import Job
    from gputui.launching.launch import Launch
    from gputui.launching.launch_options import LaunchOptions
    from gputui.library.request import Names
    from gputui.vendors.visibility import Confine

    class _Others(TypedDict, total=False):
        """The arguments of all kinds of launches: see `launch`."""

        devices: Names | None
        launcher: str
        processes: int | None
        python: str | None
        directory: str | os.PathLike[str] | None
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
        force: bool
        demo: str | None
        recording: str | os.PathLike[str] | None


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
    directory: str | os.PathLike[str] | None = None,
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
    force: bool = False,
    detach: bool = False,
    dry_run: bool = False,
    name: str | None = None,
    demo: str | None = None,
    recording: str | os.PathLike[str] | None = None,
) -> int | Job | Launch:
    """Start a command on the best `n` free devices (or on `devices`), as `gputui run` does: the devices are
    claimed, and the command is completed for its launcher; the devices agree with those that it names itself.

    The call waits for the command, which has this process's standard streams, and returns its exit status (-n
    after signal n). With `detach` the command becomes a background job (`gputui jobs`) with this `name`, and
    the Job is returned; with `dry_run` nothing is claimed or started, and the Launch is returned:
    `launch.line`, `launch.argv`, `launch.environment(os.environ)`.

    launcher, processes, python, directory   the options of `gputui run` with these names
    env      variables for the command
    confine  "always", "auto" or "never": whether the command can open its own devices only (`--confine`);
             None: the value of the settings
    wait     seconds to wait in the queue before the command is started; True: without a timeout
    force    use named devices that others use or have claimed, even if the command names other devices
    The other arguments are those of `pick`.

    Raises StartError (the command could not be started), JobError, and the errors of `pick`; RequestError
    also where the command requests other devices. Warns as `pick` does.
    """
    from gputui.allocating.errors import RequestError
    from gputui.allocating.settings import settings
    from gputui.jobs.start import detached, start_leased_job
    from gputui.launching.start import run_child
    from gputui.library.hold import allocated, held
    from gputui.library.request import device_request, warn
    from gputui.requesting.launch_request import LaunchRequest
    from gputui.requesting.prepared_launch import how_confined, prepare, read_command
    from gputui.system.environment import given_environment

    if isinstance(command, str):
        raise TypeError("the command is a sequence of words: shlex.split makes them from a string")
    if n is not None and devices is not None:
        raise RequestError("n and devices: say either how many or which")
    options = _options(command, launcher, processes, python, directory, env, confine)
    asked = LaunchRequest(
        options,
        device_request(n, devices, min_free, max_util, group, order, vendor, never, wait, force, window),
    )
    own = settings(os.environ)
    how = how_confined(options, own, demo is None and recording is None)
    prepared = prepare(read_command(asked, os.environ, how), own)
    approve = prepared.approve(os.environ)
    allocation = allocated(prepared.request, demo, recording, not dry_run, approve)
    environ = given_environment()
    with held(allocation):
        warn(allocation, 2)
        made = prepared.launch(allocation, os.environ, prove=not dry_run)
        if detach:
            made = detached(made, environ)
        if dry_run:
            return made
        if detach:
            return allocation.start(lambda lease: start_leased_job(made, environ, lease, name, asked))
        passed_on = () if allocation.lease is None else allocation.lease.passed_on
        return run_child(made, environ, passed_on)


def _options(
    command: Sequence[str],
    launcher: str,
    processes: int | None,
    python: str | None,
    directory: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    confine: Confine | None,
) -> LaunchOptions:
    """Return the launch options. Raises RequestError for an invalid value."""
    from gputui.allocating.errors import RequestError
    from gputui.launching.launch_options import LaunchOptions, OptionError, table

    if not command:
        raise RequestError("no command")
    given = {"launcher": launcher, "processes": processes, "python": python, "confine": confine}
    given["directory"] = None if directory is None else os.fspath(directory)
    known = table()
    for name, value in given.items():
        try:
            if value is not None and not known[name].accepts(value):
                known[name].typed(str(value))
        except OptionError as error:
            raise RequestError(f"{name}: {error}") from None
    return LaunchOptions(tuple(command), additions=tuple((env or {}).items()), **given)  # type: ignore[arg-type]
