"""The settings file: its valid contents, and everything else in it refused with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputui.allocating import settings as module
from gputui.allocating.settings import Settings, SettingsError, settings
from gputui.allocating.settings_tables import DESCRIBED
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.formatting import GIB
from gputui.system.users import own_name
from gputui.tui.screen_settings import checked
from table_tests import each_row


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config" / "gputui" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The administrator's file."""
    file = tmp_path / "gputui.toml"
    monkeypatch.setattr(module, "SYSTEM", str(file))
    return file


pytestmark = pytest.mark.usefixtures("system")

ALL = """
[rules]
memory = "2G"
utilization = 5
window = 2.5
ignore_users = ["dcgm", "telegraf"]
mine_is_free = true

[devices]
never = ["0", 3]
prefer = ["GPU-1234", "7"]

[wait]
notify = ["notify-send", "gputui", "{message}"]
"""


def test_without_files_the_rules_are_the_usual_ones(environ: dict[str, str]) -> None:
    assert settings(environ) == settings({}) == Settings(DEFAULT_RULES, ())


def test_everything_can_be_set(environ: dict[str, str], config: Path) -> None:
    config.write_text(ALL)
    assert settings(environ) == Settings(
        Rules(
            memory=2 * GIB,
            utilization=5,
            window=2.5,
            ignore=frozenset({"dcgm", "telegraf"}),
            mine=own_name(),
            never=("0", "3"),
            prefer=("GPU-1234", "7"),
        ),
        ("notify-send", "gputui", "{message}"),
    )


def test_the_example_at_the_head_of_the_file_can_be_read(environ: dict[str, str], config: Path) -> None:
    assert module.__doc__ is not None
    config.write_text(module.__doc__[module.__doc__.index("[rules]") :])
    found = settings(environ)
    assert found.log_cap == GIB
    assert found.rules.never == ("0",) and found.rules.prefer == ("7", "6") and found.notify[2] == "{message}"


def test_the_users_settings_are_over_the_administrators_key_by_key(
    environ: dict[str, str], config: Path, system: Path
) -> None:
    system.write_text('[rules]\nwindow = 60\nmine_is_free = true\n[devices]\nnever = ["0"]\n')
    assert settings(environ).rules == Rules(window=60.0, mine=own_name(), never=("0",))
    config.write_text("[rules]\nmine_is_free = false\nutilization = 3\n[devices]\nnever = []\n")
    assert settings(environ).rules == Rules(window=60.0, utilization=3)


def test_the_file_is_where_xdg_says_and_else_below_home(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "home" / ".config" / "gputui" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[rules]\nwindow = 7\n")
    assert settings(environ).rules.window == 10.0
    for unset in ("", "relative/path"):
        assert settings({**environ, "XDG_CONFIG_HOME": unset}).rules.window == 7.0
    assert settings({"HOME": "relative"}).rules.window == 10.0


WRONG: list[tuple[str, str]] = [
    ("memory = 5", "Expected"),
    ("[rules", ""),
    ("\x00", ""),
    ("[rule]", "unknown table [rule]"),
    ("rules = 3", "[rules] expected"),
    ("[[rules]]", "[rules] expected"),
    ("window = 5", "unknown table [window]"),
    ("[rules]\nmemroy = '1G'", "[rules] memroy: unknown"),
    ("[run]\nstray = 'kill'", "[run] stray"),
    ("[run]\nconfine = true", "[run] confine"),
    ("[rules]\nmemory = 512", "[rules] memory"),
    ("[rules]\nmemory = 'lots'", "[rules] memory"),
    ("[rules]\nmemory = '-1G'", "[rules] memory"),
    ("[rules]\nutilization = 101", "[rules] utilization"),
    ("[rules]\nutilization = true", "[rules] utilization"),
    ("[rules]\nutilization = 1.5", "[rules] utilization"),
    ("[rules]\nwindow = -1", "[rules] window"),
    ("[rules]\nwindow = nan", "[rules] window"),
    ("[rules]\nwindow = inf", "[rules] window"),
    ("[rules]\nwindow = '10'", "[rules] window"),
    ("[rules]\nignore_users = 'dcgm'", "[rules] ignore_users"),
    ("[rules]\nignore_users = [['a']]", "[rules] ignore_users"),
    ("[rules]\nmine_is_free = 1", "[rules] mine_is_free"),
    ("[devices]\nnever = ['gpu0']", "[devices] never"),
    ("[devices]\nnever = 0", "[devices] never"),
    ("[devices]\nprefer = [true]", "[devices] prefer"),
    ("[devices]\nprefer = [-1]", "[devices] prefer"),
    ("[jobs]\nlog_cap = '1M'", "[jobs] log_cap"),
    ("[jobs]\nlog_cap = 0", "[jobs] log_cap"),
    ("[rules]\nmemory = 1979-05-27", "[rules] memory"),
    ("[wait]\nnotify = 'say hello'", "[wait] notify: "),
]


@each_row(("text", "why"), WRONG)
def test_what_cannot_be_meant_is_refused_with_its_place(
    environ: dict[str, str], config: Path, text: str, why: str
) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError) as error:
        settings(environ)
    message = str(error.value)
    assert message.startswith(f"{config}: ") and (why in message or why == "Expected")


