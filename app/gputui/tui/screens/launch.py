"""The launch on the whole screen: how it is started, what is set for it, and the launches of before.

It shows the app state of the main screen below and changes its options; every row has its option of
`gputui run`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from textual import events

from gputui.launching.history import (
    KeepError,
    Launches,
    PastLaunch,
    again,
    check_name,
    here,
    missing,
    named,
    with_launch,
)
from gputui.launching.history_file import change, load
from gputui.launching.launch_options import OptionError
from gputui.tui.app_state import AppState
from gputui.tui.option_rows import Row, cleared, pressed, rows, typed
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.starting import count_of
from gputui.tui.views.launch import launch
from gputui.tui.views.launch_page import heading, keys, no_launches, remembered, settings
from gputui.tui.views.text import Line


class LaunchScreen(PartsScreen):
    """`app_state` is asked for the app state of the screen below, `show` shows another one there, `act` does
    one of its actions."""

    BINDINGS = [
        ("escape,q,L", "dismiss", "Back"),
        ("tab", "other_form", "Settings or last launches"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("home,g", "cursor(-1000)", "First"),
        ("end,G", "cursor(1000)", "Last"),
        ("space,right", "change", "Change"),
        ("e", "type", "Type"),
        ("enter", "take", "Take"),
        ("x,delete,backspace", "clear", "Default, or forget"),
        ("s", "name", "Name"),
        ("y", "copy", "Copy"),
        ("question_mark,f1", "help", "Help"),
    ]

    def __init__(
        self,
        app_state: Callable[[], AppState],
        show: Callable[[AppState], None],
        act: Callable[[str], Awaitable[object]],
        told: Callable[[], str],
        environ: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._app_state, self._show, self._act, self._told = app_state, show, act, told
        self._environ = environ
        self._known: Launches = ()
        self._unread = ""
        self._as_launches = False
        self._cursor = 0
        self._row_id: str | None = None
        self._top = 0
        self._message = ""
        self._places: list[int | None] = []
        self._load()

    def _load(self) -> None:
        try:
            self._known, self._unread = load(self._environ), ""
        except KeepError as error:
            self._known, self._unread = (), str(error)

    def on_key(self) -> None:
        self._message = ""

    # What is painted

    def draw(self) -> None:
        """Show the app state as it is now."""
        app_state, width, height = self._app_state(), self.size.width, self.size.height
        if not width:
            return
        below = launch(app_state, width, most=max(3, height // 3))[: max(1, height // 2)]
        message = self._message or self._told()
        told = [*below, keys(width, self._as_launches, message)]
        self.paint(lambda w, h: self._list(app_state, w, h), told)

    def _list(self, app_state: AppState, width: int, height: int) -> list[Line]:
        self._find_cursor()
        if self._as_launches:
            lines, places = remembered(self._known, self._cursor, width, time.time())
            lines = lines or no_launches(width, self._unread)
        else:
            lines, places = settings(rows(app_state), self._cursor, width)
        place = places.index(self._cursor) if self._cursor in places else 0
        room = max(1, height - 1)
        self._top = window(self._top, place, room, len(lines))
        self._places = places[self._top : self._top + room]
        self.picture.lit = place - self._top + 1 if places else None
        more = max(0, len(lines) - self._top - room)
        return [heading(app_state, self._as_launches, more, width), *lines[self._top : self._top + room]]

    @property
    def _length(self) -> int:
        return len(self._known) if self._as_launches else len(rows(self._app_state()))

    @property
    def _row(self) -> Row:
        self._find_cursor()
        return rows(self._app_state())[self._cursor]

    def _find_cursor(self) -> None:
        """On its row, though others come and go above it: what is offered depends on the devices."""
        if not self._as_launches:
            ids = [row.id for row in rows(self._app_state())]
            if self._row_id in ids:
                self._cursor = ids.index(self._row_id)
        self._go_to(self._cursor)

    def _go_to(self, place: int) -> None:
        """The cursor at a place, or at the end that is nearer."""
        self._cursor = min(max(0, place), max(0, self._length - 1))
        self._row_id = None if self._as_launches else rows(self._app_state())[self._cursor].id

    # What keys do

    def action_other_form(self) -> None:
        self._as_launches, self._cursor, self._row_id, self._top = not self._as_launches, 0, None, 0
        if self._as_launches:
            self._load()
        self.draw()

    def action_cursor(self, by: int) -> None:
        self._find_cursor()
        self._go_to(self._cursor + by)
        self.draw()

    def action_change(self) -> None:
        if self._as_launches:
            self.action_take()
        elif self._row.kind == "text":
            self.action_type()
        else:
            self._show(pressed(self._app_state(), self._row))
            self.draw()

    def action_take(self) -> None:
        """Enter: the launch under the cursor becomes the options; a setting is changed."""
        if not self._as_launches:
            self.action_change()
        elif self._known:
            self._message = self._taken(self._known[self._cursor])
            self._as_launches, self._cursor, self._row_id, self._top = False, 0, None, 0
            self.draw()

    def _taken(self, each: PastLaunch) -> str:
        app_state = replace(self._app_state(), options=again(each))
        lacks = missing(each, self._environ)
        told = f"taken {lacks}" if lacks else "taken"
        if app_state.selection.decided:
            self._show(app_state)
            return f"{told}; the chosen devices stay"
        if not each.count:
            self._show(app_state.cpu_only())
            return f"{told}, with CPU only"
        found, news = app_state.best_of(each.count)
        self._show(found)
        return f"{told}; {news}"

    def action_type(self) -> None:
        if self._as_launches:
            return
        row = self._row
        if row.kind == "choice":
            self.action_change()
            return

        def wrong(line: str) -> str | None:
            try:
                typed(self._app_state(), row, line)
            except OptionError as error:
                return str(error)
            return None

        def answered(line: str | None) -> None:
            if line is not None:
                self._show(typed(self._app_state(), row, line))
            self.draw()

        prompt = f"{row.label}: {row.about} (⏎ takes it, empty is the default, esc leaves it)"
        self.app.push_screen(LineScreen(prompt, row.typed, check=wrong), answered)

    def action_clear(self) -> None:
        if not self._as_launches:
            self._show(cleared(self._app_state(), self._row))
        elif self._known:
            gone = self._known[self._cursor]
            self._keep(lambda known: tuple(each for each in known if each != gone))
        self.draw()

    def action_name(self) -> None:
        """Give the launch under the cursor a name; on the settings, the launch that stands there."""
        app_state = self._app_state()
        if self._as_launches:
            if not self._known:
                return
            each = self._known[self._cursor]
        elif not app_state.options.command:
            self._message = "no command yet: e on the main screen types it"
            self.draw()
            return
        else:
            each = PastLaunch(app_state.options, count_of(app_state), time.time(), where=here())

        def wrong(name: str) -> str | None:
            try:
                check_name(name.strip())
            except KeepError as error:
                return str(error)
            return None

        def answered(name: str | None) -> None:
            if name is not None:
                self._call_it(each, name.strip() or None)
            self.draw()

        prompt = "a name for it (⏎ takes it, empty is none, esc leaves it)"
        self.app.push_screen(LineScreen(prompt, each.name or "", "for example: nightly", wrong), answered)

    def _call_it(self, each: PastLaunch, name: str | None) -> None:
        def how(known: Launches) -> Launches:
            if each not in known:
                if name is None:
                    return known
                # The settings as they stand, or one that another gputui has pushed out meanwhile.
                known = with_launch(known, each.options, each.count, each.when, each.where)
            return named(known, known.index(each) if each in known else 0, name)

        if self._keep(how):
            saved = "" if name is None else shlex.quote(name)
            self._message = f"kept: gputui run --saved {saved}" if name else "it has no name now"

    def _keep(self, how: Callable[[Launches], Launches]) -> bool:
        """Change what is kept; False where that cannot be, which is said."""
        try:
            self._known = change(self._environ, how)
        except KeepError as error:
            self._message = str(error)
            return False
        return True

    async def action_copy(self) -> None:
        await self._act("copy")
        self.draw()

    async def action_help(self) -> None:
        await self._act("help")

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.picture and 0 < event.y <= len(self._places):
            place = self._places[event.y - 1]
            if place is not None:
                again = place == self._cursor
                self._go_to(place)
                if again:
                    self.action_change()
                self.draw()
