"""Enter, r and d read the selected devices again, ask when they have changed, and remember the launch."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.store import all_jobs
from gputui.launching.history_file import load
from gputui.tui.messages import NewReading
from gputui.tui.readings import Reading
from gputui.tui.screens.confirm import ConfirmScreen
from tui.support import box_at, session, started
from unit.jobs_support import Desk, desk_at, ended

WAYS = pytest.mark.parametrize("key", ["enter", "@return", "@detach"])


def taken_by_eve() -> Snapshot:
    """The box, with a process of eve on GPU 4."""
    snapshot = box_at("shared")
    process = (Process(4711, "compute", user="eve", memory=2**30, command="python steal.py"),)
    devices = tuple(replace(d, processes=process) if d.index == 4 else d for d in snapshot.devices)
    return replace(snapshot, devices=devices)


@WAYS
async def test_what_is_free_still_is_started_and_remembered(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    async with session(command=("true",), environ=environ) as s:
        await s.press("4", "5", key)
        await s.until(lambda: started(s, key, desk))
    (each,) = load(environ)
    assert (each.options.command, each.count, each.where) == (("true",), 2, str(Path.cwd()))


@WAYS
async def test_a_device_that_was_taken_meanwhile_is_asked_about(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    async with session(command=("true",), environ=environ) as s:
        await s.press("4")
        s.source.snapshot = taken_by_eve()
        await s.press(key)
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        assert "GPU 4 (cuda:0) is busy (was free): eve" in str(s.app.screen.reasons)  # type: ignore[attr-defined]
        await s.press("n")
        assert not started(s, key, desk)
        assert load(environ) == ()
        await s.press(key)
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        await s.press("f")
        await s.until(lambda: started(s, key, desk))


@WAYS
async def test_a_key_after_it_takes_it_back(key: str, desk: Desk, environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ, interval=1000) as s:
        await s.press("4")
        # The test holds back the reading that the key asks for until it has pressed the other key.
        s.app.sampler.ask = lambda: None  # type: ignore[method-assign]
        await s.press(key, "5")
        s.main.post_message(NewReading(Reading(box_at("shared"), time.monotonic())))
        await s.settle()
        assert s.app.is_running
        assert not started(s, key, desk)


@WAYS
async def test_without_a_program_it_says_so_at_once(key: str, desk: Desk, environ: dict[str, str]) -> None:
    async with session(command=("no-such-program",), environ=environ, interval=1000) as s:
        await s.press(key)
        assert "'no-such-program'" in s.main.message and s.app.screen is s.main
        await s.press("4", key)
        assert "'no-such-program'" in s.main.message
    assert all_jobs(desk.environ) == []


@WAYS
async def test_what_cannot_be_remembered_holds_nothing_up(key: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with desk_at(tmp_path) as desk:
        environ = {"XDG_STATE_HOME": str(tmp_path / "file")}
        async with session(command=("true",), environ=environ) as s:
            await s.press("4", key)
            if key == "enter":
                await s.until(lambda: started(s, key, desk))
                assert s.app.return_value is not None and s.app.return_value.warning is not None
                assert str(tmp_path / "file") in s.app.return_value.warning
            else:
                await s.until(lambda: "launches cannot be saved in" in s.main.message)


async def test_a_job_that_cannot_be_started_is_said(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    async with session(command=(str(tmp_path / "broken"),), environ=environ) as s:
        await s.press("4", "@detach")
        await s.until(lambda: "there is no program" in s.main.message)
        assert "broken" in s.main.message


async def test_a_program_that_is_not_in_path_is_told_with_what_helps_before_and_at_enter(
    environ: dict[str, str],
) -> None:
    helps = "there is no program 'python' in PATH; activate its environment or give a path"
    async with session(command=("python", "x.py"), environ={**environ, "PATH": "/none"}, size=(80, 24)) as s:
        await s.press("4")
        assert s.main.app_state.warnings[0] == helps
        await s.press("enter")
        await s.until(lambda: s.main.message == helps)
        assert s.texts("#message")[0].endswith(helps)


async def test_a_second_press_while_the_devices_are_read_starts_nothing_twice(
    desk: Desk, environ: dict[str, str]
) -> None:
    async with session(command=("true",), environ=environ, interval=1000) as s:
        await s.press("4")
        s.app.sampler.ask = lambda: None  # type: ignore[method-assign]
        await s.press("@detach", "@detach")
        for _ in range(2):
            s.main.post_message(NewReading(Reading(box_at("shared"), time.monotonic())))
            await s.settle()
        (job,) = all_jobs(desk.environ)
        ended(job)
