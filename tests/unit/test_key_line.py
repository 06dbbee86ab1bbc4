"""The last line: the keys that it names in each state, and the positions of clicks on them."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

import pytest
from textual.binding import Binding

from gputui.allocating.settings import ScreenSettings
from gputui.inventory.job import Job
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.tui import screens
from gputui.tui.actions import BY_ID, by_key
from gputui.tui.app_state import AppState
from gputui.tui.screens.page import Page
from gputui.tui.views.keys import keys, next_actions

COMMAND = LaunchOptions(("python", "train.py"))
BOX = at(BOXES["shared"], 0.0, 1_700_000_000.0)


def state(*selected: int, options: LaunchOptions = COMMAND) -> AppState:
    app_state = AppState({}, options).with_snapshot(BOX)
    for index in selected:
        app_state = app_state.toggle(next(device for device in BOX.devices if device.index == index))[0]
    return app_state


def text(app_state: AppState, width: int = 80) -> str:
    line, places = keys(app_state, width)
    words = "".join(part for part, _ in line)
    assert len(words) <= width or width < 16
    for begin, end, name in places:
        assert words[begin:end].endswith(BY_ID[name].hint) or name == "edit"
    return words


DOZEN = "space J K b enter w y e t p D question_mark colon ctrl+p q"
CURSOR = "down j up k home g end G right"
MORE = "shift+down shift+up f1 ctrl+z"
"""The same as one of the dozen, for other keyboards and habits."""


def test_the_main_screen_has_a_dozen_keys() -> None:
    assert by_key({}).keys() == {*f"{DOZEN} {CURSOR} {MORE}".split()}


MEANINGS = {
    "b": ("best",),
    "colon": ("palette",),
    "e": ("edit", "type", "model"),  # typing what the page is about
    "q": ("dismiss", "leave"),
    "D": ("jobs",),
    "J": ("later", "move(1)"),
    "K": ("earlier", "move(-1)"),
    "p": ("dismiss", "processes"),
    "t": ("topology",),
    "w": ("wait",),
    "y": ("copy",),
}
"""What a letter of the main screen may do on a page: the same as there."""


def pages() -> list[type[Page]]:
    for module in pkgutil.iter_modules(screens.__path__):
        importlib.import_module(f"{screens.__name__}.{module.name}")
    found, new = set[type[Page]](), [Page]
    while new:
        new = [each for parent in new for each in parent.__subclasses__()]
        found.update(new)
    return sorted(found, key=lambda each: each.__name__)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.__name__)
def test_a_letter_means_the_same_on_every_page(page: type[Page]) -> None:
    for binding in page.BINDINGS:
        assert isinstance(binding, Binding)
        for key in binding.key.split(","):
            allowed = MEANINGS.get(key)
            assert allowed is None or any(word in binding.action for word in allowed), (key, binding.action)


def test_without_a_selection_the_first_keys_select() -> None:
    assert text(state()).startswith(" space/0-9 select  b best  ⏎ run  ")


def test_without_a_command_the_first_key_types_one() -> None:
    assert text(state(options=LaunchOptions())).startswith(" e type a command  space/0-9 select")
    assert text(state(4, options=LaunchOptions())).startswith(" e type a command  y copy  esc clear")


def test_with_both_the_first_keys_start_it() -> None:
    assert text(state(4)).startswith(" ⏎ run  y copy  esc clear")
    assert "J/K reorder" in text(state(4, 5)) and "J/K" not in text(state(4))
    assert "esc clear" in text(state().cpu_only())


def test_a_busy_device_can_be_waited_for_and_on_a_full_box_that_is_first() -> None:
    assert text(state(0)).startswith(" w wait in line  ⏎ run")
    assert "wait" not in text(replace(state(0), label="demo"))
    full = replace(BOX, devices=tuple(replace(d, processes=BOX.devices[0].processes) for d in BOX.devices))
    assert text(AppState({}, COMMAND).with_snapshot(full)).startswith(" w wait in line  space/0-9 select")


def test_a_device_of_ones_own_job_is_not_waited_for() -> None:
    mine = next(device.index for device in BOX.devices if state().own_job_on(device.key) is not None)
    assert text(state(mine)).startswith(" ⏎ run")


def test_jobs_are_named_first_while_one_runs() -> None:
    for job_state, first in (("running", True), ("waiting", True), ("done", False)):
        jobs = (Job(id="m6u5", name="x", state=job_state),)
        found = next_actions(replace(state(), snapshot=replace(BOX, jobs=jobs)))
        assert (found.index("jobs") < found.index("topology")) is first


def test_what_always_makes_sense_stays_at_the_end_however_narrow_it_is() -> None:
    for width in (28, 40, 80, 200):
        for app_state in (AppState({}), state(), state(4, 5), state(0, options=LaunchOptions())):
            assert text(app_state, width).endswith(": more  ? help  q quit")


def test_the_keys_are_those_of_the_users_keymap() -> None:
    own = ScreenSettings(keymap={"copy": "c", "later": "ctrl+j", "help": "f1", "select": "s"})
    assert " c copy  " in text(replace(state(4), screen=own)) and "f1 help" in text(
        replace(state(4), screen=own)
    )
    assert "ctrl+j/K reorder" in text(replace(state(4, 5), screen=own), 120)
    assert text(replace(state(), screen=own)).startswith(" s/0-9 select")


def test_with_the_demos_example_the_keys_are_those_of_a_command_that_runs_except_waiting() -> None:
    example = replace(state(4), label="demo shared", example=COMMAND.command)
    full = replace(state(0), label="demo shared", example=COMMAND.command)
    assert not {"return", "detach", "wait"} & {*next_actions(example), *next_actions(full)}
    assert text(example).startswith(" ⏎ run  y copy  esc clear  ")
