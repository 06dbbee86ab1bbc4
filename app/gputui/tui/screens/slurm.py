"""SlurmScreen: the nodes of a Slurm cluster; starts the command on a number of devices of one of them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from gputui.launching.launch import Launch
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.slurm.places import Place, places_of
from gputui.tui.controllers.slurm import Form, SlurmController
from gputui.tui.screens.line_input import LineScreen, command_input
from gputui.tui.screens.page import ListPage, cursor_bindings, hidden, shown
from gputui.tui.views.slurm import headline, job_lines, launch_lines, place_lines
from gputui.tui.views.text import Line, told_lines

_EVERY = 10.0
"""Seconds between two readings: each queries the cluster's controller, which all users share."""


class SlurmScreen(ListPage):
    """Reads the cluster when the page opens, every ten seconds, and after a job was submitted."""

    BINDINGS = [
        shown("escape,q,S", "dismiss", "back", "esc"),
        *cursor_bindings("place"),
        shown("1", "count(1)", "devices", "1-9 + -", "So many devices"),
        *(hidden(str(count), f"count({count})", "So many devices") for count in range(2, 10)),
        hidden("plus,equals_sign,right", "more(1)", "One device more"),
        hidden("minus,left", "more(-1)", "One device fewer"),
        shown("enter", "run", "run", "⏎", "Run the line: become srun, or submit by sbatch"),
        shown("tab", "other_form", "srun/sbatch", about="The line for srun, or for sbatch"),
        shown("d", "submit", "submit", about="Submit the command as a batch job, by sbatch"),
        shown("r", "run_and_return", "run & return", about="Run the command by srun and come back"),
        shown("y", "copy", "copy", about="Copy the launch line"),
        shown("e", "edit", "command", about="Edit the command"),
        shown("o", "order", "order", about="The order of the devices that Slurm selects"),
        shown("l", "launcher", "launcher", about="Change the launcher"),
        shown("f", "only_free", "with free", about="Only places with free devices, or all"),
    ]

    def __init__(self, controller: SlurmController) -> None:
        super().__init__(controller.view)
        self._controller = controller
        self._cluster: Cluster | None = None
        self._error = ""
        self._only_free = False
        self._reading = False
        self._due = 0.0
        controller.opened()
        self.key = controller.key

    def item_keys(self) -> Sequence[Hashable]:
        return [place.key for place in self._places()]

    def follow(self) -> None:
        if self._cluster is not None:
            super().follow()
            self._controller.key = self.key

    def lines(self, width: int, height: int) -> list[Line]:
        if not self._reading and time.monotonic() >= self._due:
            self._reading = True
            self._controller.read(self._told)
        head = headline(self._cluster, self._only_free, width)
        if self._cluster is None:
            words, look = self._error or "asking Slurm …", "lost" if self._error else "dim"
            return [head, *told_lines(words, look, width)]
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
        if place is None:
            return []
        launch, notes = self._launch(place, self._controller.form)
        return launch_lines(
            launch, self._controller.form, self._controller.count, self._controller.order, notes, width
        )

    # The request to Slurm

    def action_count(self, count: int) -> None:
        place = self._place
        if place is None:
            return
        if count > place.most:
            whose = f"no node of {place.text}" if place.partition else place.text
            has = "has more than" if place.partition else "has only"
            self.view.show_message(f"{whose} {has} {place.most}")
        asked = self._controller
        count = min(max(1, count), place.most)
        if count != asked.count:
            if asked.order:
                self.view.show_message(
                    f"the order {','.join(map(str, asked.order))} was of {asked.count} devices"
                )
            asked.count, asked.order = count, ()
        self.draw()

    def action_more(self, by: int) -> None:
        self.action_count(self._controller.count + by)

    def action_other_form(self) -> None:
        self._controller.form = "sbatch" if self._controller.form == "srun" else "srun"
        self.draw()

    def action_only_free(self) -> None:
        self._only_free = not self._only_free
        self.draw()

    def action_launcher(self) -> None:
        self._controller.next_launcher()
        self.draw()

    def action_edit(self) -> None:
        def answered(line: str | None) -> None:
            said = self._controller.set_line(line) if line is not None else None
            if said is not None:
                self.view.show_message(said, "warn")
            self.draw()

        self.view.open(command_input(self._controller.line), answered)

    def action_order(self) -> None:
        asked, count = self._controller, self._controller.count

        def wrong(line: str) -> str | None:
            if sorted(line.replace(",", " ").split()) == sorted(map(str, range(count))):
                return None
            return f"each of 0 to {count - 1} once, such as {','.join(map(str, reversed(range(count))))}"

        def answered(line: str | None) -> None:
            if line is not None and asked.count == count:
                order = tuple(int(place) for place in line.replace(",", " ").split())
                asked.order = order if list(order) != sorted(order) else ()
                self.draw()

        now = ",".join(map(str, asked.order or range(count)))
        prompt = "which of the devices that Slurm selects comes first, second, …   (⏎ accept, esc cancel)"
        self.view.open(LineScreen(prompt, now, "1,0", wrong, replaces=True), answered)

    # Copying and starting

    def action_copy(self) -> None:
        launch = self._ready(self._controller.form)
        if launch is not None:
            self._controller.copy_text(launch.line)

    def action_run(self) -> None:
        if self._controller.form == "sbatch":
            self.action_submit()
            return
        launch = self._startable("srun")
        if launch is not None:
            self._controller.become(launch)

    def action_run_and_return(self) -> None:
        launch = self._startable("srun")
        if launch is not None:
            self._controller.run_and_return(launch)
            self._read_again()

    def action_submit(self) -> None:
        self._controller.form = "sbatch"
        launch = self._startable("sbatch")
        if launch is not None:
            self.show_message("submitting …")
            self._controller.submit(launch, self._read_again)
        self.draw()

    @property
    def _place(self) -> Place | None:
        return next((place for place in self._places() if place.key == self.key), None)

    def _places(self) -> tuple[Place, ...]:
        every = places_of(self._cluster) if self._cluster is not None else ()
        return tuple(each for each in every if each.most and (each.free or not self._only_free))

    def _launch(self, place: Place, form: Form) -> tuple[Launch | str, tuple[str, ...]]:
        assert self._cluster is not None
        return self._controller.launch(self._cluster, place, form)

    def _ready(self, form: Form) -> Launch | None:
        """The launch at the cursor; None where there is none, and then a message says why."""
        if self._place is None:
            self.show_message("there is no place at the cursor")
            return None
        if not self._controller.options.command:
            self.action_edit()
            return None
        launch, _ = self._launch(self._place, form)
        if isinstance(launch, str):
            self.show_message(launch)
            return None
        return launch

    def _startable(self, form: Form) -> Launch | None:
        launch, refusal = self._ready(form), self._controller.refusal()
        if launch is not None and refusal is not None:
            self.show_message(refusal)
            return None
        return launch

    # Reading

    def _read_again(self) -> None:
        self._due = 0.0
        if self.is_attached:
            self.draw()

    def _told(self, found: Cluster | str) -> None:
        self._reading, self._due = False, time.monotonic() + _EVERY
        if isinstance(found, str):
            # The last reading stays visible.
            self._error = found
        else:
            self._cluster, self._error = found, ""
        if self.is_attached:
            self.draw()
