"""The topology on the whole screen: the matrix of links, or the tree of what hangs where, to choose from.

It shows the app state of the main screen below and changes it by the main screen's own actions, so that
nothing can be done here that cannot be done there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from textual import events
from textual.binding import Binding

from gputui.choosing.bandwidth import bandwidth
from gputui.choosing.links import numa_nodes, weakest, weakest_ring
from gputui.inventory.device import Device
from gputui.inventory.link import direct_links
from gputui.tui.actions import ACTIONS
from gputui.tui.app_state import AppState
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.matrix import Layout, heading_height, legend, matrix, matrix_rows
from gputui.tui.views.selection import at_least, runs
from gputui.tui.views.text import Line, clip, title
from gputui.tui.views.topology_tree import hangs
from gputui.tui.widgets.lines import LinkLines

_OWN = ("topology", "down", "up", "first", "last", "palette", "stop", "quit")
"""Actions of the main screen that have no place here, or whose keys do the like. All others work here."""


class TopologyScreen(PartsScreen):
    """`app_state` is asked for the app state of the screen below; `act` does one of its actions."""

    SURFACE = LinkLines
    BINDINGS = [
        ("escape,q,t", "dismiss", "Back"),
        ("tab", "other_form", "Matrix or tree"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("right", "column(1)", "Right"),
        ("left", "column(-1)", "Left"),
        ("home,g", "cursor(-1000)", "First"),
        ("end,G", "cursor(1000)", "Last"),
        *(
            Binding(action.keys, f"main('{action.call}')", action.title)
            for action in ACTIONS
            if action.id not in _OWN
        ),
        *(Binding(str(n), f"main('number({n})')", show=False) for n in range(10)),
    ]

    def __init__(
        self,
        app_state: Callable[[], AppState],
        show: Callable[[AppState], None],
        act: Callable[[str], Awaitable[object]],
        told: Callable[[], str],
    ) -> None:
        super().__init__()
        self._app_state, self._show, self._act, self._told = app_state, show, act, told
        self._as_tree = False
        self._column = 0
        self._left = self._top = 0
        self._above = 2
        self._past = 0
        self._keys: list[str | None] = []

    # What is painted

    def draw(self) -> None:
        """Show the app state as it is now."""
        app_state, width = self._app_state(), self.size.width
        if not width:
            return
        if not self._as_tree and app_state.current is not None and app_state.current.parent:
            # Instances have no links: the matrix has their GPU.
            self._show(replace(app_state, cursor=app_state.current.parent))
            app_state = self._app_state()
        told = self._account(app_state, width)
        form = self._tree if self._as_tree else self._matrix
        self.paint(lambda w, h: form(app_state, w, h), told)

    def _matrix(self, app_state: AppState, width: int, height: int) -> list[Line]:
        rows = matrix_rows(app_state)
        if not rows or app_state.snapshot is None or not app_state.snapshot.links:
            head = title("topology", width, "tab: tree")
            return [head, (("  the links have not been read yet" if rows else "  no devices", "dim"),)]
        self._column = min(self._column, len(rows) - 1)
        layout = Layout.of(app_state, width, self._left, self._column)
        self._left = layout.left
        place = next((i for i, device in enumerate(rows) if device.key == app_state.cursor), 0)
        self._above = 1 + heading_height(layout)
        room = max(1, height - self._above)
        self._top = window(self._top, place, room, len(rows))
        self._keys = [device.key for device in rows[self._top : self._top + room]]
        self.picture.lit = place - self._top + self._above
        parts = [
            f"{name} {first + 1}–{first + many} of {len(rows)}"
            for name, first, many in (("rows", self._top, room), ("columns", layout.left, layout.columns))
            if many < len(rows)
        ]
        head = title("topology", width, "  ".join([*parts, "tab: tree"]))
        return [head, *matrix(app_state, layout, self._top, room, self._column)]

    def _tree(self, app_state: AppState, width: int, height: int) -> list[Line]:
        drawn, keys = hangs(app_state, width)
        head = title("topology", width, "tab: matrix")
        if not drawn:
            return [head, (("  the links have not been read yet", "dim"),)]
        place = next((i for i, key in enumerate(keys) if key == app_state.cursor), 0)
        self._above = 1
        room = max(1, height - 1)
        # The branch that the first device hangs under is worth seeing too.
        least = 0 if not any(keys[:place]) else place
        self._top = min(max(self._top, place - room + 1), least, max(0, len(drawn) - room))
        top = self._top
        if _last_device(keys) == place:
            # Below the last device there may be network devices, and the NVLinks.
            self._past = min(self._past, max(0, len(drawn) - room - top))
            top += self._past
        self._keys = keys[top : top + room]
        self.picture.lit = place - top + 1 if place >= top else None
        return [head, *drawn[top : top + room]]

    def _account(self, app_state: AppState, width: int) -> list[Line]:
        """What is looked at, what is chosen, what the signs mean, and the keys or a message."""
        lines: list[Line] = [title("chosen", width), clip(self._chosen(app_state), width)]
        if not self._as_tree:
            lines = [clip(self._pair(app_state), width), *lines, clip(legend(width), width)]
        message = self._told()
        form = "tab matrix" if self._as_tree else "←→ pair  tab tree"
        keys = f" esc back  space select  J/K reorder  b B n best  o order  {form}"
        if app_state.permuted:
            lines.append(clip(((f" ! {app_state.permuted}", "warn"),), width))
        lines.append(clip(((" ▌ ", "key"), (message, "")) if message else ((keys, "dim"),), width))
        return lines

    def _pair(self, app_state: AppState) -> Line:
        """The pair under the cursor, in words."""
        rows, one = matrix_rows(app_state), app_state.current
        if (
            app_state.snapshot is None
            or one is None
            or one.parent
            or not rows
            or not app_state.snapshot.links
        ):
            return (("", ""),)
        other = rows[min(self._column, len(rows) - 1)]
        names = f" GPU {app_state.snapshot.label(one)} – GPU {app_state.snapshot.label(other)}  "
        if one.key == other.key:
            return ((names, "strong"), ("the device itself", "dim"))
        return ((names, "strong"), (_words(app_state, one, other), ""))

    def _chosen(self, app_state: AppState) -> Line:
        snapshot, chosen = app_state.snapshot, app_state.chosen
        if snapshot is None or not chosen:
            return ((" nothing yet: space or 0-9 chooses, b takes the best free one", "dim"),)
        text = f" {app_state.vendor.device(0)}{f'…{len(chosen) - 1}' if len(chosen) > 1 else ''} = GPU "
        text += runs(app_state, chosen)
        if len(chosen) > 1:
            ring, overall = weakest_ring(snapshot, chosen), weakest(snapshot, chosen)
            text += f"   weakest link {overall or 'unknown'}"
            text += f" ({_weakest_pair(app_state, overall)})" if overall and len(chosen) > 2 else ""
            text += f", {at_least(app_state)}{ring} around a ring" if ring != overall else ""
        nodes = numa_nodes(chosen)
        return ((text, "strong"), (f"   NUMA {','.join(map(str, nodes))}" if nodes else "", "dim"))

    # What keys do

    def action_other_form(self) -> None:
        self._as_tree, self._top = not self._as_tree, 0
        self.draw()

    def action_column(self, by: int) -> None:
        self._column = min(max(0, self._column + by), max(0, len(matrix_rows(self._app_state())) - 1))
        self.draw()

    def action_cursor(self, by: int) -> None:
        app_state = self._app_state()
        if self._as_tree:
            order = [key for key in hangs(app_state, self.size.width)[1] if key is not None]
        else:
            order = [device.key for device in matrix_rows(app_state)]
        if order:
            place = order.index(app_state.cursor) if app_state.cursor in order else 0
            self._past = self._past + by if place == len(order) - 1 and by > 0 else 0
            self._show(replace(app_state, cursor=order[min(max(place + by, 0), len(order) - 1)]))
        self.draw()

    async def action_main(self, call: str) -> None:
        """One of the main screen's own actions."""
        await self._act(call)
        self.draw()

    async def on_click(self, event: events.Click) -> None:
        if event.widget is self.picture and 0 <= event.y - self._above < len(self._keys):
            key = self._keys[event.y - self._above]
            if key is not None:
                self._show(replace(self._app_state(), cursor=key))
                await self._act("select")
                self.draw()


