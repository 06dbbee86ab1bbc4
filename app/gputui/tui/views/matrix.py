"""The matrix of links: rows and columns in the box's order, with a sign for each class of link."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import SELF, LinkMatrix, direct_links, in_words, is_counted, strength
from gputui.tui.app_state import AppState
from gputui.tui.views.selection import runs
from gputui.tui.views.table import state_of
from gputui.tui.views.text import Line, Span, fit, flow, place_mark, title

SIGNS: dict[str, tuple[str, str]] = {
    "NV": ("▇", "link-nv"),
    "XGMI": ("▆", "link-nv"),
    "PIX": ("▅", "link-near"),
    "PXB": ("▄", "link-near"),
    "PHB": ("▃", "link-host"),
    "NODE": ("▂", "link-node"),
    "SYS": ("▁", "link-sys"),
}
"""The stronger a link, the taller its sign. Where there is room, its word follows the sign."""

_SHORT = {"XL*": "X*", "NODE": "ND"}
"""The two letters of a word, where they are not its first two."""
_WIDE, _NARROW, _TINY = 6, 4, 2
"""Cells per column: sign and word, sign and two letters, the sign alone."""


@frozen
class Layout:
    """The visible part of a matrix: `columns` columns of `cell` cells, starting at column `left`."""

    label: int
    cell: int
    left: int
    columns: int

    @classmethod
    def of(cls, app_state: AppState, width: int, left: int, column: int) -> Layout:
        """The widest form in which all columns fit; signs alone, scrolled to `column`, where none does."""
        rows = matrix_rows(app_state)
        label = max([2, *(len(app_state.box.label(d)) for d in rows)])
        # The cursor, the slot, the label; after the cells the state's sign.
        room = width - (7 + label) - 3
        # In a box of several vendors, the names of columns are wider than their cells.
        widest = max(_WIDE, label + 1)
        cell = next((c for c in (widest, _WIDE, _NARROW, _TINY) if c * len(rows) <= room), _TINY)
        columns = max(1, min(len(rows), room // cell))
        left = min(max(left, column - columns + 1), column, len(rows) - columns)
        return cls(label, cell, max(0, left), columns)


def matrix_rows(app_state: AppState) -> tuple[Device, ...]:
    """The devices of the matrix: those with known links, in the box's order."""
    return app_state.box.numbered


def matrix(app_state: AppState, layout: Layout, top: int, rows: int, column: int | None) -> list[Line]:
    """The names of the columns, and `rows` rows starting at `top`; `column` is the column of the cursor."""
    devices = matrix_rows(app_state)
    shown = range(top, min(top + rows, len(devices)))
    return [
        *_heading(app_state, layout, devices, column),
        *(_row(app_state, layout, devices, place, column) for place in shown),
    ]


def heading_height(layout: Layout) -> int:
    """Lines for the names of the columns: if columns are one sign wide, the tens are above the units."""
    return 2 if layout.cell == _TINY else 1


def alike(app_state: AppState) -> str | None:
    """The link between every two devices, None where they differ or are not known."""
    devices = matrix_rows(app_state)
    links = {app_state.box.link(one, other) for place, one in enumerate(devices) for other in devices[:place]}
    return next(iter(links)) if len(links) == 1 else None


def links_panel(app_state: AppState, width: int, height: int) -> list[Line]:
    """The whole matrix under its own rule, without a cursor, above the meaning of its signs."""
    layout = Layout.of(app_state, width, 0, 0)
    drawn = matrix(app_state, layout, 0, len(matrix_rows(app_state)), None)
    return [title("links", width, "t"), *drawn, *legend(app_state.box.links, width - 1)][:height]


def alike_words(app_state: AppState) -> str:
    """The one link between all devices, the NUMA nodes and the network devices of the GPUs, with two spaces
    between these parts; "" where links differ or are not known."""
    word, rows = alike(app_state), matrix_rows(app_state)
    if word is None:
        return ""
    which = f"all {len(rows)} GPUs" if len(rows) > 2 else "the two GPUs"
    return "  ".join([f"{word} between {which}: {in_words(word)}", *near(app_state)])


