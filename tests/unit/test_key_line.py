"""The last line: the keys that it names in each state, and the positions of clicks on them."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

from textual.binding import Binding

from gputui.allocating.settings import ScreenSettings
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.tui import screens
from gputui.tui.actions import BY_ID, by_key
from gputui.tui.app_state import AppState
from gputui.tui.screens.page import Page
from gputui.tui.views.keys import keys
from gputui.tui.views.text import hint_line
from table_tests import each_row

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
        assert words[begin:end].endswith(BY_ID[name].hint)
    return words


DOZEN = "space J K b enter d r w y e t p D question_mark colon ctrl+p q"
CURSOR = "down j up k home g end G pagedown pageup slash right s"
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


@each_row("page", pages(), ids=lambda page: page.__name__)
def test_a_letter_means_the_same_on_every_page(page: type[Page]) -> None:
    for binding in page.BINDINGS:
        assert isinstance(binding, Binding)
        for key in binding.key.split(","):
            allowed = MEANINGS.get(key)
            assert allowed is None or any(word in binding.action for word in allowed), (key, binding.action)


FULL = replace(BOX, devices=tuple(replace(d, processes=BOX.devices[0].processes) for d in BOX.devices))


def test_the_keys_are_the_same_in_the_same_order_in_every_state() -> None:
    states = (
        state(),
        state(4),
        state(4, 5),
        state(0),
        state().cpu_only(),
        state(options=LaunchOptions()),
        AppState({}, COMMAND),
        AppState({}, COMMAND).with_snapshot(FULL),
        replace(state(4), label="demo shared", example=COMMAND.command),
    )
    for width in (40, 80, 130, 200):
        (line,) = {text(each, width) for each in states}
        assert line.endswith("  ? help") and (width < 80 or ": more" in line)
    everything = " ".join(line.split())
    dozen = ("0-9", "b", "⏎", "w", "y", "e", "D", "p", "t", "→", "q", "/", "s", "J/K", "d", ":", "?")
    places = [f" {everything}".index(f" {key} ") for key in dozen]
    assert places == sorted(places)


def test_the_way_to_the_details_is_named_where_there_is_room() -> None:
    assert all("→ details" in text(state(), width) for width in (130, 140, 160, 200))


def test_what_leads_to_a_start_is_named_in_the_smallest_usual_terminal() -> None:
    named = ("0-9 select", "b best", "⏎ run", "w wait", "y copy", "e edit", "D jobs", ": more", "? help")
    assert all(each in text(state(), 80) for each in named)
    assert all(each in text(state(), 100) for each in ("p processes", "t topology"))


def dim(app_state: AppState) -> set[str]:
    """The keys that look as if they could do nothing."""
    line, places = keys(app_state, 200)
    return {name for (_, style), (_, _, name) in zip(line[::2], places, strict=True) if style == "dim"}


def test_a_key_is_dim_as_long_as_it_could_only_say_why_it_does_nothing() -> None:
    assert dim(state()) == {"copy", "later"}
    assert dim(state(4)) == {"later"}
    assert dim(state(4, 5)) == set()
    assert dim(state().cpu_only()) == {"later"}
    assert dim(AppState({}, COMMAND)) > {"select", "best", "wait", "topology"}


def test_what_always_makes_sense_stays_longest_however_narrow_it_is() -> None:
    for width in (16, 28, 40):
        assert text(state(), width).endswith(" ? help")


def test_the_keys_are_those_of_the_users_keymap() -> None:
    own = ScreenSettings(keymap={"copy": "c", "later": "ctrl+j", "help": "f1", "select": "s"})
    assert " c copy  " in text(replace(state(4), screen=own), 120)
    assert "f1 help" in text(replace(state(4), screen=own))
    assert "ctrl+j/K reorder" in text(replace(state(4, 5), screen=own), 170)
    assert text(replace(state(), screen=own)).startswith(" 0-9 select")


def test_of_the_keys_of_a_page_the_help_stays_longest_then_the_way_back() -> None:
    def at(width: int) -> str:
        line = hint_line([("esc", "back"), ("S", "stop")], [(":", "more"), ("?", "help")], width)
        return "".join(text for text, _ in line)

    assert [at(width) for width in (33, 32, 24, 16)] == [
        " esc back  S stop  : more  ? help",
        " esc back  : more  ? help",
        " esc back  ? help",
        " ? help",
    ]
