"""The pages that open over the main screen: each is imported where it is opened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputui.tui.screens.launching import Launching

if TYPE_CHECKING:
    from gputui.checking.measurement import Measured


class Pages(Launching):
    """A screen from which all others are opened. Whatever was about to be started is not, then."""

    def action_topology(self) -> None:
        self._drop_launch()
        super().action_topology()

    def action_ask_best(self) -> None:
        self._drop_launch()
        super().action_ask_best()

    def action_help(self) -> None:
        self._drop_launch()
        from gputui.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen())

    def action_processes(self, wanted: str = "") -> None:
        self._drop_launch()
        from gputui.tui.screens.processes import ProcessesScreen

        self.app.push_screen(ProcessesScreen(lambda: self.app_state, self.action_people, wanted))

    def action_people(self) -> None:
        self._drop_launch()
        from gputui.tui.screens.people import PeopleScreen

        self.app.push_screen(PeopleScreen(lambda: self.app_state, self.action_processes))

    def action_launch_page(self) -> None:
        self._drop_launch()
        from gputui.tui.screens.launch import LaunchScreen

        self.app.push_screen(
            LaunchScreen(
                lambda: self.app_state,
                self.set_app_state,
                self.run_action,
                lambda: self.message,
                self._environ,
            )
        )

    def action_jobs(self) -> None:
        self._drop_launch()
        from gputui.tui.screens.jobs import JobsScreen

        self.app.push_screen(JobsScreen(lambda: self.app_state, self._environ, self.copy_text))

    def action_export(self) -> None:
        self._drop_launch()
        if not self.app_state.selection.decided:
            self.say("choose devices first (space, 0-9, b), or c for CPU only", "warn")
            return
        from gputui.tui.screens.export import ExportScreen

        self.app.push_screen(ExportScreen(self.app_state.launch, self.copy_text, lambda: self.message))

    def action_check(self) -> None:
        self._drop_launch()
        if not self.app_state.selection.decided:
            self.say("choose devices first (space, 0-9, b), or c for CPU only", "warn")
            return
        if self.app_state.snapshot is None:
            self.say("nothing has been read yet", "warn")
            return
        from gputui.tui.screens.check import CheckScreen

        def measured(found: Measured) -> None:
            self.set_app_state(replace(self.app_state, measured={**self.app_state.measured, **found.pairs}))

        self.app.push_screen(CheckScreen(lambda: self.app_state, self._environ, measured))
