"""What `w` waits for, and whether waiting for it makes sense.

Where nothing is typed: as many as the user has just asked for in vain; else the selected devices; else as
many as the command asks for.
"2" waits for any two devices, "8 tp=2" for eight that work in groups.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.queue import names_in_line, wanting
from gputui.allocating.shortage import waits_for_ever
from gputui.choosing.capacity import most_ever
from gputui.choosing.grouping import ALL_REDUCE, Grouping, GroupingError, parse_request
from gputui.choosing.pick import pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.formatting import devices_text, gpus, nth
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter, Waiters
from gputui.launching.intent import Asked, ContradictionError, settle
from gputui.sources.simulated.spec import Choose
from gputui.tui.app_state import AppState


def read_wait_request(line: str, app_state: AppState) -> DeviceRequest:
    """Raises GroupingError for a line that cannot be waited for, with the reason."""
    keys = app_state.selection.keys
    if line.strip():
        count, grouping = parse_request(line)
        group = None if grouping == ALL_REDUCE else grouping
        request = DeviceRequest(count=count, group=group, wait=math.inf)
    elif keys and app_state.short_of is None:
        request = DeviceRequest(names=",".join(keys), wait=math.inf)
    else:
        says = app_state.intent.count
        request = DeviceRequest(count=app_state.short_of or (says.number if says else 1), wait=math.inf)
    problem = _in_vain(request, app_state)
    if problem is not None:
        raise GroupingError(problem)
    return request


def _in_vain(request: DeviceRequest, app_state: AppState) -> str | None:
    """Why the job would be refused, or wait for ever; None where it would not."""
    if app_state.snapshot is None:
        return "no reading yet"
    try:
        settle(Asked(request.count, request.names, request.group), app_state.intent)
    except ContradictionError as error:
        return str(error)
    if request.count is None:
        return None
    limits = app_state.limits
    if limits and limits.unknown:
        return f"it is unknown which GPUs {limits.words} means: select them, then wait for these"
    can = most_ever(app_state.snapshot, app_state.constraints(app_state.snapshot, request.count))
    return waits_for_ever(request.count, can) if request.count > can else None


def what_it_does(line: str, app_state: AppState) -> str:
    """The question that Enter answers with yes. Raises GroupingError as `read_wait_request` does."""
    request = read_wait_request(line, app_state)
    ahead, count = ahead_of(request, app_state.box.waiters, app_state), request.count
    place = place_in_line(request, ahead, app_state)
    named = app_state.selected_in_words
    job = "as a job" if app_state.demo is None else "as a job (the demo only rehearses it)"
    if place is None:
        return f"Run {job}? It starts {when_it_starts(request, app_state)}."
    wanted = named if count is None else devices_text(count)
    # A number that was asked for in vain leaves the selection as it was.
    other = count is not None and app_state.selected and not line.strip()
    instead = f", not only for the selected {named}" if other else ""
    behind = f", behind {names_in_line(ahead)}" if ahead else ""
    return f"Wait for {wanted}{instead}, {job}? You are {place}{behind}."


def when_it_starts(request: DeviceRequest, app_state: AppState) -> str:
    """ "when GPU 7 has been free for 10 s": a job watches free devices itself before it takes them, whatever
    the screen has seen before; a rehearsed one starts "now on GPU 7"."""
    count, window = request.count, app_state.rules.window
    labels = [*map(app_state.box.label, app_state.selected)]
    one = (count or len(labels)) == 1
    if app_state.demo is not None or not window:
        on = gpus(labels) if count is None else "a free GPU" if one else f"{count} free GPUs"
        return f"now on {on}"
    free = gpus(labels) if count is None else "a GPU" if one else devices_text(count)
    return f"when {free} {'has' if one else 'have'} been free for {window:g} s"


def ahead_of(request: DeviceRequest, waiters: Sequence[Waiter], app_state: AppState) -> Waiters:
    """The waiters that a request has to wait for."""
    return wanting(waiters, request.names.split(",") if request.names else None, app_state.snapshot)


def place_in_line(request: DeviceRequest, ahead: Sequence[Waiter], app_state: AppState) -> str | None:
    """ "first in line", "3rd in line", behind these waiters. None where nobody is ahead and the devices are
    free: nothing is waited for."""
    if ahead:
        return f"{nth(len(ahead) + 1)} in line"
    if request.count is None:
        free = all(app_state.verdicts[key].free for key in (request.names or "").split(","))
    else:
        free = app_state.clear().select_best(request.count, request.group or ALL_REDUCE)[0].short_of is None
    return None if free else "first in line"


def choice_in_line(count: int, group: Grouping, app_state: AppState) -> Choose:
    """Which of the devices with these keys a request in line takes, as the queue of a real box does."""

    def choose(snapshot: Snapshot, among: Collection[str]) -> list[str]:
        constraints = replace(app_state.constraints(snapshot, count), grouping=group)
        if constraints.within is not None:
            among = {key for key in among if key in constraints.within}
        # Not the verdicts of the screen: what it has seen until now says nothing of a later moment.
        found = pick(snapshot, verdicts(snapshot, app_state.rules), replace(constraints, within=among))
        return [device.key for device in found.devices]

    return choose
