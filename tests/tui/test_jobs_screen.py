"""The jobs screen on real jobs: how it shows them, and what its keys do."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.grouping import Grouping
from gputui.inventory.claim import Claim
from gputui.inventory.job import Job, JobDevice, Part
from gputui.inventory.process import Process
from gputui.inventory.waiter import Waiter
from gputui.jobs import source as jobs_source
from gputui.jobs.columns import on_devices, status_text
from gputui.jobs.rerun import rerun_of
from gputui.jobs.source import WithJobs
from gputui.jobs.start import start_job
from gputui.jobs.store import all_jobs, forget
from gputui.jobs.wait import refreshed
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import SimulatedSource
from gputui.tui.app_state import AppState
from gputui.tui.message_log import MessageLog
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.views import jobs_and_queue
from gputui.tui.views.jobs import facts_of, listed, news, pieces_of
from gputui.tui.widgets.lines import Lines
from messages import numbers
from table_tests import each_row
from tui.support import OPENED, Session, box_at
from tui.support import session as moving
from unit.builders import make_homeless
from unit.jobs_support import Desk, ended, says

session = functools.partial(moving, interval=1000)
"""Only requested readings happen, so that the pilot finds the application idle."""


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
    """Whether the page shows the text, after it has been drawn again."""
    screen(s).draw()
    return text in "\n".join(texts(s))


def log(s: Session) -> list[str]:
    lines = texts(s)
    return lines[next(n for n, line in enumerate(lines) if "─ log of" in line) + 1 :]


async def test_without_jobs_it_says_how_to_start_one_and_no_key_does_harm(desk: Desk) -> None:
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert "no jobs" in texts(s)[1] and "gputui run --detach" in texts(s)[1]
        assert "jobs --hosts" in texts(s)[2] and not any(texts(s)[3:])
        await s.press("S", "S", "x", "y", "j", "k", "g", "G", "pageup", "pagedown")
        await s.press("escape")
        assert s.app.screen is s.main


async def test_d_starts_a_job_that_D_shows_and_that_outlives_the_screen(desk: Desk) -> None:
    gate = desk.gate()
    script = f"echo on $CUDA_VISIBLE_DEVICES; {gate.wait}; echo later; exit 3"
    async with session(command=("sh", "-c", script), environ=environ(desk)) as s:
        await s.press("5", "4", "@detach")
        await s.until(lambda: "started on GPUs 5 and 4: D shows it" in s.main.message)
        (job,) = all_jobs(desk.environ)
        assert f"job {job.id} started" in s.main.message
        await s.press("D")
        await s.until(lambda: shown(s, "on 5,4"))
        assert texts(s)[1].split()[:4] == ["ID", "STATE", "RAN", "GPU"]
        assert f"▸ {job.id}  ▶ running" in texts(s)[2]
        assert "GPU 5,4" in texts(s)[2]
        assert "1 running" in texts(s)[0]
        devices = texts(s)[texts(s).index(next(t for t in texts(s) if "devices of" in t)) + 1 :][:3]
        assert "UTIL" in devices.pop(0)
        assert [re.split(r"\s+", line.replace("▸", " ").strip())[0] for line in devices] == ["5", "4"]
        await s.press("escape", "q")
        await s.until(lambda: not s.app.is_running)
    assert refreshed(job).state == "running"
    gate.open()
    assert ended(job).status == 3


async def test_D_opens_at_the_job_of_the_last_message_about_one(desk: Desk) -> None:
    gate = desk.gate()
    jobs = [ended(desk.sh(f"exit {n}")) for n in (0, 1)]
    first = desk.sh(gate.wait)
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert screen(s).key == first.id
        await s.press("escape")
        s.main.show_message(f"job {jobs[0].id} ended with status 1 after 3s", "lost", "news")
        s.main.show_message("another message")
        await s.press("D")
        assert screen(s).key == jobs[0].id
        await s.press("k", "escape", "D")
        assert screen(s).key == jobs[1].id, "where the user was is newer than the message"
        await s.press("escape")
        s.main.show_message("job z9z9 and its log removed")
        await s.press("D")
        assert screen(s).key == jobs[1].id, "a job without a row changes nothing"
        gate.open()
    assert ended(first).status == 0


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
        await s.until(lambda: shown(s, "✕ failed, status 3"))
        assert refreshed(job).over
        assert "following" not in "\n".join(texts(s))
        assert " 1 ended" in texts(s)[0] and "running" not in texts(s)[0]


async def test_a_bar_that_rewrites_its_line_is_one_though_it_is_wider_than_the_screen(
    desk: Desk,
) -> None:
    job = desk.sh(r"for n in 1 2 3; do printf '\r%0100d' $n; done; echo; echo end")
    ended(job)
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert log(s)[:3] == [" " + "0" * 78, " " + "0" * 21 + "3", " end"]


async def test_a_log_without_a_line_says_so(desk: Desk) -> None:
    gate = desk.gate()
    async with session(command=("sh", "-c", gate.wait), environ=environ(desk)) as s:
        await s.press("5", "@detach")
        await s.until(lambda: all_jobs(desk.environ))
        (job,) = all_jobs(desk.environ)
        await s.press("D")
        await s.until(lambda: shown(s, "─ log of"))
        assert "no output yet" in log(s)[0]
        gate.open()
        ended(job)
        await s.until(lambda: shown(s, "✓ done"))
        assert "ended without output" in log(s)[0]


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
        assert f"stop {job.id}: SIGTERM" in told(s) and "⏎ yes" in told(s)
        await s.press("j", "S")
        assert refreshed(job).state == "running"
        assert f"stop {job.id}: SIGTERM" in told(s) and "⏎ yes" in told(s)
        await s.press("S")
        assert f"stopping {job.id}" in told(s)
        await s.until(lambda: shown(s, "■ stopped"))
        now = s.main.app_state.snapshot
        assert now is not None
        # The next reading of the box.
        s.main.jobs.after_reading(replace(now, jobs=(job,)), replace(now, jobs=(refreshed(job),)))
        await s.until(lambda: f"job {job.id} was stopped after" in told(s))
        assert [each.text.split()[:2] for each in s.main.messages] == [["job", job.id]], "told once"
        await s.press("S")
        assert f"job {job.id} has ended already" in told(s)


async def test_the_end_of_a_job_takes_the_place_of_the_message_that_it_has_started(desk: Desk) -> None:
    job = ended(desk.sh("exit 3"))
    async with session(environ=environ(desk), interval=1000) as s:
        now = s.main.app_state.box
        s.main.show_message(f"job {job.id} started on GPU 3: D shows it")
        # The jobs of the reading before were read when this one had not started yet.
        before = replace(now, jobs=(), time=(job.ended or 0.0) + 1)
        s.main.jobs.after_reading(before, replace(now, jobs=(job,)))
        assert "3" in s.main.message and "started" not in s.main.message


@pytest.mark.parametrize("key", ["j", "n", "escape"])
async def test_enter_says_yes_and_another_key_takes_the_question_back(key: str, desk: Desk) -> None:
    job = desk.sh("echo up; exec sleep 600")
    says(job, "up")
    async with session(environ=environ(desk)) as s:
        await s.press("D", "S", key)
        await s.until(lambda: "⏎ yes" not in told(s))
        await s.press("enter")
        assert refreshed(job).state == "running" and "stopping" not in told(s)
        await s.press("S", "y")
        await s.until(lambda: refreshed(job).state == "stopped")


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
        if thread.name.startswith("gputui: stopping"):
            thread.join(30)
    assert refreshed(job).state == "stopped"
    assert errors == []


async def test_the_key_that_stops_jobs_leads_to_them_from_the_main_screen() -> None:
    async with session("shared") as s:
        assert s.main.app_state.own_jobs
        await s.press("S")
        assert "D" in s.main.message and "no action" not in s.main.message
    async with session("idle") as s:
        await s.press("S")
        assert "no action" in s.main.message


async def test_only_ended_jobs_are_forgotten_and_the_cursor_stays_near(desk: Desk) -> None:
    gate = desk.gate()
    running = desk.sh(gate.wait)
    over = [ended(desk.sh(f"exit {n}")) for n in (0, 1, 2)]
    async with session(environ=environ(desk)) as s:
        await s.press("D", "x")
        assert f"job {running.id} has not ended" in told(s) and "S stops" in told(s)
        # The newest job is first, and running jobs come before all others.
        assert [line.split()[0].strip("▸") or line.split()[1] for line in texts(s)[2:6]] == [
            running.id, *(job.id for job in reversed(over)),
        ]  # fmt: skip
        await s.press("j", "j", "x")
        assert f"remove {over[1].id} and its log?" in told(s) and "⏎ yes" in told(s)
        assert over[1].folder.exists()
        await s.press("x")
        assert over[1].id in told(s) and "removed" in told(s)
        assert not over[1].folder.exists()
        assert texts(s)[4].startswith(f"▸ {over[0].id}")
        gate.open()


@pytest.mark.thorough
async def test_many_jobs_scroll_and_a_click_chooses_the_line_that_it_is_on(desk: Desk) -> None:
    jobs: list[Job] = [desk.sh(f"echo this is {n}") for n in range(18)]
    for job in jobs:
        ended(job)
    order = [job.id for job in reversed(jobs)]
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert "18 ended" in texts(s)[0]
        await s.pilot.click("#page-body", offset=(10, 4))
        assert screen(s).key == order[2]
        assert shown(s, "this is 15")
        # A click in the log below the list chooses no job.
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
        assert "f: follow" in "\n".join(texts(s))
        gate.open()
        says(job, "end")
        screen(s).draw()
        now = log(s)
        assert len(now) > 5 and now == before[: len(now)], "above it, lines say how the job has ended"
        await s.press("pagedown", "pagedown", "pagedown")
        assert log(s)[-1] == " end"
        await s.press(*["pageup"] * 10)
        assert log(s)[0] == " line-1"


async def test_records_that_cannot_be_read_are_counted_and_the_keys_still_shown(desk: Desk) -> None:
    ended(desk.sh("exit 0"))
    broken = ended(desk.sh("exit 0"))
    (broken.folder / "job.json").write_text("{")
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        assert numbers(texts(s)[0])[:2] == [1, 1] and "gputui jobs" in texts(s)[0]
        assert "esc back" in s.app.screen.query_one("#page-footer", Lines).texts[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_a_folder_that_cannot_be_looked_into_is_said(desk: Desk) -> None:
    ended(desk.sh("exit 0"))
    desk.jobs.chmod(0)
    try:
        async with session(environ=environ(desk)) as s:
            await s.press("D")
            assert "cannot read" in texts(s)[1]
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
        await s.press("escape", "5", "@detach")
        await s.until(lambda: "home folder" in s.main.message)


async def test_its_line_is_copied(desk: Desk, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "xclip"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nexec /bin/cat > {tmp_path}/taken\n")
    tool.chmod(0o755)
    job = ended(desk.sh("exit 0"))
    async with session(environ={**environ(desk), "PATH": str(tool.parent), "DISPLAY": ":9"}) as s:
        await s.press("D", "y")
        await s.until(lambda: "xclip" in told(s))
        assert (tmp_path / "taken").read_text() == job.line
        (said,) = s.main.messages
        assert said.text == f"copied to the clipboard with xclip: {job.line}"
        assert told(s).splitlines()[0].strip(" ▌…") in said.text


@pytest.mark.thorough
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


# Starting again


def of_this_box(
    desk: Desk,
    *argv: str,
    devices: int = 2,
    asked: DeviceRequest = DeviceRequest(),  # noqa: B008
    near: bool = False,
    **options: object,
) -> Job:
    """A job that the screen could have started."""
    given = LaunchOptions(argv, **options)  # type: ignore[arg-type]
    launch = Launch(argv, devices=box_at("shared").devices[:devices])
    return ended(start_job(launch, desk.environ, request=LaunchRequest(given, asked, near=near)))


async def test_c_puts_the_command_with_its_options_on_the_launch_line(desk: Desk, tmp_path: Path) -> None:
    additions = (("COLOUR", "blue"),)
    job = of_this_box(desk, "sh", "-c", "exit 0", directory=str(tmp_path), additions=additions)
    async with session(environ=environ(desk)) as s:
        await s.press("5", "D", "e")
        assert s.app.screen is s.main
        assert job.id in s.main.message and "launch line" in s.main.message
        options = s.main.app_state.options
        assert options == LaunchOptions(("sh", "-c", "exit 0"), directory=str(tmp_path), additions=additions)
        assert s.selected == ["5"]


@contextlib.asynccontextmanager
async def on_demo(desk: Desk, box: str = "empty") -> AsyncIterator[Session]:
    """The screen of a demo: `gputui jobs rerun`, which a key calls, finds the same devices."""
    async with session(environ=environ(desk), source=SimulatedSource(BOXES[box])) as s:
        s.main.set_app_state(replace(s.main.app_state, label=f"demo {box}"))
        yield s


def again(desk: Desk, job: Job) -> Job:
    """The other job, which has ended."""
    (second,) = (each for each in all_jobs(desk.environ) if each.id != job.id)
    return ended(second)


async def test_R_shows_the_best_free_devices_and_starts_when_it_is_pressed_again(desk: Desk) -> None:
    job = of_this_box(desk, "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES", asked=DeviceRequest(demo="empty"))
    async with on_demo(desk) as s:
        await s.press("1", "D", "R")
        assert re.search(rf"start {job.id} as a new job on GPUs (\d) and (\d)", told(s))
        found = ",".join(map(str, numbers(told(s).rpartition("GPUs")[2])))
        await s.press("j", "R")
        assert len(all_jobs(desk.environ)) == 1
        await s.press("R")
        await s.until(lambda: "started on GPU" in told(s))
        second = again(desk, job)
        screen(s).draw()
        assert screen(s).key == second.id, "the cursor is on the new job"
        assert second.log.read_text() == f"on {found}\n"
        # The main screen keeps its own selection and command.
        assert s.selected == ["1"] and s.main.app_state.options.command == ("python", "train.py")


async def test_R_keeps_the_constraints_of_the_job(desk: Desk) -> None:
    asked = DeviceRequest(group=Grouping(tensor=2), order="given", never=("0", "1"), demo="empty")
    for wait in (None, 60.0):
        job = of_this_box(desk, "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES", asked=replace(asked, wait=wait))
        async with on_demo(desk) as s:
            await s.press("D", "R")
            assert "new job on GPUs 2 and 3" in told(s)
            await s.press("R")
            await s.until(lambda: "started on GPU" in told(s))
        second = again(desk, job)
        assert second.log.read_text() == "on 2,3\n"
        assert rerun_of(second).request == replace(rerun_of(job).request, devices=replace(asked, count=2))
        for each in (job, second):
            forget(each)


async def test_R_keeps_the_conditions_on_memory_and_load(desk: Desk) -> None:
    for asked in (DeviceRequest(min_free=900 << 30), DeviceRequest(vendor="amd")):
        job = of_this_box(desk, "true", asked=asked)
        async with session(environ=environ(desk), size=(160, 30)) as s:
            await s.press("D", "R")
            assert "new job on" not in told(s) and f"{job.id} --wait" in told(s), told(s)


async def test_R_sets_the_threads_of_the_cpus_near_its_devices_anew(desk: Desk) -> None:
    asked = DeviceRequest(demo="empty")
    job = of_this_box(desk, "sh", "-c", "echo $OMP_NUM_THREADS", near=True, asked=asked)
    async with on_demo(desk) as s:
        await s.press("D", "R", "R")
        await s.until(lambda: "started on GPU" in told(s))
    second = again(desk, job)
    assert int(second.log.read_text()) > 0
    assert rerun_of(second).request.near and rerun_of(second).request.options.additions == ()


async def test_d_keeps_what_the_devices_were_selected_for(desk: Desk) -> None:
    async with session(environ=environ(desk)) as s:
        (suggested, _) = s.main.app_state.select_best(2, Grouping(tensor=2))
        options = LaunchOptions(("sh", "-c", "true"))
        s.main.set_app_state(replace(suggested, options=options))
        await s.press("@detach")
        await s.until(lambda: all_jobs(desk.environ))
    (job,) = all_jobs(desk.environ)
    assert rerun_of(ended(job)).request.devices.group == Grouping(tensor=2)


async def test_a_request_that_cannot_be_read_starts_nothing(desk: Desk) -> None:
    job = of_this_box(desk, "true")
    record = job.folder / "job.json"
    document = json.loads(record.read_text())
    document["launch"]["request"]["devices"]["group"] = "tp=none"
    record.write_text(json.dumps(document))
    async with session(environ=environ(desk)) as s:
        await s.press("D", "R", "R")
        assert "cannot be read" in told(s) and len(all_jobs(desk.environ)) == 1


async def test_R_starts_nothing_where_too_few_devices_are_free(desk: Desk) -> None:
    of_this_box(desk, "sh", "-c", "exit 0", devices=8)
    async with session(environ=environ(desk)) as s:
        await s.press("D", "R")
        assert "8 asked for" in told(s) and "--wait" in told(s)
        await s.press("R", "R")
        assert len(all_jobs(desk.environ)) == 1


async def test_R_starts_nothing_where_the_devices_are_not_there_any_more(desk: Desk) -> None:
    of_this_box(desk, "sh", "-c", "exit 0", asked=DeviceRequest(demo="shared"))
    async with on_demo(desk) as s:
        # The box is another one than the screen has read last.
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D", "R", "R")
        await s.until(lambda: s.main.message and "…" not in s.main.message)
        assert "started" not in s.main.message
    assert len(all_jobs(desk.environ)) == 1


async def test_R_judges_the_devices_by_the_rules_of_the_job(desk: Desk) -> None:
    job = of_this_box(desk, "sh", "-c", "exit 0", asked=DeviceRequest(ignore_user=("mira",)))
    busy = (Process(4242, "compute", "mira", 5 << 30, "python x.py"),)
    before = box_at("idle")
    used = replace(before, devices=tuple(replace(each, processes=busy) for each in before.devices))
    async with session(used, environ=environ(desk)) as s:
        await s.press("D", "R")
        assert f"start {job.id} as a new job" in told(s)


# News of jobs


def summary(id: str = "m6u5", keys: Sequence[str] = (), **facts: object) -> Job:
    given = {"name": "train.py", "state": "running", "created": OPENED - 7200, "started": OPENED - 3720}
    devices = tuple(JobDevice(0, key, None) for key in keys)
    return Job(id=id, devices=devices, **{**given, **facts})  # type: ignore[arg-type]


async def test_the_end_of_a_job_is_told_with_a_bell_and_a_notification(desk: Desk) -> None:
    before = replace(box_at("shared"), jobs=(summary(),))
    async with session(before, environ=environ(desk)) as s:
        assert s.written == [] and not s.main.message
        s.source.snapshot = replace(before, jobs=(summary(state="failed", status=1, ended=OPENED),))
        s.app.sampler.ask()
        text = "job m6u5 ended with status 1 after 1h02m"
        await s.until(lambda: s.main.message == text)
        assert s.written == [f"\a\x1b]9;gputui: {text}\x1b\\\x1b]777;notify;gputui;{text}\x1b\\"]
        await s.press("j")
        assert s.main.message == text, "a key that came at the same time was meant for something else"
        await s.press("j")
        assert s.main.message == ""
        s.app.sampler.ask()
        await s.pilot.pause(0.1)
        assert len(s.written) == 1


def told_of(job: Job) -> str:
    """What the page tells of a job below its line."""
    return "\n".join("".join(text for text, _ in line) for line in facts_of(job, OPENED, 80))


def test_who_asked_for_a_job_is_told_below_its_line() -> None:
    assert "asked by my-agent" in told_of(summary(client="my-agent"))
    assert "asked by" not in told_of(summary())


def test_a_job_that_was_stopped_in_line_has_no_peak_of_memory() -> None:
    told = told_of(summary(state="stopped", ended=OPENED, waits=1, peak_process_memory=2**20))
    assert "stopped after" in told and "peak" not in told


def test_a_job_that_waits_for_devices_by_name_says_which() -> None:
    box = box_at("shared")
    waits = summary(state="waiting", waits=2)
    keys = frozenset(device.key for device in box.devices[2:4])
    line = Waiter((1, ""), "me", 2, keys, job=waits.id, ours=True)
    assert on_devices(waits, replace(box, waiters=(line,))) == "for GPU 2,3"
    assert on_devices(waits, replace(box, waiters=(replace(line, devices=None),))) == "for 2 GPUs"
    somebody = replace(line, ours=False)
    assert on_devices(waits, replace(box, waiters=(somebody,))) == "for 2 GPUs", "ids of others mean nothing"
    assert on_devices(waits, None) == "for 2 GPUs"


async def test_the_page_has_the_jobs_in_the_order_of_the_panel(desk: Desk) -> None:
    gate = desk.gate()
    long = desk.sh(gate.wait)
    short = ended(desk.sh("exit 0"))
    gate.open()
    ended(long)
    async with session(environ=environ(desk)) as s:
        await s.press("D")
        in_panel = [job.id for job in WithJobs(SimulatedSource(BOXES["idle"]), desk.environ).read().jobs]
        assert screen(s).item_keys() == in_panel == [long.id, short.id], "what ended last comes first"


async def test_the_page_is_opened_again_at_the_job_where_it_was_closed(desk: Desk) -> None:
    old, middle = ended(desk.sh("exit 0")), ended(desk.sh("exit 0"))
    ended(desk.sh("exit 0"))
    async with session(environ=environ(desk)) as s:
        await s.press("D", "j", "escape", "D")
        assert screen(s).key == middle.id
        await s.press("j", "e", "D")
        assert screen(s).key == old.id
        await s.press("g", "escape")
        newest = ended(desk.sh("exit 0"))
        await s.press("D")
        assert screen(s).key == newest.id, "who has not gone anywhere sees the last job first"


async def test_a_job_that_waited_and_starts_is_told_with_its_devices(desk: Desk) -> None:
    box = box_at("shared")
    before = replace(box, jobs=(summary(state="waiting", waits=2, created=OPENED - 600),))
    async with session(before, environ=environ(desk)) as s:
        keys = tuple(device.key for device in box.devices[4:6])
        s.source.snapshot = replace(box, jobs=(summary(keys=keys),))
        s.app.sampler.ask()
        await s.until(lambda: s.written)
        assert s.main.message == "job m6u5 has started on GPUs 4 and 5 after waiting 10m"


@each_row(
    ("facts", "words"),
    [
        ({"state": "stopped", "signal": 15}, "was stopped after 1h02m"),
        ({"state": "failed", "signal": 15}, "ended by SIGTERM after 1h02m"),
        ({"state": "ended", "status": None}, "ended, status unknown, after 1h02m"),
        ({"state": "done", "status": 0}, "ended with status 0 after 1h02m"),
        ({"state": "failed", "status": 124}, "ended with status 124 after 1h02m"),
        ({"state": "failed", "status": 124, "waits": 1}, "gave up after waiting 2h"),
        ({"state": "stopped", "signal": 15, "waits": 1}, "was stopped after waiting 2h"),
    ],
)
def test_how_a_job_ended_in_words(facts: dict[str, object], words: str) -> None:
    before = replace(box_at("shared"), jobs=(summary(),))
    now = replace(before, jobs=(summary(ended=OPENED, **facts),))
    assert news(before, now) == [(f"job m6u5 {words}", facts["state"] in ("done", "stopped"))]


def test_the_list_names_the_signal_that_ended_a_job_as_the_command_line_does(desk: Desk) -> None:
    job = ended(desk.sh("kill -TERM $$"))
    heading, line = listed([job], 80, OPENED)
    assert heading[1][0].strip() == "ID"
    assert status_text(job) == "SIGTERM" in "".join(text for text, _ in line)


def test_nothing_is_told_of_what_had_ended_before_the_screen_was_opened() -> None:
    before = replace(box_at("shared"), jobs=())
    now = replace(before, jobs=(summary(state="done", status=0, ended=before.time - 5),))
    assert news(None, now) == news(before, now) == news(now, now) == []


# On another box


async def test_a_demo_shows_its_own_jobs_and_touches_none_of_ours(desk: Desk) -> None:
    ours = ended(desk.sh("echo real"))
    record = json.loads((ours.folder / "job.json").read_text())
    (ours.folder / "job.json").write_text(json.dumps({**record, "starter": {"pid": 1, "ticks": None}}))
    box = box_at("shared")
    jobs = (
        summary(keys=(box.devices[6].key,), tail=("epoch 1", "epoch 2"), argv=("train.py",)),
        summary("k3f9", state="done", status=0, ended=OPENED),
    )
    async with session(replace(box, jobs=jobs), environ=environ(desk)) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D")
        assert "m6u5" in texts(s)[2] and "GPU 6" in texts(s)[2] and "k3f9" in texts(s)[3]
        assert ours.id not in "\n".join(texts(s))
        assert log(s)[:2] == [" epoch 1", " epoch 2"]
        for key in ("x", "y", "R", "v"):
            await s.press(key)
            assert s.main.app_state.not_of_this_machine("jobs") in told(s)
        await s.press("e")
        assert s.app.screen is s.main and s.main.app_state.options.command == ("train.py",)
        assert "m6u5 is on the launch line" in s.main.message
        await s.press("4", "enter")
        await s.until(lambda: "nothing is started" in s.main.message)
        assert s.app.is_running
    assert ours.folder.exists()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (130, 40)])
async def test_of_a_job_that_has_ended_the_end_and_its_peaks_are_said(width: int, height: int) -> None:
    jobs = (
        summary("k3f9", state="failed", status=1, ended=OPENED - 60, started=OPENED - 240,
                peak_memory=76 << 30, peak_process_memory=5 << 30),
    )  # fmt: skip
    async with session(replace(box_at("shared"), jobs=jobs), size=(width, height)) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D")
        whole = " ".join(" ".join(texts(s)).split())
        assert "ended with status 1 after 3m, 1m ago" in whole
        assert "76.0G on a GPU, 5.0G RAM in its largest process" in whole


async def test_the_only_cursor_is_the_one_in_the_list() -> None:
    box = box_at("shared")
    job = summary(keys=(box.devices[6].key, box.devices[7].key))
    async with session(replace(box, jobs=(job,))) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared", cursor=box.devices[7].key))
        await s.press("D")
        assert shown(s, "devices of m6u5")
        assert ["m6u5" in line for line in texts(s) if "▸" in line] == [True]


async def test_the_launch_line_of_a_job_is_shown_and_leaves_its_log_room(desk: Desk) -> None:
    ended(desk.start("/bin/sh", "-c", "seq 50 #" + " x" * 2000))
    for height in (10, 24):
        async with session(environ=environ(desk), size=(80, height)) as s:
            await s.press("D")
            await s.until(lambda: shown(s, " 50"))
            assert shown(s, "$ ") is (height == 24)
            assert len(log(s)) >= 3


async def test_with_room_a_name_is_whole_and_a_commands_device_does_not_repeat_it() -> None:
    box = box_at("shared")
    title = "python finetune.py --config " + "x" * 30
    job = summary(keys=(box.devices[6].key,), name=title)
    async with session(replace(box, jobs=(job,)), size=(200, 60)) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D")
        lines = texts(s)
        assert any(title in line for line in lines[1:3])
        rule = next(n for n, line in enumerate(lines) if "devices of m6u5" in line)
        assert "UTIL" in lines[rule + 1]
        assert "finetune" not in lines[rule + 2] and lines[rule + 2].split()[0] == "6"


# The panel of the main screen


def panel(width: int, height: int, *jobs: Job) -> list[str]:
    app_state = AppState({}).with_snapshot(replace(box_at("shared"), jobs=jobs, waiters=()))
    lines = jobs_and_queue.panel(app_state, width, height)
    texts = ["".join(text for text, _ in line).rstrip() for line in lines]
    assert all(len(text) <= width for text in texts) and len(texts) <= height
    return texts


def test_the_panel_has_a_line_a_job_and_the_log_is_on_its_page() -> None:
    key = box_at("shared").devices[6].key
    running = summary(keys=(key,), tail=("epoch 1", "epoch 2"), peak_memory=40 << 30)
    others = [summary(f"k3f{n}", state="done", status=0, ended=OPENED) for n in range(5)]
    seen = panel(130, 20, running, *others)
    assert "1 running" in seen[0] and "5 ended" in seen[0]
    for words in ("m6u5", "▶ running", "1h02m", "GPU 6", "train.py"):
        assert words in seen[1]
    assert len(seen) == 5 and not any("epoch" in line for line in seen)
    assert "1 running  5 ended" in panel(60, 4, running, *others)[0], "it counts what there is"
    (head, *_) = panel(60, 20, *others)
    assert "5 ended" in head and "running" not in head and "more" not in head
    (alone,) = panel(130, 4)
    assert "jobs and queue" in alone, "the panel keeps its place when there are no jobs any more"


def test_an_experiment_is_one_job_in_the_panel_with_its_progress() -> None:
    key = box_at("shared").devices[6].key
    runner = summary(
        name=None, argv=("gputui", "compare"), part=Part("d3a4", "comparison d3a4 of lr", 0, 4, True)
    )
    first = summary("k3f1", state="done", ended=OPENED, part=Part("d3a4", "lr=1e-4", 1, 4))
    second = summary("k3f2", (key,), created=OPENED, part=Part("d3a4", "lr=3e-4", 2, 4))
    head, row = panel(130, 20, first, second, runner)
    assert "1 running" in head and "ended" not in head, "it is counted once"
    assert "m6u5" in row and "GPU 6" in row and "comparison d3a4 of lr: 1 of 4" in row
    texts = panel(130, 20, first, second)
    assert "k3f2" in texts[1] and "k3f1" in texts[2], "runs whose comparison is not a job here are jobs"


def test_news_waits_for_the_answer_to_a_key_and_is_shown_then() -> None:
    log = MessageLog()
    log.add(10.0, "a job was stopped", kind="news")
    log.add(10.1, "its command is on the launch line")
    log.add(11.0, "another has ended", kind="news")
    log.add(11.5, "a third one has ended", kind="news")
    assert log.shown and "launch line" in log.shown.text and not log.show_waiting(12.0)
    assert [each.text for each in log.messages][-1] == "a third one has ended", "none is lost"
    for at, text in ((13.2, "another has ended"), (16.3, "a third one has ended")):
        assert log.show_waiting(at) and log.shown and log.shown.text == text
    assert not log.key_pressed(16.4) and log.key_pressed(16.5)
    log.add(17.0, "stopping …", kind="passing")
    log.add(17.1, "it was stopped", kind="news")
    assert log.shown and log.shown.text == "it was stopped", "what is only under way does not hold it up"


async def test_jobs_of_ones_own_that_the_folder_does_not_have_are_counted(desk: Desk) -> None:
    box = replace(box_at("idle"), jobs=())
    claim = Claim(box.devices[0].key, "me", None, "python x.py", job="n8x9", own=True)
    line = (Waiter((1, "a"), "me", job="e3y2", ours=True), Waiter((2, "b"), "ana", job="k1k1"))
    for snapshot, count in ((box, 0), (replace(box, claims=(claim,), waiters=line), 2)):
        async with session(snapshot, environ=desk.environ) as s:
            await s.press("D")
            assert ("another HOME" in texts(s)[0]) is bool(count)
            assert not count or f" {count} of yours" in texts(s)[0]


def test_in_a_narrow_panel_every_row_has_the_name_of_its_job() -> None:
    now = box_at("shared").time
    times = {"created": now - 60, "started": now - 60}
    stopped = summary(id="aaaa", state="stopped", waits=2, ended=now - 1, **times)
    running = summary(id="bbbb", **times)
    assert stopped.never_ran
    rows = [line for line in panel(48, 8, stopped, running) if "aaaa" in line or "bbbb" in line]
    assert len(rows) == 2 and all("train.py" in row for row in rows), rows
    assert "59s" not in next(row for row in rows if "aaaa" in row), "it did not run for that time"


def test_jobs_that_ended_a_while_ago_leave_few_lines_to_others() -> None:
    old, live = summary(id="aaaa", state="done", ended=100.0), summary(id="bbbb")

    def wanted(*jobs: Job) -> int:
        snapshot = replace(box_at("idle"), time=1000.0, jobs=jobs)
        return jobs_and_queue.lines_wanted(AppState({}).with_snapshot(snapshot))

    assert wanted(old) == 0 and wanted(live) == wanted(live, old) == 2
    assert wanted(replace(old, ended=990.0)) == 2


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_panel_of_one_line_has_the_job_that_was_started_last(state: str) -> None:
    others = (
        summary("aaaa"),
        summary("bbbb", created=OPENED - 60),
        summary("cccc", state="done", ended=OPENED),
    )
    new = summary("zzzz", state=state, created=OPENED, waits=1)
    for jobs in ((*others, new), (new, *others)):
        rule, line = panel(80, 2, *jobs)
        assert "zzzz" in line and "1 ended" in rule
        assert "zzzz" in "".join(panel(80, 5, *jobs))


async def test_a_job_of_a_demo_is_in_its_panel_and_on_its_devices_until_it_ends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is the one that the command line gives a demo's screen."""
    monkeypatch.setattr(jobs_source, "_EVERY", 0.0)
    now = time.time()
    # The box does not change: the free devices must not depend on how long the test takes.
    source = WithJobs(SimulatedSource(BOXES["shared"], lambda: now), desk.environ)
    gate = desk.gate()
    command = ("sh", "-c", f"{gate.wait}; exit 3")
    async with moving(command=command, environ=environ(desk), source=source, size=(160, 40)) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label))
        await s.press("4", "5", "@detach", "f")
        await s.until(lambda: all_jobs(desk.environ))
        (job,) = all_jobs(desk.environ)

        def rows() -> list[str]:
            return s.texts("#table")[5:7]

        await s.until(lambda: all(f"▶ your job {job.id}" in row for row in rows()))
        panel = s.texts("#lists")
        (head,) = (text for text in panel if "jobs and queue" in text)
        assert numbers(head)[0] == 2 and any(job.id in text and "running" in text for text in panel)
        # The job's devices are not suggested again.
        await s.press("b")
        assert s.selected == ["7"]
        gate.open()
        await s.until(lambda: f"job {job.id} ended with status 3" in s.main.message)
        await s.until(lambda: not any(job.id in row for row in rows()))


