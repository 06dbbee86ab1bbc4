"""SlurmScreen: the nodes of a Slurm cluster; a command goes to so many devices of one of them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from gputui.launching.launch import Launch
from gputui.sources.slurm.cluster import Cluster
from gputui.tui.controllers.slurm import SlurmController
from gputui.tui.screens.page import ListPage, cursor_bindings, hidden, shown
from gputui.tui.views.slurm import Place, headline, job_lines, launch_lines, place_lines, places_of
from gputui.tui.views.text import Line, wrap

_EVERY = 10.0
"""Seconds between two readings: each asks the cluster's controller, which everybody uses."""


class SlurmScreen(ListPage):
    """The cluster is read when the page opens, every ten seconds, and after a job was submitted."""

    BINDINGS = [
        shown("escape,q,S", "dismiss", "back", "esc"),
        *cursor_bindings("place"),
        shown("1", "count(1)", "devices", "1-9", "So many devices"),
        *(hidden(str(count), f"count({count})", "So many devices") for count in range(2, 10)),
        hidden("plus,equals_sign,right", "more(1)", "One device more"),
        hidden("minus,left", "more(-1)", "One device fewer"),
        shown("enter", "run", "srun", "⏎", "Run the command there, in place of the screen"),
        shown("d", "submit", "sbatch", about="Submit the command as a batch job"),
        shown("r", "run_and_return", "run & return", about="Run the command there and come back"),
        shown("y", "copy", "copy", about="Copy the launch line"),
        shown("e", "edit", "command", about="Edit the command"),
        shown("o", "order", "order", about="The order of the devices that Slurm gives"),
        shown("f", "only_free", "free only", about="Only places with free devices, or all"),
    ]

    def __init__(self, controller: SlurmController) -> None:
        super().__init__(controller.view)
        self._controller = controller
        self._cluster: Cluster | None = None
        self._error = ""
        self._only_free = False
        self._count = 1
        self._order: tuple[int, ...] = ()
        self._reading = False
        self._due = 0.0

    def item_keys(self) -> Sequence[Hashable]:
        return [place.text for place in self._places()]

    def lines(self, width: int, height: int) -> list[Line]:
        self._read_when_due()
        head = headline(self._cluster, self._only_free, width)
        if self._cluster is None:
            words = self._error or "asking Slurm …"
            return [
                head,
                *(((f" {piece}", "lost" if self._error else "dim"),) for piece in wrap(words, width - 2)),
            ]
        places = self._places()
        jobs = job_lines(self._cluster, width)[: max(0, height // 2 - 1)]
        room = max(1, height - 2 - len(jobs))
        heads, *rows = place_lines(places, width)
        found = self.window(rows, range(len(places)), room, above=2)
        if not places:
            free = "no place with free devices: f shows all" if self._only_free else "no node has devices"
            found = [((f" {free}", "dim"),)]
        errors: list[Line] = [
            ((f" {error}", "warn"),) for error in (*self._cluster.errors, self._error) if error
        ]
        blank: list[Line] = [()] * max(0, room - len(found) - len(errors))
        return [head, heads, *found, *errors, *blank, *jobs]

    def notes(self, width: int) -> list[Line]:
        place = self._place
        if self._cluster is None or place is None:
            return []
        launch, note = self._launch(place, detach=False)
        lines = launch_lines(launch, self._count, width)
        return [*lines, *(((f" {piece}", "warn"),) for piece in wrap(note, width - 2) if note)]

    # Keys

    def action_count(self, count: int) -> None:
        self._set_count(count)

    def action_more(self, by: int) -> None:
        self._set_count(self._count + by)

    def action_only_free(self) -> None:
        self._only_free = not self._only_free
        self.draw()

    def action_edit(self) -> None:
        self.view.perform("edit")

    def action_order(self) -> None:
        from gputui.tui.screens.line_input import LineScreen

        count = self._count

        def wrong(line: str) -> str | None:
            places = line.replace(",", " ").split()
            if sorted(places) == [str(place) for place in range(count)]:
                return None
            return f"each of 0 to {count - 1} once, such as {','.join(map(str, reversed(range(count))))}"

        def answered(line: str | None) -> None:
            if line is not None and self._count == count:
                self._order = tuple(int(place) for place in line.replace(",", " ").split())
                self.draw()

        now = ",".join(map(str, self._order or range(count)))
        self.view.open(LineScreen("order of the devices that Slurm gives", now, "1,0", wrong), answered)

    def action_copy(self) -> None:
        launch = self._ready(detach=False)
        if launch is not None:
            self._controller.copy_text(launch.line)

    def action_run(self) -> None:
        launch = self._startable(detach=False)
        if launch is not None:
            self._controller.become(launch, self._count)

    def action_run_and_return(self) -> None:
        launch = self._startable(detach=False)
        if launch is not None:
            self._controller.run_and_return(launch, self._count)
            self._read_again()

    def action_submit(self) -> None:
        launch = self._startable(detach=True)
        if launch is not None:
            self.show_message("submitting …")
            self._controller.submit(launch, self._count, self._read_again)

    # What is selected

    @property
    def _place(self) -> Place | None:
        return next((place for place in self._places() if place.text == self.key), None)

    def _places(self) -> tuple[Place, ...]:
        return places_of(self._cluster, self._only_free) if self._cluster is not None else ()

    def _set_count(self, count: int) -> None:
        most = self._place.most if self._place is not None else 1
        if count > most:
            self.show_message(f"no node of {self._place.text if self._place else 'it'} has more than {most}")
        count = min(max(1, count), most)
        if count != self._count:
            self._count, self._order = count, ()
        self.draw()

    def _launch(self, place: Place, detach: bool) -> tuple[Launch | str, str]:
        assert self._cluster is not None
        return self._controller.launch(self._cluster, place.text, self._count, self._order, detach)

    def _ready(self, detach: bool) -> Launch | None:
        """The launch at the cursor; None where there is none, and why is shown."""
        if not self.view.app_state.options.command:
            self.action_edit()
            return None
        if self._place is None:
            self.show_message("there is no place at the cursor")
            return None
        launch, _ = self._launch(self._place, detach)
        if isinstance(launch, str):
            self.show_message(launch)
            return None
        return launch

    def _startable(self, detach: bool) -> Launch | None:
        launch, refusal = self._ready(detach), self._controller.refusal()
        if launch is not None and refusal is not None:
            self.show_message(refusal)
            return None
        return launch

    # Reading

    def _read_when_due(self) -> None:
        if not self._reading and time.monotonic() >= self._due:
            self._reading = True
            self._controller.read(self._told)

    def _read_again(self) -> None:
        self._due = 0.0
        self.draw()

    def _told(self, found: Cluster | str) -> None:
        self._reading, self._due = False, time.monotonic() + _EVERY
        if isinstance(found, str):
            # (What was read before stays to be seen.)
            self._error = found
        else:
            self._cluster, self._error = found, ""
        if self.is_mounted:
            self.draw()