def _last_device(keys: list[str | None]) -> int:
    """The place of the last device among drawn lines."""
    return max((place for place, key in enumerate(keys) if key is not None), default=0)


def _words(app_state: AppState, one: Device, other: Device) -> str:
    assert app_state.snapshot is not None
    snapshot = app_state.snapshot
    link, pcie, access = (ask(one, other) for ask in (snapshot.link, snapshot.pcie_class, snapshot.peer))
    if link is None:
        return "not known"
    carries = bandwidth(snapshot, one, other)
    parts = [link]
    found = app_state.measured.get((one.key, other.key))
    if found is not None:
        parts.append(f"{found:.1f} GB/s measured")
    if carries is not None:
        parts.append(f"{carries:g} GB/s modelled")
    if direct_links(link) and pcie:
        parts.append(f"{pcie} by PCIe")
    if access is not None:
        parts.append("peer access" if access == "OK" else f"no peer access ({access})")
    return "  ".join(parts)


def _weakest_pair(app_state: AppState, word: str) -> str:
    """The first two of the chosen that are joined no better."""
    assert app_state.snapshot is not None
    snapshot, chosen = app_state.snapshot, app_state.chosen
    pair = next((a, b) for i, a in enumerate(chosen) for b in chosen[i + 1 :] if snapshot.link(a, b) == word)
    return "━".join(snapshot.label(device) for device in pair)
