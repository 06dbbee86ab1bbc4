"""The screen claims the devices it starts on, from the key press until the started command ends."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from gputui.allocating.claims.read import claims
from gputui.choosing.rules import Rules
from gputui.inventory.claim import Claim
from gputui.jobs.store import all_jobs
from gputui.tui.messages import NewReading
from gputui.tui.readings import Reading
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.topology import TopologyScreen
from tui.support import Session, box_at, started
from tui.support import session as moving
from tui.test_confirm import in_line
from unit.builders import busy
from unit.jobs_support import Desk, command, ended, until

session = functools.partial(moving, interval=1000)

WAYS = pytest.mark.parametrize("key", ["enter", "@return", "@detach"])
UUID = {device.index: device.uuid for device in box_at("shared").devices}

_HOLDS = """
import os, sys, signal
from gputui.allocating.claims.lease import take
print(take(sys.argv[1:], os.environ, "python theirs.py").keys, flush=True)
signal.pause()
"""


@contextmanager
def held_by_another(*keys: str) -> Iterator[None]:
    """Another process holds a lease on these devices."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDS, *keys], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and keys[0] in holder.stdout.readline()
        yield
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()


def claimed_for_others() -> list[Claim]:
    """The claims that another process sees: this process does not see claims of its own leases."""
    script = (
        "import os; from gputui.allocating.claims.read import claims\n"
        "for each in claims(os.environ)[0]: print(each.key, each.pid, each.job or '-', sep='\\t')"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in out.splitlines()]
    return [Claim(key, "", pid=int(pid), job=None if job == "-" else job) for key, pid, job in rows]


def keys_claimed() -> list[str]:
    return [claim.key for claim in claimed_for_others()]


def delay(s: Session) -> None:
    """Hold back the reading that a launch asks for until the test calls `read`."""
    assert s.app.sampler is not None
    s.app.sampler.ask = lambda: None  # type: ignore[method-assign]


def read(s: Session, snapshot: object = None) -> None:
    s.main.post_message(NewReading(Reading(snapshot or box_at("shared"), time.monotonic())))  # type: ignore[arg-type]


@WAYS
async def test_from_the_key_on_it_is_claimed_and_another_key_gives_it_back(
    key: str, environ: dict[str, str]
) -> None:
    async with session(command=("true",), environ=environ) as s:
        delay(s)
        await s.press("4")
        assert not keys_claimed()
        await s.press(key)
        assert keys_claimed() == [UUID[4]]
        await s.press("5")
        assert not keys_claimed()


