"""The jobs of other boxes as the screen reads them: strictly, each box independently, over a real ssh."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from box_pair import BoxPair
from gputui.inventory.job import Job
from gputui.jobs import box_calls, box_jobs
from gputui.jobs.box_calls import follow_words, stop_there
from gputui.jobs.box_jobs import MOST_ENDED, MOST_JOBS, BoxJobs, JobsOfBoxes, jobs_told
from gputui.jobs.columns import labels_of
from gputui.sources.hosts.calls import AT_ONCE
from gputui.sources.hosts.session import Answer
from gputui.sources.hosts.ssh import Trouble, Way
from ssh_boxes import PROGRAMS, SshBoxes
from table_tests import each_row
from unit.calling import Call
from unit.jobs_support import says, until

NOW = 1_700_000_000.0

JOB: dict[str, Any] = {
    "id": "m6u5",
    "name": None,
    "state": "running",
    "line": "CUDA_VISIBLE_DEVICES=0,1 torchrun train.py",
    "argv": ["torchrun", "train.py"],
    "directory": "/home/ana/x",
    "devices": [
        {"index": 0, "uuid": "GPU-0", "name": None},
        {"index": 1, "uuid": "MIG-12345678", "name": None},
    ],
    "created": "2023-11-14T22:13:20+00:00",
    "started": None,
    "ended": None,
    "status": None,
    "signal": None,
}


def told(*jobs: object, **more: object) -> BoxJobs:
    out = json.dumps({"schema": 1, "jobs": jobs, "unreadable": [], **more}).encode()
    return jobs_told(Answer("gpu1", 0, out, "", None, "run"), NOW)


def test_a_job_is_named_as_it_must_be_typed_here() -> None:
    found = told({**JOB, "name": "night"}, unreadable=[{"id": "x", "reason": "y"}])
    (job,) = found.jobs or ()
    assert (job.address, labels_of(job, None), job.title) == ("gpu1:m6u5", ["0", "MIG-12345"], "night")
    assert (job.created, job.directory) == (NOW, "/home/ana/x")
    assert (found.error, found.since, found.unreadable, found.more) == (None, NOW, 1, 0)


def test_an_older_gputui_tells_less() -> None:
    known = ("id", "name", "state", "line", "argv", "devices")
    out = json.dumps({"jobs": [{key: JOB[key] for key in known}]}).encode()
    found = jobs_told(Answer("gpu1", 0, out, "", None, "run"), NOW)
    assert found.error is None and found.jobs is not None and found.jobs[0].title == "torchrun train.py"


def test_a_state_of_a_newer_gputui_is_a_word_like_others() -> None:
    (job,) = told({**JOB, "state": "\x1b[2Jpaused" + "x" * 99}).jobs or ()
    assert job.state.isprintable() and len(job.state) == 20


def test_of_very_many_those_that_ended_long_ago_are_left_out() -> None:
    ended = [{**JOB, "id": f"e{n}", "state": "done", "ended": JOB["created"]} for n in range(MOST_ENDED + 5)]
    found = told(*ended, JOB)
    assert found.jobs is not None and len(found.jobs) == MOST_ENDED + 1 and found.more == 5
    assert found.jobs[0].id == "m6u5"
    found = told(*({**JOB, "id": f"r{n}"} for n in range(MOST_JOBS + 5)), *ended)
    assert found.jobs is not None and len(found.jobs) == MOST_JOBS and found.more == MOST_ENDED + 10
    assert {job.state for job in found.jobs} == {"running"}


@each_row(
    ("key", "wrong"),
    [
        ("id", "a b"),
        ("id", "-f"),
        ("id", "x" * 65),
        ("id", None),
        ("state", 1),
        ("line", None),
        ("argv", "x"),
        ("devices", [{"index": "0", "uuid": "GPU-0"}]),
        ("created", "yesterday"),
        ("status", True),
    ],
)
def test_what_cannot_be_read_is_an_error_of_that_box(key: str, wrong: object) -> None:
    found = told({**JOB, key: wrong})
    assert found.jobs is None and found.error is not None and found.error.isprintable()


@each_row("out", [b"", b"nonsense", b"[]", b'{"jobs": 1}', b"[" * 100_000, b'{"jobs": [1]}'])
def test_an_answer_that_is_no_list_of_jobs_is_an_error(out: bytes) -> None:
    found = jobs_told(Answer("gpu1", 0, out, "", None, "run"), NOW)
    assert found.jobs is None and found.error


def test_a_box_that_gives_no_answer_says_why() -> None:
    refused = Answer("gpu1", None, b"", "", Trouble("unreachable", "connection refused"))
    assert jobs_told(refused, NOW).error == "connection refused"
    said = Answer("gpu1", 2, b"", "gputui: \x1b[2J no\n", None, "run")
    assert (jobs_told(said, NOW).error or "").isprintable()


# Over a real ssh


@pytest.fixture
def pair(
    boxes: SshBoxes, tmp_path: Path, nvml_library: Path, request: pytest.FixtureRequest
) -> Iterator[BoxPair]:
    if not PROGRAMS:
        pytest.skip("no sshd, ssh and ssh-keygen")
    made = BoxPair(boxes, tmp_path, nvml_library, f"jobs-{abs(hash(request.node.nodeid))}")
    yield made
    made.close()


def job_of(asked: JobsOfBoxes, box: str) -> Job:
    (state,) = (state for state in asked.states if state.alias == box)
    assert state.jobs is not None, state
    return state.jobs[0]


def test_each_box_is_asked_for_itself_and_a_job_is_looked_at_followed_and_stopped(
    pair: BoxPair, boxes: SshBoxes, call: Call
) -> None:
    first, second = pair.names
    boxes.add_dead(f"{first}-gone")
    script = r"printf '10%%\r20%%\n\033[31mred\n'; while :; do sleep 0.05; done"
    assert pair.run("--detach", "-n", "1", "--", "sh", "-c", script, on=first)[0] == 0
    says(pair.jobs(0)[0], "red")
    with boxes.add_hung(f"{first}-hung"):
        names = (f"{first}-hung", first, f"{first}-gone", second)
        asked = JobsOfBoxes(names, Way(30), math.inf)
        asked.start()
        try:
            # A box that hangs delays no other.
            until(lambda: all(state.jobs is not None or state.error for state in asked.states[1:]))
            hung, known, gone, empty = asked.states
            assert (hung.jobs, hung.error, empty.jobs, gone.error) == (None, None, (), "connection refused")
            assert known.jobs is not None and asked.log is None
            asked.look_at(known.jobs[0])
            until(lambda: asked.log is not None)
            assert asked.log is not None and asked.log.lines == ("20%", "red")
            text, good = stop_there(known.jobs[0].address, pair.environ)
            assert good and known.jobs[0].id in text
            asked.ask_now(first)
            until(lambda: job_of(asked, first).state == "stopped")
        finally:
            asked.stop()
    # The call that the page starts in the terminal goes to that box, too.
    assert call(*follow_words(known.jobs[0].address)).out.splitlines()[-1].endswith("red")
    text, good = stop_there(f"{first}:nosuch", pair.environ)
    assert not good and text.isprintable()


def test_what_was_known_of_a_box_stays_with_its_time(pair: BoxPair) -> None:
    first = pair.names[0]
    assert pair.run("--detach", "-n", "1", "--", "true", on=first)[0] == 0
    asked = JobsOfBoxes([first], Way(30), math.inf)
    asked.start()
    try:
        until(lambda: asked.states[0].jobs)
        (pair.homes[0] / "bin" / "gputui").write_text("#!/bin/sh\necho 'gputui: broken' >&2; exit 1\n")
        asked.ask_now()
        until(lambda: asked.states[0].error is not None)
        (state,) = asked.states
        assert state.error == "broken" and state.jobs and state.since is not None
    finally:
        asked.stop()


def test_whoever_leaves_the_page_and_comes_back_does_not_wait_for_boxes_that_hang(
    pair: BoxPair, boxes: SshBoxes
) -> None:
    first = pair.names[0]
    hung = [f"{first}-hung{number}" for number in range(AT_ONCE + 1)]
    with contextlib.ExitStack() as listening:
        for name in hung:
            listening.enter_context(boxes.add_hung(name))
        left = JobsOfBoxes(hung, Way(300))
        left.start()
        left.stop()
        asked = JobsOfBoxes([first], Way(300))
        asked.start()
        try:
            until(lambda: asked.states[0].jobs == ())
            of_hung = {f"gputui jobs of {name}" for name in hung}
            until(lambda: not of_hung & {thread.name for thread in threading.enumerate()})
        finally:
            asked.stop()


def test_ctrl_c_for_a_command_on_our_terminal_is_not_for_a_call_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log of another job is followed while a job is being stopped."""
    script = "import os, sys; sys.exit(f'{os.getpgrp() == os.getpid()}')"
    monkeypatch.setattr(box_calls, "this_gputui", lambda _words: (sys.executable, "-c", script))
    assert stop_there("gpu1:m6u5", {}) == ("True", False)


