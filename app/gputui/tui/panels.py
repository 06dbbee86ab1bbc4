"""PANELS: the one list of the panels next to and below the device table, and the choice of those with room.

A new panel is one row here: its name (in the settings), its title, and its pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from gputui.inventory.light_dataclasses import frozen
from gputui.tui.app_state import AppState
from gputui.tui.layout import WIDE, Part, Size, side_width
from gputui.tui.process_rows import groups
from gputui.tui.views.device import device_panel
from gputui.tui.views.matrix import Layout, alike, heading_height, legend, links_panel, matrix_rows
from gputui.tui.views.processes import (
    devices_to_come,
    lines_with_heading,
    processes,
)
from gputui.tui.views.text import Line
from gputui.tui.views.timelines import charted, charts_key, timelines_pane

NOTHING = Size(0, 0)
"""The size of a panel that has no content and is not shown."""

_MOST_LINKED = 8
"""The most GPUs for which the matrix of links is shown next to the table. The topology page shows more."""

_RESERVED, _RESERVED_BELOW = 8, 1
"""Most lines that a panel reserves for devices, where there are two columns and where there is one: other
panels need lines."""


_LEAST_OF_DEVICE, _ALL_OF_DEVICE = 7, 30
"""Lines of the panel of one device: its state and a group of facts; all its facts. They are the same for
every device: moving the cursor moves no panel."""


@frozen
class Panel:
    """A region of the main screen.

    name    its name in the settings
    title   its title on the page of settings
    lines   (app state, width, height) → at most `height` lines; the first is a rule with its title
    size    (app state, width of the screen) → the fewest lines worth showing, and the lines that it would
            fill; NOTHING hides it
    facts   (app state, width, height) → all values that the lines depend on: equal facts give equal lines,
            which are not built again; None where the lines are as quickly built
    place   "table": below the table, also where there are two columns, unless a long table leaves no lines
            for a panel that is not `spare`; "side": in the column next to it
    grows   whether it takes the remaining room
    spare   whether it is shown only in lines that no other panel wants
    narrow  whether it is also shown where there is only one column
    action  the action of `tui/actions.py` that a click on it performs, or a function that chooses it
    """

    name: str
    title: str
    lines: Callable[[AppState, int, int], list[Line]]
    size: Callable[[AppState, int], Size]
    facts: Callable[[AppState, int, int], object] | None = None
    place: Literal["table", "side"] = "side"
    grows: bool = False
    spare: bool = False
    narrow: bool = True
    action: str | Callable[[AppState], str] = ""


def _size_of_processes(app_state: AppState, width: int) -> Size:
    if not (app_state.rows or app_state.filter_hides_all):
        return NOTHING
    # Where there is room, there are lines for a second process on a device, too.
    least, kept, reserved = (4, 2, _RESERVED) if width >= WIDE else (2, 0, _RESERVED_BELOW)
    # Reserve a line for each of these devices, so that a process that starts there has one.
    rows = len(app_state.once(groups)) + min(max(kept, devices_to_come(app_state)), reserved)
    return Size(least, max(2 + rows, lines_with_heading(app_state)))


def _jobs(app_state: AppState, width: int, height: int) -> list[Line]:
    # Imported here, as below: not needed without jobs and waiters.
    from gputui.tui.views.jobs_and_queue import panel

    return panel(app_state, width, height)


def _size_of_jobs(app_state: AppState, width: int) -> Size:
    if not (app_state.box.jobs or app_state.box.waiters):
        return NOTHING
    from gputui.tui.views.jobs_and_queue import MOST_LINES, lines_wanted

    # Where there are two columns, its lines are reserved: who comes and goes changes no other panel.
    return Size(2, MOST_LINES if width >= WIDE else lines_wanted(app_state))


def _size_of_timelines(app_state: AppState, _: int) -> Size:
    count = len(app_state.once(charted))
    if not count:
        return NOTHING
    # The rule, the axis, and the headings of charts next to each other. Some of the GPUs are no overview.
    heads = 2 + (count > 1)
    return Size(heads + count, heads + 2 * count, charts=count)


def _size_of_device(app_state: AppState, _: int) -> Size:
    return Size(_LEAST_OF_DEVICE, _ALL_OF_DEVICE) if app_state.rows else NOTHING


def _size_of_links(app_state: AppState, width: int) -> Size:
    gpus = len(matrix_rows(app_state))
    if not app_state.box.links or not 1 < gpus <= _MOST_LINKED or alike(app_state):
        return NOTHING
    side = side_width(width)
    lines = 1 + heading_height(Layout.of(app_state, side, 0, 0)) + gpus
    return Size(lines, lines + len(legend(app_state.box.links, side - 1)))


PANELS: tuple[Panel, ...] = (
    # In the order in which they get room and, first those that grow, stand in their column.
    Panel(
        "processes",
        "Processes",
        processes,
        _size_of_processes,
        place="table",
        grows=True,
        action="processes",
    ),
    Panel(
        "timelines",
        "Timelines",
        timelines_pane,
        _size_of_timelines,
        charts_key,
        place="table",
        grows=True,
        spare=True,
        action="timelines",
    ),
    Panel(
        "device",
        "GPU at cursor",
        device_panel,
        _size_of_device,
        grows=True,
        spare=True,
        narrow=False,
        action="device",
    ),
    Panel(
        "jobs",
        "Jobs and queue",
        _jobs,
        _size_of_jobs,
        action=lambda app_state: "jobs" if app_state.box.jobs else "queue",
    ),
    Panel(
        "links",
        "Links",
        links_panel,
        _size_of_links,
        narrow=False,
        action="topology",
    ),
)

PANELS_BY_NAME: dict[str, Panel] = {panel.name: panel for panel in PANELS}


def parts(app_state: AppState, width: int, before: Mapping[str, int] = MappingProxyType({})) -> list[Part]:
    """The panels that ask for room on a terminal of this width, in their order.

    before  the lines that panels already have: they ask for the same, as nothing may move while the user
            looks at it
    """
    found: list[Part] = []
    for panel in PANELS:
        if panel.name in app_state.screen.hidden or not (panel.narrow or width >= WIDE):
            continue
        size, lines = panel.size(app_state, width), before.get(panel.name)
        if lines is not None and size != NOTHING:
            size = Size(size.least if panel.grows else lines, lines)
        if size != NOTHING:
            spare = panel.spare or not size.wants
            found.append(Part(panel.name, size, panel.place, panel.grows, spare))
    return found
