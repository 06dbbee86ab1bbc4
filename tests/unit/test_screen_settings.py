"""Settings of the screen: read strictly, checked by name, and written in place."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from gputui.allocating.save_settings import save
from gputui.allocating.settings import DEFAULT_SCREEN, ScreenSettings, SettingsError, settings
from gputui.system import files
from gputui.tui.actions import ACTIONS
from gputui.tui.app_state import AppState
from gputui.tui.panels import PANELS
from gputui.tui.screen_settings import THEME_NAMES, checked
from gputui.tui.setting_rows import columns_in_order
from gputui.tui.theme import THEMES
from gputui.tui.views.columns import COLUMNS
from table_tests import each_row

OF_A_PERSON = """\
# mine
[rules]
window = 5   # seconds

[screen]   # how it looks
theme = "light"  # for the sun
hidden = ["links"]
[screen.keys]
copy = "c"   # as everywhere
cpu = "y"
"""


def save_screen(environ: Mapping[str, str], before: ScreenSettings, after: ScreenSettings) -> None:
    fields = zip(ScreenSettings._fields, before, after, strict=True)
    save(environ, [(("screen", field), new) for field, old, new in fields if old != new])


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "gputui").mkdir()
    return tmp_path / "gputui" / "config.toml"


def test_everything_about_the_screen_can_be_set(environ: dict[str, str], config: Path) -> None:
    config.write_text(
        OF_A_PERSON.replace("hidden", 'interval=2\ncolumns=["util"]\nsort="util"\nfilter="x"\nhidden')
    )
    assert settings(environ).screen == ScreenSettings(
        "light", 2.0, {"copy": "c", "cpu": "y"}, ("links",), ("util",), "util", "x"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("theme = 1", "[screen] theme"),
        ("interval = 0", "[screen] interval"),
        ("interval = nan", "[screen] interval"),
        ('hidden = "links"', "[screen] hidden"),
        ("keys = 'x'", "[screen] keys"),
        ("keys = {copy = 1}", "[screen] keys"),
        ("filter = 1", "[screen] filter"),
        ("color = 1", "[screen] color: unknown"),
    ],
)
def test_what_cannot_be_meant_is_refused(environ: dict[str, str], config: Path, line: str, why: str) -> None:
    config.write_text(f"[screen]\n{line}\n")
    with pytest.raises(SettingsError) as error:
        settings(environ)
    assert why in str(error.value)


@each_row(
    ("screen", "why"),
    [
        (ScreenSettings(theme="pink"), "[screen] theme: 'pink' is not one of dark, light, ansi"),
        (ScreenSettings(hidden=("clock",)), "[screen] hidden: 'clock' is not one of "),
        (ScreenSettings(columns=("price",)), "[screen] columns: 'price' is not one of "),
        (ScreenSettings(sort="clock"), "[screen] sort: 'clock' is not one of utilization, "),
        (ScreenSettings(keymap={"copi": "c"}), "[screen] keys.copi: no such action"),
        (ScreenSettings(keymap={"copy": "b"}), "'b' is the key of both best and copy"),
        (ScreenSettings(keymap={"copy": "z", "clear": "z"}), "'z' is the key of both clear and copy"),
        (ScreenSettings(keymap={"copy": "4"}), "'4' selects a GPU"),
        (ScreenSettings(keymap={"copy": "escape"}), "'escape' goes back"),
        (ScreenSettings(keymap={"copy": "esc"}), "'escape' goes back"),
        (ScreenSettings(keymap={"copy": "ctrl+c"}), "'ctrl+c' leaves gputui"),
        (ScreenSettings(keymap={"copy": "ctrl+q"}), "'ctrl+q' leaves gputui"),
        (ScreenSettings(keymap={"copy": "ctrl+z", "stop": "z"}), "'ctrl+z' gives the shell back"),
        *(
            (ScreenSettings(keymap={"copy": key}), f"{key!r} is not a key")
            for key in ("a,,", "foo", "ctl+y", "C-x", "a b", "ctrl+", "+a", "\x1b[A", "f99")
        ),
    ],
)
def test_a_name_that_nothing_has_and_a_key_that_two_have_are_named(screen: ScreenSettings, why: str) -> None:
    with pytest.raises(SettingsError) as error:
        checked(screen)
    assert why in str(error.value)


def test_two_actions_can_change_places_and_a_key_is_written_as_people_do() -> None:
    keymap = checked(ScreenSettings(keymap={"copy": "c", "cpu": "y", "help": "+, f1"})).keymap
    assert keymap == {"copy": "c", "cpu": "y", "help": "plus,f1"}


@each_row(
    ("written", "key"),
    [
        ("F5", "f5"),
        ("Ctrl+X", "ctrl+x"),
        ("shift+z", "Z"),
        ("alt+pgup", "alt+pageup"),
        ("Space", "space"),
        ("minus", "minus"),
        ("exclamation_mark", "exclamation_mark"),
        ("alt+down", "alt+down"),
        ("shift+f5", "shift+f5"),
        ("é", "é"),
        ("漢", "漢"),
        ("-", "-"),
        ("Z", "Z"),
    ],
)
def test_a_key_has_the_name_that_the_terminal_gives_it(written: str, key: str) -> None:
    found = checked(ScreenSettings(keymap={"cpu": f" {written} ", "launch": "f12", "select": "f11"})).keymap
    assert found["cpu"] == key


def test_what_shows_all_of_the_usual_keys_is_a_keymap_itself() -> None:
    usual = {action.id: action.keys for action in ACTIONS if action.keys}
    assert checked(ScreenSettings(keymap=usual)).keymap == usual


def test_the_themes_and_the_panels_have_the_names_that_settings_know() -> None:
    assert tuple(theme.name for theme in THEMES) == THEME_NAMES
    assert len({panel.name for panel in PANELS}) == len(PANELS)


def test_a_change_is_written_in_place_and_all_else_stays(environ: dict[str, str], config: Path) -> None:
    config.write_text(OF_A_PERSON)
    before = settings(environ).screen
    after = before._replace(theme="dark", hidden=(), filter="free")
    save_screen(environ, before, after)
    changed = OF_A_PERSON.replace('"light"', '"dark"').replace('["links"]', "[]")
    kept = [line for line in config.read_text().splitlines() if line != 'filter = "free"']
    # A blank line may be added before a table.
    assert [*filter(None, kept)] == [*filter(None, changed.splitlines())]
    assert settings(environ).screen == after
    save_screen(environ, after, after._replace(theme=None))
    assert "theme" not in config.read_text()


def test_without_a_file_one_is_made_that_only_its_owner_reads(
    environ: dict[str, str], tmp_path: Path
) -> None:
    save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    file = tmp_path / "gputui" / "config.toml"
    assert settings(environ).screen.theme == "ansi" and file.stat().st_mode & 0o777 == 0o600


def test_a_link_to_the_file_stays_a_link(environ: dict[str, str], config: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(OF_A_PERSON)
    config.symlink_to(real)
    save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert config.is_symlink() and '"ansi"' in real.read_text()


@pytest.mark.parametrize("text", ["[screen", "screen = 1\n", "\x00"])
def test_a_file_that_is_not_understood_is_left_as_it_is(
    environ: dict[str, str], config: Path, text: str
) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError, match=r"config\.toml"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert config.read_text() == text


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(
    environ: dict[str, str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SettingsError, match="Permission denied"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))


LAYOUTS = {
    "keys alone": '[screen.keys]\ncopy = "c"\n',
    "keys first": '[screen.keys]\ncopy = "c"\n[rules]\nwindow = 5\n[screen]\ntheme = "light"\n',
    "dotted": 'screen.theme = "light"\nscreen.keys.copy = "c"\n[rules]\nwindow = 5\n',
    "inline": 'screen = {theme = "light", keys = {copy = "c"}}  # mine\n[rules]\nwindow = 5\n',
    "windows": '\ufeff[screen]\r\ntheme = "light"\r\n# mine\r\n[rules]\r\nwindow = 5\r\n',
    "without an end": "[rules]\nwindow = 5",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_however_the_file_is_laid_out_a_change_is_read_again_as_it_was_made(
    environ: dict[str, str], config: Path, layout: str
) -> None:
    config.write_bytes(LAYOUTS[layout].encode())
    before = settings(environ)
    after = before.screen._replace(theme="ansi", filter='"[red]\n\x1b', hidden=("links",), columns=("util",))
    save_screen(environ, before.screen, after)
    assert settings(environ) == before._replace(screen=after)
    save_screen(environ, after, before.screen)
    assert settings(environ) == before
    written = config.read_bytes()
    assert written.count(b"\r\n") == (written.count(b"\n") if layout == "windows" else 0)
    assert (b"mine" in written) == ("mine" in LAYOUTS[layout])


def test_a_lock_that_is_never_given_back_is_given_up(
    environ: dict[str, str], config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    before = config.read_text()
    with (tmp_path / "state" / "gputui" / ".settings.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with pytest.raises(SettingsError, match="another gputui holds"):
            save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="dark"))
    assert config.read_text() == before


def test_a_file_that_others_could_have_changed_is_neither_read_nor_written(
    environ: dict[str, str], config: Path
) -> None:
    config.parent.chmod(0o777)
    os.mkfifo(config)
    with pytest.raises(SettingsError, match="other users can write"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))


def test_a_file_that_is_read_only_is_left_as_it_is(environ: dict[str, str], config: Path) -> None:
    config.write_text(OF_A_PERSON)
    config.chmod(0o444)
    with pytest.raises(SettingsError, match="read-only"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert config.read_text() == OF_A_PERSON and config.stat().st_mode & 0o777 == 0o444


def test_the_file_keeps_its_rights(environ: dict[str, str], config: Path) -> None:
    config.write_text(OF_A_PERSON)
    config.chmod(0o644)
    save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert config.stat().st_mode & 0o777 == 0o644


def test_links_in_a_circle_are_an_error_with_its_name(environ: dict[str, str], config: Path) -> None:
    config.symlink_to(config.name)
    with pytest.raises(SettingsError, match=r"config\.toml"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))


def test_two_screens_that_save_at_once_undo_nothing_of_each_other(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # (A person who quits does not wait that long for the others.)
    monkeypatch.setattr(files, "_PATIENCE", 60.0)

    def save(field: str, values: list[object]) -> None:
        before = DEFAULT_SCREEN
        for value in values:
            after = before._replace(**{field: value})
            save_screen(environ, before, after)
            before = after

    runs = [
        threading.Thread(target=save, args=("filter", [f"user{n}" for n in range(12)])),
        threading.Thread(target=save, args=("interval", [float(n) for n in range(2, 14)])),
        threading.Thread(target=save, args=("theme", ["light", "dark"] * 6)),
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join(120)
    found = settings(environ).screen
    assert (found.filter, found.interval, found.theme) == ("user11", 13.0, "dark")


def test_a_link_that_leads_nowhere_makes_its_file_and_one_to_itself_is_an_error(
    environ: dict[str, str], config: Path, tmp_path: Path
) -> None:
    config.symlink_to(tmp_path / "dotfiles" / "gputui.toml")
    save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert config.is_symlink() and settings(environ).screen.theme == "ansi"
    config.unlink()
    config.symlink_to(config.name)
    with pytest.raises(SettingsError, match="too many links"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))


def test_nothing_is_saved_where_everybody_can_write(environ: dict[str, str], config: Path) -> None:
    config.parent.chmod(0o777)
    with pytest.raises(SettingsError, match="other users can write"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert not config.exists()


def test_a_column_that_is_not_shown_is_offered_behind_its_neighbour() -> None:
    order = columns_in_order(AppState({}, screen=ScreenSettings(columns=("power", "name"))))
    ids = [column.id for column in COLUMNS]
    assert [name for name in order if name in ("power", "name")] == ["power", "name"]
    for before, name in pairwise(ids):
        if name not in ("power", "name"):
            assert order.index(name) == order.index(before) + 1