def near(app_state: AppState) -> Iterator[str]:
    """The known neighbours of GPUs: "NUMA 0: GPU 0–3, NUMA 1: GPU 4–7", then each network device with its
    nearest GPUs, "mlx5_0: PIX GPU 0"."""
    rows, snapshot = matrix_rows(app_state), app_state.box
    of_node: dict[int, list[Device]] = {}
    for device in rows:
        if device.numa_node is not None:
            of_node.setdefault(device.numa_node, []).append(device)
    if of_node:
        yield ", ".join(f"NUMA {node}: GPU {runs(app_state, of_node[node])}" for node in sorted(of_node))
    if snapshot.topology is None:
        return
    nearest = list(SIGNS)
    places = [(device, snapshot.position[device.key]) for device in rows]
    for column, nic in enumerate(snapshot.topology.nics):
        links = {
            device.key: link
            for device, row in places
            if (link := snapshot.topology.nic_links[row][column]) in nearest
        }
        if links:
            best = min(links.values(), key=nearest.index)
            near = [device for device in rows if links.get(device.key) == best]
            which = f"GPU {runs(app_state, near)}" if len(near) < len(rows) else "every GPU"
            yield f"{printable(nic.name)}: {best} {which}"


def _heading(
    app_state: AppState, layout: Layout, devices: tuple[Device, ...], column: int | None
) -> Iterator[Line]:
    height, room = heading_height(layout), layout.cell - 1
    for line in range(height):
        spans: list[Span] = [(" " * (7 + layout.label), "")]
        for place in range(layout.left, layout.left + layout.columns):
            device = devices[place]
            name = app_state.box.label(device)
            if ":" in name and len(name) > room > 1:
                vendor, _, number = name.partition(":")
                name = f"{vendor[: max(1, room - len(number) - 1)]}:{number}"
            shown = name if height == 1 else f"{name:>2}"[-2:][line]
            style = "here" if place == column else "prompt" if device.key in app_state.selection else "dim"
            spans += [(fit(shown, room), style), (" ", "")]
        yield tuple(spans)


def _row(
    app_state: AppState, layout: Layout, rows: tuple[Device, ...], place: int, column: int | None
) -> Line:
    snapshot, device = app_state.box, rows[place]
    rank, lit = app_state.selection.rank(device.key), device.key == app_state.cursor
    spans: list[Span] = [
        ("▸" if lit else " ", "cursor"),
        *place_mark(rank),
        (fit(snapshot.label(device), layout.label, right=True) + " ", "strong" if rank is not None else ""),
    ]
    for other in range(layout.left, layout.left + layout.columns):
        text, style = _cell(snapshot.link(device, rows[other]), layout.cell)
        if rank is not None and rows[other].key in app_state.selection and style != "dim":
            style += "-on"
        # If the signs fill their cells, only the gaps can be lit.
        gap = style if style.endswith("-on") and layout.cell == _TINY else ""
        if lit and other == column:
            # A sign in reverse would be a block of the background's colour.
            sign_width = 1 if layout.cell > _TINY else 0
            spans += [(text[:sign_width], style), (text[sign_width:], "here"), (" ", gap)]
        else:
            spans += [(text, style), (" ", gap)]
    mark, _, look = state_of(app_state, device)
    spans.append((f" {mark}", look))
    return tuple(spans)


def _cell(word: str | None, cell: int) -> Span:
    """A link in `cell` - 1 cells, and its style."""
    room = cell - 1
    if word == SELF:
        return fit("╲", room), "dim"
    if word is None:
        return fit(UNKNOWN, room), "dim"
    count = direct_links(word) if is_counted(word) else 0
    mark, style = sign(word)
    if room == 1:
        return mark, style
    if room < _WIDE - 1:
        return fit(mark + (str(count) if count else _SHORT.get(word, word[:2])), room), style
    return fit(mark + word, room), style


def legend(links: LinkMatrix, width: int) -> list[Line]:
    """The links of the box in plain words, the strongest first, in as many lines as they need."""
    words = {word for row in links for word in row if word and word != SELF}
    entries: list[Line] = [
        ((sign(word)[0] + word, sign(word)[1]), (f" {in_words(word)}", "dim"))
        for word in sorted(words, key=strength, reverse=True)
    ]
    return flow(entries, width)


def sign(word: str) -> Span:
    """The sign of a link, and its style."""
    return SIGNS[word if word in SIGNS else "NV"]
