"""Start the launch of the screen: lend the terminal to the command and take it back, or start a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from textual.app import App, SuspendNotSupported

from gputui.allocating.allocation import Allocation, Queue, hold, queue_for
from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.request import Request
from gputui.allocating.settings import settings
from gputui.choosing.grouping import ALL_REDUCE
from gputui.choosing.named_devices import NONE
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import duration, gpus
from gputui.inventory.job import how_it_ended
from gputui.inventory.light_dataclasses import frozen
from gputui.launching.launch import Launch
from gputui.launching.secrets import program_and_script
from gputui.launching.start import StartError, run_child
from gputui.requesting.launch_request import LaunchRequest
from gputui.requesting.prepared_launch import PreparedLaunch, how_confined
from gputui.sources.source import NoDevices
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease
    from gputui.sources.simulated.source import SimulatedSource
    from gputui.system.environment import Environ
    from gputui.tui.main_view import MainView


@frozen
class Returned:
    """The end of a command that had the terminal.

    text    a sentence
    good    whether it succeeded
    signal  the signal that ends us too, None for none
    gone    whether the terminal has gone
    how     the sentence without the program, "" where none has run
    """

    text: str
    good: bool = False
    signal: int | None = None
    gone: bool = False
    how: str = ""


def count_of(app_state: AppState) -> int:
    """The number of devices in the history of launches: one without a selection, as `gputui run` takes."""
    return len(app_state.selection) if app_state.selection.decided else 1


def hold_selected(app_state: AppState, environ: Environ) -> tuple[Allocation, Queue | None]:
    """An allocation of the selected devices, with a lease on those that no other job has claimed, and the
    queue of the waiters for such devices, None where nobody waits.

    Devices of another box have no lease; their queue is the one in the reading.
    """
    # Without a reading, only the CPU can be selected.
    snapshot, devices = app_state.snapshot or NoDevices().read(), app_state.selected
    request = Request(
        names=",".join(device.key for device in devices) or NONE,
        rules=app_state.rules,
        purpose=program_and_script(app_state.options.command),
        time_limit=app_state.options.time_limit,
    )
    allocation = Allocation(request, devices, snapshot)
    if not devices:
        return allocation, None
    if app_state.label:
        # For another box, the reading holds all that is known.
        line = app_state.in_line
        return allocation, Queue(line) if line else None
    queue = queue_for(devices, snapshot, environ)
    return hold(allocation, environ, partly=True), queue


def when_confined(
    view: MainView,
    app_state: AppState,
    allocation: Allocation,
    environ: Environ,
    then: Callable[[Launch | GputuiError], object],
) -> None:
    """Call `then`, later, with the launch on the allocated devices as the app state has read them, confined
    as the options and the settings say, or with the error where that fails. The first confinement after a
    boot asks the driver, which may take seconds: no key press waits for it."""

    def asking() -> None:
        view.app.call_later(view.show_message, _PROVING, "", "lasting")

    def work() -> None:
        # This result remains after a bug of our own, so that a key can start the launch again.
        found: Launch | GputuiError = GputuiError("nothing is started: an internal error of gputui")
        try:
            request = request_of(app_state)
            confine = how_confined(request.options, settings(environ), not app_state.label)
            prepared = PreparedLaunch(request, app_state.intent, confine, allocation.request)
            read = allocation._replace(devices=app_state.selected, snapshot=app_state.box)
            found = prepared.launch(read, environ, host=app_state.host_environment, asking=asking)
        except GputuiError as error:
            found = error
        finally:
            view.app.call_later(then, found)

    in_background("confine", work)


_PROVING = "verifying that a confined command sees its own devices only, once after each boot …"


def run_and_return(
    app: App[Any],
    launch: Launch,
    environ: Environ,
    lease: Lease | None,
    end_without_terminal: Callable[[], NoReturn],
    line: str | None,
) -> Returned:
    """Lend the terminal to the command and take it back when it has ended. `line` is the text that shows the
    command, None for the launch line.

    Where the terminal has been closed meanwhile, `end_without_terminal` is called: the screen cannot return.
    """
    try:
        with app.suspend():
            ended = _on_our_terminal(launch, environ, lease.passed_on if lease else (), line or launch.line)
            if ended.gone:
                end_without_terminal()
            return ended
    except SuspendNotSupported:
        return Returned("this terminal cannot be lent to a command: ⏎ becomes the command, d starts a job")


def _on_our_terminal(launch: Launch, environ: Environ, descriptors: Sequence[int], line: str) -> Returned:
    from gputui.tui.lent_terminal import LentTerminal

    began = time.monotonic()
    terminal = LentTerminal()
    with terminal.signals():
        terminal.say(line)
        if launch.inside is not None:
            terminal.say(launch.inside.sees)
        try:
            status = run_child(launch, environ, descriptors)
        except StartError as error:
            terminal.take_back()
            return Returned(str(error), signal=terminal.ended, gone=terminal.gone)
        terminal.take_back()
        how = "done" if status == 0 else how_it_ended(status, -status if status < 0 else None)
        text = f"{how} after {duration(time.monotonic() - began)}"
        if terminal.ended is None and not terminal.gone:
            terminal.say(f"{text}; press Enter to return to gputui", end="")
            terminal.wait_for_enter()
        else:
            terminal.say(text)
    program = launch.argv[0] if line == launch.line else line.partition(" ")[0]
    name = program.rsplit("/", 1)[-1]
    return Returned(f"{name} {text}", status == 0, terminal.ended, terminal.gone, text)


def request_of(app_state: AppState) -> LaunchRequest:
    """The launch of the screen as its job keeps it: without its devices, with their grouping and order."""
    group = None if app_state.grouping == ALL_REDUCE else app_state.grouping
    devices = DeviceRequest(group=group, order=app_state.order, demo=app_state.demo)
    return LaunchRequest(app_state.options, devices)


def as_job(
    launch: Launch,
    environ: Environ,
    lease: Lease | None,
    request: LaunchRequest,
    labels: Sequence[str],
) -> tuple[str, bool]:
    """Start the launch as a job on the devices with these labels. Returns the outcome, and whether it could
    be started."""
    from gputui.inventory.job import JobError
    from gputui.jobs.start import start_leased_job

    try:
        job = start_leased_job(launch, environ, lease, request=request)
    except (JobError, StartError) as error:
        return str(error), False
    where = f" on {gpus(labels)}" if labels else ""
    return f"job {job.id} started{where}", True


def rehearse(app_state: AppState, simulated: SimulatedSource | None) -> str:
    """Start the demo's example as a job that exists on the selected devices of the simulated box only.
    Returns the outcome."""
    if simulated is None:
        return f"nothing is started ({app_state.label})"
    keys = app_state.selection.keys
    job_id = simulated.wait_in_line(app_state.options.command, len(keys), keys, at_once=True)
    where = app_state.selected_in_words
    return _told(job_id, f"runs on {where} of the demo only", app_state)


def _told(job_id: str, is_now: str, app_state: AppState) -> str:
    key = key_of("jobs", app_state.screen.keymap)
    return f"job {job_id} {is_now}: {key} shows it, S there stops it"


def in_line(
    app_state: AppState,
    environ: Environ,
    request: DeviceRequest,
    simulated: SimulatedSource | None,
) -> tuple[str, bool]:
    """Start a job that waits for devices; on a simulated box it is only rehearsed. Returns its place in line
    or the error, and whether it waits."""
    from gputui.allocating.queue import waiters
    from gputui.inventory.job import JobError
    from gputui.jobs.queued import queue_job
    from gputui.tui.wait_request import ahead_of, choice_in_line, place_in_line, when_it_starts

    line = waiters(environ) if simulated is None else app_state.box.waiters
    place = place_in_line(request, ahead_of(request, line, app_state), app_state)
    keys = None if request.names is None else request.names.split(",")
    count = request.count or len(keys or ())
    try:
        if simulated is None:
            job_id = queue_job(LaunchRequest(app_state.options, request), count, environ).id
        else:
            # Named devices are all taken, in the order of the box.
            choose = None if keys else choice_in_line(count, request.group or ALL_REDUCE, app_state)
            job_id = simulated.wait_in_line(app_state.options.command, count, keys, choose)
    except (JobError, StartError) as error:
        return str(error), False
    is_now = f"starts {when_it_starts(request, app_state)}" if place is None else f"is {place}"
    return _told(job_id, is_now, app_state), True