async def test_a_rerun_of_ours_in_a_demo_is_real_while_the_example_is_on_the_launch_line(desk: Desk) -> None:
    source = WithJobs(SimulatedSource(BOXES["empty"]), desk.environ)
    example = ("python", "train.py")
    async with moving(command=("sh", "-c", "true"), environ=environ(desk), source=source) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label))
        await s.press("2", "@detach")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        await s.press("f")
        await s.until(lambda: all_jobs(desk.environ))
        ended(all_jobs(desk.environ)[0])
        s.main.set_app_state(replace(s.main.app_state, example=example, options=LaunchOptions(example)))
        await s.press("D", "R", "R")
        await s.until(lambda: len(all_jobs(desk.environ)) == 2)
        assert all(ended(job).argv == ("sh", "-c", "true") for job in all_jobs(desk.environ))
        assert not any(job.id.startswith("demo") for job in source.read().jobs)


def test_the_log_is_broken_at_spaces_and_loses_nothing_but_the_spaces_there() -> None:
    line = "  Saving model checkpoint to /scratch/out/checkpoint-1000 in 12 pieces"
    for width in range(12, 80):
        pieces = pieces_of([line], width)
        assert all(len(piece) <= width - 2 for piece in pieces)
        assert "".join(pieces).replace(" ", "") == line.replace(" ", "")
        if width > 35:
            assert all(word in line.split() for piece in pieces for word in piece.split())
            assert pieces[0].startswith("  Saving")
    wide = pieces_of(["x" * 25, "", "日本" * 6], 12)
    assert wide == ["x" * 10, "x" * 10, "x" * 5, "", "日本日本日", "本日本日本", "日本"]


