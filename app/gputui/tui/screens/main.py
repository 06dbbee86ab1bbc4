"""MainScreen: the box, the selection, and the launch line.

It holds the app state and paints it. `tui/controllers` implements its keys; `_handlers_by_action` maps each
action of `tui/actions.py` to a method.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import Screen

from gputui.allocating.settings import DEFAULT_INTERVAL, ScreenSettings, Settings, SettingsError, settings
from gputui.inventory.formatting import TextWriter, duration, printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.host_environment import READING
from gputui.launching.shell_words import one_line
from gputui.sources.sampler import GLANCE_EVERY, Sampler
from gputui.sources.source import Clock, NoSourceError, Want
from gputui.tui.actions import BY_ID, by_key, key_of
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.controllers.jobs import JobsController
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.controllers.pages import PageController
from gputui.tui.controllers.plan import PlanController
from gputui.tui.controllers.selection import SelectionController
from gputui.tui.controllers.timelines import TimelineController
from gputui.tui.layout import Layout, launch_room, lay_out
from gputui.tui.main_view import Then
from gputui.tui.message_log import Kind, Message, MessageLog
from gputui.tui.messages import NewReading, PastFound
from gputui.tui.outcome import Outcome
from gputui.tui.panels import parts
from gputui.tui.remembered_files import RememberedFiles
from gputui.tui.screens.page import Page, PageKeys
from gputui.tui.theme import default_theme
from gputui.tui.views.header import header
from gputui.tui.views.launch import launch, lines_wanted
from gputui.tui.views.messages import message_line
from gputui.tui.views.table import rows_of_table
from gputui.tui.widgets.device_table import DeviceTable
from gputui.tui.widgets.key_line import KeyLine
from gputui.tui.widgets.lines import Lines, Piece
from gputui.tui.widgets.panel_column import PanelColumn
from gputui.tui.widgets.selection_strip import SelectionStrip

if TYPE_CHECKING:
    from gputui.jobs.experiments.request import Comparisons

Result = TypeVar("Result")

_PAST_AFTER = 0.5
"""Seconds between the mount of the screen and the search for the past."""

_STALE = 2.5
"""A reading that is older than this many intervals is shown as stale."""

_SILENT = 1.5
"""Seconds until the screen reports that the driver has not answered at all yet."""

_SLOW = 0.3
"""Seconds of reading a command's files until the screen says so."""

_SAVES_WITHIN = 1.5
"""Seconds that the exit waits for the settings to be saved; saving waits one second for their lock."""

_END = 1000
"""Rows: more than any box has, so that the cursor goes to the end."""