def test_the_log_of_a_job_that_ended_while_another_was_looked_at_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there: dict[str, Any] = {"job": JOB, "log": b"first\n"}
    logs: list[tuple[str, ...]] = []

    def answer(alias: str, words: tuple[str, ...], _way: Way, **_more: object) -> Answer:
        if words[:2] == ("jobs", "log"):
            logs.append(words)
            return Answer(alias, 0, there["log"], "", None, "run")
        return Answer(alias, 0, json.dumps({"jobs": [there["job"]]}).encode(), "", None, "run")

    monkeypatch.setattr(box_jobs, "ask", answer)
    asked = JobsOfBoxes(["gpu1"], Way(1), math.inf)

    def read() -> tuple[str, ...] | None:
        return asked.log.lines if asked.log else None

    asked.start()
    try:
        until(lambda: asked.states[0].jobs)
        asked.look_at(job_of(asked, "gpu1"))
        until(lambda: read() == ("first",))
        asked.look_at(None)
        there |= {"job": {**JOB, "state": "done", "ended": JOB["created"]}, "log": b"first\nlast\n"}
        asked.ask_now()
        until(lambda: job_of(asked, "gpu1").over)
        asked.look_at(job_of(asked, "gpu1"))
        until(lambda: read() == ("first", "last"))
        # It is not read again.
        before = asked.states[0]
        asked.ask_now()
        until(lambda: asked.states[0] is not before)
        asked.look_at(None)
        asked.look_at(job_of(asked, "gpu1"))
        assert len(logs) == 2
    finally:
        asked.stop()
