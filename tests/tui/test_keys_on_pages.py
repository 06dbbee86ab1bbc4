"""Keys of the main screen on its pages: opening a page from every other page, and keys without a meaning."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import pytest
from textual.actions import parse
from textual.binding import Binding
from textual.screen import Screen
from textual.timer import Timer

from gputui.allocating.settings import DEFAULT_SCREEN
from gputui.sources.hosts.channel import Channels
from gputui.sources.hosts.ssh import Way
from gputui.tui import screens
from gputui.tui.actions import ACTIONS
from gputui.tui.controllers.box_nodes import BoxNodes
from gputui.tui.screens.box_jobs import BoxJobsScreen
from gputui.tui.screens.check import CheckScreen
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.nodes import NodesScreen
from gputui.tui.screens.page import ListPage, Page
from gputui.tui.screens.processes import ProcessesScreen
from gputui.tui.screens.queue import QueueScreen
from gputui.tui.screens.timelines import TimelinesScreen
from gputui.tui.screens.topology import TopologyScreen
from gputui.tui.widgets.lines import Lines
from table_tests import each_row
from tui.support import Session, session

# Without a command, the plan asks for a model, and takes the next keys as its name. The people are the
# processes by person, the columns and panels are among the settings, the launches on the launch page, the
# experiments among the jobs.
_ALIKE = ("plan", "people", "columns", "panels", "launches", "experiments")
OPENERS = [f"@{action.id}" for action in ACTIONS if action.page and action.id not in _ALIKE]


def pages(s: Session) -> list[Screen[object]]:
    return s.app.screen_stack[1:]


@pytest.mark.parametrize(
    ("keys", "page"),
    [
        ("D @queue", QueueScreen),
        ("@timelines p", ProcessesScreen),
        ("t p", ProcessesScreen),
        ("right D", JobsScreen),
        ("@launch_page @timelines", TimelinesScreen),
        ("@columns @panels @messages t", TopologyScreen),
    ],
)
async def test_the_key_of_another_page_replaces_this_one(keys: str, page: type) -> None:
    async with session() as s:
        await s.press(*keys.split())
        assert [type(each) for each in pages(s)] == [page]
        await s.press("escape")
        assert s.app.screen is s.main


async def test_from_each_page_each_other_one_can_be_opened_and_none_stays_below() -> None:
    async with session() as s:
        seen = set()
        for keys in (*OPENERS, *OPENERS[::2], *OPENERS[::3]):
            await s.press(keys)
            assert len(pages(s)) <= 1
            seen.update(type(each) for each in pages(s))
        assert len(seen) == len(OPENERS)


async def test_a_page_is_replaced_from_its_help_too_and_the_help_lists_the_keys() -> None:
    async with session(size=(80, 60)) as s:
        await s.press("D", "question_mark")
        text = "\n".join(s.app.screen.query_one("#page-body", Lines).texts)
        here = text.split("As on the main screen")[1].split("Symbols for GPUs")[0]
        assert "Show the topology" in here and "Show the processes" in here
        assert "Run the command" not in here
        await s.press("@queue")
        assert [type(each) for each in pages(s)] == [QueueScreen]


async def test_ones_own_keys_open_pages_from_pages() -> None:
    async with session(screen=DEFAULT_SCREEN._replace(keymap={"queue": "u", "ids": "Q"})) as s:
        await s.press("D", "@queue")
        assert [type(each) for each in pages(s)] == [QueueScreen]


async def test_a_verification_that_goes_on_is_left_without_a_wait(environ: dict[str, str]) -> None:
    async with session("idle", environ=environ) as s:
        await s.press("0", "@check")
        (page,) = pages(s)
        assert isinstance(page, CheckScreen)
        await s.press("@queue")
        assert [type(each) for each in pages(s)] == [QueueScreen]


async def test_a_key_without_an_action_says_so_and_is_not_kept() -> None:
    async with session() as s:
        for key in ("f5", "z", "tab", "é"):
            await s.press(key)
            assert key in s.main.message and "?" in s.main.message
            assert not s.main.messages
            await s.press("down")
            assert not s.main.message
        await s.press("D", "f5")
        assert "f5" in s.main.message
        assert "f5" in s.app.screen.query_one("#page-footer", Lines).texts[-2]


async def test_what_nobody_has_pressed_and_keys_that_mean_something_say_nothing() -> None:
    async with session() as s:
        for key in ("<ignore>", "left_shift", "caps_lock", "escape", "down", "ctrl+z"):
            await s.press(key)
            assert "no action" not in s.main.message, key


async def test_nothing_is_said_of_keys_in_a_line_that_is_typed_or_behind_a_dialog() -> None:
    async with session() as s:
        await s.press("e", "z", "f5")
        assert "no action" not in s.main.message and not isinstance(s.app.screen, Page)


@pytest.mark.parametrize("key", ["@panels", "@people", "p", "@messages", "right"])
async def test_the_row_of_the_cursor_has_the_same_sign_on_every_page(key: str) -> None:
    async with session(size=(100, 40)) as s:
        await s.press("9", key, *(["down"] if key != "@messages" else []))
        body = s.app.screen.query_one("#page-body", Lines)
        assert body.lit is not None and body.texts[body.lit].startswith("▸")
        assert sum(text.startswith("▸") for text in body.texts) == 1


async def test_a_page_repaints_itself_by_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Textual calls the handler of every class of a page, so a handler that calls its parent's starts the
    # timer twice.
    started: list[Page] = []
    set_interval = Page.set_interval

    def counted(page: Page, seconds: float, callback: Callable[[], object], **more: object) -> Timer:
        if callback == page.draw:
            started.append(page)
        return set_interval(page, seconds, callback, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Page, "set_interval", counted)
    async with session() as s:
        # A check needs a selected device.
        await s.press("4")
        for keys in OPENERS:
            await s.press(keys)
            await s.press(*["escape"] * len(pages(s)))
        s.main.perform("check")
        await s.press("escape")
        nodes = NodesScreen(s.main, [BoxNodes(s.main, s.main.launch, {}, Channels((), Way(1), 1.0))])
        s.main.open(nodes)
        await s.until(lambda: nodes in started)
        await s.press("D")
        await s.until(lambda: BoxJobsScreen in map(type, started))
    assert CheckScreen in map(type, started)
    assert len(started) == len(set(started))


_MEANINGS = {
    "P": {"show_as", "show_list"}, "R": {"rerun", "again"}, "S": {"stop", "leave"},
    "X": {"signal"}, "a": {"one"}, "d": {"detach"}, "e": {"edit", "edit_job", "type", "model"},
    "f": {"follow_log"}, "l": {"launcher"}, "m": {"measure"}, "r": {"return"}, "s": {"sort"},
    "v": {"compare"}, "x": {"clear", "default", "forget", "change"},
}  # fmt: skip
"""The actions of pages that a letter may stand for; letters of the main screen mean the same on pages."""


for _module in pkgutil.iter_modules(screens.__path__, "gputui.tui.screens."):
    # A page is found once its module is imported, whichever tests run before these.
    importlib.import_module(_module.name)


def _pages(kind: type[Page] = Page) -> set[type[Page]]:
    ours = [page for page in kind.__subclasses__() if page.__module__.startswith("gputui.")]
    return {kind}.union(*map(_pages, ours))


def test_a_letter_has_one_meaning_on_all_pages() -> None:
    found: dict[str, set[str]] = {}
    for page in _pages():
        for binding in page.BINDINGS:
            assert isinstance(binding, Binding)
            _, name, parameters = parse(binding.action)
            meaning = str(parameters[0]) if name in ("do", "perform") else name
            for key in binding.key.split(","):
                if key in _MEANINGS:
                    found.setdefault(key, set()).add(meaning)
    assert found == {key: _MEANINGS[key] & found[key] for key in found}


@pytest.mark.parametrize("page", ["@export", "@launch_page"])
async def test_an_action_without_a_letter_is_found_by_its_word(page: str) -> None:
    async with session(size=(110, 30)) as s:
        await s.press("5", page)
        assert ":save" in s.app.screen.query_one("#page-footer", Lines).texts[-1]
        await s.press(":save")
        assert isinstance(s.app.screen, LineScreen)


OF_ALL_PAGES = {"escape", "q", "down", "j", "up", "k", "pagedown", "pageup", "home", "g", "end", "G"}


@each_row("page", sorted(_pages() - {Page}, key=lambda page: page.__name__))
def test_the_keys_that_move_and_go_back_are_bound_once_for_all_pages(page: type[Page]) -> None:
    own = {key for binding in vars(page).get("BINDINGS", ()) for key in binding.key.split(",")}
    # Typing filters the palette, and tab moves there, too.
    assert own & OF_ALL_PAGES <= ({"down", "up"} if page.__name__ == "PaletteScreen" else set())


@pytest.mark.parametrize("page", ["@settings", "p", "@people", "@launch_page", "@usage", "D"])
async def test_a_page_down_and_the_ends_of_a_list_are_reached_on_every_page(page: str) -> None:
    async with session(size=(100, 20)) as s:
        await s.press(page)
        list_page = s.app.screen
        assert isinstance(list_page, ListPage)
        count = len(list_page.item_keys())
        await s.press("end")
        assert list_page.cursor == max(0, count - 1)
        await s.press("home")
        assert list_page.cursor == 0
        await s.press("pagedown")
        scrolls_text = page == "D"
        assert (list_page.cursor > 0) is (count > 1 and not scrolls_text)


@pytest.mark.parametrize(
    ("page", "words", "row"),
    [("@settings", "temp", "temperature"), ("p", "mira", "mira"), ("@queue", "ana", "ana")],
)
async def test_a_list_is_filtered_by_the_same_key_and_escape_shows_all_then_goes_back(
    page: str, words: str, row: str
) -> None:
    async with session(size=(100, 30)) as s:
        await s.press(page)
        list_page = s.app.screen
        assert isinstance(list_page, ListPage)
        whole = list_page.body.texts
        await s.press("slash", *words, "enter")
        left = list_page.body.texts
        assert f"with “{words}”" in left[0] and left != whole
        assert row in left[list_page.body.lit or 0], "the cursor is on a row that is left"
        await s.press("escape")
        assert list_page.is_current and "with “" not in list_page.body.texts[0]
        await s.press("home")
        assert list_page.body.texts == whole
        await s.press("escape")
        assert s.app.screen is s.main


async def test_a_filter_that_leaves_nothing_leaves_no_row_to_act_on() -> None:
    async with session(size=(100, 30)) as s:
        await s.press("@settings", "slash", *"zzz", "enter")
        assert "nothing has “zzz”" in " ".join(s.app.screen.query_one("#page-body", Lines).texts)
        before = s.main.app_state.screen
        await s.press("space", "x", "J", "down", "end")
        assert s.main.app_state.screen == before
        await s.press("slash", *["backspace"] * 3, *"theme", "enter")
        assert "theme" in s.app.screen.query_one("#page-body", Lines).texts[1]


async def test_the_devices_are_filtered_by_the_key_that_filters_pages() -> None:
    async with session() as s:
        await s.press("slash", *"free", "enter")
        assert len(s.main.app_state.rows) == 3
        await s.press("escape", "end", "pageup")
        assert len(s.main.app_state.rows) == 8 and s.main.app_state.current is not None
        assert s.main.app_state.current.index < 7
