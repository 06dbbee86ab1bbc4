"""The jobs screen, on real jobs: what it shows of them, and what its keys do."""

from __future__ import annotations

import functools
import os
import re
import threading
from pathlib import Path

import pytest

from gputui.jobs.job import Job
from gputui.jobs.start import start_job
from gputui.jobs.store import all_jobs
from gputui.jobs.wait import refreshed
from gputui.launching.launch import Launch
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.widgets.lines import Lines
from messages import numbers
from tui.support import Session
from tui.support import session as moving
from unit.builders import make_homeless
from unit.jobs_support import Desk, ended, says

session = functools.partial(moving, interval=1000)
"""Nothing is read but what is asked for, so that the pilot finds the application idle."""


def environ(desk: Desk) -> dict[str, str]:
    return {"XDG_STATE_HOME": desk.environ["XDG_STATE_HOME"]}


def screen(s: Session) -> JobsScreen:
    shown = s.app.screen
    assert isinstance(shown, JobsScreen)
    return shown


def texts(s: Session) -> list[str]:
    return [text.rstrip() for text in s.app.screen.query_one("#page-body", Lines).texts]


def told(s: Session) -> str:
    return "\n".join(s.app.screen.query_one("#page-footer", Lines).texts)


def shown(s: Session, text: str) -> bool:
    """Whether it is to be seen, after a look at things as they are now."""
    screen(s).draw()
    return text in "\n".join(texts(s))


def log(s: Session) -> list[str]:
    lines = texts(s)
    return lines[next(n for n, line in enumerate(lines) if "─ log of" in line) + 1 :]


async def test_without_jobs_it_says_how_to_start_one_and_no_key_does_harm(desk: Desk) -> None:
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert "no jobs" in texts(s)[1] and "gputui run --detach" in texts(s)[1]
        assert not any(texts(s)[2:])
        await s.press("S", "S", "x", "y", "j", "k", "g", "G", "pageup", "pagedown")
        await s.press("escape")
        assert s.app.screen is s.main


async def test_d_starts_a_job_that_D_shows_and_that_outlives_the_screen(desk: Desk) -> None:
    gate = desk.gate()
    script = f"echo on $CUDA_VISIBLE_DEVICES; {gate.wait}; echo later; exit 3"
    async with session(command=("sh", "-c", script), environ=environ(desk)) as s:
        await s.press("5", "4", "d")
        await s.until(lambda: "is started: D shows it" in s.main.message)
        (job,) = all_jobs(desk.environ)
        assert f"job {job.id} is started" in s.main.message
        await s.press("D")
        await s.until(lambda: shown(s, "on 5,4"))
        assert f"▸ {job.id}  ● running" in texts(s)[1]
        assert "GPU 5,4" in texts(s)[1]
        assert "1 of 1 running" in texts(s)[0]
        devices = texts(s)[texts(s).index(next(t for t in texts(s) if "devices of" in t)) + 1 :][:2]
        assert [re.split(r"\s+", line.strip())[1] for line in devices] == ["5", "4"]
        await s.press("escape", "q")
        await s.until(lambda: not s.app.is_running)
    assert refreshed(job).state == "running"
    gate.open()
    assert ended(job).status == 3


async def test_the_log_follows_and_the_end_is_shown(desk: Desk) -> None:
    first, second = desk.gate(), desk.gate()
    job = desk.sh(f"echo one; {first.wait}; echo two; {second.wait}; exit 3")
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        await s.until(lambda: shown(s, " one"))
        assert "following ─" in next(line for line in texts(s) if "─ log of" in line)
        first.open()
        await s.until(lambda: shown(s, " two"))
        second.open()
        await s.until(lambda: shown(s, "✕ status 3"))
        assert refreshed(job).over
        assert "following" not in "\n".join(texts(s))
        assert "0 of 1 running" in texts(s)[0]


async def test_a_bar_that_rewrites_its_line_is_one_though_it_is_wider_than_the_screen(
    desk: Desk,
) -> None:
    job = desk.sh(r"for n in 1 2 3; do printf '\r%0100d' $n; done; echo; echo end")
    ended(job)
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert log(s)[:3] == [" " + "0" * 78, " " + "0" * 21 + "3", " end"]


async def test_hostile_bytes_of_a_log_and_of_a_command_do_nothing_to_the_terminal(desk: Desk) -> None:
    evil = "\x1b]0;pwn\x07\x1b[2J\x9b31m\u202eevil"
    command = Launch(("sh", "-c", "printf '%b' \"$0\"; printf '\\377\\376ok\\n'", evil))
    ended(start_job(command, desk.environ))
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        await s.until(lambda: shown(s, "ok"))
        for widget in s.app.screen.query(Lines):
            for y in range(widget.size.height):
                assert widget.render_line(y).text.isprintable()


