"""SlurmController: the request to a Slurm cluster, and the launch of the command there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Literal

from gputui.allocating.errors import NotEnoughError
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.jobs.slurm import Submitted, place_in, slurm_launch, submit
from gputui.launching.history_file import remember
from gputui.launching.launch import Launch
from gputui.launching.shell_words import assignments, command_line, split
from gputui.launching.slurm_launch import SlurmError
from gputui.launching.start import StartError
from gputui.sources.simulated.boxes import simulated_cluster
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.slurm.places import Place
from gputui.sources.slurm.read import Slurm
from gputui.sources.source import NoSourceError
from gputui.tui.background import in_background
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView
from gputui.tui.outcome import Outcome
from gputui.vendors.registry import default_vendor

Form = Literal["srun", "sbatch"]


class SlurmController:
    """The actions of the Slurm page. It outlives the page: the request is still there when it opens again.

    The command is the main screen's until it is edited on the page: the selected devices of this machine are
    unrelated to those of the cluster. In a demo the cluster is simulated, and nothing is started.
    """

    def __init__(
        self,
        view: MainView,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        launch: LaunchController,
    ) -> None:
        self.view, self._environ, self._clock = view, environ, clock
        self._launch, self.copy_text = launch, launch.copy_text
        self._slurm: Slurm | None = None
        self._of_main = view.app_state.options
        self._selected = 0
        self.options = self._of_main
        self.count, self.order = 1, tuple[int, ...]()
        self.form: Form = "srun"
        self.key: Hashable | None = None
        self.submitting = False

    def opened(self) -> None:
        """Take the main screen's command and number of devices, where they differ from before."""
        app_state = self.view.app_state
        if app_state.options != self._of_main or not self.options.command:
            self._of_main = self.options = app_state.options
        selected = len(app_state.selection)
        if selected != self._selected:
            self._selected, self.count, self.order = selected, max(1, selected), ()

    def read(self, told: Callable[[Cluster | str], object]) -> None:
        """Read the cluster in the background; `told` is called in the app with it, or with a text why not."""
        app = self.view.app
        label = self.view.app_state.label
        if label:
            told(
                simulated_cluster()
                if label.startswith("demo ")
                else f"{label}: a recording knows no Slurm cluster"
            )
            return

        def work() -> None:
            found: Cluster | str = "Slurm could not be read"
            try:
                self._slurm = self._slurm or Slurm()
                found = self._slurm.read()
            except NoSourceError as error:
                found = str(error)
            finally:
                app.call_later(told, found)

        in_background("slurm", work)

    # The command

    @property
    def line(self) -> str:
        """The command as the user types it."""
        return command_line(self.options.additions, self.options.command)

    def set_line(self, line: str) -> str | None:
        """Set another command; return a note about dropped variables, or None."""
        additions, command = assignments(split(line))
        own = default_vendor().visibility.names
        dropped = [name for name, _ in additions if name in own]
        kept = tuple((name, value) for name, value in additions if name not in own)
        self.options = replace(self.options, command=command, additions=kept)
        return f"{', '.join(dropped)} is left out: Slurm selects the devices" if dropped else None

    def next_launcher(self) -> None:
        """Switch to the next launcher in the list."""
        self.options = replace(self.view.app_state, options=self.options).next_launcher().options

    def launch(self, cluster: Cluster, place: Place, form: Form) -> tuple[Launch | str, tuple[str, ...]]:
        """The launch of the command at that place, or why there is none; and notes on it."""
        if not self.options.command:
            return "no command yet: e types it", ()
        try:
            request, notes = place_in(cluster, place.text, self.count, place.partition is not None)
            request = replace(request, order=self.order, detach=form == "sbatch")
            made = slurm_launch(self.options, self.count, request, self._environ, default_vendor())
        except (SlurmError, NotEnoughError) as error:
            return printable(str(error)), ()
        return made, tuple(map(printable, notes))

    # Starting

    def refusal(self) -> str | None:
        """Why nothing can be started from here, None where it can."""
        if self.view.app_state.label:
            return f"{self.view.app_state.label}: the cluster is simulated, and nothing is started"
        if self.submitting:
            return "sbatch has not answered yet"
        return None

    def become(self, launch: Launch) -> None:
        """Close the screen and become srun."""
        self.view.app.exit(Outcome(launch=launch, warning=self._remembered()))

    def run_and_return(self, launch: Launch) -> None:
        """Give the terminal to srun, and return to the screen when it has ended."""
        self._remembered()
        ended = self._launch.lend_terminal(launch)
        if ended is not None:
            self.view.show_message(ended.text, "" if ended.good else "lost", lasting=True)

    def submit(self, launch: Launch, done: Callable[[], object]) -> None:
        """Submit the batch job in the background; `done` is called in the app when sbatch has ended."""
        self._remembered()
        self.submitting = True
        app = self.view.app

        def work() -> None:
            words, good = "sbatch could not be run", False
            try:
                words, good = _told(submit(launch, self._environ))
            except StartError as error:
                words = printable(str(error))
            finally:
                app.call_later(self._submitted, words, good, done)

        in_background("sbatch", work)

    def _submitted(self, words: str, good: bool, done: Callable[[], object]) -> None:
        self.submitting = False
        self.view.show_message(words, "" if good else "lost", lasting=True)
        done()

    def _remembered(self) -> str | None:
        return remember(self._environ, self.options, self.count, self._clock())


def _told(submitted: Submitted) -> tuple[str, bool]:
    """The outcome of a submission in a sentence, and whether it succeeded."""
    said = " ".join(submitted.errors)
    if submitted.status == 0:
        return submitted.advice or submitted.text or said, True
    words = ": ".join(each for each in (submitted.text, said) if each)
    return words or f"sbatch ended with status {submitted.status}", False
