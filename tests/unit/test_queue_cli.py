"""`gputui queue`: the line of the system, of the demo box, and of a recording."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.allocating.claims.source import WithClaims
from gputui.allocating.queue import Ticket, waiters
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.source import SimulatedSource
from unit.builders import NOW, box, busy, gpu, recording
from unit.calling import Call
from unit.claims_support import Box, Forked, until


def _in_line(box: Box, count: int, command: str, *keys: str, job: str | None = None) -> Forked:
    """A process that is in line until it is killed."""

    def work() -> int:
        Ticket.draw(os.environ, count, frozenset(keys) or None, command, job=job)
        print("in line", flush=True)
        signal.pause()
        return 0

    child = box.fork(work)
    until(lambda: child.out or child.over)
    assert not child.over, child.err
    return child


def test_two_who_wait_are_listed_with_what_is_in_the_way(box: Box) -> None:
    box.hold(0, 1)
    first = _in_line(box, 7, "torchrun pretrain.py", job="k3f9")
    _in_line(box, 1, "python eval.py", box.uuids[1])
    status, out, err = box.call("queue")
    head, *rows = out.splitlines()
    assert (status, err, head.split()) == (0, "", ["PLACE", "USER", "WANTS", "FOR", "JOB", "COMMAND"])
    user = waiters(box.environ)[0].user
    first_row, second_row = (" ".join(row.split()) for row in rows[:2])
    assert re.fullmatch(r"1 you 7 GPUs \d+s k3f9 torchrun pretrain.py", first_row)
    assert re.fullmatch(r"2 you GPU 1 \d+s – python eval.py", second_row)
    assert "next: your job k3f9 · GPUs 2, 3, 4, 5, 6 and 7 free, needs 1 more" in rows
    at = next(place for place, row in enumerate(rows) if row.startswith("GPU "))
    assert [row.split()[:2] for row in rows[at:]] == [["GPU", "USER"], ["0", "you"], ["1", "you"]]
    told = json.loads(box.call("queue", "--json")[1])
    assert [{**each, "since": None} for each in told["waiters"]] == [
        {
            "place": 1,
            "user": user,
            "count": 7,
            "devices": None,
            "since": None,
            "command": "torchrun pretrain.py",
            "job": "k3f9",
            "ours": True,
            "silent": False,
            "client": None,
            "min_free": None,
            "max_util": None,
        },
        {
            "place": 2,
            "user": user,
            "count": 1,
            "devices": [box.uuids[1]],
            "since": None,
            "command": "python eval.py",
            "job": None,
            "ours": True,
            "silent": False,
            "client": None,
            "min_free": None,
            "max_util": None,
        },
    ]
    first.kill()
    assert [each["count"] for each in json.loads(box.call("queue", "--json")[1])["waiters"]] == [1]


def test_a_job_in_line_says_which_job_it_is(box: Box) -> None:
    box.hold(*range(8))
    _, out, _ = box.call("run", "-q", "--detach", "--wait", "-n", "1", "--", "true")
    until(lambda: waiters(box.environ))
    assert [each.job for each in waiters(box.environ)] == [out.strip()]
    assert box.call("jobs", "stop", out.strip())[0] == 0
    until(lambda: not waiters(box.environ))


def test_one_reading_has_the_line_and_nothing_is_read_where_nobody_waits(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = WithClaims(SimulatedSource(BOXES["idle"]), box.environ)
    assert source.read().waiters == ()
    child = _in_line(box, 2, "python t.py")
    assert source.read().waiters == waiters(box.environ) != ()
    child.kill()
    assert source.read().waiters == ()
    for ticket in box.claims_folder.rglob("*.ticket"):
        ticket.unlink()
    monkeypatch.setattr("gputui.allocating.queue.waiters", lambda *_: 1 / 0)
    assert source.read().waiters == ()


def test_nobody_in_line_is_said_on_stderr(call: Call) -> None:
    ended = call("queue", "--demo", "idle")
    assert (ended.status, ended.out) == (0, "") and "queue is empty" in ended.err
    full = call("queue", "--demo", "lost")
    assert "queue is empty" in full.err and "EXPECTED FREE" in full.out, "whoever might wait asks"
    assert call("queue", "--demo", "idle", "--json").json == {"schema": 1, "waiters": [], "held": []}


def test_without_a_driver_the_line_is_told_all_the_same(box: Box) -> None:
    box.driver.fail_init(9)
    for command in ("queue", "claims"):
        status, out, err = box.call(command)
        assert (status, out, len(err.splitlines())) == (0, "", 1), "an empty line needs no driver"
        assert "driver" not in err
    _in_line(box, 2, "python t.py")
    status, out, err = box.call("queue")
    assert status == 0 and "python t.py" in out and "driver" in err
    assert box.call("queue", "--json")[2] == ""


def test_the_demo_box_has_a_line_in_motion(call: Call) -> None:
    rows = call("queue", "--demo").text.splitlines()
    assert rows[1].split()[:2] == ["1", "ana"] and rows[2].split()[:2] == ["2", "lee"]
    assert any(row.startswith("next: ana · ") for row in rows)
    head = next(place for place, row in enumerate(rows) if row.startswith("GPU "))
    assert "EXPECTED FREE" in rows[head] and "idle 7h13m: ask bo" in rows[head + 1]
    film = [at(BOXES["shared"], elapsed, NOW) for elapsed in (0, 5, 20, 45, 50)]
    users = [[each.user for each in snapshot.waiters] for snapshot in film]
    claimed, snapshot = [len(snapshot.claims) for snapshot in film], film[-1]
    assert users == [["ana", "lee"]] * 2 + [["ana", "lee", "kim"]] * 2 + [["ana", "lee"]]
    assert claimed == [3, 4, 4, 3, 3]
    assert [(each.id, each.state) for each in snapshot.jobs] == [("m6u5", "running"), ("k3f9", "failed")]
    (mine,) = (claim for claim in snapshot.claims if claim.job == "m6u5")
    assert snapshot.jobs[0].keys == (mine.key,)


def test_a_recording_is_told_from_and_hostile_words_in_it_are_neutralised(call: Call, tmp_path: Path) -> None:
    evil = "\x1b[2Jmira\n"
    line = (Waiter((1, ""), evil, 2, None, NOW, evil, job=evil),)
    file = recording(tmp_path, replace(box(busy(gpu(0)), gpu(1)), waiters=line))
    rows = call("queue", "--from", file).text.splitlines()
    assert all(row.isprintable() for row in rows) and "2 GPUs" in rows[1]
    assert call("queue", "--from", file, "--json").json["waiters"][0]["user"] == evil
