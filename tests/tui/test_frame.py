"""The frame of the main screen: messages, the last line, help, panels, settings, and every size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual._context import active_app
from textual.containers import Vertical
from textual.widgets import Input

from gputui.allocating.settings import ScreenSettings, settings
from gputui.choosing.verdict import GLYPHS
from gputui.inventory.process import Process
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.tui import panels
from gputui.tui.actions import ACTIONS, BY_ID
from gputui.tui.app_state import AppState
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.messages import MessagesScreen
from gputui.tui.screens.page import Page
from gputui.tui.screens.palette import CHOSEN
from gputui.tui.screens.palette import matching as search
from gputui.tui.screens.queue import QueueScreen
from gputui.tui.screens.settings import SettingsScreen
from gputui.tui.widgets.lines import Lines
from table_tests import quick_first
from tui.support import Session, box_at, session


def body(s: Session) -> list[str]:
    """The lines of the page on top."""
    assert isinstance(s.app.screen, Page)
    return [text.rstrip() for text in s.app.screen.body.texts]


def footer(s: Session) -> list[str]:
    return [text.rstrip() for text in s.app.screen.query_one("#page-footer", Lines).texts]


# Messages


async def test_a_message_has_a_line_of_its_own_and_nothing_moves_for_it() -> None:
    async with session() as s:
        before = s.main.query_one("#keys").region, s.texts("#keys"), s.texts("#message")
        assert not any(before[2])
        await s.press("9")
        assert "there is no GPU 9" in s.texts("#message")[0]
        assert (s.main.query_one("#keys").region, s.texts("#keys")) == before[:2]
        await s.press("down")
        assert s.texts("#message") == [""]


async def test_messages_can_be_read_again_with_their_times_the_newest_first() -> None:
    async with session(command=()) as s:
        await s.press("9", "9", "J", "@messages")
        assert isinstance(s.app.screen, MessagesScreen)
        _, first, *rest = body(s)
        assert ":" in first and "there is no GPU 9" not in first
        assert sum("there is no GPU 9" in line for line in rest) == 1


async def test_a_message_on_a_page_leaves_its_keys_and_is_kept() -> None:
    async with session() as s:
        await s.press("@messages")
        page = s.app.screen
        assert isinstance(page, Page)
        page.show_message("something was done")
        assert "something was done" in footer(s)[-2] and "esc back" in footer(s)[-1]
        await s.press("escape", "@messages")
        assert "something was done" in body(s)[1]


# Esc


PAGES = (
    *("t", "p", "D", "question_mark", "e", "ctrl+p", "@people", "@launch_page", "@plan", "@export", "@check"),
    *("@messages", "@panels", "@ask"),
)


async def test_escape_closes_the_innermost_only_and_never_the_program() -> None:
    async with session(environ={"PATH": "/nonexistent"}) as s:
        await s.press("4")
        for key in PAGES:
            await s.press(key)
            assert s.app.screen is not s.main, key
            await s.press("escape")
            await s.until(lambda: s.app.screen is s.main)
        assert s.selected == ["4"]
        await s.press("escape")
        assert not s.selected and "cleared" in s.main.message
        await s.press("escape", "escape")
        assert s.app.is_running


# Help


@pytest.mark.parametrize(("size", "most"), [((80, 24), 2), ((130, 40), 1), ((200, 60), 1)])
async def test_the_help_has_every_key_on_two_pages_of_80_by_24_or_one_larger_page(
    size: tuple[int, int], most: int
) -> None:
    async with session(size=size) as s:
        await s.press("question_mark")
        first = body(s)
        seen: list[list[str]] = []
        while not seen or body(s) != seen[-1]:
            seen.append(body(s))
            assert all(len(line) <= size[0] and "…" not in line for line in body(s)[1:])
            await s.press("pagedown")
        assert len(seen) - 1 <= most
        text = "\n".join(line for page in seen for line in page)
        keyed = {each.title for each in ACTIONS if each.keys or each.shown}
        assert all(title in text for title in keyed)
        # The rest is found by its words: the last line says so.
        assert "everything else: `:`" in "".join(seen[-1])
        # Only where there is another page is there a key to it.
        assert ("space page" in footer(s)[-1]) == (len(seen) > 1)
        # The first page alone explains what the first minute needs: ten keys, and the sign of each state.
        assert "─ Start here ─" in first[1] and all(
            any(glyph in line and word in line for line in first) for word, glyph in GLYPHS.items()
        )
        assert any("device page" in line for line in first)


async def test_a_key_of_ones_own_is_in_the_help() -> None:
    async with session(screen=ScreenSettings(keymap={"queue": "u"}), size=(130, 40)) as s:
        await s.press("question_mark")
        assert any("u  " in line and BY_ID["queue"].title in line for line in body(s))


async def test_the_help_is_filtered_while_one_types_and_escape_ends_the_filter_first() -> None:
    async with session() as s:
        await s.press("question_mark", "slash", *"clip")
        page = s.app.screen_stack[1]
        assert isinstance(page, HelpScreen)
        assert any("Copy the launch line" in line for line in page.body.texts)
        assert not any("Quit" in line for line in page.body.texts)
        await s.press("enter")
        assert s.app.screen is page
        await s.press("escape")
        assert s.app.screen is page and any("Select" in line for line in body(s))
        await s.press("slash", "x", "escape")
        assert s.app.screen is page and "with" not in body(s)[0]
        await s.press("escape")
        assert s.app.screen is s.main


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("page", "own"),
    [
        ("t", ("tab", "Show the tree of NUMA nodes, switches and GPUs")),
        ("D", ("tab", "Break long lines")),
        ("@device", ("[ shift+tab", "Previous GPU")),
        ("@plan", (":checkpointing", "Activation checkpointing")),
    ],
)
async def test_the_help_of_a_page_begins_with_its_own_keys_and_ends_there(
    page: str, own: tuple[str, str]
) -> None:
    async with session(command=("train.py", "--model", "8B"), size=(100, 50)) as s:
        for key in ("question_mark", "f1"):
            await s.press(page)
            opened = s.app.screen
            assert footer(s)[-1].endswith("  ? help")
            await s.press(key)
            assert isinstance(s.app.screen, HelpScreen) and "? help" not in footer(s)[-1]
            lines = body(s)
            ends = next(n for n, line in enumerate(lines) if "the main screen" in line)
            assert "─ This page ─" in lines[1]
            assert any(line.startswith(f"  {own[0]}") and own[1] in line for line in lines[2:ends])
            await s.press("escape")
            assert s.app.screen is opened
            await s.press("escape")


async def test_the_help_of_a_page_leaves_out_what_only_the_main_screen_does() -> None:
    async with session(size=(100, 150)) as s:
        await s.press("t", "question_mark")
        surface = s.app.screen.query_one("#page-body", Lines)
        shown = [(line, text) for (line, _), text in zip(surface._shown, surface.texts, strict=True)]
        heads = [n for n, (_, text) in enumerate(shown) if "─ " in text]
        parts = {shown[n][1].split(" ─")[1].strip(): n for n in heads}
        as_there = parts["As on the main screen"]
        here = "\n".join(text for _, text in shown[as_there : heads[heads.index(as_there) + 1]])
        assert "Copy the launch line" in here
        # This page uses → for something else than the main screen does.
        assert "→" not in here
        assert not any("Sort the GPUs" in text for _, text in shown)
        assert sum("Select the best GPUs" in text for _, text in shown) == 1


async def test_the_help_of_the_main_screen_has_no_page_and_names_each_key_once() -> None:
    async with session(size=(100, 160)) as s:
        await s.press("question_mark")
        lines = body(s)
        assert "─ Start here ─" in lines[1]
        assert next(n for n, line in enumerate(lines[2:]) if " ─ " in line) == 10, "ten lines"
        titles = [each.title for each in ACTIONS if each.keys]
        assert {title: sum(title in line for line in lines) for title in titles} == dict.fromkeys(titles, 1)


async def test_keys_and_titles_of_pages_are_left_out_whole_where_it_is_narrow() -> None:
    async with session(command=("train.py", "--model", "8B"), size=(40, 12)) as s:
        for page in ("D", "p", "t", "@launch_page", "@timelines", "@plan"):
            await s.press(page)
            assert footer(s)[-1].endswith("  ? help") and "…" not in footer(s)[-1] + body(s)[0], page
            await s.press("escape")


# Panels


def changed(snapshot: Snapshot) -> Snapshot:
    """Another reading: eve uses GPU 4, and the machine is busier."""
    eve = (Process(4711, "compute", user="eve", memory=2**30, command="python steal.py"),)
    devices = tuple(replace(d, processes=eve) if d.index == 4 else d for d in snapshot.devices)
    host = replace(snapshot.host, load=HostLoad(cpu=77.0, memory_used=3 * 2**30, memory_total=4 * 2**30))
    return replace(snapshot, devices=devices, host=host, time=snapshot.time + 1)


@pytest.mark.parametrize("size", quick_first([(130, 40), (80, 40), (200, 60)]))
async def test_header_table_and_panels_of_one_frame_show_one_reading(size: tuple[int, int]) -> None:
    async with session(size=size, interval=1000) as s:
        s.main.set_app_state(s.main.app_state.with_snapshot(changed(box_at("shared"))))
        # This holds at once: no part is drawn later than the others.
        assert any("eve" in line for line in s.texts("#table"))
        # (On a very wide screen the processes are below the table.)
        panels_texts = s.texts("#lists") + s.texts("#history")
        assert any("eve" in line and "steal.py" in line for line in panels_texts)
        assert "cpu 77%   ram 75%" in s.texts("#header")[0]


async def test_every_line_of_a_wide_screen_belongs_to_something() -> None:
    async with session(size=(160, 40)) as s:
        assert any("─ jobs and queue" in line for line in s.texts("#lists"))
        assert any("─ processes ─" in line for line in s.texts("#history"))
        bottom = s.main.query_one("#selection").region.y
        assert s.main.query_one("#history").region.bottom == bottom
        assert s.main.query_one("#lists").region.bottom == bottom


@pytest.mark.parametrize("box", quick_first(["shared", "a100-mig", "dgx-h100", "mixed", "rtx4090"], 2))
async def test_the_timelines_of_a_very_wide_screen_end_where_the_selection_begins(box: str) -> None:
    async with session(box, size=(200, 60)) as s:
        await s.until(lambda: any("─ timelines ─" in line for line in s.texts("#history")))
        last = next(line for line in reversed(s.texts("#history")) if line)
        assert last.rstrip().endswith("now")
        assert s.main.query_one("#history").region.bottom == s.main.query_one("#selection").region.y


async def test_a_panel_is_hidden_and_shown_again_and_that_is_kept(home: Path) -> None:
    async with session(size=(160, 40)) as s:
        await s.press("@panels", *["down"] * list(panels.PANELS_BY_NAME).index("processes"), "space")
        assert isinstance(s.app.screen, SettingsScreen)
        assert any("[ ] Processes" in line for line in body(s))
        assert not any("processes ─" in line for line in s.texts("#history"))
        await s.until(lambda: settings({"HOME": str(home)}).screen.hidden == ("processes",))
        await s.press("space", "escape")
        await s.until(lambda: settings({"HOME": str(home)}).screen.hidden == ())
        assert any("─ processes ─" in line for line in s.texts("#history"))
    async with session(size=(160, 40), screen=ScreenSettings(hidden=("timelines", "links"))) as s:
        assert not any("timelines" in line for line in s.texts("#history"))
        assert not any("links" in line for line in s.texts("#lists"))


async def test_a_click_on_a_panel_opens_its_page() -> None:
    async with session(size=(160, 40)) as s:
        place = next(y for y, line in enumerate(s.texts("#history")) if "─ processes ─" in line)
        await s.pilot.click("#history", offset=(5, place))
        await s.until(lambda: s.app.screen is not s.main and bool(body(s)))
        assert "processes" in body(s)[0]


# Settings


async def test_the_theme_of_the_settings_is_used_and_a_change_is_kept(home: Path) -> None:
    async with session(screen=ScreenSettings(theme="light")) as s:
        assert s.app.theme == "light"
        await s.press("@theme", "enter", "@theme", "down", "enter")
        await s.until(lambda: settings({"HOME": str(home)}).screen.theme == "ansi")


async def test_a_rule_is_typed_saved_and_used_at_once(home: Path) -> None:
    async with session() as s:
        key = next(d.key for d in box_at("shared").devices if d.index == 2)
        assert s.main.app_state.verdicts[key].state == "held"
        await s.press("@settings", *["down"] * 3, "e")
        line = s.app.screen.query_one(Input)
        line.value = "much"
        await s.press("enter")
        assert isinstance(s.app.screen, LineScreen), "no size"
        line.value = "40G"
        await s.press("enter")
        await s.until(lambda: s.main.app_state.verdicts[key].state != "held")
        assert settings({"HOME": str(home)}).rules.memory == 40 * 2**30
        assert any("40960M" in line for line in body(s))
        await s.press("x")
        await s.until(lambda: s.main.app_state.verdicts[key].state == "held")


async def test_an_empty_line_means_the_default_of_a_setting() -> None:
    async with session() as s:
        await s.press("@settings", "down")
        for typed, interval in (("5", 5), ("  ", None)):
            await s.press("e")
            s.app.screen.query_one(Input).value = typed
            await s.press("enter")
            assert s.main.app_state.screen.interval == interval


async def test_a_line_typed_for_a_column_is_refused(home: Path) -> None:
    async with session() as s:
        await s.press("@settings")
        page = s.app.screen
        assert isinstance(page, SettingsScreen)
        for row in page.option_rows():
            if row.box:
                with pytest.raises(ValueError, match="unknown setting"):
                    page.changed(row, "7")
        assert settings({"HOME": str(home)}) == settings({"HOME": "/nowhere"})


async def test_every_setting_of_the_screen_can_be_changed_and_reset_on_one_page(home: Path) -> None:
    async with session(size=(80, 60)) as s:
        await s.press("@settings")
        saved, page = settings({"HOME": str(home)}), s.app.screen
        assert isinstance(page, SettingsScreen)
        for place, row in enumerate(page.option_rows()):
            page.go_to(place)
            if row.kind == "text":
                page.apply(page.changed(row, {"memory": "1G", "ignore_users": "dcgm"}.get(row.id, "7")))
            else:
                await s.press("space")
            await s.until(lambda before=saved: settings({"HOME": str(home)}) != before)  # type: ignore[misc]
            saved = settings({"HOME": str(home)})
            page.apply(page.changed(page.row, None))
            await s.until(lambda before=saved: settings({"HOME": str(home)}) != before)  # type: ignore[misc]
            saved = settings({"HOME": str(home)})
        assert saved == settings({"HOME": "/nowhere"})


async def test_what_cannot_be_kept_is_one_message(home: Path) -> None:
    (home / ".config").mkdir()
    (home / ".config" / "gputui").write_text("a file, not a folder")
    async with session() as s:
        await s.press("@theme", "down", "enter")
        await s.until(lambda: "settings not saved" in s.main.message)
        assert s.app.theme == "light"


async def test_own_keys_work_and_are_shown_and_the_usual_ones_do_not() -> None:
    async with session(screen=ScreenSettings(keymap={"best": "z", "topology": "b", "help": "f1"})) as s:
        assert "z best" in s.texts("#keys")[0] and "f1 help" in s.texts("#keys")[0]
        await s.press("z")
        assert len(s.selected) == 1
        await s.press("question_mark")
        assert s.app.screen is s.main
        await s.press("b")
        assert s.app.screen is not s.main
        await s.press("escape", "f1")
        assert any(line.startswith("  z ") and "best" in line for line in body(s))


async def test_the_palette_lists_few_words_in_four_groups_and_finds_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputui.sources.slurm.slurm_is_here", lambda: False)
    async with session("idle", command=("true",), size=(80, 40)) as s:
        await s.press("colon")
        titles = [title for _, title in s.app.screen.item_keys()]  # type: ignore[attr-defined]
        keyed = {action.title for action in ACTIONS if action.keys}
        assert len(titles) <= 16 and {*titles} & keyed == {BY_ID["processes"].title}
        assert BY_ID["nodes"].title not in titles, "there are no other nodes"
        headings = [line.split()[1] for line in body(s) if line.startswith(" ─ ")]
        assert headings == ["commands", "select", "launch", "look", "settings"]
        assert [line for line in body(s) if line.rstrip().endswith("…")] == [], "cut at 80 columns"
        await s.press("escape", ":settings")
        for _ in range(2):
            assert [line for line in body(s) if line.rstrip().endswith("…")] == [], "cut at 80 columns"
            await s.press("G")
        await s.press("escape", "colon")
        every = {entry.title for entry in s.app.screen._entries}  # type: ignore[attr-defined]
        listed = {"palette", "up", "down", "first", "last", "page_up", "page_down", "people"} | {*CHOSEN}
        assert every >= {action.title for action in ACTIONS if action.id not in listed}
        names = {name for entry in s.app.screen._entries for name in entry.names}  # type: ignore[attr-defined]
        assert {"sort by memory", "theme light"} < names
        await s.press("escape", "p", "colon")
        here = [title for _, title in s.app.screen.item_keys()]  # type: ignore[attr-defined]
        assert set(here) > set(titles) and here[0] not in titles
        await s.press(*"experiments", "enter")
        assert isinstance(s.app.screen, JobsScreen)


@pytest.mark.parametrize(("word", "chosen", "other"), [("sort", "index", "user"), ("theme", "dark", "ansi")])
async def test_a_choice_is_listed_and_enter_alone_changes_nothing(
    word: str, chosen: str, other: str, home: Path
) -> None:
    async with session() as s:
        before = s.main.app_state.screen
        await s.press("colon", *word)
        listed = [f"{line.rstrip()} " for line in body(s) if f":{word}" in line]
        assert len(listed) > 2 and listed[0].startswith("▸") and listed[0].endswith("now ")
        said = [line.split(f":{word}", 1)[1].split(None, 1)[1:] for line in listed]
        assert all(len(text) == 0 or said.count(text) == 1 for text in said), "no two say the same"
        assert f":{word} {chosen} " in listed[0] and any(f" :{word} {other} " in line for line in listed)
        await s.press("enter")
        assert getattr(s.main.app_state.screen, word) in (getattr(before, word), chosen)
        await s.press("colon", *word, "space", *other, "enter")
        assert getattr(s.main.app_state.screen, word) == other
        assert s.main.message.endswith(f"{other}, saved in your settings")
        await s.until(lambda: getattr(settings({"HOME": str(home)}).screen, word) == other)


def test_no_action_is_told_in_markup_or_names_its_keys_twice() -> None:
    for action in ACTIONS:
        assert "`" not in action.title + action.about
        assert not any(len(key) > 2 and key in action.about for key in action.keys.split(","))


async def test_the_palette_finds_actions_by_words_and_their_beginnings() -> None:
    ids = {action.title: action.id for action in ACTIONS}
    async with session() as s:
        await s.press("colon")
        entries = s.app.screen._entries  # type: ignore[attr-defined]

    def found(query: str) -> list[str]:
        return [ids[entry.title] for entry in search(query, entries) if entry.title in ids]

    assert "queue" not in found("pow") and "export" in found("pow")
    assert found("queue")[0] == "queue" and found("show time")[0] == "timelines"
    assert found("xq") == []
    assert {*found("power")[:3]} == {"device", "timelines", "columns"} and "export" not in found("pow")[:2]
    first = {
        "jobs": "jobs",
        "queue": "queue",
        "quit": "quit",
        "log": "jobs",
    }
    first |= {
        "people": "processes",
        "help": "help",
        "watts": "device",
        "history": "launches",
        "top": "topology",
    }
    assert {query: found(query)[0] for query in first} == first
    assert "topology" not in found("log")[:2]
    # Whoever wants to end a process learns the page and the key.
    assert {*found("kill")} == {"jobs", "processes"} and "; X ends" in BY_ID["processes"].about

    assert found("topol")[0] == "topology"
    without = [action for action in ACTIONS if not action.keys and action.id not in {*CHOSEN, "people"}]
    assert [found(action.query)[0] for action in without] == [action.id for action in without]


async def test_what_starts_or_ends_something_is_found_first_by_its_own_name_only() -> None:
    acting = {BY_ID[each].title for each in ("launch", "detach", "return", "stop", "quit")}
    async with session() as s:
        await s.press("colon")
        entries = s.app.screen._entries  # type: ignore[attr-defined]
    for query in ("launch", "launch p", "l", "r", "ru", "q", "qu", "s", "start", "job", "command", "shell"):
        assert search(query, entries)[0].title not in acting, query
    assert search("launch", entries)[0].title == BY_ID["launch_page"].title
    assert search("run", entries)[0].title == BY_ID["launch"].title


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("det", "detach"),
        ("laun", "launcher"),
        ("launch", "launch_page"),
        ("numb", "ask"),
        ("come", "return"),
        ("d", "device"),
        ("th", "theme"),
    ],
)
async def test_the_beginning_of_a_name_finds_its_action_first(query: str, action: str) -> None:
    async with session() as s:
        await s.press("colon")
        entries = s.app.screen._entries  # type: ignore[attr-defined]
    assert BY_ID[action].query in search(query, entries)[0].names[0]


@pytest.mark.parametrize("word", ["screen", "closes"])
async def test_enter_on_other_words_shows_the_name_of_what_would_start(word: str) -> None:
    async with session() as s:
        await s.press("5", "colon", *word, "enter")
        assert s.app.is_running and s.app.screen is not s.main, "nothing is done yet"
        assert s.app.screen.lines(80, 24)[1][1][0] == "run"  # type: ignore[attr-defined]
        await s.press("enter")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None and s.app.return_value.launch


async def test_escape_closes_the_palette_whatever_is_typed() -> None:
    async with session() as s:
        await s.press("colon", *"the", "escape")
        assert s.app.screen is s.main


@pytest.mark.parametrize("word", ["idle", "held"])
async def test_the_words_of_an_unused_device_lead_to_the_people(word: str) -> None:
    async with session() as s:
        await s.press(f":{word}")
        assert "by person" in s.app.screen.query_one("#page-body", Lines).texts[0]


async def test_a_word_typed_at_once_is_enough() -> None:
    async with session() as s:
        await s.pilot.press("colon", *"queue", "enter")
        await s.settle()
        assert isinstance(s.app.screen, QueueScreen)


# The demo's command


async def test_the_demos_command_is_marked_and_can_be_edited_and_needs_a_device_to_be_rehearsed() -> None:
    async with session() as s:
        s.main.set_app_state(replace(s.main.app_state, example=("python", "train.py")))
        await s.press("4")
        assert "example" in s.texts("#launch")[0] and "python train.py" in s.texts("#launch")[1]
        await s.press("@cpu")
        for key in ("enter", "@return", "@detach"):
            await s.press(key)
            assert "demo's example" in s.main.message and s.app.is_running
            assert "to type your own" in s.texts("#message")[0]
        await s.press("e")
        assert isinstance(s.app.screen, LineScreen)
        # As a command of the user's own, it is edited.
        await s.press("ctrl+u", *"python", "space", "a", "enter", "e", "end", *"py", "enter")
        assert s.main.app_state.options.command == ("python", "apy")
        await s.press("e")
        s.app.screen.query_one(Input).value = "python mine.py"
        await s.press("enter")
        assert "example" not in s.texts("#launch")[0]


# Sizes


@pytest.mark.parametrize("size", [(60, 15), (40, 10), (20, 8)])
async def test_a_small_terminal_keeps_the_selection_and_the_launch_line(size: tuple[int, int]) -> None:
    async with session(size=size) as s:
        await s.press("4", "5")
        assert len(s.texts("#table")) >= 3
        assert "4" in s.texts("#selection")[-1] and "".join(s.texts("#launch")).strip()
        regions = [w.region for w in s.main.query(Lines) if w.display and w.size.height]
        assert all(not (a.overlaps(b)) for a in regions for b in regions if a is not b)
        assert max(region.bottom for region in regions) == size[1]
        assert s.main.query_one("#keys").region.bottom == size[1]
        shown = s.texts("#keys")[0]
        assert shown.endswith("? help")


async def test_on_a_tiny_terminal_a_message_takes_the_place_of_the_keys() -> None:
    async with session(size=(40, 7)) as s:
        await s.press("9")
        assert "GPU 9" in s.texts("#keys")[0]
        await s.press("down")
        assert "help" in s.texts("#keys")[0]


async def test_the_first_layout_is_right_at_once() -> None:
    async with session(interval=1000) as s:
        s.main.set_app_state(replace(s.main.app_state, snapshot=None, watch=AppState({}).watch))
        s.main.set_app_state(s.main.app_state.with_snapshot(box_at("shared")))
        # This holds before any other turn of the loop: the frame that is painted next shows every device.
        assert len(s.texts("#table")) == 9
        await s.settle()
        assert not s.main.show_vertical_scrollbar and s.main.query_one("#keys").region.bottom == 24


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(80, 1), (1, 24)])
async def test_the_palette_survives_a_terminal_without_room_for_it(size: tuple[int, int]) -> None:
    keys = ("pagedown", "down", "pagedown", "pageup", "a", "pagedown")
    async with session(size=size) as s:
        await s.press("ctrl+p", *keys)
        assert s.app.is_running
    async with session() as s:
        await s.press("ctrl+p")
        await s.pilot.resize_terminal(*size)
        await s.press(*keys)
        assert s.app.is_running


async def test_keys_that_are_typed_while_it_ends_and_a_page_that_closes_then_are_no_error() -> None:
    async with session() as s:
        main = s.main
        s.app.leave(0)
    assert not s.app.screen_stack
    active_app.set(s.app)
    await s.app.on_event(events.Key("x", "x"))
    main.redraw_page()


@pytest.mark.parametrize("size", quick_first([(60, 15), (80, 24), (30, 8)]))
@pytest.mark.parametrize("keys", [("e",), ("w",), ("@filter",), ("5", "enter")])
async def test_a_question_covers_neither_its_keys_nor_its_input(
    size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    async with session(size=size, command=("true",)) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo: shared"))
        await s.press(*keys)
        if keys[-1] == "enter":
            await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        await s.settle()
        line = s.app.screen.query_one("#hints", Lines)
        assert line.region.bottom == size[1] and "esc" in line.texts[0]
        for around in s.app.screen.query(Vertical):
            assert around.region.bottom <= line.region.y
            assert all(around.content_region.contains_region(each.region) for each in around.query(Input))


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
async def test_no_choice_moves_the_explanations_of_the_settings(size: tuple[int, int]) -> None:
    async with session(size=size) as s:
        await s.press("@settings")
        column = body(s)[1].index("the colours")
        for _ in range(3):
            await s.press("space")
            explained = (
                body(s)[1].index("the colours"),
                body(s)[2].index("seconds"),
                body(s)[3].index("order of"),
            )
            assert {*explained} == {column}
