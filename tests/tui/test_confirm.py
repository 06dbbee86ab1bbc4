"""Enter, r and d ask first about devices that are not free, waiters for them, and a command's own devices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.containers import Vertical
from textual.widgets import Static

from gputui.allocating.queue import waiters
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.stop import stop
from gputui.jobs.store import all_jobs
from gputui.tui.controllers import launch as launch_controller
from gputui.tui.screens import confirm
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.widgets.lines import Lines
from messages import numbers
from table_tests import quick_first
from tui.support import Session, box_at, session, started
from unit import builders
from unit.builders import GIB, busy, gpu, job
from unit.jobs_support import Desk, ended

WAYS = pytest.mark.parametrize("key", ["enter", "@return", "@detach"])
IDLE = box_at("idle")
FOUR = IDLE.devices[0]

_WAITS = """
import os, signal, sys
from gputui.allocating.queue import Ticket
ticket = Ticket.draw(os.environ, int(sys.argv[1]), frozenset(sys.argv[2:]) or None, "python theirs.py")
print("in line", flush=True)
signal.pause()
"""


@contextmanager
def in_line(count: int, *keys: str) -> Iterator[None]:
    """Another process waits for this number of devices: for some of these, or for any."""
    words = [sys.executable, "-c", _WAITS, str(count), *keys]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None and waiter.stdout.readline()
        try:
            yield
        finally:
            waiter.kill()


def with_first(device: Device, *claims: Claim) -> Snapshot:
    """The idle box with another first device."""
    return replace(IDLE, devices=(device, *IDLE.devices[1:]), claims=claims)


async def asked(s: Session) -> str:
    """The text of the question."""
    await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
    assert isinstance(s.app.screen, ConfirmScreen)
    return "\n".join(s.app.screen.reasons)


def question(s: Session) -> str:
    return str(s.app.screen.query_one(".question", Static).content)


def keys(s: Session) -> str:
    return s.app.screen.query_one("#hints", Lines).texts[0]


async def no_starts_nothing_and_f_starts_it(s: Session, key: str, desk: Desk) -> None:
    """Answer the question with no; press the key again, and start anyway."""
    await s.press("n")
    assert not started(s, key, desk)
    await s.press(key)
    await asked(s)
    await s.press("f")
    await s.until(lambda: started(s, key, desk))


NOT_FREE = {
    "busy": (with_first(busy(FOUR, job(user="ana"))), "GPU 0 is busy: ana runs train.py (pid 4242, "),
    "held": (with_first(replace(FOUR, memory_used=20 * GIB)), "GPU 0 is held: 20.0G in use"),
    "claimed": (with_first(FOUR, Claim(FOUR.key, "ana", None, "python x.py")), "GPU 0 is claimed: by ana"),
    "unknown": (
        with_first(replace(FOUR, processes=None)),
        "GPU 0 is unknown: the driver does not list its processes",
    ),
}


@pytest.mark.parametrize(
    ("state", "key"), [("busy", "enter"), ("held", "@return"), ("claimed", "@detach"), ("unknown", "enter")]
)
async def test_a_device_that_is_not_free_is_asked_about(
    state: str, key: str, desk: Desk, environ: dict[str, str]
) -> None:
    box, words = NOT_FREE[state]
    async with session(box, command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", key)
        assert words.replace("GPU 0", "GPU 0 (cuda:0)") in await asked(s)
        await no_starts_nothing_and_f_starts_it(s, key, desk)
    for each in all_jobs(desk.environ):
        ended(each)


async def test_what_the_question_says_is_not_said_below_it_too(environ: dict[str, str]) -> None:
    async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
        await s.press("0")
        assert "! GPU 0 is busy" in "\n".join(s.texts("#launch"))
        lines = len(s.texts("#launch"))
        await s.press("enter")
        assert "GPU 0 (cuda:0) is busy" in await asked(s)
        await s.settle()
        assert "busy" not in "\n".join(s.texts("#launch")) and len(s.texts("#launch")) == lines
        await s.press("n")
        assert "! GPU 0 is busy" in "\n".join(s.texts("#launch"))


@WAYS
async def test_a_free_device_is_never_asked_about(key: str, desk: Desk, environ: dict[str, str]) -> None:
    async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
        await s.press("1", key)
        await s.until(lambda: started(s, key, desk))
    for each in all_jobs(desk.environ):
        ended(each)


@WAYS
async def test_from_a_demo_a_real_start_is_asked_about(key: str, desk: Desk, environ: dict[str, str]) -> None:
    async with session(IDLE, command=("true",), environ=environ, interval=1000) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo idle"))
        await s.press("1", key)
        where = s.main.app_state.starts_elsewhere
        assert "demo idle" in where and where in await asked(s)
        # The launch line has shown the same words.
        assert where in s.main.app_state.warnings[-1]
        await no_starts_nothing_and_f_starts_it(s, key, desk)
    for each in all_jobs(desk.environ):
        ended(each)


@WAYS
async def test_those_in_line_are_asked_about(key: str, desk: Desk, environ: dict[str, str]) -> None:
    with in_line(2):
        async with session("idle", command=("true",), environ=environ, interval=1000) as s:
            await s.press("0", "1", key)
            (before,) = (reason for reason in (await asked(s)).splitlines() if "waits ahead" in reason)
            assert numbers(before) == [2]
            await no_starts_nothing_and_f_starts_it(s, key, desk)
    for each in all_jobs(desk.environ):
        ended(each)


async def test_enter_joins_those_who_are_in_line(desk: Desk, environ: dict[str, str]) -> None:
    async with session("idle", command=("true",), environ=environ, interval=1000) as s:
        with in_line(2):
            s.source.snapshot = replace(IDLE, waiters=waiters(os.environ))
            await s.press("0", "enter")
            await asked(s)
            assert "in line" in question(s) and "⏎ yes" in keys(s) and "f start anyway" in keys(s)
            await s.press("y")
            await s.until(lambda: s.app.screen is s.main)
            assert len(all_jobs(desk.environ)) == 1
        (job,) = all_jobs(desk.environ)
        stop(job)


async def test_a_question_has_the_same_keys_everywhere_and_a_help(environ: dict[str, str]) -> None:
    async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
        for typed, others in (
            (("0", "enter"), ("f start anyway", "w wait")),
            (("escape", "enter"), ("d as a job", "r run and come back")),
        ):
            await s.press(*typed)
            await asked(s)
            for each in ("⏎ yes", *others, "esc no", "? help"):
                assert each in keys(s)
            asks = s.app.screen
            await s.press("question_mark")
            help_lines = s.app.screen.query_one("#page-body", Lines).texts
            assert any(line.split()[:2] == ["esc", "No"] for line in help_lines)
            await s.press("escape")
            assert s.app.screen is asks
            await s.press("escape")


async def test_enter_answers_a_warning_only_once_it_can_have_been_read(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for unread, ends in ((1000.0, False), (0.0, True)):
        monkeypatch.setattr(confirm, "_UNREAD", unread)
        async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
            await s.press("0", "enter")
            await asked(s)
            await s.press("enter")
            if ends:
                await s.until(lambda: not s.app.is_running)
            else:
                assert isinstance(s.app.screen, ConfirmScreen)


async def test_enter_takes_the_best_free_devices_in_place_of_those_that_are_not(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "_UNREAD", 0.0)
    async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "enter")
        await asked(s)
        (best,) = s.main.app_state.select_best(1)[0].selection
        assert f"GPU {IDLE.label(IDLE.by_key[best])} (the best free) instead" in question(s)
        await s.press("enter")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None and s.app.return_value.launch is not None
        assert [device.key for device in s.app.return_value.launch.devices] == [best]


async def test_what_is_free_of_the_selection_stays_in_what_is_offered_instead(
    environ: dict[str, str],
) -> None:
    four = builders.box(busy(gpu(0), job(user="ana")), gpu(1), gpu(2), gpu(3))
    async with session(four, command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "3", "enter")
        await asked(s)
        assert 3 in numbers(question(s)) and 0 not in numbers(question(s)) and len(numbers(question(s))) == 2


async def test_where_no_device_is_free_enter_waits_in_line(desk: Desk, environ: dict[str, str]) -> None:
    full = replace(IDLE, devices=tuple(busy(each, job(user="ana")) for each in IDLE.devices))
    async with session(full, command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "enter")
        await asked(s)
        assert question(s).startswith("Wait for GPU 0, as a job? You are ")
        assert "⏎ yes" in keys(s) and "f start anyway" in keys(s) and " w " not in keys(s)
        await s.press("y")
        await s.until(lambda: s.app.screen is s.main)
        (waiting,) = all_jobs(desk.environ)
        assert waiting.waits == 1
        stop(waiting)


async def test_enter_never_starts_what_something_speaks_against(environ: dict[str, str]) -> None:
    async with session(IDLE, command=("true",), environ=environ, interval=1000) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo idle"))
        await s.press("1", "enter")
        await asked(s)
        await s.press("enter", "y")
        assert isinstance(s.app.screen, ConfirmScreen) and "⏎" not in keys(s)


async def test_w_waits_for_a_device_that_is_not_free(environ: dict[str, str]) -> None:
    async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "enter")
        await asked(s)
        await s.press("w")
        assert isinstance(s.app.screen, LineScreen) and "GPU 0" in s.app.screen.prompt


async def test_no_age_stands_still_in_a_question(environ: dict[str, str]) -> None:
    box = with_first(FOUR, Claim(FOUR.key, "ana", IDLE.time - 100, "python x.py"))
    async with session(box, command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "enter")
        assert "by ana" in await asked(s) and " ago" not in await asked(s)


async def test_a_launch_asks_one_question(environ: dict[str, str]) -> None:
    """What speaks against the devices that the command names is told once, with the same answers."""
    box, command = NOT_FREE["busy"][0], ("env", "CUDA_VISIBLE_DEVICES=0", "true")
    for key, ends in (("n", False), ("f", True)):
        async with session(box, command=command, environ=environ, interval=1000) as s:
            await s.press("@clear", "enter")
            words = await asked(s)
            assert "GPU 0" in question(s) and "instead" not in question(s), "the command names its device"
            assert words.count("ana runs") == 1
            await s.press(key)
            if ends:
                await s.until(lambda: not s.app.is_running)
            else:
                assert s.app.screen is s.main and not s.main.app_state.selection


async def test_enter_does_what_the_key_that_asked_does(environ: dict[str, str]) -> None:
    for box, devices in (("idle", ()), (NOT_FREE["busy"][0], ("0",))):
        for key, words in (("@detach", "⏎ start the job"), ("@return", "⏎ run and come back")):
            async with session(box, command=("true",), environ=environ, interval=1000) as s:
                await s.press(*devices, key)
                await asked(s)
                shown = s.app.screen.query_one("#hints", Lines).texts[0]
                assert words in shown and " d as a job" not in shown and " r run" not in shown
                await s.press("escape")


async def test_those_in_line_for_other_devices_are_nobody_s_business(environ: dict[str, str]) -> None:
    with in_line(1, IDLE.devices[1].key):
        async with session("idle", command=("true",), environ=environ, interval=1000) as s:
            await s.press("0", "enter")
            await s.until(lambda: not s.app.is_running)


@WAYS
async def test_nothing_is_started_on_devices_that_the_command_would_not_use(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    command = ("sh", "-c", "CUDA_VISIBLE_DEVICES=1 env")
    async with session("idle", command=command, environ=environ, interval=1000) as s:
        await s.until(lambda: list(s.main.app_state.selection) == [IDLE.devices[1].key])
        await s.press("@clear", "0", key)
        assert "CUDA_VISIBLE_DEVICES=1" in s.main.message
        assert not started(s, key, desk) and not isinstance(s.app.screen, ConfirmScreen)
        await s.press("@command", key)
        await s.until(lambda: started(s, key, desk))
    for each in all_jobs(desk.environ):
        ended(each)


@WAYS
async def test_another_number_of_devices_than_the_command_starts_processes_is_asked_about(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    command = ("env", "torchrun", "--nproc-per-node=2", "train.py")
    async with session("idle", command=command, environ=environ, interval=1000) as s:
        await s.until(lambda: len(s.main.app_state.selection) == 2)
        await s.press("@clear", "0", key)
        assert "--nproc-per-node=2" in await asked(s)
        await s.press("n")
        assert not started(s, key, desk)


@WAYS
async def test_a_device_more_than_a_command_will_use_is_asked_about(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    command = ("bash", "-c", "CUDA_VISIBLE_DEVICES=1 python train.py")
    async with session("idle", command=command, environ=environ, interval=1000) as s:
        assert len(s.main.app_state.selection) == 1
        await s.press("1", "0", key)
        assert "CUDA_VISIBLE_DEVICES=1" in await asked(s)
        await s.press("n")
        assert not started(s, key, desk)


async def test_devices_are_asked_about_in_their_order(environ: dict[str, str]) -> None:
    box = with_first(busy(FOUR, job(user="ana")), Claim(IDLE.devices[1].key, "bo", None, "python x.py"))
    async with session(box, command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "1", "enter")
        assert [line.split()[2] for line in (await asked(s)).splitlines()] == ["(cuda:0)", "(cuda:1)"]


async def test_no_job_waits_for_devices_that_its_command_would_not_use(
    desk: Desk, environ: dict[str, str]
) -> None:
    command = ("env", "CUDA_VISIBLE_DEVICES=1", "true")
    async with session("idle", command=command, environ=environ, interval=1000) as s:
        await s.until(lambda: len(s.main.app_state.selection) == 1)
        await s.press("1", "0", "w")
        assert isinstance(s.app.screen, LineScreen) and "CUDA_VISIBLE_DEVICES=1" in s.app.screen.prompt
        await s.press("enter")
        assert "CUDA_VISIBLE_DEVICES=1" in s.main.message
    assert all_jobs(desk.environ) == []


async def test_the_question_of_a_driver_that_does_not_answer_tells_the_rest_too(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_controller, "_PATIENCE", 0.0)
    command = ("env", "torchrun", "--nproc-per-node=2", "train.py")
    async with session("idle", command=command, environ=environ, interval=1000) as s:
        await s.until(lambda: len(s.main.app_state.selection) == 2)
        await s.press("@clear")
        with in_line(2):
            s.app.sampler.ask = lambda: None  # type: ignore[method-assign]
            await s.press("0", "enter")
            s.main.tick()
            words = await asked(s)
            assert "driver" in words and "--nproc-per-node=2" in words and "your own run waits ahead" in words
            assert len(words.splitlines()) == 3
            assert s.main.message == ""


async def test_leaving_at_the_question_leaves_no_claim_and_no_record(
    environ: dict[str, str], own_claims: Path
) -> None:
    async with session(NOT_FREE["busy"][0], command=("true",), environ=environ, interval=1000) as s:
        await s.press("0", "enter")
        await asked(s)
        assert all(file.read_bytes() for file in own_claims.glob("*.claim"))
        s.app.leave(143)
        await s.until(lambda: not s.app.is_running)
    assert list(own_claims.glob("*.claim")) == []


@pytest.mark.parametrize("key", ["enter", "w", "e"])
@pytest.mark.parametrize("size", quick_first([(80, 24), (130, 40)]))
async def test_a_question_leaves_the_box_in_view(
    key: str, size: tuple[int, int], environ: dict[str, str]
) -> None:
    """The table, the panels and the selection are what it is about."""
    async with session("shared", command=("true",), environ=environ, interval=1000, size=size) as s:
        await s.press("0", key)
        await s.until(lambda: s.app.screen is not s.main)
        await s.settle()
        question, selection = s.app.screen.query_one(Vertical), s.main.query_one("#selection")
        assert question.region.y >= selection.region.bottom and question.region.bottom == size[1] - 1
        assert s.app.screen.styles.background.is_transparent, "no colour of 16 could be mixed with the box"


async def test_those_in_the_line_of_a_recording_are_asked_about_and_nobody_can_join_them(
    environ: dict[str, str],
) -> None:
    async with session("shared", command=("true",), environ=environ, interval=1000, size=(130, 40)) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("0", "1", "2", "3", "@return")
        assert "ahead of you in line" in await asked(s) and "demo shared" in await asked(s)
        assert "⏎" not in keys(s) and "f start anyway" in keys(s)


@pytest.mark.parametrize("key", ["enter", "w"])
async def test_a_question_about_an_idle_holder_says_once_that_it_is_idle(
    key: str, environ: dict[str, str]
) -> None:
    async with session("shared", command=("true",), environ=environ, interval=1000) as s:
        await s.press("6", key)
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen | LineScreen))
        asks = s.app.screen
        text = asks.prompt if isinstance(asks, LineScreen) else await asked(s)
        assert text.count("GPU 6") == 1 and "busy" not in text
        assert text.count("idle") == (key == "enter"), "the wait is not about its state"


@pytest.mark.parametrize("box", ["shared", "full", "idle"])
@pytest.mark.parametrize("demo", [False, True])
async def test_the_question_of_a_wait_has_two_sentences_at_most(
    box: str, demo: bool, environ: dict[str, str]
) -> None:
    async with session(box, command=("true",), environ=environ, interval=1000) as s:
        if demo:
            s.main.set_app_state(replace(s.main.app_state, label=f"demo {box}"))
        for selected in ("", "0", "1"):
            await s.press(*selected, "w")
            assert isinstance(s.app.screen, LineScreen)
            question = s.app.screen.prompt
            assert len(re.findall(r"[.?](?= |$)", question)) <= 2 and ("rehears" in question) is demo
            await s.press("escape")
