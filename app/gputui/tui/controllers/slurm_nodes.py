"""SlurmNodes: the places of a Slurm cluster on the page of nodes; hands the command over to Slurm."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Literal

from gputui.allocating.errors import NotEnoughError
from gputui.inventory.formatting import devices_text, printable
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.slurm import request_at, slurm_launch, submit
from gputui.launching.history_file import remember
from gputui.launching.launch import Launch
from gputui.launching.slurm_launch import SlurmError
from gputui.launching.start import StartError
from gputui.sources.simulated.boxes import simulated_cluster
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.slurm.places import Place, places_of
from gputui.sources.slurm.read import Slurm
from gputui.sources.source import Clock, NoSourceError
from gputui.system.environment import Environ
from gputui.tui.background import in_background
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.controllers.nodes import NO_COMMAND, Nodes
from gputui.tui.main_view import MainView
from gputui.tui.outcome import Outcome
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.views.nodes import Node, Row, broken, job_lines, launch_lines, place_node
from gputui.tui.views.text import Line, told_lines
from gputui.vendors.registry import default_vendor

_EVERY = 10.0
"""Seconds between two readings: each queries the cluster's controller, which all users share."""
_LAUNCH_LINES = 4
"""The most lines of the launch line, which is then cut."""
_SLURM = "slurm"
"""The key of the row that says why the cluster is not known."""


