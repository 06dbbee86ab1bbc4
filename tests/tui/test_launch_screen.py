"""The launch page: every row changes the launch line; recent launches are reused, named and forgotten."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from textual.widgets import Input, Static

from gputui.launching.history import Launches, PastLaunch, named, with_launch
from gputui.launching.history_file import change, load
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.source import NoSourceError
from gputui.tui.actions import ACTIONS
from gputui.tui.app_state import AppState
from gputui.tui.option_rows import rows
from gputui.tui.screens.launch import LaunchScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.palette import PaletteScreen
from gputui.tui.views.launch_page import remembered
from gputui.tui.widgets.lines import Lines
from gputui.vendors.nvidia.vendor import VENDOR
from tui.support import Session, box_at
from tui.support import session as moving
from unit.builders import NOW

VISIBLE = VENDOR.visibility.variable

session = functools.partial(moving, interval=1000)
"""Only requested readings happen, so that the pilot finds the application idle."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def keep(environ: dict[str, str], options: LaunchOptions, count: int, name: str | None = None) -> Launches:
    return change(environ, lambda known: named(with_launch(known, options, count, 1.0), 0, name))


def texts(s: Session) -> list[str]:
    return [text.rstrip() for text in s.app.screen.query_one("#page-body", Lines).texts]


def below(s: Session) -> str:
    """The text below the rows, with the launch line, without line breaks."""
    return " ".join(" ".join(s.app.screen.query_one("#page-footer", Lines).texts).split())


def prompt(s: Session) -> str:
    """The text above the line that is open."""
    return str(s.app.screen.query_one("#what", Static).render())


def row(s: Session, label: str) -> str:
    return next(line for line in texts(s) if label in line)


async def unfold(s: Session) -> None:
    """Show all options; the cursor is then at the first one."""
    await s.press("G", "enter", "g")


async def go_to(s: Session, label: str) -> None:
    """Move the cursor to a row."""
    screen = s.app.screen
    assert isinstance(screen, LaunchScreen)
    await s.press("g")
    if label not in [each.label for each in screen.options]:
        await unfold(s)
    screen.action_cursor([each.label for each in screen.options].index(label))
    assert any(line.startswith("▸") and label in line for line in texts(s)), texts(s)


async def type_in(s: Session, text: str) -> None:
    """Replace the text of the open line, and accept it."""
    assert isinstance(s.app.screen, LineScreen), s.app.screen
    s.app.screen.query_one(Input).value = text
    await s.press("enter")


# Rows


async def test_it_shows_the_settings_the_variables_and_the_line_that_they_come_to(
    environ: dict[str, str],
) -> None:
    async with session(environ=environ) as s:
        await s.press("5", "4", "@launch_page")
        assert texts(s)[0].startswith(" ─ this launch ─")
        assert [line[2:15].strip() for line in texts(s)[1:]] == [
            "launcher", "processes", "Python", "directory", "time limit",
            "environment", "another …", "more options",
        ]  # fmt: skip
        assert f"{VISIBLE}=5,4 python train.py" in below(s)
        assert "esc back" in below(s)


async def test_what_few_launches_need_is_one_enter_away(environ: dict[str, str]) -> None:
    async with session(environ=environ, size=(80, 40)) as s:
        await s.press("@launch_page", "G")
        assert texts(s)[-1].startswith("▸─ more options ▸ ─")
        await s.press("enter")
        at = next(place for place, line in enumerate(texts(s)) if line.startswith("▸─ more options ▾ ─"))
        assert [line[2:15].strip() for line in texts(s)[at + 1 : at + 4]] == [
            "devices by", "logs", "NUMA binding",
        ]  # fmt: skip
        await s.press("down", "space")
        assert s.main.app_state.options.ids == "uuid" and "more options ▾ (1 set)" in texts(s)[at]
        # A switch is only turned, whatever the key: a text is no value of it.
        for key in ("up", "x", "e", "x", "enter", "e"):
            await s.press(key)
        assert "more options ▸ (1 set)" in texts(s)[-1] and isinstance(s.app.screen, LaunchScreen)


