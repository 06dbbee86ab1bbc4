"""`gputui docs PAGE` in a terminal: which program shows the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.conftest import Start

pytestmark = pytest.mark.e2e

Show = Callable[..., str]


@pytest.fixture
def show(start: Start, base_environment: dict[str, str], tmp_path: Path) -> Show:
    """Show a page in a terminal, with pagers in three folders of which the first two are not to be trusted.
    Return what is on the screen at the end."""
    for name in ("here", "open", "own"):
        folder = tmp_path / name
        folder.mkdir()
        for tool in ("less", "shows"):
            (folder / tool).write_text(f'#!/bin/sh\necho {name} {tool} "$*"\nread -r line; echo "$line"\n')
            (folder / tool).chmod(0o755)
        folder.chmod(0o777 if name == "open" else 0o755)

    def shown(path: str = ".::{0}/open:{0}/own", **variables: str) -> str:
        environment = {**base_environment, "PATH": path.format(tmp_path), **variables}
        terminal = start("docs", "rules", environment=environment, cwd=tmp_path / "here", size=(100, 400))
        assert terminal.end() == 0
        return terminal.text.rstrip()

    return shown


def test_the_pager_is_a_program_that_no_other_user_could_have_put_in_path(show: Show) -> None:
    title = "# " + show(PAGER="").partition("# ")[2]
    assert show().splitlines() == ["own less", title]
    assert show(PAGER="shows -R 'a b'").splitlines() == ["own shows -R a b", title]


def test_without_such_a_pager_the_page_is_printed(show: Show) -> None:
    page = show("/nowhere").splitlines()
    assert len(page) > 20 and page[0].startswith("# ")
    for variables in ({"PAGER": "shows '"}, {"PAGER": "nothing"}):
        assert show(**variables).splitlines() == page
    assert show(".:{0}/open").splitlines() == page
    assert show(TERM="dumb").splitlines()[0] == page[0], "it cannot move its cursor"
