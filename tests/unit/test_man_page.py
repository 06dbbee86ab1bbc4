"""The man page is made from the parsers, and is current."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gputui.cli.common import INTERNAL
from release_scripts import release_script
from table_tests import each_row
from unit.test_docs import PARSERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gputui.1"


def test_the_page_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert PAGE.read_text() == release_script("make_man").page(), "run: python release/make_man.py"


@each_row("name", PARSERS)
def test_every_option_that_is_not_internal_is_on_the_page(name: str) -> None:
    text = PAGE.read_text().replace("\\-", "-")
    for action in PARSERS[name]._actions:
        if action.help is not INTERNAL and "--help" not in action.option_strings:
            assert all(option in text for option in action.option_strings if option != "--help-all")
    assert "--own-directory" not in text


def test_the_page_is_installed() -> None:
    assert '"docs/gputui.1" = "share/man/man1/gputui.1"' in (ROOT / "pyproject.toml").read_text()


def test_man_formats_it_without_a_warning() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-k", "-man", "-Tutf8", "-ww", "-z", str(PAGE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