async def test_enter_gives_the_log_the_whole_page_and_shows_the_jobs_again() -> None:
    async with session("shared") as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D")
        jobs = texts(s)
        await s.press("enter", "down", "up")
        assert "─ log of m6u5" in texts(s)[0] and "step" in texts(s)[1]
        await s.press("escape")
        assert texts(s) == jobs
        await s.press("enter", "enter")
        assert texts(s) == jobs
        await s.press("escape")
        assert s.app.screen is s.main


async def test_on_the_page_of_the_log_a_filter_is_one_of_its_lines_and_the_keys_are_those_that_act(
    desk: Desk,
) -> None:
    for command in ("echo one; echo two; echo three", "echo others"):
        ended(desk.sh(command))
    async with session(environ=environ(desk)) as s:
        await s.press("D", "slash", *"three", "enter")
        assert shown(s, "with “three”") and not shown(s, "others") and "⏎ open" in told(s)
        await s.press("enter", "slash", *"T", "enter")
        assert log(s)[:2] == [" two", " three"] and "with “T”" in texts(s)[0] and "⏎ jobs" in told(s)
        await s.press("slash", *"none", "enter")
        assert "esc shows all" in log(s)[0]
        await s.press("escape")
        assert log(s)[:3] == [" one", " two", " three"]
        await s.press("slash", *"two", "enter", "enter")
        assert shown(s, "with “three”") and "⏎ open" in told(s), "the list has its own filter"
