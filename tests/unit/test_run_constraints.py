"""`run --min-free` and `--max-util`: judged as `pick` judges, also in line, where `queue` says what lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.allocating import waiting_loop
from gputui.allocating.queue import waiters
from gputui.choosing.queue_outlook import outlook
from gputui.choosing.queue_text import blocking_reason
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.waiter import Waiter
from table_tests import each_row
from unit.builders import GIB, gpu, recording
from unit.builders import box as box_of
from unit.calling import Call
from unit.claims_support import Box
from unit.jobs_support import until


def with_free(index: int, gigabytes: int, **facts: object) -> Device:
    return gpu(index, memory_free=gigabytes * GIB, **facts)


THREE = box_of(with_free(0, 70), gpu(1, utilization=9), gpu(2))
ASKED = ("--min-free", "75G", "--max-util", "5")


@each_row("call_of", ["run --dry-run", "export --as sh", "check", "pick"])
def test_every_call_that_takes_devices_has_the_conditions(call: Call, tmp_path: Path, call_of: str) -> None:
    file = recording(tmp_path, THREE)
    words = (*call_of.split(), "--from", file, *ASKED)
    command = () if call_of in ("check", "pick") else ("--", "true")
    if call_of != "check":
        assert call(*words, "-n", "1", *command).line.partition("VISIBLE_DEVICES=")[2][:1] in ("2", "")
        assert "2" in call(*words, "-n", "1", *command).line
    for which in (("-n", "2"), ("--gpus", "0,1")):
        refusal = call(*words, *which, *command).refused(4)
        assert "70.0G free, 75.0G required" in refusal and "utilization 9%, at most 5% allowed" in refusal


def test_a_request_in_line_says_what_its_devices_lack() -> None:
    first = Waiter((1, "a"), "ana", 2, min_free=75 * GIB)
    (turn,) = outlook(replace(THREE, waiters=(first,)), verdicts(THREE)).turns
    assert [device.index for device in turn.free] == [1, 2], "the third has too little memory"
    second = replace(first, max_util=5, count=1, devices=frozenset(d.uuid for d in THREE.devices[:2]))
    (turn,) = outlook(replace(THREE, waiters=(second,)), verdicts(THREE)).turns
    reason = blocking_reason(turn, THREE)
    assert reason.startswith("no such GPU is free; ")
    assert "GPU 0 70.0G free, 75.0G required" in reason and "GPU 1 utilization 9%" in reason


def test_devices_are_waited_for_until_they_meet_the_conditions(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_loop, "_SHORTEST", 0.06)
    monkeypatch.setattr(waiting_loop, "_SHARE", 1.0)
    one = gpu(0, memory_used=GIB // 4, memory_free=80 * GIB - GIB // 4)
    box.driver.show(box_of(one))
    words = ("run", "-q", "--wait", "--window", "0", "-n", "1", "--min-free", "81800M", "--", "echo", "ran")
    call = box.start(*words)
    until(lambda: "required" in call.err)
    assert "first in line for 1 GPU" in call.err and "GPU 0 79.8G free" in call.err
    (told,) = json.loads(box.call("queue", "--json")[1])["waiters"]
    assert (told["min_free"], told["max_util"]) == (81800 * 1024 * 1024, None)
    assert "no such GPU is free; GPU 0 " in box.call("queue")[1]
    box.driver.show(box_of(gpu(0)))
    assert (call.end(), call.out) == (0, "ran\n")


def test_a_device_that_is_too_small_for_the_first_in_line_is_left_to_the_others(box: Box) -> None:
    small, large = gpu(0, memory_total=24 * GIB, memory_free=24 * GIB), gpu(1)
    box.driver.show(box_of(small, large))
    box.uuids = [small.uuid, large.uuid]
    box.hold(1)
    call = box.start("run", "-q", "--wait", "-n", "1", "--min-free", "40G", "--", "true")
    until(lambda: waiters(box.environ) or call.over)
    (first,) = waiters(box.environ)
    assert first.devices == {large.uuid}
    words = ("run", "-q", "-n", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert box.call(*words)[:2] == (0, "0\n")


def test_slurm_knows_no_such_condition(call: Call) -> None:
    for words in (("--min-free", "1G"), ("--max-util", "5")):
        assert "--slurm" in call("run", "--slurm", "-n", "1", *words, "--", "true").refused(2)
