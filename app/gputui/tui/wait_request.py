"""What is typed after `w`: how many devices, or the selected ones, and whether waiting for them makes sense.

"2" and "any 2" wait for any two devices, "8 tp=2" for eight that work in groups, "these" for those selected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.queue import names_in_line, nth, wanting
from gputui.allocating.shortage import waits_for_ever
from gputui.choosing.grouping import ALL_REDUCE, GroupingError, parse_request
from gputui.choosing.most_ever import most_ever
from gputui.inventory.formatting import devices_text, gpus
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.launching.intent import Asked, ContradictionError, settle
from gputui.tui.app_state import AppState


def read_wait_request(line: str, app_state: AppState) -> DeviceRequest:
    """Raises GroupingError for a line that cannot be waited for, with the reason."""
    first, _, rest = line.strip().lower().partition(" ")
    if first == "these":
        keys = app_state.selection.keys
        if not keys:
            raise GroupingError("no devices are selected: type a number to wait for any")
        if rest.strip() not in ("", str(len(keys))):
            raise GroupingError(f"{devices_text(len(keys))} selected: these, or a number for any")
        request = DeviceRequest(names=",".join(keys), wait=math.inf)
    else:
        try:
            count, grouping = parse_request(rest if first == "any" else line)
        except GroupingError as error:
            raise GroupingError(
                f"{error}.{_or_these(app_state)}" if app_state.selected else str(error)
            ) from None
        group = None if grouping == ALL_REDUCE else grouping
        request = DeviceRequest(count=count, group=group, wait=math.inf)
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
        return f"it is unknown which devices {limits.words} means: select them, then wait for these"
    can = most_ever(app_state.snapshot, app_state.constraints(app_state.snapshot, request.count))
    return waits_for_ever(request.count, can) if request.count > can else None


def wait_prompt(app_state: AppState) -> str:
    """What waiting does, before anything is typed."""
    return (
        "Wait in line: when it is your turn and enough devices are free, the command runs in the background."
        f" How many devices?{_or_these(app_state)}"
    )


def what_it_does(line: str, app_state: AppState) -> str:
    """What Enter does with a line that can be waited for."""
    request = read_wait_request(line, app_state)
    waiters = app_state.snapshot.waiters if app_state.snapshot else ()
    other = _or_these(app_state) if request.names is None else ""
    yes = "⏎ yes: the command then runs in the background."
    if app_state.label:
        yes = f"Nothing is queued here ({app_state.label})."
    return (
        f"{'All busy. ' if app_state.is_full else ''}Wait in line for {_wanted(request.count, app_state)}?"
        f" You would be {place_in_line(request, waiters, app_state.snapshot)}."
        f" {yes}{other}"
    )


def place_in_line(request: DeviceRequest, waiters: Sequence[Waiter], box: Snapshot | None) -> str:
    """ "first in line", "3rd in line, after ana (4 devices), bo (1 device)": behind all of these waiters."""
    keys = request.names.split(",") if request.names is not None else None
    ahead = wanting(waiters, keys, box)
    return f"{nth(len(ahead) + 1)} in line, after {names_in_line(ahead)}" if ahead else "first in line"


def _wanted(count: int | None, app_state: AppState) -> str:
    if count is None:
        return _selected(app_state)
    return f"any {devices_text(count)}" if count > 1 else "any device"


def _selected(app_state: AppState) -> str:
    labels = [app_state.snapshot.label(device) for device in app_state.selected] if app_state.snapshot else []
    return gpus(labels)


def _or_these(app_state: AppState) -> str:
    return f' Type "these" to wait for {_selected(app_state)} only.' if app_state.selected else ""