class SlurmNodes(Nodes[Launch]):
    """The places of a Slurm cluster. The main screen's command is started on a number of devices of one of
    them, which Slurm selects.

    It outlives the page: the request is still there when the page opens again. The cluster is read when the
    page opens, every ten seconds, and after a job was submitted.
    """

    def __init__(
        self,
        view: MainView,
        launch: LaunchController,
        environ: Environ,
        clock: Clock,
    ) -> None:
        super().__init__(view, launch, environ)
        self._clock = clock
        self._slurm: Slurm | None = None
        self._cluster: Cluster | None = None
        self._error = ""
        self._reading, self._due = False, 0.0
        self._places: tuple[Place, ...] = ()
        self._last: Hashable | None = None
        """The place that the cursor was on last."""
        self._of_main = 0
        self._devices, self._order = 1, tuple[int, ...]()
        self._form: Literal["srun", "sbatch"] = "srun"
        self._submitting = False
        self.does = {
            "number": self._number,
            "right": partial(self._more, 1),
            "left": partial(self._more, -1),
            "more": partial(self._more, 1),
            "fewer": partial(self._more, -1),
            "order": self._ask_order,
            "form": self._other_form,
            "run": self._run,
            "return": self._run_and_return,
            "detach": self._submit,
            "copy": self._copy,
        }

    # The cluster

    def begin(self) -> None:
        """Forget the last reading, and ask for as many devices as are selected on the main screen, where that
        has changed."""
        self._cluster, self._error, self._due = None, "", 0.0
        selected = len(self.view.app_state.selection)
        if selected != self._of_main:
            self._of_main, self._devices, self._order = selected, max(1, selected), ()

    def end(self) -> None:
        """End nothing: a reading ends by itself."""

    def nodes(self) -> list[Node]:
        if not self._reading and time.monotonic() >= self._due:
            self._reading = True
            self._read()
        cluster = self._cluster
        self.free = [node.free() for node in cluster.nodes] if cluster is not None else ()
        every = places_of(cluster) if cluster is not None else ()
        self._places = tuple(each for each in every if each.most)
        if self._place is not None:
            self._last = self.key
        errors = [each for each in (self._error, *(cluster.errors if cluster else ())) if each]
        rows = [place_node(each) for each in self._places]
        if cluster is None:
            reason = self._error.partition(" (")[0]
            note = (printable(reason.removeprefix("Slurm is ")), "lost") if reason else ("asking", "dim")
            return [Node(_SLURM, "  Slurm", note=note)]
        if not any(each.most for each in every):
            errors.append("no node has devices")
        if errors:
            below = tuple(Row(None, ((f"     {printable(each)}", "warn"),)) for each in errors)
            rows.append(Node(None, "  Slurm", below=below))
        return rows

    def jobs(self, width: int) -> list[Line]:
        return job_lines(self._cluster.jobs, width) if self._cluster else []

    def _read(self) -> None:
        """Read the cluster in the background; in a demo, it is a simulated one."""
        app = self.view.app
        if self.view.app_state.label:
            self._told(simulated_cluster())
            return

        def work() -> None:
            found: Cluster | str = "Slurm could not be read"
            try:
                self._slurm = self._slurm or Slurm()
                found = self._slurm.read()
            except NoSourceError as error:
                found = str(error)
            finally:
                app.call_later(self._answered, found)

        in_background("slurm", work)

    def _answered(self, found: Cluster | str) -> None:
        self._told(found)
        self.view.redraw_page()

    def _told(self, found: Cluster | str) -> None:
        self._reading, self._due = False, time.monotonic() + _EVERY
        if isinstance(found, str):
            # The last reading stays visible.
            self._error = found
            return
        if self._cluster is None and self.key is not None:
            self.moved_to = self._last
        self._cluster, self._error = found, ""

    # The request at the cursor

    @property
    def _place(self) -> Place | None:
        return next((place for place in self._places if place.key == self.key), None)

    def can(self, action: str) -> bool:
        return super().can(action) and self._place is not None

    def _number(self, count: int) -> None:
        place = self._place
        if place is None or count < 1:
            return
        if count > place.most:
            whose = f"no node of {place.text} has more than" if place.partition else f"{place.text} has only"
            self.view.show_message(f"{whose} {place.most}")
            count = place.most
        if count != self._devices:
            if self._order:
                words = f"the order {','.join(map(str, self._order))} was of {self._devices} GPUs"
                self.view.show_message(words)
            self._devices, self._order = count, ()

    def _more(self, by: int) -> None:
        self._number(max(1, self._devices + by))

    def _other_form(self) -> None:
        self._form = "sbatch" if self._form == "srun" else "srun"

    def _ask_order(self) -> None:
        count = self._devices

        def wrong(line: str) -> str | None:
            if sorted(line.replace(",", " ").split()) == sorted(map(str, range(count))):
                return None
            return f"each of 0 to {count - 1} once, such as {','.join(map(str, reversed(range(count))))}"

        def answered(line: str | None) -> None:
            if line is not None:
                order = tuple(int(place) for place in line.replace(",", " ").split())
                self._order = order if list(order) != sorted(order) else ()
                self.view.redraw_page()

        now = ",".join(map(str, self._order or range(count)))
        prompt = "the order of the devices that Slurm selects"
        self.view.open(LineScreen(prompt, now, "1,0", wrong), answered)

    # The launch

    def _made(self) -> tuple[Launch | str, list[str]]:
        """The launch of the command at the cursor's place, or why there is none; and notes on it."""
        cluster, place, options = self._cluster, self._place, self.view.app_state.options
        if cluster is None or place is None:
            return "there is no node or partition at the cursor", []
        if not options.command:
            return NO_COMMAND, []
        own = default_vendor().visibility.names
        kept = tuple((name, value) for name, value in options.additions if name not in own)
        dropped = [name for name, _ in options.additions if name in own]
        notes = [f"{', '.join(dropped)} is left out: Slurm selects the devices"] if dropped else []
        try:
            kind = place.gpus.type if place.gpus is not None else ""
            request, found = request_at(cluster, place.node, place.partition, kind, self._devices)
            request = replace(request, order=self._order, detach=self._form == "sbatch")
            options = replace(options, additions=kept)
            made = slurm_launch(options, self._devices, request, self._environ, default_vendor())
        except (SlurmError, NotEnoughError) as error:
            return printable(str(error)), notes
        return made, [*notes, *map(printable, found)]

    def launch(self, width: int, room: int) -> list[Line]:
        if self._place is None:
            # The row has the reason, in brief.
            return told_lines(self._error.partition(" (")[2].replace(")", "", 1), "lost", width)
        made, notes = self._made()
        count, order = self._devices, self._order
        ordered = f", in the order {','.join(map(str, order))}" if order else ""
        told = [(note, "warn") for note in notes]
        pieces: Sequence[str] = ()
        if isinstance(made, str):
            told.insert(0, (made, "warn"))
        else:
            pieces = broken(printable(made.line), width - 4, _LAUNCH_LINES)
            told.insert(0, (made.remarks[-1], "dim"))
        head = f"launch: {self._form}, {devices_text(count)}{ordered}"
        return launch_lines(head, "", (), pieces, "", told, width)

    def launched(self, starts: bool) -> Launch | str:
        return "sbatch has not answered yet" if starts and self._submitting else self._made()[0]

    def line(self, launched: Launch) -> str:
        return launched.line

    def _run(self) -> None:
        """Become srun, or submit by sbatch."""
        if self._form == "sbatch":
            self._submit()
        elif launch := self._launched():
            self.view.app.exit(Outcome(launch=launch, warning=self._remembered()))

    def _run_and_return(self) -> None:
        self._form = "srun"
        if launch := self._launched():
            self._remembered()
            self._in_terminal(launch)
            self._due = 0.0

    def _submit(self) -> None:
        self._form = "sbatch"
        launch = self._launched()
        if launch is None:
            return
        self._remembered()
        self._submitting = True

        def call() -> tuple[str, bool]:
            try:
                ended = submit(launch, self._environ)
            except StartError as error:
                return printable(str(error)), False
            told = ended.advice or ": ".join(filter(None, (ended.text, *ended.errors)))
            return told or f"sbatch ended with status {ended.status}", ended.status == 0

        def done(_: bool) -> None:
            self._submitting, self._due = False, 0.0

        self._background("submitting …", call, done)

    def _remembered(self) -> str | None:
        return remember(self._environ, self.view.app_state.options, self._devices, self._clock())
