"""PlanScreen: how the model fits on these devices, in parallel; Enter puts a plan on the launch line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.inventory.formatting import gpus, is_digits, printable
from gputui.inventory.light_dataclasses import replace
from gputui.launching.compose import on_any
from gputui.launching.launch import Launch
from gputui.launching.launch_options import AUTO
from gputui.launching.launchers import LAUNCHERS
from gputui.launching.planned import FilesDifferError, Prepared, differing, prepared, write
from gputui.launching.shell_words import command_line
from gputui.launching.start import missing_program
from gputui.planning.devices import Candidates, PlannedDevices
from gputui.planning.files import FOLDER, RecipeError, recipe_of
from gputui.planning.model import PlanningError
from gputui.planning.plan import Plan, Row
from gputui.system.files import NoHomeError, state_folder
from gputui.tui.actions import key_of
from gputui.tui.main_view import MainView
from gputui.tui.plan_request import (
    CHOICES,
    PlanRequest,
    candidates_of,
    devices_for,
    fewest_for,
    plan_of,
)
from gputui.tui.screens.confirm import Answer, ConfirmScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import Entry, ListPage, choice_entry, hidden, shown, worded
from gputui.tui.views import plan as view_of_plan
from gputui.tui.views.text import Line

if TYPE_CHECKING:
    from gputui.tui.controllers.plan import PlanController

_SMALL = 20
"""Lines of the body below which only the number of the devices is shown."""
_LEAST_ROWS, _LEAST_DETAIL = 3, 7
"""The least lines of the table and of the strategy at the cursor; the table comes first."""
_AIRY = 32
"""Lines of the body from which its parts are separated by blank lines."""


class PlanScreen(ListPage):
    """The ranked strategies, below the request that they answer. Each change of the request plans again.

    The cursor is at the best strategy until the user moves it.
    """

    BINDINGS = [
        shown("enter", "use", "use", "⏎", "Put it on the launch line, with its files; asks first"),
        shown("e", "model", "model", about="Name the model: a path, a hub id, a size"),
        shown("n", "count", "devices", about="Type the number of devices; auto: as many as it needs"),
        # What the line above the strategies shows with its key is not named again in the last line.
        hidden("plus,equals_sign", "batch(True)", "Twice the batch"),
        hidden("minus", "batch(False)", "Half the batch"),
        hidden("right", "step(1)", "One device more"),
        hidden("left", "step(-1)", "One device fewer"),
        worded("sequence", "type('sequence')", "sequence", "Type the length of a sequence"),
        worded("precision", "choose('precision')", "precision", "The precision, from a list"),
        worded("optimizer", "choose('optimizer')", "optimizer", "The optimizer, from a list"),
        worded("checkpointing", "checkpointing", "checkpointing", "Activation checkpointing"),
        worded("lora", "choose('lora')", "lora", "The LoRA rank, from a list; 0: none"),
        worded("batch", "type('batch')", "batch", "Type the batch"),
        worded(
            "accumulation", "type('accumulation')", "accumulation", "Type the steps of gradient accumulation"
        ),
        shown("x", "default", "as in the command", about="Back to what the command says"),
    ]

    def __init__(self, view: MainView, controller: PlanController) -> None:
        super().__init__(view)
        self._controller = controller
        self._moved = False
        self._found: PlannedDevices | str = ""
        self._found_for: object = None
        self._refused = ""
        self._plan: Plan | None = None
        self._problem = ""

    def on_unmount(self) -> None:
        if self._controller.reading:
            self._controller.cancel()

    # The plan

    @property
    def _request(self) -> PlanRequest:
        return self._controller.request or PlanRequest()

    def _make(self) -> None:
        """Plan again if any input of the plan has changed."""
        app_state, request = self.app_state, self._request
        verdicts = app_state.verdicts
        found_for = (
            app_state.selection.keys,
            request.count,
            app_state.limits,
            tuple((key, verdict.state) for key, verdict in verdicts.items()),
            bool(app_state.box.links),
            app_state.problem if app_state.snapshot is None else None,
        )
        if found_for != self._found_for:
            self._found, self._found_for = devices_for(app_state, request.count), found_for
            self._refused = self._why_refused()
        elif isinstance(self._found, PlannedDevices) and not self._found.in_use:
            self._found = self._found.within(app_state.snapshot)
        self._plan, self._problem = None, ""
        if request.model is None or isinstance(self._found, str):
            return
        try:
            self._plan = plan_of(request, app_state, self._found)
        except PlanningError as error:
            self._problem = str(error)

    def _why_refused(self) -> str:
        """Why the command, as it is, cannot be started on as many devices; "" where it can."""
        app_state, found = self.app_state, self._found
        if isinstance(found, str):
            return ""
        options, host = app_state.options, app_state.host_environment
        launch = on_any(options, len(found.devices), app_state.environ, host, intent=app_state.intent)
        return launch.refusal or ""

    def _lacks(self, row: Row) -> str:
        """The message that the launcher of a strategy is not installed; "" where it is."""
        if row.serving is not None or not self.app_state.options.command:
            return ""
        try:
            options = self._prepared(row).options
        except RecipeError:
            # Enter says why.
            return ""
        launch = Launch(options.command, tuple(options.additions), options.directory)
        started = options.command[0] in LAUNCHERS
        return (missing_program(launch, self.app_state.environ) or "") if started else ""

    def model_is_read(self) -> None:
        """Draw the plan; where nothing names a model, ask for it."""
        self.draw()
        if not self._request.name and self.app.screen is self:
            self.action_model()

    def item_keys(self) -> Sequence[Hashable]:
        self._make()
        return [row.name for row in self._plan.rows] if self._plan else []

    def follow(self) -> None:
        if not self._moved:
            able = self._plan.able if self._plan else None
            # Enter starts it: where links are slow, a pipeline can stand above it.
            self.cursor, self.key = self._plan.rows.index(able) if self._plan and able else 0, None
        super().follow()

    def go_to(self, place: int) -> None:
        self._moved = True
        super().go_to(place)

    @property
    def _row(self) -> Row | None:
        """The strategy at the cursor, as it was last painted."""
        rows = self._plan.rows if self._plan else ()
        return rows[self.cursor] if self.cursor < len(rows) else None

    # Painting

    def lines(self, width: int, height: int) -> list[Line]:
        request, found, made = self._request, self._found, self._plan
        head = [view_of_plan.heading(request, width)]
        if made is not None and isinstance(found, PlannedDevices):
            head += view_of_plan.answered(made, found, width)
        if isinstance(found, PlannedDevices) and height >= _SMALL:
            head.append(view_of_plan.where(self.app_state, made, found, width))
        count = self.app_state.intent.count
        head += view_of_plan.settings(request, found, width)
        head += view_of_plan.doubts(request, found, count, self._refused, width)
        row = self._row
        if made is None or row is None:
            busy = self._controller.reading
            return [*head, *view_of_plan.missing(request, found, busy or "", self._problem, width)][:height]
        between: list[Line] = [((" ", ""),)] if height >= _AIRY else []
        head += between
        columns = view_of_plan.columns_of(made, width)
        head.append(view_of_plan.table_heading(made, columns, width))
        listing = view_of_plan.rows(made, columns, width)
        room = max(_LEAST_ROWS, min(len(listing), height - len(head) - _LEAST_DETAIL))
        visible = self.window(listing, range(len(listing)), room, above=len(head))
        below = len(listing) - self.top - len(visible)
        left = height - len(head) - len(visible) - len(between)
        detail = view_of_plan.detail(row, made, below, width, left, self._lacks(row))
        return [*head, *visible, *between, *detail][:height]

    # Key actions

    def action_cursor(self, by: int) -> None:
        self._moved = True
        super().action_cursor(by)

    def _set(self, request: PlanRequest) -> None:
        self._controller.request = request
        self.draw()

    def entries(self) -> list[Entry]:
        """What this page does; in place of an action that chooses, its choices."""
        try:
            now = self._request.workload
        except PlanningError:
            return super().entries()
        found = [entry for entry in super().entries() if CHOICES.keys().isdisjoint(entry.names)]
        for name, choices in CHOICES.items():
            for each in choices:
                run = partial(self._choose, name, each)
                chosen = each == getattr(now, name)
                found.append(choice_entry(name, name, str(each), chosen, run))
        return found

    def _choose(self, name: str, choice: object) -> None:
        self._changed(lambda request: request.having(**{name: choice}))

    def _changed(self, change: Callable[[PlanRequest], PlanRequest]) -> None:
        try:
            self._set(change(self._request))
        except PlanningError as error:
            self.show_message(str(error))

    def action_batch(self, more: bool) -> None:
        self._changed(lambda request: request.batch(more))

    def action_checkpointing(self) -> None:
        self._changed(PlanRequest.other_checkpointing)

    def action_default(self) -> None:
        self._set(replace(self._request, given={}, count=None))

    def action_step(self, by: int) -> None:
        """Change to the next larger or smaller number of devices that can work together."""
        app_state, now = self.app_state, self._number
        for count in range(now + by, self._most + 1 if by > 0 else 0, by):
            if isinstance(devices_for(app_state, count), PlannedDevices):
                self._set(replace(self._request, count=count))
                return
        self.show_message(f"{now} is the {'largest' if by > 0 else 'smallest'} number here")

    @property
    def _number(self) -> int:
        """How many devices the plan is for, or was requested for."""
        return self._request.count or 0 if isinstance(self._found, str) else len(self._found.devices)

    @property
    def _most(self) -> int:
        """How many devices there can be at most."""
        candidates = candidates_of(self.app_state)
        return candidates.most if isinstance(candidates, Candidates) else len(self.app_state.box.devices)

    def action_model(self) -> None:
        def error_in(line: str) -> str | None:
            return None if "\0" not in line else "no name"

        def answered(line: str) -> None:
            self._controller.read_model(line, self.view.redraw_page)
            self.draw()

        example = "a folder, a config.json, a cached hub id, or a size: 8B"
        self._ask("model", self._request.name, error_in, answered, example)

    def action_type(self, name: str) -> None:
        """Type a whole number: the batch, the sequence, the steps of accumulation."""

        def having(line: str) -> PlanRequest:
            return self._request.having(**{name: _whole(line)})

        now = str(getattr(self._request.workload, name))
        self._ask(name, now, lambda line: having(line).workload, lambda line: self._set(having(line)))

    def action_count(self) -> None:
        """Type the number of devices, or request as many as the model needs."""
        most = self._most

        def error_in(line: str) -> str | None:
            if "auto".startswith(line.strip()):
                return None if line.strip() == "auto" else "a number, or auto"
            return None if 1 <= _whole(line) <= most else f"from 1 to {most}, or auto"

        def answered(line: str) -> None:
            if line == "auto":
                self._fewest()
            else:
                self._set(replace(self._request, count=_whole(line)))

        prompt = "how many devices?  4, or auto: as many as the model needs"
        self._ask(prompt, str(self._number or ""), error_in, answered)

    def _ask(
        self,
        prompt: str,
        value: str,
        check: Callable[[str], object],
        answered: Callable[[str], None],
        example: str = "",
    ) -> None:
        """Ask for a line; an empty one changes nothing. Without a model, there is no page to go back to."""

        def given(line: str | None) -> None:
            if line and line.strip():
                answered(line.strip())
            elif not self._request.name:
                self.dismiss()

        self.app.push_screen(LineScreen(prompt, value, example, check), given)

    def _fewest(self) -> None:
        """Plan for the fewest devices that hold the model; show a message where no number is enough."""
        count = fewest_for(self._request, self.app_state)
        if count is None:
            self.show_message("all GPUs of this box together are not enough for the model")
        else:
            self._set(replace(self._request, count=count))

    def action_use(self) -> None:
        """Put the strategy at the cursor and its devices on the launch line, with its files, after a yes."""
        row, found = self._row, self._found
        if row is None or isinstance(found, str):
            if self._request.model is None and not self._controller.reading:
                self.action_model()
            return
        if not self.app_state.options.command:
            self.show_message("no command yet: press e on the main screen to type one")
            return
        if row.serving is not None:
            keys = tuple(device.key for device in found.devices[: row.strategy.devices])
            self.view.set_app_state(self.app_state.with_devices(keys))
            self.dismiss()
            self.view.show_message(f"{row.name}: its devices are selected; {row.what}", kind="lasting")
            return
        try:
            self._ask_to_use(self._prepared(row), row, found)
        except RecipeError as error:
            self.show_message(str(error))

    def _ask_to_use(self, made: Prepared, row: Row, found: PlannedDevices) -> None:
        """Show what the plan changes, and ask: it replaces the command, and may replace files."""
        app_state, options, lost = self.app_state, self.app_state.options, differing(made)
        devices = found.devices[: row.strategy.devices]
        doubts = [] if row.fits else [f"! {row.name} does not fit: {row.outcome}"]
        doubts += [f"! replaces {printable(str(path.absolute()))}, which has other contents" for path in lost]
        doubts += (
            [f"! the plan is not for this machine's GPUs ({app_state.label})"] if app_state.label else []
        )
        reasons = [
            *doubts,
            f"the command now: {command_line(options.additions, options.command)}",
            f"with the plan:   {command_line(made.options.additions, made.options.command)}",
            *(f"writes {printable(str(path.absolute()))}" for path in made.texts if path not in lost),
            *made.notes,
        ]
        names = gpus([*map(app_state.box.label, devices)])
        question = f"Put {row.name} on {names} on the launch line?"

        def answered(answer: Answer | None) -> None:
            if answer == "run":
                self._write(made, row, found, lost)

        self.view.open(ConfirmScreen(self.view, question, reasons, "run", warns=bool(doubts)), answered)

    def _write(self, made: Prepared, row: Row, found: PlannedDevices, over: Sequence[Path] = ()) -> None:
        """Write the files; ask again where that would lose others than those `over` which was asked."""
        try:
            write(made, over)
        except FilesDifferError:
            self._ask_to_use(made, row, found)
        except OSError as error:
            self._ask_for_folder(row, found, error.strerror or str(error))
        else:
            self._start(made, row, found)

    def _ask_for_folder(self, row: Row, found: PlannedDevices, why: str) -> None:
        """Ask for another folder where the job's directory cannot be written."""

        def answered(folder: str) -> None:
            self._write(self._prepared(row, folder), row, found)

        prompt = f"{FOLDER}: {why}. Another folder for the files?"
        elsewhere = ""
        with contextlib.suppress(NoHomeError):
            elsewhere = str(state_folder(self.app_state.environ) / "plans")
        self._ask(prompt, elsewhere, lambda line: None, answered)

    def _start(self, made: Prepared, row: Row, found: PlannedDevices) -> None:
        """Put the plan and its devices on the launch line of the main screen."""
        keys = tuple(device.key for device in found.devices[: row.strategy.devices])
        self.view.set_app_state(self.app_state.with_plan(made.options, keys))
        for note in made.notes:
            self.view.show_message(note, "warn")
        restore = key_of("restore", self.app_state.screen.keymap)
        self.dismiss()
        self.view.show_message(f"{row.name} is on the launch line: {restore} undoes it", kind="lasting")

    def _prepared(self, row: Row, folder: str | None = None) -> Prepared:
        """The files and the command of a row. Raises RecipeError.

        The user's launcher is kept where it can start the plan.
        """
        assert self._plan is not None  # it has the row
        app_state = self.app_state
        recipe, options = recipe_of(self._plan, row), app_state.options
        place = folder or os.path.join(options.directory or "", FOLDER)  # noqa: PTH118 - as text
        try:
            return prepared(recipe, options, place, app_state.host_environment)
        except RecipeError:
            if options.launcher == AUTO:
                raise
            return prepared(recipe, replace(options, launcher=AUTO), place, app_state.host_environment)

    def clicked_again(self) -> None:
        self.action_use()


def _whole(text: str) -> int:
    """The whole number of at most nine digits. Raises ValueError."""
    text = text.strip()
    if not (is_digits(text) and len(text) < 10):
        raise ValueError(f"{text!r} is not a whole number of at most nine digits")
    return int(text)