async def test_options_that_are_set_or_searched_are_shown_at_once(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("@launch_page", "slash", *"index", "enter")
        assert any("devices by" in line for line in texts(s)) and len(texts(s)) == 3
        await s.press("escape")
        assert "more options ▸" in texts(s)[-1]
        await go_to(s, "devices by")
        await s.press("space", "escape", "@launch_page")
        assert row(s, "devices by") and "1 set" in row(s, "more options")
        # The last one that is reset stays where the cursor is.
        await go_to(s, "devices by")
        await s.press("x")
        assert row(s, "devices by").startswith("▸")


async def test_the_recent_launches_are_filtered(environ: dict[str, str]) -> None:
    keep(environ, LaunchOptions(("python", "one.py")), 1)
    keep(environ, LaunchOptions(("python", "two.py")), 1)
    async with session(environ=environ) as s:
        await s.press("@launches", "slash", *"one.py", "enter")
        (shown,) = texts(s)[1:]
        assert shown.endswith("python one.py")
        await s.press("x")
        assert "nothing has “one.py”" in texts(s)[1]


@pytest.mark.parametrize("command", [("echo", "hi"), ("python", "t.py"), ("torchrun", "t.py")])
def test_a_command_without_a_launcher_is_not_called_recognised(command: tuple[str, ...]) -> None:
    app_state = AppState({}, LaunchOptions(command)).with_snapshot(box_at("shared"))
    found = next(each for each in rows(app_state) if each.id == "launcher")
    assert (found.value == command[0]) == ("command says" in found.about) == (command[0] != "echo")


async def test_values_of_the_settings_are_shown_with_where_they_come_from(environ: dict[str, str]) -> None:
    folder = Path(environ["XDG_STATE_HOME"]).parent / "config"
    (folder / "gputui").mkdir(parents=True)
    (folder / "gputui" / "config.toml").write_text('[run]\nconfine = "never"\n')
    async with session(environ={**environ, "XDG_CONFIG_HOME": str(folder)}) as s:
        await s.press("@launch_page")
        await unfold(s)
        assert "never (:settings)" in row(s, "confined") and "none (:settings)" in row(s, "stop if idle")


@pytest.mark.parametrize("command", [("echo", "hi"), ("torchrun", "t.py")])
async def test_no_row_of_an_option_is_cut_at_80_columns(
    environ: dict[str, str], command: tuple[str, ...]
) -> None:
    async with session(environ=environ, command=command, size=(80, 40)) as s:
        await s.press("@launch_page")
        await unfold(s)
        labels = [each.label for each in rows(s.main.app_state) if not each.box]
        assert all(not row(s, label).endswith("…") for label in labels), texts(s)


async def test_devices_that_cannot_work_together_are_refused_beside_the_line(environ: dict[str, str]) -> None:
    """Gaudi's modules 1 and 2 are in no aligned group; 2 and 3 form one."""
    async with session("gaudi", environ=environ, size=(130, 40)) as s:
        await s.press("1", "2")
        refusal = s.main.app_state.launch.refusal
        assert refusal is not None and refusal in " ".join(" ".join(s.texts("#launch")).split())
        assert "1 more warning: :launch page" in s.texts("#launch")[0]
        await s.press("1", "3")
        assert s.main.app_state.launch.refusal is None


async def test_notes_that_are_cut_on_the_main_screen_are_here_in_full(environ: dict[str, str]) -> None:
    trainer = ("python", "-c", "from transformers import Trainer")
    async with session(environ=environ, size=(80, 20), command=trainer) as s:
        await s.press("4", "5")
        (note,) = s.main.app_state.launch.remarks
        cut = s.texts("#launch")[-1]
        assert ":launch page" in " ".join(s.texts("#launch")) and len(cut) <= 80
        await s.press("@launch_page")
        assert note in " ".join(below(s).split())


async def test_enter_lists_the_launchers_and_changes_nothing_by_itself(environ: dict[str, str]) -> None:
    async with session(environ=environ, command=("torchrun", "train.py")) as s:
        await s.press("5", "4", "@launch_page")
        before = s.main.app_state.options
        await go_to(s, "launcher")
        await s.press("enter")
        assert isinstance(s.app.screen, PaletteScreen) and s.main.app_state.options == before
        await s.press("escape")
        assert s.main.app_state.options == before
        await s.press("enter", "down", "enter")
        assert isinstance(s.app.screen, LaunchScreen) and s.main.app_state.options != before


async def test_every_row_changes_the_plan_and_the_line(environ: dict[str, str]) -> None:
    async with session(environ=environ, command=("torchrun", "train.py")) as s:
        await s.press("5", "4", "@launch_page")
        plain = below(s)
        await go_to(s, "processes")
        await s.press("e")
        await type_in(s, "1")
        assert "--nproc-per-node=1" in below(s)
        await s.press("x")
        assert below(s) == plain
        await go_to(s, "Python")
        await s.press("enter")
        await type_in(s, "/opt/py")
        assert "/opt/py -m torch.distributed.run" in below(s)
        await s.press("x")
        await go_to(s, "directory")
        await s.press("right")
        await type_in(s, "/data/my runs")
        assert "cd -- '/data/my runs' &&" in below(s)
        await s.press("delete")
        await go_to(s, "devices by")
        await s.press("space")
        assert f"{VISIBLE}=GPU-" in below(s)
        await s.press("space")
        await go_to(s, "logs")
        await s.press("space")
        await type_in(s, "out")
        assert "--log-dir=out" in below(s)
        await s.press("backspace")
        assert below(s) == plain
        await go_to(s, "launcher")
        await s.press("space")
        assert s.main.app_state.options.launcher != "auto"
        await s.press("x")
        assert below(s) == plain
        await go_to(s, "machines")
        await s.press("space")
        await type_in(s, "2")
        await go_to(s, "first machine")
        await s.press("e")
        await type_in(s, "head:29500")
        assert "--nnodes=2" in below(s)
        assert "head:29500" in below(s)


async def test_wrong_input_is_said_while_it_is_typed_and_not_taken(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("5", "@launch_page", "down", "e", "x")
        assert "'x'" in prompt(s)
        await s.press("enter")
        assert isinstance(s.app.screen, LineScreen)
        await s.press("backspace", "3")
        assert "'x'" not in prompt(s) and "number" not in prompt(s)
        await s.press("escape")
        assert isinstance(s.app.screen, LaunchScreen)
        assert s.main.app_state.options.processes is None


async def test_a_variable_is_added_changed_switched_and_taken_out(environ: dict[str, str]) -> None:
    async with session(environ=environ, size=(80, 40)) as s:
        await s.press("5", "@launch_page")
        await go_to(s, "another …")
        await s.press("enter")
        await type_in(s, "MY_VAR=a b")
        assert "MY_VAR='a b' python" in below(s)
        await go_to(s, "MY_VAR")
        await s.press("e")
        assert s.app.screen.query_one(Input).value == "a b"
        await type_in(s, "2")
        assert "MY_VAR=2 python" in below(s)
        await s.press("x")
        assert "MY_VAR" not in below(s)
        await go_to(s, "NCCL_DEBUG")
        await s.press("space")
        assert "NCCL_DEBUG=INFO python" in below(s)
        await s.press("space")
        assert "NCCL_DEBUG" not in below(s)


async def test_what_stands_there_is_kept_when_the_page_is_left(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("5", "@launch_page", "space", "escape")
        assert "torchrun" in " ".join(s.texts("#launch"))


async def test_a_click_goes_to_a_row_and_a_second_one_changes_it(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("5", "@launch_page")
        await unfold(s)
        at = next(line for line, text in enumerate(texts(s)) if "devices by" in text)
        await s.pilot.click("#page-body", offset=(20, at))
        assert texts(s)[at].startswith("▸ devices by")
        assert s.main.app_state.options.ids == "index"
        await s.pilot.click("#page-body", offset=(20, at))
        assert s.main.app_state.options.ids == "uuid"
        # A rule is not a row.
        rule = next(line for line, text in enumerate(texts(s)) if text.startswith(" ─ environment"))
        await s.pilot.click("#page-body", offset=(20, rule))
        assert texts(s)[at].startswith("▸ devices by")


async def test_y_copies_the_line_and_says_so(environ: dict[str, str], tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "xclip"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nexec /bin/cat > {tmp_path}/taken\n")
    tool.chmod(0o755)
    async with session(environ={**environ, "PATH": str(tool.parent), "DISPLAY": ":9"}) as s:
        await s.press("5", "@launch_page", "y")
        await s.until(lambda: "copied" in below(s) or "xclip" in below(s))
        assert (tmp_path / "taken").read_text() == s.main.app_state.launch.line


async def test_without_anything_every_key_is_harmless(environ: dict[str, str]) -> None:
    async with session(NoSourceError("the driver is not loaded"), (), environ=environ) as s:
        await s.press("@launch_page")
        await s.press(
            "space", "y", ":save", "x", "G", "x", "g", "tab", "enter", ":save", "x", "e", "tab", "j"
        )
        assert isinstance(s.app.screen, LaunchScreen)
        await s.press(":save")
        assert "no command yet" in below(s)


async def test_a_box_that_vanishes_below_it_is_no_error(environ: dict[str, str]) -> None:
    async with moving(environ=environ) as s:
        await s.press("5", "4", "@launch_page", "G", "enter", "G")
        s.source.snapshot = box_at("laptop")
        await s.until(lambda: not s.main.app_state.selection.decided)
        await s.press("up", "space", "down", "tab", "tab")
        assert isinstance(s.app.screen, LaunchScreen)


@pytest.mark.thorough
async def test_every_size_is_painted_and_the_cursor_is_always_to_be_seen(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("5", "4", "@launch_page")
        for width, height in ((200, 50), (40, 10), (20, 5)):
            await s.resize(width, height)
            for keys in (("g", "down"), ("G",), ("tab",), ("tab",)):
                await s.press(*keys)
                assert all(len(line) <= width for line in texts(s))
                told = s.app.screen.query_one("#page-footer", Lines)
                assert told.region.bottom == height
                if height >= 10 and "recent launches ─" not in texts(s)[0][:20]:
                    assert any(line.startswith("▸") for line in texts(s)), (width, height, keys, texts(s))


async def test_keys_typed_before_it_is_drawn_are_not_lost(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.pilot.press("5", "colon", *"launch", "space", *"page", "enter", "G", "space", "down", "space")
        await s.until(lambda: s.main.app_state.options.ids == "uuid")


# The last launches


async def test_tab_lists_the_last_launches_and_enter_takes_one_to_the_main_screen(
    environ: dict[str, str],
) -> None:
    keep(environ, LaunchOptions(("python", "old.py"), additions=(("A", "1"),)), 2, "nightly")
    keep(environ, LaunchOptions(("python", "new.py")), 0)
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab")
        assert "new.py" in texts(s)[1]
        assert "CPU only" in texts(s)[1]
        assert "nightly" in texts(s)[2]
        await s.press("down", "enter")
        assert s.selected == ["4", "5"]
        assert not isinstance(s.app.screen, LaunchScreen), "where enter runs it"
        assert f"{VISIBLE}=4,5 A=1 python old.py" in " ".join(s.texts("#launch"))
        assert "nightly" in s.main.message


@pytest.mark.parametrize("word", [":history", ":recent", "@launches"])
async def test_the_launches_are_found_by_their_words(environ: dict[str, str], word: str) -> None:
    keep(environ, LaunchOptions(("python", "old.py")), 2)
    async with session(environ=environ) as s:
        await s.press(word)
        assert isinstance(s.app.screen, LaunchScreen) and "old.py" in texts(s)[1]
        await s.press("tab")
        assert texts(s)[0].startswith(" ─ this launch")


def test_a_row_of_a_launch_tells_the_launcher_that_was_given() -> None:
    known = [
        PastLaunch(LaunchOptions(("python", "train.py", "20"), launcher=launcher), 2, NOW)
        for launcher in ("torchrun", "auto")
    ]
    given, recognised = ("".join(text for text, _ in line) for line in remembered(known, 80, NOW))
    assert "torchrun" in given and "python train.py 20" in given
    assert "auto" not in recognised


async def test_taking_one_keeps_the_devices_that_are_chosen(environ: dict[str, str]) -> None:
    keep(environ, LaunchOptions(("python", "old.py")), 4)
    async with session(environ=environ) as s:
        await s.press("7", "@launch_page", "tab", "enter")
        assert s.selected == ["7"]
        assert "old.py" in s.main.message and "selected GPUs stay" in s.main.message


async def test_one_that_ran_on_the_cpu_does_so_again(environ: dict[str, str]) -> None:
    keep(environ, LaunchOptions(("python", "old.py")), 0)
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab", "enter")
        assert s.main.app_state.selection.cpu_only
        assert "CPU only" in s.main.message


async def test_one_that_asks_for_more_than_is_free_is_taken_and_the_shortage_said(
    environ: dict[str, str],
) -> None:
    keep(environ, LaunchOptions(("python", "old.py")), 7)
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab", "enter")
        assert s.main.app_state.options.command == ("python", "old.py")
        assert s.selected == []
        assert re.search(r"\b3 GPUs\b.*\bfree\b.*\b7\b", s.main.message)


async def test_one_from_another_folder_is_started_there(environ: dict[str, str], tmp_path: Path) -> None:
    change(
        environ, lambda known: with_launch(known, LaunchOptions(("python", "a.py")), 1, 1.0, str(tmp_path))
    )
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab", "enter")
        assert s.main.app_state.options.directory == str(tmp_path)


async def test_one_whose_secret_is_not_kept_says_so(environ: dict[str, str]) -> None:
    keep(environ, LaunchOptions(("python", "a.py"), additions=(("HF_TOKEN", "x"),)), 1)
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab", "enter")
        assert "HF_TOKEN" in s.main.message and "not saved" in s.main.message


async def test_save_names_what_stands_there_and_x_forgets_it(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("5", "4", "@launch_page", ":save")
        assert s.app.screen.query_one(Input).value == ""
        await type_in(s, "my run")
        assert "saved: gputui run --saved 'my run'" in below(s)
        (each,) = load(environ)
        assert (each.name, each.count, each.options.command) == ("my run", 2, ("python", "train.py"))
        await s.press("tab", ":save")
        assert s.app.screen.query_one(Input).value == "my run"
        await type_in(s, "")
        assert load(environ)[0].name is None
        await s.press("x")
        assert load(environ) == ()
        assert "no launches" in texts(s)[1]


async def test_what_is_kept_without_a_choice_is_for_one_device_and_not_for_the_cpu(
    environ: dict[str, str],
) -> None:
    async with session(environ=environ) as s:
        await s.press("@launch_page", ":save")
        await type_in(s, "nightly")
        await s.press("escape", "@cpu", "@launch_page", ":save")
        await type_in(s, "plain")
    assert [(each.name, each.count) for each in load(environ)] == [("plain", 0), ("nightly", 1)]


async def test_a_name_that_cannot_be_is_said_while_it_is_typed(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("@launch_page", ":save", "7")
        assert "'7'" in prompt(s)
        await s.press("enter")
        assert isinstance(s.app.screen, LineScreen)
    assert load(environ) == ()


async def test_what_cannot_be_kept_or_read_is_said(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    async with session(environ=environ) as s:
        await s.press("@launch_page", ":save")
        await type_in(s, "nightly")
        assert "cannot be saved" in below(s) and load(environ) == ()
    (tmp_path / "state").unlink()
    keep(environ, LaunchOptions(("python", "a.py")), 1)
    file = tmp_path / "state" / "gputui" / "launches.json"
    file.write_text("{")
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab")
        assert "are damaged" in " ".join(texts(s))
        assert "none yet" not in " ".join(texts(s))
    assert file.read_text() == "{"


async def test_foreign_text_in_a_launch_does_nothing_to_the_terminal(environ: dict[str, str]) -> None:
    evil = "\x1b]0;pwn\x07\u202e\nevil"
    options = LaunchOptions((evil, evil), additions=(("A", evil),), directory=evil, logs=evil)
    keep(environ, options, 1)
    async with session(environ=environ) as s:
        await s.press("@launch_page", "tab")
        for keys in ((), ("enter",), ("G", "up")):
            await s.press(*keys)
            for widget in s.app.screen.query(Lines):
                for y in range(widget.size.height):
                    assert widget.render_line(y).text.isprintable()


# How the page is found


async def test_every_key_of_it_closes_it_and_the_palette_opens_it(environ: dict[str, str]) -> None:
    assert {"launch_page", "return", "detach", "jobs", "check", "export"} <= {action.id for action in ACTIONS}
    async with session(environ=environ) as s:
        for key in ("escape", "q"):
            await s.press("@launch_page")
            assert isinstance(s.app.screen, LaunchScreen)
            await s.press(key)
            assert s.app.screen is s.main
        await s.press("ctrl+p")
        await s.press(*"launch page", "enter")
        assert isinstance(s.app.screen, LaunchScreen)


@pytest.mark.parametrize("key", ["@launch_page", "D", "t", "p", "question_mark", "@ask"])
async def test_ctrl_c_leaves_from_every_screen(key: str, environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press(key)
        assert s.app.screen is not s.main
        await s.press("ctrl+c")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None
        assert s.app.return_value.status == 130
