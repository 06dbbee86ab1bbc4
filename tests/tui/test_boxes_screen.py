"""Other boxes on the whole screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.sources.hosts.reading import Reading
from gputui.sources.hosts.ssh import Way
from gputui.tui.screens.boxes import BoxesScreen
from tui.support import Session, session
from tui.test_people_screen import lit, texts
from unit.builders import box, busy, gpu, job


class Told(Channels):
    """Channels that say what a test tells them, and connect to nothing."""

    def __init__(self, *states: BoxState) -> None:
        super().__init__((), Way(1), 1.0)
        self.told = states

    @property
    def states(self) -> tuple[BoxState, ...]:
        return self.told


def live(alias: str, snapshot: Snapshot, **more: object) -> BoxState:
    return BoxState(alias, "live", Reading(alias, snapshot), None, snapshot.time, **more)  # type: ignore[arg-type]


def two() -> Snapshot:
    return box(gpu(0), busy(gpu(1), job(7, user="mira")))


DEAD = BoxState("gone", "dead", None, "connection refused", 1.0)


def opened(s: Session, *states: BoxState) -> BoxesScreen:
    page = BoxesScreen(s.main, Told(*states))
    s.main.open(page)
    return page


async def test_boxes_fold_and_say_what_is_free_and_what_is_wrong() -> None:
    stale = BoxState("quiet", "stale", Reading("quiet", two()), "no news from it", two().time)
    async with session("idle") as s:
        page = opened(s, live("gpu1", two()), DEAD, stale)
        await s.press()
        page.draw()
        lines = texts(s)
        assert "1 free on 1 of 3" in lines[0]
        assert "1 free" in lines[1] and "1 not" in lines[1]
        assert "dead" in lines[2] and "connection refused" in lines[2]
        assert "stale since" in lines[3] and not any(lines[4:])
        await s.press("enter")
        assert "mira" in texts(s)[3] and lit(s).startswith("- gpu1")
        await s.press("enter", "down")
        assert lit(s).startswith("+ gone")
        await s.press("f")
        assert [line for line in texts(s)[1:] if line] == [texts(s)[1]] and "gpu1" in texts(s)[1]
        await s.press("O")
        assert s.app.screen is s.main


async def test_twenty_boxes_are_seen_at_once_at_80_columns() -> None:
    async with session("idle", size=(80, 24)) as s:
        page = opened(s, *(live(f"gpu{n:02}", two()) for n in range(20)))
        await s.press()
        page.draw()
        assert [line[3:8] for line in texts(s)[1:21]] == [f"gpu{n:02}" for n in range(20)]
        assert all(len(line) <= 80 for line in texts(s))


async def test_hostile_text_does_nothing_to_the_terminal() -> None:
    evil = box(busy(gpu(0, name="\x1b]0;x\x07"), job(7, user="\x1b[2J")))
    async with session("idle") as s:
        page = opened(s, live("gpu1", evil))
        await s.press("enter")
        page.draw()
        assert all(line.isprintable() for line in texts(s))


async def test_without_boxes_in_the_settings_it_says_so() -> None:
    async with session("idle") as s:
        await s.press("O")
        assert s.app.screen is s.main and s.main.message


async def test_the_boxes_of_the_settings_are_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "config" / "gputui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[hosts]\nboxes = ["a"]\n')
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(
        "#!/bin/sh\necho 'ssh: connect to host a: Connection refused' >&2\nexit 255\n"
    )
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    async with session("idle", environ={"XDG_CONFIG_HOME": str(tmp_path / "config")}) as s:
        await s.press("O")
        assert isinstance(s.app.screen, BoxesScreen)
        await s.until(lambda: "connection refused" in "".join(texts(s)))