class MainScreen(Screen[None]):
    """Shows an `AppState`; every key makes a new one.

    clock                 seconds since the epoch
    write                 sends an escape sequence to the terminal, on any thread; None: through /dev/tty
    end_without_terminal  ends the process when the terminal is gone
    paint                 paints lines at once, and returns whether it could
    """

    BLANK = True
    BINDINGS = [
        *(Binding(str(n), f"number({n})", show=False) for n in range(10)),
        Binding("escape", "back", show=False),
    ]

    def __init__(
        self,
        app_state: AppState,
        sampler: Sampler,
        comparisons: Comparisons,
        end_without_terminal: Callable[[], NoReturn],
        clock: Clock = time.time,
        write: TextWriter | None = None,
        paint: Callable[[Iterable[Piece]], bool] = lambda pieces: False,
    ) -> None:
        super().__init__()
        self._paint = paint
        self._files = RememberedFiles(app_state.host_environment, self._files_are_missing)
        self._after_files: list[Then] = []
        self._reading_files = False
        self._app_state = replace(app_state, host_environment=self._files)
        self._sampler = sampler
        self._clock = clock
        environ = app_state.environ
        self.plans = PlanController(self, environ)
        self.selection = SelectionController(self, self.plans.select_enough)
        self.launch = LaunchController(self, sampler, environ, clock, write, end_without_terminal)
        self.timelines = TimelineController(
            sampler, environ, not app_state.label, lambda store: self.post_message(PastFound(store))
        )
        self.jobs = JobsController(self, comparisons, environ, write, sampler.simulated)
        self.pages = PageController(self, self.launch, self.jobs, environ)
        self.handlers = self._handlers_by_action()
        self._below = 0
        """Lines of the selection and the launch line."""
        self._arranged: Layout | None = None
        self._asked: tuple[object, list[str] | None] = None, None
        """Of the last layout: size, rows, lines below, filter, hidden panels; the panels with content."""
        self._whole = False
        """Whether the box has been read as a whole: the first reading leaves out what takes long."""
        self._laid_out: Layout | None = None
        self._first: tuple[object, Layout] | tuple[None, None] = None, None
        """The first layout at this size, and of what: the same panels have the same places again."""
        self._on_page: tuple[str, ...] = ()
        """The devices that the sampler reads in full for a page."""
        self._looked_at: tuple[tuple[str, ...], Want, float] = (), Want.DETAILS, 0.0
        """The devices of which the sampler reads more, which facts it reads, and how often."""
        self._table = DeviceTable("table", self._click_device)
        self._keys = KeyLine("keys", self.perform)
        self._selection_lines = SelectionStrip("selection", self.selection.to_device, self.selection.move_to)
        self._header, self._launch_lines, self._message_line = (
            Lines(id=name) for name in ("header", "launch", "message")
        )
        self._log = MessageLog()
        self.page_action = ""
        """The action that opened the last page."""
        self._saving = threading.Lock()
        self._saver: threading.Thread | None = None
        self._not_saved: str | None = None
        self._unsaved: dict[tuple[str, str], Any] = {}
        """Values by table and key that are not saved yet, or never will be, because the box is not this
        machine."""
        self._list = Container(id="list")
        self._history, self._lists = (PanelColumn(name, self.perform) for name in ("history", "lists"))
        self._frame: list[tuple[Lines, list[int]]] | None = None
        """The changed lines of the frame that is being drawn, None while Textual paints them."""
        self._asking = False
        """Whether a question above this screen tells the notes of the launch."""
        self._settled = False
        """Whether Textual has painted the present layout."""
        for each in (self._header, self._table, self._keys, self._history, self._lists):
            each.take = self._take_lines

    def compose(self) -> ComposeResult:
        # The first painting has the columns of the next one.
        self._arrange(lay_out(*self.app.size, rows_of_table(self.app_state), 0, None))
        yield self._header
        with Container(id="body"):
            with self._list:
                yield self._table
                yield self._history
            yield self._lists
        yield self._selection_lines
        yield self._launch_lines
        yield self._message_line
        yield self._keys

    def on_mount(self) -> None:
        self.set_timer(_PAST_AFTER, self.timelines.start)

    def on_unmount(self) -> None:
        self.launch.release_all()
        self.timelines.close()
        self.plans.cancel()

    # Keys, clicks and the palette

    def _handlers_by_action(self) -> Mapping[str, Then]:
        """The handler of each action, by its id in `tui/actions.py`."""
        selection, launch, pages = self.selection, self.launch, self.pages
        sampler = self._sampler
        return {
            "select": selection.toggle_current,
            "clear": selection.clear,
            "restore": selection.restore,
            "cpu": selection.cpu_only,
            "command": partial(selection.read_command, again=True),
            "best": selection.add_best,
            "other": selection.next_best,
            "ask": selection.ask_for_best,
            "order": partial(self._open_palette, "order"),
            "later": partial(selection.reorder, 1),
            "earlier": partial(selection.reorder, -1),
            "down": partial(selection.move_cursor, 1),
            "up": partial(selection.move_cursor, -1),
            "first": partial(selection.move_cursor, -_END),
            "last": partial(selection.move_cursor, _END),
            "page_down": partial(self._move_page, 1),
            "page_up": partial(self._move_page, -1),
            "sort": partial(self._open_palette, "sort"),
            "filter": selection.ask_for_filter,
            "edit": launch.edit,
            "launcher": partial(self._open_palette, "launcher"),
            "ids": partial(self._open_palette, "uuid"),
            "copy": launch.copy,
            "launch": partial(launch.launch, "become"),
            "return": partial(launch.launch, "return"),
            "detach": partial(launch.launch, "detach"),
            "wait": launch.wait_in_line,
            "topology": pages.open_topology,
            "processes": pages.open_processes,
            "people": lambda: pages.open_processes("people"),
            "nodes": partial(pages.open_nodes, self._clock),
            "usage": lambda: pages.open_usage(sampler.simulated),
            "timelines": partial(pages.open_timelines, self.timelines),
            "device": pages.open_device,
            "launch_page": pages.open_launch_page,
            "launches": partial(pages.open_launch_page, launches=True),
            "plan": self.plans.open,
            "settings": pages.open_settings,
            "columns": partial(pages.open_settings, "column"),
            "jobs": pages.open_jobs,
            "queue": pages.open_queue,
            "export": pages.open_export,
            "check": pages.open_check,
            "help": pages.open_help,
            "messages": pages.open_messages,
            "panels": partial(pages.open_settings, "panel"),
            "experiments": pages.open_jobs,
            "theme": partial(self._open_palette, "theme"),
            "palette": self._open_palette,
            "stop": lambda: self.app.action_suspend_process(),
            "quit": lambda: self.app.exit(Outcome(text=self.launch.uncertain_copy)),
        }

    def on_key(self, event: events.Key) -> None:
        action_id = by_key(self.app_state.screen.keymap).get(event.key)
        if action_id is not None:
            event.stop()
            self.perform(action_id)

    def on_paste(self, event: events.Paste) -> None:
        """A pasted text is taken to be a command: it is shown to be edited, never started."""
        event.stop()
        self.launch.edit(line=one_line(event.text))

    def perform(self, action_id: str) -> None:
        """Perform one of the actions of `tui/actions.py`."""
        self.selection.finish_digits()
        if BY_ID[action_id].page:
            self.page_action = action_id
        self.handlers[action_id]()

    def choose(self, action_id: str) -> None:
        """Perform an action as chosen from the palette: on the present page if that can do it, else here."""
        page = self.app.screen
        if isinstance(page, Page) and page.can_perform(action_id):
            page.action_perform(action_id)
        else:
            self.replace_page(action_id)

    def replace_page(self, action_id: str) -> None:
        """Close the open pages, and perform one of these actions, which opens another page."""
        while isinstance(self.app.screen, Page):
            self.app.screen.leave()
        self.perform(action_id)

    def select_best(self, line: str) -> None:
        """Select the best devices for a number and a grouping ("8 tp=2"). Raises GroupingError."""
        self.selection.select_best(line)

    def press_digit(self, digit: int) -> None:
        """Add a digit to the index of a GPU to select or deselect."""
        self.selection.press_digit(digit)

    def forget_digits(self) -> bool:
        """Forget the digits that wait for another; return whether there were any."""
        return self.selection.forget_digits()

    def action_number(self, digit: int) -> None:
        self.press_digit(digit)

    def action_back(self) -> None:
        """Undo the last of these: digits, a launch that is being checked, the filter, the selection."""
        if self.forget_digits():
            return
        if self.launch.cancel():
            self.show_message("nothing is started", kind="passing")
        elif self.app_state.screen.filter:
            self.selection.end_filter()
        else:
            self.selection.clear()

    def _move_page(self, by: int) -> None:
        self.selection.move_cursor(by * max(1, len(self._table.in_view) - 1))

    def _click_device(self, key: str) -> None:
        self.selection.finish_digits()
        self.selection.click(key)

    def save_setting(self, table: str, key: str, value: Any, saved: Callable[[Settings], object]) -> None:
        """Save one setting (None: the default) in the user's settings, and use it. `saved` is called with the
        settings afterwards, unless they are the screen's own. On the box of a demo or a recording, which says
        nothing about this machine, a setting lasts as long as the screen."""
        environ, label = self.app_state.environ, self.app_state.label
        if table == "screen":
            self._use(self.app_state.screen._replace(**{key: value}))
            if label:
                return
        self._unsaved[table, key] = value

        def use(found: Settings) -> None:
            self.set_app_state(self.app_state.with_rules(found.rules))
            saved(found)

        def work() -> None:
            from gputui.allocating.save_settings import save

            with self._saving:
                try:
                    # Whoever comes first saves what has been changed until then.
                    if self._unsaved and not label:
                        save(environ, [self._unsaved.popitem() for _ in range(len(self._unsaved))])
                    if table != "screen":
                        self.app.call_later(use, settings(environ, self._unsaved))
                    self._not_saved = None
                except SettingsError as error:
                    self._tell_not_saved(error)

        self._saver = in_background("save settings", work)

    def _use(self, screen: ScreenSettings) -> None:
        """Show the screen with other settings."""
        before = self.app_state.screen
        if screen.theme != before.theme:
            self.app.theme = screen.theme or default_theme(self.app_state.environ)
        if screen.interval != before.interval:
            self._sampler.set_interval(screen.interval or DEFAULT_INTERVAL)
        self.set_app_state(self.app_state.with_screen(screen))

    def _tell_not_saved(self, error: SettingsError) -> None:
        self._not_saved = f"settings not saved: {error}"
        self.app.call_later(self.show_message, self._not_saved, "warn")

    def unsaved(self) -> str | None:
        """Wait a little until the settings are saved; return why they are not, None where they are."""
        if self._saver is not None:
            self._saver.join(_SAVES_WITHIN)
            if self._saver.is_alive():
                return "settings not saved: it takes too long"
        return self._not_saved

    def _open_palette(self, typed: str = "") -> None:
        from gputui.tui.screens.palette import PaletteScreen

        page = self.app.screen
        self.open(PaletteScreen(self, page if isinstance(page, Page) else None, self.pages.has_nodes, typed))

    def look_at(self, keys: Sequence[str]) -> None:
        """Have these devices read in full while a page shows them, () for none."""
        self._on_page = tuple(keys)
        self._read_details()

    def open_help(self, keys: PageKeys) -> None:
        """Open the help, which begins with these keys of a page."""
        self.pages.open_help(keys)

    def open(self, screen: Screen[Result], answered: Callable[[Result | None], None] | None = None) -> None:
        """Push a screen over this one. A pending launch is cancelled."""
        self.launch.cancel()
        asks = screen.has_class("tells-notes")

        def closed(result: Result | None) -> None:
            if asks:
                self._asking = False
                self._draw()
            if answered is not None:
                answered(result)
            self._read_details()
            self.redraw_page()

        self.app.push_screen(screen, closed)
        if asks:
            self._asking = True
            self._draw()
        self._read_details()

    def redraw_page(self) -> None:
        """Draw the page that is open over this screen, if any: it shows the app state, too."""
        # No screen is left if a page closes during the exit.
        if self.app.screen_stack and isinstance(self.app.screen, Page):
            self.app.screen.draw()

    # The app state, and the readings that change it

    @property
    def app_state(self) -> AppState:
        """The app state that is shown now."""
        return self._app_state

    def set_app_state(self, app_state: AppState) -> None:
        """Show another app state. If it changes the launch, a pending launch is cancelled."""
        before, self._app_state = self._app_state, app_state
        if app_state is before:
            return
        if (app_state.selection, app_state.options) != (before.selection, before.options):
            self.launch.cancel()
            if self._after_files:
                # The waiting calls were meant for the earlier launch.
                self._after_files.clear()
                self.show_message("the launch has changed in the meantime: look again", "warn")
        if _same_sections(before, app_state):
            self._draw_box()
        else:
            self._draw()

    # The files that the command names

    def when_files_are_read(self, then: Then) -> None:
        """Call `then` once the displayed launch is up to date with its files; at once if it already is."""
        # Where others wait, files are being read, although none of them is marked as missing any more.
        if not (self._after_files or self._files_missing()):
            then()
            return
        self._after_files.append(then)
        self._tell_slow()
        self._read_files()

    def _files_missing(self) -> bool:
        """Whether the display now depends on a file that has not been read."""
        if self.app_state.options.command:
            _ = self.app_state.launch, self.app_state.intent
        return self._files.missing

    def _files_are_missing(self) -> None:
        if self.is_mounted:
            self.call_later(self._read_files)
            self.set_timer(_SLOW, self._still_reading)

    def _read_files(self) -> None:
        """Read missing and changed files in the background; then draw again."""
        if self._reading_files:
            return
        self._reading_files = True
        app_state, files, app = self.app_state, self._files, self.app

        def work() -> None:
            found = False
            try:
                found = files.forget_changed() or files.missing
                files.missing = False
                if found:
                    app_state.read_files()
            finally:
                app.call_later(self._files_read, found)

        in_background("read the files of the command", work)

    def _tell_slow(self) -> None:
        if self._files.slow and self._after_files:
            self.show_message(READING, kind="passing")

    def _still_reading(self) -> None:
        """Say that files are being read, where that takes long."""
        if self._reading_files:
            self._files.slow = True
            self._tell_slow()
            self._app_state = replace(self._app_state)
            self._draw()

    def _files_read(self, anew: bool) -> None:
        self._reading_files = self._files.slow = False
        if anew:
            self._app_state = replace(self._app_state)
            self._draw()
            self.redraw_page()
        if self._files_missing():
            # The displayed launch has changed in the meantime.
            self._read_files()
            return
        waiting, self._after_files = self._after_files, []
        for then in waiting:
            then()
        box = self.app_state.box
        if self.app_state.command_is_unread and (box.links or len(box.devices) < 2):
            # Without links, the best set could change a moment later.
            self.selection.read_command()

    def on_new_reading(self, message: NewReading) -> None:
        """Handle a reading of the box, successful or not."""
        if self.app_state.options.command:
            self._read_files()
        result = message.reading.result
        if isinstance(result, NoSourceError):
            if self.app_state.rows and self.app_state.problem != str(result):
                # The rows stay as they were: the reason why they are stale must be shown once.
                self.show_message(str(result), "lost", kind="news")
            self.set_app_state(self.app_state.with_problem(str(result)))
        elif isinstance(result, Snapshot):
            number_before, before = len(self.app_state.selection), self.app_state.snapshot
            # Taken before the app state changes: that cancels the launch if one of its devices has vanished.
            pending = self.launch.take_reread(message.reading.began)
            app_state = self.app_state.with_snapshot(result)
            self._whole = self._whole or not message.reading.first
            self.set_app_state(replace(app_state, timelines=self.timelines.after(result)))
            if self._reason_is_stale():
                self.clear_message()
            self.jobs.after_reading(before, result)
            self._drop_kept_filter()
            if pending is not None:
                self.launch.start_or_ask(pending)
            elif len(self.app_state.selection) < number_before:
                self.show_message("a selected device is no longer present and was deselected", "lost", "news")
        else:
            raise result

    def _reason_is_stale(self) -> bool:
        """Whether the message says why devices are the best that are free, and one of them no longer is."""
        suggested, judged = self.app_state.suggested, self.app_state.verdicts
        if suggested is None or not self.message.endswith(suggested.reason):
            return False
        # Those that the user has selected by hand need not be free.
        return not all(judged[key].free for key in self.app_state.selection if key not in suggested.kept)

    def _drop_kept_filter(self) -> None:
        """Forget a filter of the settings that matches nothing in the first whole reading."""
        words = self.app_state.set_aside
        if words and self._whole:
            # The filter stays in the settings: another box may have matching devices.
            self.set_app_state(replace(self.app_state, set_aside=""))
            self.show_message(f"filter “{printable(words)}” matches nothing here: not applied", "warn")

    def on_past_found(self, message: PastFound) -> None:
        """Adopt the past from before this run, which has been read or computed."""
        self.set_app_state(replace(self.app_state, timelines=self.timelines.adopt(message.store)))

    def tick(self) -> None:
        """Update, every two seconds, what must be shown even without a reading."""
        age = self._sampler.age
        if age is None or age > 1.5:
            self._draw_header()
        silent = self._sampler.silent
        if self.app_state.snapshot is None and silent > _SILENT:
            words = f"the driver has not answered for {duration(silent)}: a call hangs; see `dmesg`"
            self.set_app_state(self.app_state.with_problem(words))
        self.launch.ask_without_reread()
        if self._log.show_waiting(self._clock()):
            self._draw_message()
            self.redraw_page()

    # Messages

    @property
    def message(self) -> str:
        """The message that is shown, "" for none."""
        return self._log.shown.text if self._log.shown else ""

    @property
    def message_shown(self) -> Message | None:
        """The same with its time and its style, None for none."""
        return self._log.shown

    @property
    def messages(self) -> Sequence[Message]:
        """The last messages, the newest last."""
        return self._log.messages

    def show_message(self, text: str | None, style: str = "", kind: Kind = "answer") -> None:
        """Show a message until the next key, or as its kind says, in a style of `widgets/lines.py`; None
        changes nothing."""
        if text:
            self._log.add(self._clock(), text, style, kind)
            self._draw_message()

    def key_pressed(self, key: str = "") -> None:
        """Remove the message after a key, "" for any, unless it lasts."""
        if self._log.shown is not None and self._log.key_pressed(self._clock(), key):
            self._draw_message()

    def clear_message(self) -> None:
        """Show no message."""
        if self._log.shown is not None:
            self._log.shown = None
            self._draw_message()

    def _draw_message(self) -> None:
        shown = self._log.shown
        key = key_of("messages", self.app_state.screen.keymap)
        self._message_line.draw(lambda width, height: [message_line(shown, width, key)])
        self._draw_keys()

    def _draw_keys(self) -> None:
        """Draw the keys; on a terminal that is too low for a message line, a message takes their place."""
        shown, tiny = self._log.shown, self._arranged is not None and not self._arranged.roomy
        self._keys.show(self.app_state, [message_line(shown, self.size.width)] if tiny and shown else [])

    # Painting

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def on_screen_resume(self) -> None:
        # The page that was above is still on the terminal.
        self._settle_later()

    def repaint(self) -> None:
        """Go on after the terminal was lent or the program was stopped: paint every cell, as the terminal has
        lost those that did not change. Nobody has watched the devices meanwhile."""
        self.app.screen.refresh(layout=True)
        self.set_app_state(replace(self.app_state, watch=replace(self.app_state.watch, last=None)))

    def _draw(self) -> None:
        """Draw everything, and compute the room of each part."""
        width, height = self.size
        if not self.is_mounted or not width:
            return
        self._settle_later()
        app_state = self.app_state
        room = launch_room(height, len(app_state.rows), lines_wanted(app_state, width))
        self._selection_lines.show(app_state, room.ruled)
        launch_lines = launch(app_state, width, room, asking=self._asking)
        self._launch_lines.draw_all(launch_lines)
        self._below = 1 + room.ruled + len(launch_lines)
        self._draw_box()

    def _draw_box(self) -> None:
        """Draw what changes with every reading, in one frame from one app state."""
        app_state = self.app_state
        if not self.is_mounted or not self.size.width:
            return
        layout = self._layout()
        if layout != self._arranged:
            self._arranged = layout
            self._arrange(layout)
            self._settle_later()
        self._frame = [] if self._settled and self.app.screen is self else None
        self._draw_header()
        self._draw_keys()
        self._selection_lines.follow(app_state)
        self._table.show(app_state)
        self._read_details()
        beside = layout.beside
        self._history.show(app_state, layout.left if beside else None)
        self._lists.show(app_state, beside or layout.left)
        self._paint_frame()

    def _settle_later(self) -> None:
        """Leave painting to Textual until it has painted the present layout."""
        self._settled = False
        self.call_after_refresh(setattr, self, "_settled", True)

    def _take_lines(self, lines: Lines, changed: list[int]) -> bool:
        if self._frame is not None:
            self._frame.append((lines, changed))
        return self._frame is not None

    def _paint_frame(self) -> None:
        frame, self._frame = self._frame or [], None
        placed = [lines.pieces(changed) for lines, changed in frame]
        if frame and not (all(placed) and self._paint(chain.from_iterable(placed))):
            for lines, changed in frame:
                lines.refresh_lines(changed)

    def _layout(self) -> Layout:
        """The layout for the present content. Panels keep their places until the terminal, the command, the
        filter or the choice of panels changes; a panel that comes takes room from the last one of its
        column."""
        app_state, (width, height) = self.app_state, self.size
        rows, screen = rows_of_table(app_state), app_state.screen
        frame = width, height, rows, self._below, screen.filter, frozenset(screen.hidden)
        before = self._laid_out if frame == self._asked[0] else None
        kept = dict(before.heights) if before is not None else {}
        asked = parts(app_state, width, kept) if self._whole else None
        now = frame, None if asked is None else [part.name for part in asked]
        if self._laid_out is None or now != self._asked:
            self._asked = now
            found = [lay_out(width, height, rows, self._below, asked, before)]
            if kept:
                found.append(lay_out(width, height, rows, self._below, parts(app_state, width)))
            # Where the room is short, a panel that comes moves others rather than that one is left out.
            needed = {part.name for part in asked or () if not part.spare}
            self._laid_out = max(found, key=lambda layout: len(needed & dict(layout.heights).keys()))
            if not kept:
                self._first = now, self._laid_out
            elif now == self._first[0]:
                self._laid_out = self._first[1]
        assert self._laid_out is not None
        return self._laid_out

    @property
    def table_width(self) -> int:
        """Width of the device table, in cells, without the panels beside it."""
        return self._layout().left.width

    def _read_details(self) -> None:
        """Request what a usual reading does not include: what a page shows of its devices; otherwise what
        some columns show of the devices in view, or what the panel of the device at the cursor shows."""
        covered = any(isinstance(screen, Page) for screen in self.app.screen_stack)
        look = self._on_page, Want.DETAILS, 0.0
        if self._on_page:
            pass
        elif Want.DETAILS in self._table.needs:
            if not covered:
                look = self._table.in_view, Want.DETAILS | Want.TABLE, 0.0
        # Also below a page: the first reading after it would have no rates.
        elif self._arranged is not None and "device" in dict(self._arranged.heights):
            look = tuple(filter(None, [self.app_state.cursor])), Want.DETAILS, GLANCE_EVERY
        if look != self._looked_at:
            self._looked_at = look
            self._sampler.look_at(*look)

    def _arrange(self, layout: Layout) -> None:
        """Set the widgets' sizes from a layout."""
        self.set_class(layout.beside is not None, "-columns")
        self._header.display = self._message_line.display = layout.roomy
        self._table.set_height(layout.table)
        self._list.styles.width = layout.left.width
        self._lists.styles.width = (layout.beside or layout.left).width

    def _draw_header(self) -> None:
        age = self._sampler.age
        late = age if age is not None and age > _STALE * self._sampler.pace else None
        line = header(self.app_state, self.size.width, late, self._clock())
        self._header.draw(lambda width, height: [line])


_OF_SECTIONS = attrgetter(
    *("selection", "options", "limits", "cursor", "problem", "warnings", "screen", "command_choice")
)
"""The attributes of an app state that the selection and the launch line show."""


def _same_sections(before: AppState, app_state: AppState) -> bool:
    """Whether only facts about the devices differ, so that only the table and the panels need drawing."""
    return (
        _OF_SECTIONS(before) == _OF_SECTIONS(app_state)
        and before.snapshot is not None
        and app_state.snapshot is not None
        and len(before.rows) == len(app_state.rows)
        and before.snapshot.links == app_state.snapshot.links
        and before.is_full == app_state.is_full
    )
