"""PlanController: reads what the command trains, opens the plan page, and handles `n` `auto`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.inventory.formatting import devices_text, printable
from gputui.inventory.light_dataclasses import replace
from gputui.launching.launch_options import LaunchOptions, OptionError, with_home
from gputui.tui.actions import key_of
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView

if TYPE_CHECKING:
    from gputui.choosing.bandwidth import Rates
    from gputui.planning.fewest import Fewest
    from gputui.system.environment import Environ
    from gputui.tui.plan_request import PlanRequest


class PlanController:
    """Keeps the request of the plan page from one opening to the next.

    `request` is None until the first reading has finished; `reading` names the reading in progress, "" for
    none.
    """

    def __init__(self, view: MainView, environ: Environ) -> None:
        self._view, self._environ = view, environ
        self.request: PlanRequest | None = None
        self.reading = ""
        self._options: LaunchOptions | None = None
        """The launch options whose command was read last."""
        self._cancelled = threading.Event()

    def open(self) -> None:
        """Open the plan page for the current command."""
        from gputui.tui.screens.plan import PlanScreen

        screen = PlanScreen(self._view, self)
        self._view.open(screen)
        self.read(screen.model_is_read)

    def cancel(self) -> None:
        """Ignore the result of the reading in progress: the screen closes."""
        self._cancelled.set()

    # Reading

    def read(self, then: Callable[[], object]) -> None:
        """Read what the command says about its training, and the model that it names; then call `then`.

        Call it at once where the command is the last one read.
        """
        options = self._view.app_state.options
        if self.request is not None and self._options == options and not self.reading:
            then()
        else:
            self._in_background(options, None, then)

    def read_model(self, name: str, then: Callable[[], object]) -> None:
        """Read a model that the user has named."""
        self._in_background(self._view.app_state.options, name, then)

    def _in_background(self, options: LaunchOptions, name: str | None, then: Callable[[], object]) -> None:
        self._cancelled.set()
        cancelled = self._cancelled = threading.Event()
        self.reading = f"reading {printable(name)} …" if name else "reading what the command trains …"
        app, before, host = self._view.app, self.request, self._view.app_state.host_environment

        def work() -> None:
            from gputui.checking.kept_bandwidth import kept_bandwidths
            from gputui.launching.training_words import training_of
            from gputui.tui.plan_request import request_of

            bandwidths = kept_bandwidths(self._environ)

            request = request_of(training_of(options, self._environ, host))
            if before is not None and before.typed and not request.name:
                request = replace(request, name=before.name, typed=True)
            if name is not None:
                request = replace(request, name=name, typed=True)
            request = _with_model(request, options, self._environ, cancelled)
            app.call_later(finish, request, bandwidths)

        def finish(request: PlanRequest, bandwidths: Rates) -> None:
            if not cancelled.is_set():
                # The measurements of this session are newer.
                app_state = self._view.app_state
                known = {**bandwidths, **app_state.measured}
                self._view.set_app_state(replace(app_state, measured=known))
                if self.request is not None:
                    # As it is now: a key may have changed it while the model was read.
                    request = replace(request, given=self.request.given, count=self.request.count)
                self.request, self._options, self.reading = request, options, ""
                then()

        in_background("read the model", work)

    # As many devices as the model needs

    def select_enough(self) -> None:
        """Select the fewest of the best free devices that hold the model that the command trains."""
        self._view.show_message("finding how many devices the model needs …", kind="passing")
        self.read(self._look_for_enough)

    def _look_for_enough(self) -> None:
        from gputui.planning.model import PlanningError
        from gputui.tui.plan_request import candidates_of

        request, app = self.request, self._view.app
        if request is None or request.model is None:
            why = (request.problem if request else "") or "the command names no model"
            self._view.show_message(f"{printable(why)}: {self._key} asks for one", "warn")
            return
        candidates = candidates_of(self._view.app_state)
        if isinstance(candidates, str):
            self._view.show_message(candidates, "warn")
            return
        model = request.model

        def work() -> None:
            try:
                found = candidates.fewest(model, request.planned(model))
            except PlanningError as error:
                app.call_later(self._view.show_message, str(error), "warn")
            else:
                app.call_later(self._select, found, len(candidates.free))

        in_background("fewest devices", work)

    @property
    def _key(self) -> str:
        return key_of("plan", self._view.app_state.screen.keymap)

    def _select(self, found: Fewest | None, free: int) -> None:
        app_state = self._view.app_state
        there = app_state.box.by_key
        if found is None:
            words = f"not enough: {devices_text(free)} free" if free else "no GPU is free"
            self._view.show_message(f"{words}: {self._key} shows what is enough", "warn")
        elif any(device.key not in there for device in found.devices):
            self._view.show_message("a device is no longer present: ask again", "warn")
        else:
            self._view.set_app_state(app_state.with_devices(tuple(device.key for device in found.devices)))
            self._view.show_message(f"enough: {found.words}")
        self._view.redraw_page()


def _with_model(
    request: PlanRequest, options: LaunchOptions, environ: Environ, cancelled: threading.Event
) -> PlanRequest:
    """The request with the model of its name, or with the reason why there is no model."""
    from gputui.checking.trained_model import trained_model
    from gputui.planning.model import PlanningError

    if not request.name:
        return request
    try:
        directory = Path() if request.typed else Path(options.directory or "")
        name = with_home(request.name) if request.typed else request.name
        serves = request.training.serving is not None
        return replace(request, model=trained_model(name, options, environ, directory, cancelled, serves))
    except (PlanningError, OptionError) as error:
        return replace(request, problem=str(error))
