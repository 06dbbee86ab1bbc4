"""`gputui config` and `gputui docs`: every setting with its origin, and every page."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from gputui.allocating.save_settings import save
from gputui.allocating.settings import Settings, SettingsError, settings
from gputui.allocating.settings_tables import DESCRIBED, TABLES
from gputui.cli.config import template
from unit.calling import Call

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's settings file, which does not exist yet."""
    return tmp_path / "config" / "gputui" / "config.toml"


def test_every_setting_is_described() -> None:
    assert set(DESCRIBED) == {f"{table}.{key}" for table, record in TABLES.items() for key in record.keys}


def test_the_defaults_that_are_told_are_those_of_the_program(home: Path) -> None:
    """The file that is written has only comments. With the defaults in place of the examples, it still means
    nothing else."""
    home.parent.mkdir(parents=True)
    home.write_text(re.sub(r"(?m)^#(?=\w)", "", template()))
    settings({"XDG_CONFIG_HOME": str(home.parents[1])})
    tables: dict[str, list[str]] = {}
    for name, told in DESCRIBED.items():
        table, _, key = name.partition(".")
        tables.setdefault(table, []).append(f"{key} = {told.default}" if told.default else "")
    home.write_text("".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items()))
    found = settings({"XDG_CONFIG_HOME": str(home.parents[1])})
    assert found._replace(screen=found.screen._replace(interval=None)) == Settings()


def test_each_value_has_its_origin(call: Call, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.parent.mkdir(parents=True)
    home.write_text('[rules]\nmemory = "1G"\n')
    monkeypatch.setenv("GPUTUI_CLAIMS", "/tmp/here")
    document = call("config", "--json").json
    rows = {row["name"]: row for row in document["settings"]}
    assert document["file"] == str(home)
    assert (rows["rules.memory"]["value"], rows["rules.memory"]["source"]) == ("1G", str(home))
    assert (rows["run.confine"]["value"], rows["run.confine"]["source"]) == ("auto", "default")
    assert rows["rules.memory"]["option"] == "--busy-memory"
    assert rows["GPUTUI_CLAIMS"]["source"] == "variable"
    lines = call("config").out.splitlines()
    assert ["rules.memory", '"1G"', str(home), "--busy-memory"] in [line.split() for line in lines]


def test_settings_that_are_wrong_are_a_wrong_call(call: Call, home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("[rulez]\n")
    assert "rulez" in call("config").refused(2)


def test_a_file_is_written_once(call: Call, home: Path) -> None:
    assert call("config", "--write").status == 0
    assert settings({"XDG_CONFIG_HOME": str(home.parents[1])}) == Settings()
    home.write_text("# mine\n")
    assert str(home) in call("config", "--write").refused(2)
    assert home.read_text() == "# mine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_nothing_is_made_behind_a_link_of_another_user(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, link = tmp_path / "ours", tmp_path / "link"
    ours.mkdir(0o755)
    link.symlink_to(ours)
    os.lchown(link, 54321, -1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(link))
    assert "another user" in call("config", "--write").refused(2)
    with pytest.raises(SettingsError, match="another user"):
        save({"XDG_CONFIG_HOME": str(link), "HOME": str(tmp_path)}, [(("screen", "theme"), "light")])
    assert not [*ours.iterdir()]


def test_every_page_is_listed_and_shown(call: Call) -> None:
    listed = [line.split()[0] for line in call("docs").out.splitlines()]
    assert listed == sorted(file.stem for file in DOCS.glob("*.md") if file.stem != "README")
    assert call("docs", "rules").out == (DOCS / "rules.md").read_text()
    assert json.loads(call("docs", "rules", "--json").out)["text"] == (DOCS / "rules.md").read_text()
    assert [page["page"] for page in call("docs", "--json").json["pages"]] == listed


def test_a_page_that_is_not_there_is_answered_with_those_that_are(call: Call) -> None:
    assert "keys" in call("docs", "kyes").refused(2)


def test_the_pages_are_part_of_the_package() -> None:
    project = (DOCS.parent / "pyproject.toml").read_text()
    assert '"docs" = "gputui/docs"' in project
