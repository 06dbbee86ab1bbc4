"""QueueScreen: who waits in the queue, and for which devices; the user's own jobs can leave it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from gputui.choosing.queue_outlook import Outlook
from gputui.inventory.formatting import printable
from gputui.inventory.waiter import Waiter
from gputui.tui.controllers.jobs import JobsController
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import FILTER, ListPage, shown
from gputui.tui.views.queue import listed, numbers
from gputui.tui.views.text import ItemLines, Line, title


class QueueScreen(ListPage):
    """Shows the queue as it is in the main screen's readings."""

    BINDINGS = [
        FILTER,
        shown("S", "stop", "leave the queue"),
    ]

    def __init__(self, view: MainView, controller: JobsController) -> None:
        super().__init__(view)
        self._controller = controller
        self._found = Outlook((), ())

    def item_keys(self) -> Sequence[Hashable]:
        self._found = self.app_state.outlook
        return [
            *(turn.waiter.place for turn in self._found.turns),
            *(each.device.key for each in self._found.in_the_way),
        ]

    def head(self, width: int) -> Line:
        return title("queue", width, numbers(self._found), self.beyond)

    def listing(self, width: int) -> ItemLines:
        return listed(self._found, self.app_state, width)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self._waiter is not None and self._waiter.ours
        return super().check_action(action, parameters)

    @property
    def _waiter(self) -> Waiter | None:
        """The waiter under the cursor, as it was last painted; None on a device."""
        turns = self._found.turns
        return turns[self.cursor].waiter if self.key is not None and self.cursor < len(turns) else None

    def action_stop(self) -> None:
        """Leave the queue once the user says yes: a waiter that returns starts again at the end."""
        waiter = self._waiter
        if waiter is None:
            return
        if self.app_state.label and self.app_state.demo is None:
            self.show_message(self.app_state.not_of_this_machine("places in line"))
        elif waiter.job is None:
            self.show_message("not a job: it waits in one of your terminals; Ctrl-C there leaves the queue")
        else:
            what = f"take job {printable(waiter.job)} out of the queue (it will not start)"
            leave = partial(self._controller.leave_line, waiter.job)
            # This takes as long as the job takes to end.
            self.ask(
                "stop",
                what,
                partial(self.work, f"taking job {printable(waiter.job)} out of the queue", leave),
            )