async def test_stopping_asks_twice_and_another_key_takes_it_back(desk: Desk) -> None:
    job = desk.sh("trap 'sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    says(job, "up")
    async with session(environ=environ(desk)) as s:
        await s.press("D", "S")
        assert f"S again stops {job.id}" in told(s)
        await s.press("j", "S")
        assert refreshed(job).state == "running"
        assert f"S again stops {job.id}" in told(s)
        await s.press("S")
        assert f"stopping {job.id}" in told(s)
        await s.until(lambda: "SIGTERM; it ended after" in told(s))
        assert shown(s, "■ stopped")
        await s.press("S")
        assert f"job {job.id} has ended already" in told(s)


async def test_leaving_while_a_job_is_being_stopped_is_no_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    job = desk.sh("trap 'sleep 0.3; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    says(job, "up")
    async with session(environ=environ(desk)) as s:
        await s.press("D", "S", "S", "escape", "q")
        await s.until(lambda: not s.app.is_running)
    for thread in threading.enumerate():
        if thread.name == "gputui: stop a job":
            thread.join(30)
    assert refreshed(job).state == "stopped"
    assert errors == []


async def test_only_ended_jobs_are_forgotten_and_the_cursor_stays_near(desk: Desk) -> None:
    gate = desk.gate()
    running = desk.sh(gate.wait)
    over = [ended(desk.sh(f"exit {n}")) for n in (0, 1, 2)]
    async with session(environ=environ(desk)) as s:
        await s.press("D", "x")
        assert f"job {running.id} has not ended" in told(s)
        # The last one first, those that run before all others.
        assert [line.split()[0].strip("▸") or line.split()[1] for line in texts(s)[1:5]] == [
            running.id, *(job.id for job in reversed(over)),
        ]  # fmt: skip
        await s.press("j", "j", "x")
        assert f"x again removes {over[1].id} and its log" in told(s)
        assert over[1].folder.exists()
        await s.press("x")
        assert over[1].id in told(s) and "removed" in told(s)
        assert not over[1].folder.exists()
        assert texts(s)[3].startswith(f"▸ {over[0].id}")
        gate.open()


async def test_thirty_jobs_scroll_and_a_click_chooses_the_line_that_it_is_on(desk: Desk) -> None:
    jobs: list[Job] = [desk.sh(f"echo this is {n}") for n in range(30)]
    for job in jobs:
        ended(job)
    order = [job.id for job in reversed(jobs)]
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert "0 of 30 running" in texts(s)[0]
        await s.pilot.click("#page-body", offset=(10, 3))
        assert screen(s).key == order[2]
        assert shown(s, "this is 27")
        # In the log below there is no job to choose.
        await s.pilot.click("#page-body", offset=(10, 15))
        assert screen(s).key == order[2]
        await s.press("G")
        assert screen(s).key == order[-1]
        assert any(line.startswith(f"▸ {order[-1]}") for line in texts(s))
        assert shown(s, "this is 0")


async def test_what_is_read_further_up_stays_while_the_log_grows(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(f"for n in $(seq 100); do echo line-$n; done; {gate.wait}; seq 1000 1010; echo end")
    says(job, "line-100")
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        await s.until(lambda: shown(s, "line-100"))
        await s.press("pageup")
        before = log(s)
        assert " line-100" not in before
        assert "pgdn: to its end" in "\n".join(texts(s))
        gate.open()
        says(job, "end")
        screen(s).draw()
        assert log(s) == before
        await s.press("pagedown", "pagedown")
        assert log(s)[-1] == " end"
        await s.press(*["pageup"] * 10)
        assert log(s)[0] == " line-1"


async def test_records_that_cannot_be_read_are_counted_and_the_keys_still_shown(desk: Desk) -> None:
    ended(desk.sh("exit 0"))
    broken = ended(desk.sh("exit 0"))
    (broken.folder / "job.json").write_text("{")
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert numbers(texts(s)[0]) == [0, 1, 1] and "gputui jobs" in texts(s)[0]
        assert "esc back" in told(s)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_a_folder_that_cannot_be_looked_into_is_said(desk: Desk) -> None:
    ended(desk.sh("exit 0"))
    desk.jobs.chmod(0)
    try:
        async with session(environ=environ(desk)) as s:
            await s.press("D")
            assert "cannot look into" in texts(s)[1]
            assert "no jobs" not in "\n".join(texts(s))
    finally:
        desk.jobs.chmod(0o700)


async def test_without_a_home_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session(environ={"HOME": "", "XDG_STATE_HOME": ""}) as s:
        make_homeless(monkeypatch)
        await s.press("D")
        assert "home folder" in texts(s)[1]
        await s.press("escape", "5", "d")
        await s.until(lambda: "home folder" in s.main.message)


async def test_its_line_is_copied(desk: Desk, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "xclip"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nexec /bin/cat > {tmp_path}/taken\n")
    tool.chmod(0o755)
    job = ended(desk.sh("exit 0"))
    async with session(environ={**environ(desk), "PATH": str(tool.parent), "DISPLAY": ":9"}) as s:
        await s.press("D", "y")
        assert job.id in told(s)
        await s.until(lambda: (tmp_path / "taken").exists() and s.main.message)
        assert (tmp_path / "taken").read_text() == job.line


async def test_every_size_is_painted_and_the_log_has_a_line_at_least(desk: Desk) -> None:
    for _ in range(3):
        ended(desk.sh("echo it is here"))
    async with session(environ=environ(desk)) as s:
        await s.press("D", "j")
        for width, height in ((130, 40), (80, 24), (40, 10), (20, 5)):
            await s.resize(width, height)
            screen(s).draw()
            assert all(len(line) <= width for line in texts(s))
            if height >= 10:
                assert shown(s, "it is here")


async def test_each_of_its_keys_closes_it(desk: Desk) -> None:
    async with session(environ=environ(desk)) as s:
        for key in ("escape", "q", "D"):
            await s.press("D")
            assert isinstance(s.app.screen, JobsScreen)
            await s.press(key)
            assert s.app.screen is s.main
