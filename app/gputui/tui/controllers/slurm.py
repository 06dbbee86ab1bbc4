"""SlurmController: reads the cluster, and hands the launch line's command over to Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from textual.app import App

from gputui.allocating.errors import NotEnoughError
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.slurm import place_in, slurm_launch, submit
from gputui.launching.history_file import remember
from gputui.launching.launch import Launch
from gputui.launching.slurm_launch import SlurmError
from gputui.launching.start import StartError
from gputui.sources.simulated.cluster import SIMULATED
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.slurm.read import Slurm
from gputui.sources.source import NoSourceError
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView
from gputui.tui.outcome import Outcome
from gputui.vendors.registry import default_vendor


class SlurmController:
    """What the page of a cluster does. In a demo the cluster is simulated, and nothing is started."""

    def __init__(
        self,
        view: MainView,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        copy_text: Callable[[str], None],
        end_without_terminal: Callable[[], NoReturn],
        slurm: Slurm | None = None,
    ) -> None:
        self.view, self._environ, self._clock = view, environ, clock
        self.copy_text, self._end_without_terminal = copy_text, end_without_terminal
        self._slurm = slurm

    def read(self, told: Callable[[Cluster | str], object]) -> None:
        """Read the cluster in the background; `told` is called in the app, with why there is none as text."""
        app = self.view.app
        label = self.view.app_state.label
        if label:
            told(SIMULATED if label.startswith("demo ") else f"{label}: a recording knows no Slurm cluster")
            return

        def work() -> None:
            found: Cluster | str
            try:
                self._slurm = self._slurm or Slurm()
                found = self._slurm.read()
            except NoSourceError as error:
                found = str(error)
            app.call_later(told, found)

        in_background("slurm", work)

    def launch(
        self, cluster: Cluster, place: str, count: int, order: tuple[int, ...], detach: bool
    ) -> tuple[Launch | str, str]:
        """The launch of the command there, or why there is none; and a note on it, "" for none."""
        options = self.view.app_state.options
        if not options.command:
            return "no command yet: e types it", ""
        try:
            request, notes = place_in(cluster, place, count)
            request = replace(request, order=order, detach=detach)
            made = slurm_launch(options, count, request, self._environ, default_vendor())
        except (SlurmError, NotEnoughError) as error:
            return printable(str(error)), ""
        return made, printable(notes[-1]) if notes else ""

    def refusal(self) -> str | None:
        """Why nothing can be started from here, None where it can."""
        if self.view.app_state.label:
            return f"{self.view.app_state.label}: the cluster is simulated, and nothing is started"
        if self.view.app_state.is_example:
            return "this command is the demo's example: press e to type your own"
        return None

    def become(self, launch: Launch, count: int) -> None:
        """Close the screen and become srun."""
        self.view.app.exit(Outcome(launch=launch, warning=self._remembered(count)))

    def run_and_return(self, launch: Launch, count: int) -> None:
        """Give the terminal to srun, and come back when it has ended."""
        from gputui.tui import start_launch

        self._remembered(count)
        app: App[object] = self.view.app
        ended = start_launch.run_and_return(app, launch, self._environ, None, self._end_without_terminal)
        if ended.signal is not None:
            app.exit(Outcome(status=128 + ended.signal), return_code=128 + ended.signal)
            return
        self.view.show_message(ended.text, "" if ended.good else "lost", lasting=True)
        self.view.repaint()

    def submit(self, launch: Launch, count: int, done: Callable[[], object]) -> None:
        """Submit the batch job in the background; `done` is called in the app when it is in Slurm's queue."""
        self._remembered(count)
        app = self.view.app

        def work() -> None:
            try:
                submitted = submit(launch, self._environ)
            except StartError as error:
                app.call_later(self.view.show_message, printable(str(error)), "lost")
                return
            words = submitted.advice or submitted.text or f"sbatch ended with status {submitted.status}"
            app.call_later(self.view.show_message, words, "" if submitted.status == 0 else "lost", True)
            app.call_later(done)

        in_background("sbatch", work)

    def _remembered(self, count: int) -> str | None:
        return remember(self._environ, self.view.app_state.options, count, self._clock())
