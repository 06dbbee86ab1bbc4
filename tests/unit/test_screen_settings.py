"""Settings of the screen: read strictly, checked by name, and written in place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputui.allocating.save_settings import save_screen
from gputui.allocating.settings import DEFAULT_SCREEN, ScreenSettings, SettingsError, settings
from gputui.tui.panels import PANELS
from gputui.tui.screen_settings import THEME_NAMES, checked
from gputui.tui.theme import THEMES

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
        ("theme = 1", "screen.theme: 1 is not a name"),
        ("interval = 0", "screen.interval: 0 is not a number of seconds (0.1 to 3600)"),
        ("interval = nan", "screen.interval: nan"),
        ('hidden = "links"', "screen.hidden: 'links' is not a list of names"),
        ("keys = 'x'", "screen.keys: 'x' is not a table"),
        ("keys = {copy = 1}", "screen.keys: 1 is not a name"),
        ("filter = 1", "screen.filter: 1 is not a string"),
        ("color = 1", "unknown setting screen.color"),
    ],
)
def test_what_cannot_be_meant_is_refused(environ: dict[str, str], config: Path, line: str, why: str) -> None:
    config.write_text(f"[screen]\n{line}\n")
    with pytest.raises(SettingsError) as error:
        settings(environ)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("screen", "why"),
    [
        (ScreenSettings(theme="pink"), "screen.theme: 'pink' is not one of dark, light, ansi"),
        (ScreenSettings(hidden=("clock",)), "screen.hidden: 'clock' is not one of "),
        (ScreenSettings(columns=("price",)), "screen.columns: 'price' is not one of "),
        (ScreenSettings(sort="clock"), "screen.sort: 'clock' is not one of utilization, "),
        (ScreenSettings(keymap={"copi": "c"}), "screen.keys.copi: no such action"),
        (ScreenSettings(keymap={"copy": "x"}), "'x' is the key of both copy and clear"),
        (ScreenSettings(keymap={"copy": "z", "clear": "z"}), "'z' is the key of both copy and clear"),
        (ScreenSettings(keymap={"copy": "4"}), "'4' selects a GPU"),
        (ScreenSettings(keymap={"copy": "escape"}), "'escape' goes back"),
        (ScreenSettings(keymap={"copy": "a,,"}), "'a,,' is not a key"),
    ],
)
def test_a_name_that_nothing_has_and_a_key_that_two_have_are_named(screen: ScreenSettings, why: str) -> None:
    with pytest.raises(SettingsError) as error:
        checked(screen)
    assert why in str(error.value)


def test_two_actions_can_change_places_and_a_key_is_written_as_people_do() -> None:
    keymap = checked(ScreenSettings(keymap={"copy": "c", "cpu": "y", "help": "+, f1"})).keymap
    assert keymap == {"copy": "c", "cpu": "y", "help": "plus,f1"}


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
    # (A blank line may be added before a table.)
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


def test_a_link_that_leads_nowhere_makes_its_file_and_one_to_itself_is_an_error(
    environ: dict[str, str], config: Path, tmp_path: Path
) -> None:
    config.symlink_to(tmp_path / "dotfiles" / "gputui.toml")
    save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert config.is_symlink() and settings(environ).screen.theme == "ansi"
    config.unlink()
    config.symlink_to(config.name)
    with pytest.raises(SettingsError, match="symbolic links"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))


def test_nothing_is_saved_where_everybody_can_write(environ: dict[str, str], config: Path) -> None:
    config.parent.chmod(0o777)
    with pytest.raises(SettingsError, match="other users can write"):
        save_screen(environ, DEFAULT_SCREEN, DEFAULT_SCREEN._replace(theme="ansi"))
    assert not config.exists()