@pytest.mark.parametrize("name", DESCRIBED)
def test_an_error_ends_with_a_line_that_works(environ: dict[str, str], config: Path, name: str) -> None:
    table, _, key = name.partition(".")
    config.write_text(f"[{table}]\n{key} = 1979-05-27\n")
    with pytest.raises(SettingsError) as error:
        settings(environ)
    said, _, line = str(error.value).partition("; for example: ")
    assert said.startswith(f"{config}: [{table}] {key}: expected ") and line.startswith(f"{key} = ")
    config.write_text(f"[{table}]\n{line}\n")
    checked(settings(environ).screen)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x = " + b"[" * 100_000, b"# " + b"x" * 300_000])
def test_what_is_no_text_or_too_deep_or_too_long_is_refused(
    environ: dict[str, str], config: Path, data: bytes
) -> None:
    config.write_bytes(data)
    with pytest.raises(SettingsError, match=str(config)):
        settings(environ)


def test_a_file_that_cannot_be_read_is_refused_and_not_taken_for_none(
    environ: dict[str, str], config: Path
) -> None:
    config.mkdir()
    with pytest.raises(SettingsError, match="Is a directory"):
        settings(environ)
    config.rmdir()
    config.symlink_to(config.name)
    with pytest.raises(SettingsError):
        settings(environ)


def test_a_terminal_is_no_settings_file(environ: dict[str, str], config: Path) -> None:
    """Every call ended with a traceback: nothing can be read from it yet."""
    ends = os.openpty()
    config.symlink_to(os.ttyname(ends[1]))
    with pytest.raises(SettingsError, match="regular file"):
        settings(environ)
    for end in ends:
        os.close(end)


def test_a_named_pipe_is_refused_and_not_waited_for(environ: dict[str, str], config: Path) -> None:
    os.mkfifo(config)
    with pytest.raises(SettingsError, match="regular file"):
        settings(environ)


@pytest.mark.parametrize(
    "line", ['[wait]\nnotify = ["beep"]', "[rules]\nwindow = 5", '[screen.keys]\ncopy = "c"']
)
@pytest.mark.parametrize("above", [0, 1, 2])
def test_settings_that_another_user_can_change_are_named_and_not_used(
    environ: dict[str, str], config: Path, line: str, above: int
) -> None:
    place = (config, *config.parents)[above]
    config.write_text(line)
    config.chmod(0o644)
    settings(environ)
    place.chmod(place.stat().st_mode | 0o002)
    with pytest.raises(SettingsError, match=r"config\.toml is not used"):
        settings(environ)
    config.unlink()
    settings(environ)


def test_settings_whose_path_vanishes_while_they_are_read_are_not_used(
    environ: dict[str, str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("[run]\nconfine = 'never'\n")
    config.chmod(0o666)
    judge = module.who_can_change

    def by_then(path: str) -> str | None:
        # Nobody could have changed a path that leads to nothing.
        config.unlink(missing_ok=True)
        return judge(path)

    monkeypatch.setattr(module, "who_can_change", by_then)
    with pytest.raises(SettingsError, match="other users can write to"):
        settings(environ)


def test_settings_of_another_user_are_not_used(environ: dict[str, str], config: Path) -> None:
    config.write_text("[rules]\nwindow = 5")
    if os.geteuid() != 0:
        pytest.skip("only root makes files of another user")
    os.chown(config, 54321, 54321)
    with pytest.raises(SettingsError, match=r"config\.toml is not used"):
        settings(environ)


def test_the_administrators_mistake_is_named_as_his(environ: dict[str, str], system: Path) -> None:
    system.write_text("[rules]\nwindow = true\n")
    with pytest.raises(SettingsError, match=str(system)):
        settings(environ)


def test_a_user_whom_the_system_does_not_know_has_a_number_for_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert own_name() == "54321"
