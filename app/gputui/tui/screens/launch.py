"""LaunchScreen: how the command is started, its settings, and the last launches.

It shows the app state of the main screen below and changes its options; every row corresponds to an option
of `gputui run`.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gputui.allocating.settings import Settings, SettingsError
from gputui.allocating.settings import settings as settings_in_force
from gputui.inventory.formatting import printable, program
from gputui.inventory.light_dataclasses import replace
from gputui.launching.history import (
    KeepError,
    Launches,
    PastLaunch,
    again,
    check_name,
    missing,
    named,
    with_launch,
    working_directory,
)
from gputui.launching.history_file import change, load
from gputui.system.environment import Environ
from gputui.tui.app_state import AppState
from gputui.tui.layout import LaunchRoom
from gputui.tui.main_view import MainView
from gputui.tui.option_rows import MORE, Row, changed, folded, given_of_more, rows
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.options import OptionsPage
from gputui.tui.screens.page import shown, worded
from gputui.tui.start_launch import count_of
from gputui.tui.views.launch import launch
from gputui.tui.views.launch_page import no_launches, remembered, settings
from gputui.tui.views.text import ItemLines, Line, title
from gputui.vendors.visibility import Confine

_SETTINGS = 9
"""Lines for the settings, the rules, a message and the keys, without the launch line and its notes."""

_OF_LAUNCHES = ("take", "name", "forget", "list_settings")
_OF_SETTINGS = ("change", "choose", "type", "default", "keep", "list_launches")


class LaunchScreen(OptionsPage):
    """Two lists: the settings of the launch, and the last launches, which are first with `launches`."""

    BINDINGS = [
        *OptionsPage.BINDINGS,
        shown("tab", "list_launches", "recent", about="Show the recent launches"),
        shown("tab", "list_settings", "settings", about="Show the settings of this launch again"),
        shown("enter,space,right", "take", "take", "⏎", "Load the launch (in the list of launches)"),
        shown("x,delete,backspace", "forget", "forget", "x", "Forget the launch (in the list of launches)"),
        shown("y", "perform('copy')", "copy", about="Copy the launch line"),
        worded("save", "keep", "as…", "Save the launch under a name", key_line=True),
        worded("save", "name", "as…", "Name the launch (in the list of launches)", key_line=True),
    ]

    def __init__(self, view: MainView, environ: Environ, launches: bool = False) -> None:
        super().__init__(view)
        self._environ = environ
        self._launches: Launches = ()
        self._load_error = ""
        self._confine: Confine = Settings().confine
        with contextlib.suppress(SettingsError):
            # A launch says what is wrong with them.
            self._confine = settings_in_force(environ).confine
        self._lists_launches = launches
        self._unfolded = given_of_more(rows(self.app_state, self._confine)) > 0
        """Whether the options that few launches need are shown."""
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        other = _OF_SETTINGS if self._lists_launches else _OF_LAUNCHES
        return action not in other and super().check_action(action, parameters)

    def _load(self) -> None:
        try:
            self._launches, self._load_error = load(self._environ), ""
        except KeepError as error:
            self._launches, self._load_error = (), str(error)

    # Painting

    def item_keys(self) -> Sequence[Hashable]:
        """The ids of the rows; the set of rows depends on the devices."""
        if self._lists_launches:
            return range(len(self._launches))
        return super().item_keys()

    def option_rows(self) -> tuple[Row, ...]:
        every = rows(self.app_state, self._confine)
        # A filter searches all of them.
        return every if self.filter else folded(every, self._unfolded)

    def notes(self, width: int) -> list[Line]:
        height = self.size.height
        # The notes of the launch are shown here in full: a few settings stay visible above, no more.
        most = max(3, height - _SETTINGS)
        return launch(self.app_state, width, LaunchRoom(most), page=True)[: max(1, height - 6)]

    def head(self, width: int) -> Line:
        return title("recent launches" if self._lists_launches else "this launch", width, self.beyond)

    def listing(self, width: int) -> ItemLines:
        if not self._lists_launches:
            return settings(self.options, width)
        launches = remembered(self._launches, width, time.time())
        if launches:
            return launches, range(len(launches))
        why = no_launches(width, self._load_error)
        return why, [None] * len(why)

    # Key actions

    def _show_list(self, launches: bool) -> None:
        self._lists_launches, self.cursor, self.key, self.top = launches, 0, None, 0

    def action_list_launches(self) -> None:
        self._show_list(launches=True)
        self._load()
        self.draw()

    def action_list_settings(self) -> None:
        self._show_list(launches=False)
        self.draw()

    def changed(self, row: Row, value: Any) -> AppState | bool:
        """The changed app state, or whether the section MORE is shown."""
        return bool(value) if row.id == MORE else changed(self.app_state, row, value)

    def apply(self, change: AppState | bool) -> None:
        if isinstance(change, bool):
            self._unfolded = change
        else:
            self.view.set_app_state(change)

    def action_take(self) -> None:
        """Load the options of the launch under the cursor, and go back to the main screen, where Enter runs
        it."""
        if self._launches:
            message = self._take(self._launches[self.cursor])
            self.dismiss()
            self.view.show_message(message)

    def _take(self, each: PastLaunch) -> str:
        """Load the options of a launch; return the message to show."""
        app_state = replace(self.app_state, options=again(each))
        lacks = missing(each, self._environ)
        name = printable(each.name or program(" ".join(each.options.command)))
        taken = f"loaded {name} {lacks}" if lacks else f"loaded {name}"
        if app_state.selection.decided:
            self.view.set_app_state(app_state)
            return f"{taken}; the selected GPUs stay"
        if not each.count:
            self.view.set_app_state(app_state.cpu_only())
            return f"{taken}, with CPU only"
        with_best, reason = app_state.select_best(each.count)
        self.view.set_app_state(with_best)
        return f"{taken}; {reason}"

    def action_forget(self) -> None:
        if self._launches:
            gone = self._launches[self.cursor]
            self._keep(lambda known: tuple(each for each in known if each != gone))
        self.draw()

    def action_keep(self) -> None:
        """Save the present launch under a name."""
        app_state = self.app_state
        if app_state.options.command:
            self._ask_for_name(
                PastLaunch(app_state.options, count_of(app_state), time.time(), where=working_directory())
            )
        else:
            self.show_message("no command yet: press e on the main screen to type one")

    def action_name(self) -> None:
        """Give the launch under the cursor a name."""
        if self._launches:
            self._ask_for_name(self._launches[self.cursor])

    def _ask_for_name(self, each: PastLaunch) -> None:
        prompt = "save as   (empty: no name)"
        example = "for example: nightly"
        line = LineScreen(prompt, each.name or "", example, lambda name: check_name(name.strip()))
        self.type_line(line, lambda name: self._set_name(each, name.strip() or None))

    def _set_name(self, each: PastLaunch, name: str | None) -> None:
        def with_name(known: Launches) -> Launches:
            if each not in known:
                if name is None:
                    return known
                # These are the present settings, or a launch that another gputui has pushed out meanwhile.
                known = with_launch(known, each.options, each.count, each.when, each.where)
            return named(known, known.index(each) if each in known else 0, name)

        if self._keep(with_name):
            saved = "" if name is None else shlex.quote(name)
            self.show_message(f"saved: gputui run --saved {saved}" if name else "its name is removed")

    def _keep(self, changed: Callable[[Launches], Launches]) -> bool:
        """Change the saved launches; False where that is impossible, and then a message is shown."""
        try:
            self._launches = change(self._environ, changed)
        except KeepError as error:
            self.show_message(str(error))
            return False
        return True

    def action_change(self) -> None:
        self.action_take() if self._lists_launches else super().action_change()
