"""TopologyScreen: the matrix of links, or the tree, to select devices from.

It changes the app state of the main screen only by the main screen's own actions, so that nothing is possible
here that is impossible there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from textual import events
from textual.binding import Binding

from gputui.choosing.bandwidth import bandwidth
from gputui.inventory.columns import Column
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, number
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.link import direct_links
from gputui.inventory.topology import ranges
from gputui.tui.actions import ACTIONS, BY_ID
from gputui.tui.app_state import AppState
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, hidden, shown
from gputui.tui.views.columns import STATE
from gputui.tui.views.matrix import Layout, heading_height, legend, matrix, matrix_rows, near
from gputui.tui.views.selection import selection_lines
from gputui.tui.views.table import state_of, why_no_rows
from gputui.tui.views.text import (
    Line,
    cells_of,
    clip,
    padded,
    shorten,
    table_lines,
    title,
    told_lines,
    width_of,
)
from gputui.tui.views.topology_tree import tree_lines

_NO_PLACE = ("down", "up", "first", "last", "sort", "filter")
"""Actions of the main screen that make no sense here, or whose keys already have that effect here."""

_KEYS = {"other": "B", "ask": "n", "order": "o", "clear": "x"}
"""Keys of this page for actions that have none on the main screen."""

_LEAST_STATE = 12
"""Cells in which the words of a state say more than its sign, which the matrix has in any case."""

_NOTES_FROM, _NOTE_FROM = 13, 8
"""Lines from which a page has all notes below the matrix, and from which only the selection."""


def _main_binding(action_id: str, key_display: str = "") -> Binding:
    """The binding on this page for an action of the main screen."""
    action, keys = BY_ID[action_id], _KEYS.get(action_id, BY_ID[action_id].keys)
    return shown(keys, f"perform('{action_id}')", action.hint, key_display, action.title)


class TopologyScreen(ListPage):
    """The cursor is the main screen's; the matrix has its own column cursor in addition."""

    BINDINGS = [
        shown("tab", "show_tree", "tree", about="Show the tree of NUMA nodes, switches and GPUs"),
        shown("tab", "show_matrix", "matrix", about="Show the matrix again"),
        _main_binding("select"),
        _main_binding("later", "J/K"),
        _main_binding("best"),
        shown("right", "column(1)", "pair", "←→", "Next column: the pair is described below"),
        hidden("left", "column(-1)", "Previous column"),
        *map(_main_binding, _KEYS),
        *(hidden(str(n), f"number({n})", "Select the GPU of that number") for n in range(10)),
    ]

    OF_ITEM = frozenset({"cursor", "column", "number", "perform", "show_matrix", "show_tree"})
    HERE = frozenset(a.id for a in ACTIONS if not a.page and a.id not in _NO_PLACE)

    def __init__(self, view: MainView) -> None:
        super().__init__(view)
        self._as_tree = False
        self._column = 0
        self._left = 0
        self._matrix_lines = 0
        """The lines of the matrix with the pair at the cursor and the meaning of its signs."""
        self._past = 0
        """How many lines the cursor has moved down beyond the last device of the tree."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        other = ("show_tree", "column") if self._as_tree else ("show_matrix",)
        return action not in other and super().check_action(action, parameters)

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        """The keys of the devices, in the order of the matrix or of the tree."""
        app_state = self.app_state
        if self._as_tree:
            return [key for key in tree_lines(app_state, self.size.width)[1] if key is not None]
        return [device.key for device in matrix_rows(app_state)]

    def follow(self) -> None:
        app_state = self.app_state
        if not self._as_tree and app_state.current is not None and app_state.current.parent:
            # Instances have no links: the matrix has their GPU.
            self.view.set_app_state(replace(app_state, cursor=app_state.current.parent))
        self.key = self.app_state.cursor
        self.cursor = 0
        super().follow()

    def lines(self, width: int, height: int) -> list[Line]:
        return (self._tree if self._as_tree else self._matrix)(self.app_state, width, height)

    def _matrix(self, app_state: AppState, width: int, height: int) -> list[Line]:
        rows = matrix_rows(app_state)
        if not app_state.box.links:
            return [title("topology", width), *self._nothing(width)]
        self._column = min(self._column, len(rows) - 1)
        layout = Layout.of(app_state, width, self._left, self._column)
        self._left = layout.left
        above = 1 + heading_height(layout)
        if height <= above:
            return [clip(((" too small: needs 60×15", "warn"),), width)]
        room = max(1, height - above)
        drawn = matrix(app_state, layout, 0, len(rows), self._column)
        left = width - width_of(drawn[-1])
        for beside in _facts_of_rows(app_state, rows, left):
            if max(map(width_of, beside)) <= left or (len(beside[0]) <= 2 and left >= _LEAST_STATE):
                drawn[above - 2 :] = [
                    (*padded(line, width_of(drawn[-1])), *clip(facts, left))
                    for line, facts in zip(drawn[above - 2 :], beside, strict=True)
                ]
                break
        heading, drawn = drawn[: above - 1], drawn[above - 1 :]
        visible = self.window(drawn, range(len(rows)), room, above)
        parts = [
            f"{name} {first + 1}–{first + many} of {len(rows)}"
            for name, first, many in (("rows", self.top, room), ("columns", layout.left, layout.columns))
            if many < len(rows)
        ]
        left = room - len(visible)
        # The pair at the cursor and the meaning of the signs are below them, and the tree too where there is
        # room for all of it.
        beneath = [(), clip(self._pair(app_state), width), (), *legend(app_state.box.links, width)]
        self._matrix_lines = above + len(rows) + len(beneath)
        if left < len(beneath):
            return [title("topology", width, *parts), *heading, *visible]
        tree = [(), *tree_lines(app_state, width)[0]]
        facts = [(), *told_lines("; ".join(near(app_state)), "dim", width)]
        below = [*beneath, *(tree if left >= len(beneath) + len(tree) else facts)]
        return [title("topology", width, *parts), *heading, *visible, *below[:left]]

    def _nothing(self, width: int) -> list[Line]:
        app_state = self.app_state
        why = "the links have not been read yet" if app_state.box.devices else why_no_rows(app_state)
        return told_lines(why, "dim", width)

    def _tree(self, app_state: AppState, width: int, height: int) -> list[Line]:
        drawn, keys = tree_lines(app_state, width)
        head = title("topology", width)
        if not drawn:
            return [head, *self._nothing(width)]
        place = next((i for i, key in enumerate(keys) if key == app_state.cursor), 0)
        room = max(1, height - 1)
        # The branch above the first device is worth showing too.
        least = 0 if not any(keys[:place]) else place
        self.top = min(max(self.top, place - room + 1), least, max(0, len(drawn) - room))
        top = self.top
        if not any(keys[place + 1 :]):
            # Network devices and the NVLinks may follow the last device.
            self._past = min(self._past, max(0, len(drawn) - room - top))
            top += self._past
        numbers = iter(range(len(drawn)))
        items = [None if key is None else next(numbers) for key in keys]
        self.lay_out(items[top : top + room], above=1)
        return [head, *drawn[top : top + room]]

    def notes(self, width: int) -> list[Line]:
        """The selection; the pair at the cursor and the meaning of the signs, where the matrix leaves them no
        room."""
        app_state = self.app_state
        notes = selection_lines(app_state, width)
        if self.size.height < _NOTES_FROM:
            return notes[1:] if self.size.height >= _NOTE_FROM else []
        if app_state.order_warning:
            notes.append(clip(((f" ! {app_state.order_warning}", "warn"),), width))
        # (The height of the body still changes when these notes are shown.)
        if not self._as_tree and self._matrix_lines + len(notes) + 2 > self.size.height:
            notes = [clip(self._pair(app_state), width), *notes, *legend(app_state.box.links, width)[:1]]
        return notes

    def _pair(self, app_state: AppState) -> Line:
        """The pair under the cursor, in words."""
        rows, one = matrix_rows(app_state), app_state.current
        if one is None or one.parent or not app_state.box.links:
            return (("", ""),)
        other = rows[min(self._column, len(rows) - 1)]
        name = f" GPU {app_state.box.label(one)}"
        if one.key == other.key:
            return ((name, "strong"), ("  ← → show its links to the others", "dim"))
        names = f"{name} – GPU {app_state.box.label(other)}  "
        return ((names, "strong"), (_link_facts(app_state, one, other), ""))

    # Key actions

    def action_show_tree(self) -> None:
        self._as_tree, self.top = True, 0
        self.draw()

    def action_show_matrix(self) -> None:
        self._as_tree, self.top = False, 0
        self.draw()

    def action_column(self, by: int) -> None:
        last = max(0, len(matrix_rows(self.app_state)) - 1)
        self._column = min(max(0, self._column + by), last)
        self.draw()

    def action_cursor(self, by: int) -> None:
        self.follow()
        last = self.cursor == len(self.item_keys()) - 1
        self._past = self._past + by if last and by > 0 else 0
        self.go_to(self.cursor + by)

    def go_to(self, place: int) -> None:
        keys = [str(key) for key in self.item_keys()]
        if keys:
            cursor = keys[min(max(0, place), len(keys) - 1)]
            self.view.set_app_state(replace(self.app_state, cursor=cursor))
        self.draw()

    def on_key(self, event: events.Key) -> None:
        # Textual calls the handler of the base class, too.
        if event.key == "escape" and self.view.forget_digits():
            event.stop()
            self.draw()

    def action_number(self, index: int) -> None:
        self.view.press_digit(index)
        self.draw()

    def clicked(self, place: int) -> None:
        self.go_to(place)
        self.action_perform("select")


def _facts_of_rows(app_state: AppState, rows: Sequence[Device], room: int) -> Iterator[list[Line]]:
    """What is beside the rows of the matrix, as in `nvidia-smi topo -m`, after the state: all of it, then
    without the last facts. A state that is too long for `room` cells loses whole words."""
    topology, position = app_state.box.topology, app_state.box.position

    def cpus(device: Device) -> str:
        near = topology.localities[position[device.key]].cpus if topology else None
        return ranges(near) if near else UNKNOWN

    def state(device: Device) -> str:
        text = state_of(app_state, device)[1]
        return text if cells_of(text) < room - 1 else shorten(text.partition(",")[0], room - 2)

    def look(device: Device) -> str:
        return state_of(app_state, device)[2]

    columns = [
        Column("STATE", state, look, least=STATE, most=STATE),
        Column("NUMA", lambda device: number(device.numa_node), "dim", right=True, optional=True),
        Column("CPU AFFINITY", cpus, "dim", optional=True),
    ]
    for count in range(len(columns), 0, -1):
        yield table_lines(columns[:count], rows, heading=True)


def _link_facts(app_state: AppState, one: Device, other: Device) -> str:
    snapshot = app_state.box
    link, pcie, access = (ask(one, other) for ask in (snapshot.link, snapshot.pcie_class, snapshot.peer))
    if link is None:
        return "unknown"
    carries = bandwidth(snapshot, one, other)
    parts = [link]
    found = app_state.measured.get((one.key, other.key))
    if found is not None:
        parts.append(f"{found:.1f} GB/s measured")
    if carries is not None:
        parts.append(f"about {carries:.0f} GB/s")
    if direct_links(link) and pcie:
        parts.append(f"{pcie} by PCIe")
    if access is not None:
        parts.append("peer access" if access == "OK" else f"no peer access ({access})")
    return "  ".join(parts)
