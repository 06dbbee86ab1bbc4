"""NodesScreen: the machines beside this one, boxes over ssh and the places of a Slurm cluster, in one list.

It starts the command on one of them. The kind of a row (`controllers/nodes.py`) decides what it can do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count
from typing import Any

from textual.actions import parse
from textual.binding import Binding

from gputui.tui.controllers.box_nodes import BoxNodes
from gputui.tui.controllers.nodes import Nodes
from gputui.tui.main_view import MainView
from gputui.tui.screens.box_jobs import BoxJobsScreen
from gputui.tui.screens.page import FILTER, ListPage, hidden, shown, worded
from gputui.tui.views.nodes import NO_BOXES, Row, headline, node_rows
from gputui.tui.views.text import ItemLines, Line, clip, told_lines

_ENTER = "Box: its devices, or connect. Device: as r. Slurm: srun or sbatch"
_SPACE = "Box: expand or collapse. Device: select or deselect"
_NUMBER = "Box: select its GPU of that number. Slurm: so many devices"
_RUN = "Run the command there, watch it in this terminal, and come back"
_ANSWERS_SEEN_WITHIN = 0.2
"""Seconds until the first answer of a box is shown; later answers are shown every second."""
_OTHER_LINES = 3
"""The rule at the top, the message and the keys."""


def _of_kind(keys: str, action: str, about: str, hint: str = "", key_display: str = "") -> Binding:
    """A binding for an action that some kinds of nodes have; the last line names it where `hint` is given."""
    name, _, argument = action.partition(" ")
    call = f"do('{name}'{f', {argument}' if argument else ''})"
    return shown(keys, call, hint, key_display, about) if hint else hidden(keys, call, about)


class NodesScreen(ListPage):
    """The connections to boxes open with the page and close with it; a selection there ends with it, too."""

    BINDINGS = [
        FILTER,
        _of_kind("enter", "unfold", _ENTER, "devices", "⏎"),
        _of_kind("enter", "connect", _ENTER, "connect", "⏎"),
        _of_kind("enter", "run", _ENTER, "run", "⏎"),
        _of_kind("space", "select", _SPACE, "select"),
        _of_kind("space", "fold", _SPACE),
        _of_kind("right", "right", "Box: expand. Slurm: one device more"),
        _of_kind("left", "left", "Box: collapse. Slurm: one device fewer"),
        *(
            _of_kind(str(n), f"number {n}", _NUMBER, "devices" if n == 1 else "", "1-9 + -")
            for n in range(10)
        ),
        _of_kind("plus,equals_sign", "more", "Slurm: one device more"),
        _of_kind("minus", "fewer", "Slurm: one device fewer"),
        _of_kind("tab", "form", "Slurm: the line for srun, or for sbatch", "srun/sbatch"),
        _of_kind(
            "b", "best", "Select the best devices of the box: one, pressed again two, and so on", "best"
        ),
        _of_kind("r", "return", _RUN, "run & return"),
        _of_kind("d", "detach", "Run the command there as a job, in Slurm by sbatch", "detach"),
        _of_kind("y", "copy", "Copy the line that r or d starts", "copy"),
        worded(
            "ssh", "do('ssh')", "asks here", "Let ssh ask for a password or host key here, and connect", True
        ),
        shown("D", "jobs", "jobs", about="The jobs of these boxes: their logs; stop one"),
        _of_kind("o", "order", "Slurm: the order of the devices that it selects", "order"),
        _of_kind("B", "other", "Select the next best set of the box"),
        _of_kind("n", "ask", "Select the best N devices of the box"),
        _of_kind("J", "later", "Move the selected device later in the order"),
        _of_kind("K", "earlier", "Move the selected device earlier in the order"),
        _of_kind("x", "clear", "Clear the selection"),
        shown("e", "perform('edit')", "command", about="Edit the command"),
        hidden("l", "perform('launcher')", "Change the launcher"),
    ]

    def __init__(self, view: MainView, kinds: Sequence[Nodes[Any]]) -> None:
        super().__init__(view)
        self.kinds = kinds
        self._awaited: int | None = None
        """How many nodes had not answered when the page was last drawn for that; None before."""
        self._rows: list[Row] = []
        self._kind_of: dict[Hashable, Nodes[Any]] = {}

    def on_mount(self) -> None:
        # Textual calls the handler of each class: `Page` starts the page's timer.
        for kind in self.kinds:
            kind.begin()
        self._answers = self.set_interval(_ANSWERS_SEEN_WITHIN, self._show_answers)

    def _show_answers(self) -> None:
        before, self._awaited = self._awaited, sum(kind.awaited for kind in self.kinds)
        if self._awaited != before:
            self.draw()
        if not self._awaited:
            self._answers.stop()

    def on_unmount(self) -> None:
        for kind in self.kinds:
            kind.end()

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        nodes, self._kind_of = [], {}
        for kind in self.kinds:
            found = kind.nodes()
            nodes += found
            for node in found:
                self._kind_of |= dict.fromkeys((node.key, *(row.key for row in node.below)), kind)
            if kind.moved_to is not None:
                self.key, kind.moved_to = kind.moved_to, None
        self._rows = node_rows(nodes)
        return [row.key for row in self._rows if row.key is not None]

    def _set_cursor(self, place: int, keys: Sequence[Hashable]) -> None:
        super()._set_cursor(place, keys)
        for kind in self.kinds:
            kind.key = self.key if kind is self._kind else None

    @property
    def _kind(self) -> Nodes[Any] | None:
        """The kind of the node at the cursor."""
        return self._kind_of.get(self.key) if self.key is not None else None

    def listing(self, width: int) -> ItemLines:
        places = count()
        items = [next(places) if row.key is not None else None for row in self._rows]
        lines = [clip(row.line, width) for row in self._rows]
        missing = told_lines(NO_BOXES, "dim", width) if self._boxes is None else []
        return [*lines, *missing], [*items, *[None] * len(missing)]

    def lines(self, width: int, height: int) -> list[Line]:
        jobs = self._kind.jobs(width)[: max(0, height // 2 - 1)] if self._kind else []
        rows, items = self.listing(width)
        visible = self.window(rows, items, max(1, height - 1 - len(jobs)), above=1)
        free = [number for kind in self.kinds for number in kind.free]
        head = headline(free, self.beyond, width)
        blank: list[Line] = [()] * max(0, height - 1 - len(visible) - len(jobs)) if jobs else []
        return [head, *visible, *blank, *jobs]

    def notes(self, width: int) -> list[Line]:
        kind = self._kind
        return kind.launch(width, self.size.height - len(self._rows) - _OTHER_LINES) if kind else []

    # What a row can do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "do":
            return self._kind is not None and self._kind.can(str(parameters[0]))
        if action == "jobs":
            return self._boxes is not None
        return super().check_action(action, parameters)

    def _does(self, binding: Binding) -> bool:
        _, action, parameters = parse(binding.action)
        if action == "do":
            return self._kind is not None and self._kind.hints(str(parameters[0]))
        return super()._does(binding)

    def action_do(self, action: str, *given: object) -> None:
        """Do what the kind of the node at the cursor does."""
        if self._kind is not None:
            self._kind.do(action, *given)
            self.draw()

    def clicked(self, place: int) -> None:
        self.go_to(place)
        for action in ("select", "fold"):
            if self.check_action("do", (action,)):
                self.action_do(action)
                return

    @property
    def _boxes(self) -> BoxNodes | None:
        return next((kind for kind in self.kinds if isinstance(kind, BoxNodes)), None)

    def action_jobs(self) -> None:
        """Open the page of the jobs of the boxes."""
        if self._boxes is not None:
            self.view.open(BoxJobsScreen(self.view, self._boxes.jobs_of_boxes(), self._boxes))