@WAYS
async def test_a_reading_that_began_before_the_key_is_not_the_re_read(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    async with session(command=("true",), environ=environ) as s:
        delay(s)
        before = time.monotonic()
        await s.press("4", key)
        pending = s.main.launch.pending
        assert pending is not None
        s.main.post_message(NewReading(Reading(box_at("shared"), before)))
        await s.settle()
        assert s.main.launch.pending is pending
        assert keys_claimed() == [UUID[4]] and not all_jobs(desk.environ)
        read(s)
        await s.until(lambda: s.main.launch.pending is None)


async def test_when_one_of_two_has_vanished_neither_stays_claimed(environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ) as s:
        delay(s)
        await s.press("4", "5", "enter")
        there = box_at("shared")
        keep = [place for place, device in enumerate(there.devices) if device.index != 4]
        links = tuple(tuple(there.links[i][j] for j in keep) for i in keep)
        read(s, replace(there, devices=tuple(there.devices[place] for place in keep), links=links))
        await s.until(lambda: UUID[4] in s.main.message)
        assert keys_claimed() == [] and s.app.is_running


@pytest.mark.parametrize(("key", "screen"), [("@ask", LineScreen), ("t", TopologyScreen)])
async def test_a_screen_that_opens_over_it_gives_it_back_too(
    key: str, screen: type, environ: dict[str, str]
) -> None:
    """Nothing may start while a person types a number."""
    async with session(command=("true",), environ=environ) as s:
        delay(s)
        await s.press("4", "enter", key)
        assert isinstance(s.app.screen, screen)
        read(s)
        await s.settle()
        assert s.app.is_running and s.main.launch.pending is None


async def test_enter_hands_the_lease_on(environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ) as s:
        await s.press("5", "4", "enter")
        await s.until(lambda: not s.app.is_running)
    outcome = s.app.return_value
    assert outcome is not None and outcome.allocation is not None
    try:
        assert set(keys_claimed()) == {UUID[4], UUID[5]}
        assert all(claim.pid == os.getpid() for claim in claimed_for_others())
    finally:
        outcome.allocation.release()
    assert not keys_claimed()


async def test_after_r_it_is_given_back(environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ) as s:
        await s.press("4", "@return")
        await s.until(lambda: "this terminal cannot be lent to a command" in s.main.message)
        assert not keys_claimed()


async def test_after_d_the_job_has_it_and_the_claim_says_which(desk: Desk, environ: dict[str, str]) -> None:
    gate = desk.gate()
    async with session(command=("sh", "-c", gate.wait), environ=environ) as s:
        await s.press("4", "@detach")
        await s.until(lambda: "started on GPU 4: D shows it" in s.main.message)
        assert s.selected == [], "it is in use by that job now"
        (job,) = all_jobs(desk.environ)
        (claim,) = claimed_for_others()
        assert (claim.key, claim.job, claim.pid) == (UUID[4], job.id, command(job).pid)
        # The claim belongs to the job: this process sees it too, and the screen asks about it.
        assert [each.job for each in claims(os.environ)[0]] == [job.id]
        await s.press("4", "enter")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        assert f"GPU 4 is claimed by your job {job.id}" in s.app.screen.reasons[0]
        await s.press("n")
    gate.open()
    ended(job)
    until(lambda: not claims(os.environ)[0])


@WAYS
async def test_what_another_job_holds_is_asked_about(key: str, desk: Desk, environ: dict[str, str]) -> None:
    """No releases our own lease; yes goes on with a lease on the other devices."""
    gate = desk.gate()
    with held_by_another(UUID[4]):
        async with session(command=("sh", "-c", gate.wait), environ=environ) as s:
            await s.press("4", "5", key)
            await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
            assert s.app.screen.reasons[0].startswith("GPU 4 is claimed")
            assert set(keys_claimed()) == {UUID[4], UUID[5]}
            await s.press("n")
            assert s.app.is_running and not all_jobs(desk.environ)
            assert keys_claimed() == [UUID[4]]
            await s.press(key)
            await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
            await s.press("f")
            if key == "enter":
                await s.until(lambda: not s.app.is_running)
                outcome = s.app.return_value
                assert outcome is not None and outcome.launch is not None and outcome.allocation is not None
                assert outcome.allocation.lease.keys == (UUID[5],)
                outcome.allocation.release()
            elif key == "@return":
                assert started(s, key, desk)
            else:
                await s.until(lambda: all_jobs(desk.environ))
                (job,) = all_jobs(desk.environ)
                assert {each.key: each.job for each in claimed_for_others()} == {
                    UUID[4]: None,
                    UUID[5]: job.id,
                }
                gate.open()
                ended(job)
            assert keys_claimed() == [UUID[4]]


async def test_changes_that_are_declined_give_it_back(environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ) as s:
        delay(s)
        await s.press("4", "enter")
        there = box_at("shared")
        devices = tuple(busy(d) if d.index == 4 else d for d in there.devices)
        read(s, replace(there, devices=devices))
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        assert keys_claimed() == [UUID[4]]
        await s.press("n")
        assert not keys_claimed()


async def test_without_a_folder_for_claims_it_asks_before_it_starts(
    desk: Desk, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    bad = {**environ, "GPUTUI_CLAIMS": str(tmp_path / "file")}
    async with session(command=("true",), environ=bad) as s:
        await s.press("4", "@detach")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        assert isinstance(s.app.screen, ConfirmScreen)
        assert "GPUTUI_CLAIMS" in " ".join(s.app.screen.reasons) and all_jobs(desk.environ) == []
        await s.press("f")
        await s.until(lambda: bool(all_jobs(desk.environ)))
        ended(all_jobs(desk.environ)[0])


async def test_a_box_that_is_not_this_machine_is_not_claimed(environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ) as s:
        delay(s)
        s.main.set_app_state(replace(s.main.app_state, label="demo: shared"))
        await s.press("4", "@detach")
        assert s.main.launch.pending is not None and s.main.launch.pending.allocation.lease is None
        await s.press("4", "0", "w")
        assert "2nd in line, behind ana (4 GPUs)" in prompted(s)
        await s.press("enter")
        assert s.app.screen is s.main and all_jobs(environ) == []
        assert "demo: shared" in s.main.message


# The queue


async def test_w_takes_a_number_in_place_of_what_is_selected(desk: Desk, environ: dict[str, str]) -> None:
    async with session(command=("python", "train.py"), environ=environ) as s:
        await s.press("4", "5", "w")
        assert isinstance(s.app.screen, LineScreen) and "as a job" in s.app.screen.prompt
        await s.press("4", "space", *"tp=2")
        assert "Wait for 4 GPUs" in prompted(s)
        await s.press("enter")
        await s.until(lambda: "first in line" in s.main.message)
        (job,) = all_jobs(desk.environ)
        assert job.id in s.main.message
        assert (job.waits, job.argv) == (4, ("python", "train.py"))
        assert job.line.endswith(" run -n 4 --group tp=2 --wait -- python train.py")


@pytest.mark.parametrize(
    ("command", "count"), [(("python", "train.py"), 1), (("torchrun", "--nproc-per-node=2", "t.py"), 2)]
)
async def test_w_and_enter_wait_for_as_many_as_the_command_says_where_nothing_is_selected(
    command: tuple[str, ...], count: int, desk: Desk, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    command = (command[0].replace("torchrun", str(tmp_path / "torchrun")), *command[1:])
    async with session(command=command, environ=environ) as s:
        await s.press("@clear", "w")
        assert ("for 1 GPU" if count == 1 else "for 2 GPUs") in prompted(s)
        await s.press("enter")
        await s.until(lambda: "starts when" in s.main.message)
    (job,) = all_jobs(desk.environ)
    assert job.waits == count


async def test_n_for_more_than_are_free_leads_to_the_line_for_as_many(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("@ask", *"abc", "enter")
        assert prompted(s) == "type a number, or a number with tp=N, pp=N"
        await s.press("4", "enter")
        assert s.app.screen is s.main, "what is typed has taken the place of what was wrong"
        assert s.main.message == "3 GPUs are free, 4 asked for: w waits in line for 4"
        await s.press("w")
        assert "for 4 GPUs" in prompted(s)


def prompted(s: Session) -> str:
    """The text above the line that is typed."""
    return str(s.app.screen.query_one("#what", Static).visual)


async def test_w_and_enter_wait_for_the_selected_devices(desk: Desk, environ: dict[str, str]) -> None:
    async with session(command=("python", "train.py"), environ=environ) as s:
        await s.press("0", "1", "w")
        assert "for GPUs 0 and 1, as a job?" in prompted(s)
        with in_line(1, UUID[3]), in_line(1, UUID[1]):
            await s.press("enter")
            await s.until(lambda: "2nd in line" in s.main.message)
        assert "D shows it" in s.texts("#message")[0]
        (job,) = all_jobs(desk.environ)
        assert job.waits == 2
        assert job.line.endswith(f" run --gpus {UUID[0]},{UUID[1]} --wait -- python train.py")


@pytest.mark.parametrize("key", ["w", "@detach", "@return", "enter"])
async def test_what_lacks_a_command_goes_on_once_it_is_typed(environ: dict[str, str], key: str) -> None:
    async with session("full", command=(), environ=environ) as s:
        await s.press(key)
        assert isinstance(s.app.screen, LineScreen)
        await s.press(*"true", "enter")
        assert s.main.app_state.options.command == ("true",)
        await s.until(lambda: s.app.screen is not s.main)
        assert "in line" in prompted(s)
        await s.press("escape")
        assert all_jobs(environ) == []


async def test_w_says_which_place_one_would_have(environ: dict[str, str]) -> None:
    async with session(environ=environ) as s:
        await s.press("w")
        behind = "You are 3rd in line, behind ana (4 GPUs), lee (1 GPU)."
        assert prompted(s) == f"Wait for 1 GPU, as a job? {behind}"
        await s.press("3")
        assert "for 3 GPUs" in prompted(s)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("8", "never"),
        ("3 tp=2", "groups of tp=2"),
        ("x", "type a number, or a number with tp=N, pp=N"),
    ],
)
async def test_w_queues_nothing_that_can_never_be_had(
    typed: str, why: str, desk: Desk, environ: dict[str, str]
) -> None:
    rules = Rules(never=("7",) if why == "never" else ())
    why = "only 7 GPUs here can be used" if why == "never" else why
    async with session(command=("python", "train.py"), environ=environ, rules=rules) as s:
        await s.press("w", *("space" if sign == " " else sign for sign in typed), "enter")
        assert isinstance(s.app.screen, LineScreen) and why in prompted(s)
    assert not all_jobs(desk.environ)


async def test_w_queues_no_other_number_than_the_command_says(
    desk: Desk, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    command = (str(tmp_path / "torchrun"), "--nproc-per-node=2", "train.py")
    async with session(command=command, environ=environ) as s:
        await s.press("w", "4", "enter")
        assert isinstance(s.app.screen, LineScreen) and "--nproc-per-node=2" in prompted(s)
    assert not all_jobs(desk.environ)


async def test_w_left_with_escape_or_without_a_command_puts_nobody_in_line(
    desk: Desk, environ: dict[str, str]
) -> None:
    async with session(command=("true",), environ=environ) as s:
        await s.press("w", "escape")
        assert s.app.screen is s.main
    async with session(command=(), environ=environ) as s:
        await s.press("w")
        assert isinstance(s.app.screen, LineScreen)
        assert "command to run when it is your turn" in s.app.screen.prompt
    async with session(command=("no-such-program",), environ=environ) as s:
        await s.press("w")
        assert "'no-such-program'" in s.main.message
    assert not all_jobs(desk.environ)
