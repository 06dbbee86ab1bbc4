"""The user's own jobs in a snapshot: real jobs, the facts that are read of them, and the end of a log."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.allocating.device_request import DeviceRequest
from gputui.inventory.claim import Claim
from gputui.inventory.formatting import YOU
from gputui.inventory.job import Job, PidScope
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.jobs import source as jobs_source
from gputui.jobs import store
from gputui.jobs.last_lines import last_lines
from gputui.jobs.source import WithJobs
from gputui.jobs.start import start_job
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import SimulatedSource
from gputui.sources.source import Want
from gputui.system.users import own_name
from table_tests import each_row
from unit.builders import box, gpu
from unit.jobs_support import Desk, desk_at, ended, says

MIB = 1 << 20


class Still:
    """A source that shows one snapshot."""

    label = ""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        return self.snapshot

    def close(self) -> None: ...


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(jobs_source, "_EVERY", 0.0)
    with desk_at(tmp_path) as made:
        yield made


def by_id(source: WithJobs) -> dict[str, Job]:
    return {job.id: job for job in source.read().jobs}


def test_who_has_never_started_a_job_has_the_snapshot_as_it_is(desk: Desk) -> None:
    still = Still(box(gpu(0)))
    assert WithJobs(still, desk.environ).read() is still.snapshot
    assert not desk.jobs.exists()


def test_a_job_is_followed_from_its_start_to_its_end(desk: Desk) -> None:
    source, gate = WithJobs(Still(box(gpu(0))), desk.environ), desk.gate()
    job = desk.sh(rf"printf 'epoch 1\n\033[31m 10%%|#\r 50%%|###\r'; {gate.wait}; echo; echo bye; exit 3")
    says(job, "50%")
    now = by_id(source)[job.id]
    assert (now.state, now.status, now.over) == ("running", None, False)
    assert now.tail == ("epoch 1", "50%|###") and now.last_line == "50%|###"
    assert shlex.split(now.title) == list(job.argv), "the command with its quotes"
    assert now.started is not None
    gate.open()
    ended(job)
    now = by_id(source)[job.id]
    assert (now.state, now.status, now.last_line, now.over) == ("failed", 3, "bye", True)


def test_those_that_run_come_first_and_those_that_were_removed_are_gone(desk: Desk) -> None:
    source, gate = WithJobs(Still(box(gpu(0))), desk.environ), desk.gate()
    first, second = ended(desk.sh("exit 0")), ended(desk.sh("exit 1"))
    running = desk.sh(gate.wait)
    assert list(by_id(source)) == [running.id, second.id, first.id]
    shutil.rmtree(first.folder)
    assert list(by_id(source)) == [running.id, second.id]
    gate.open()


def test_what_ended_days_ago_is_not_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(desk.sh("exit 0"))
    monkeypatch.setattr(jobs_source, "_RECENT", 0.0)
    assert WithJobs(Still(box(gpu(0))), desk.environ).read().jobs == ()


def test_what_ended_days_ago_is_not_even_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = ended(desk.sh("exit 0")), ended(desk.sh("exit 0"))
    os.utime(old.folder / "ended.json", (days_ago := time.time() - 3 * 86_400.0, days_ago))
    read: list[str] = []
    read_job = store.read_job

    def counted(folder: Path, scope: PidScope) -> Job:
        read.append(folder.name)
        return read_job(folder, scope)

    monkeypatch.setattr(store, "read_job", counted)
    assert [*by_id(WithJobs(Still(box(gpu(0))), desk.environ))] == read == [new.id]


def test_a_look_is_not_repeated_within_a_second(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_source, "_EVERY", 3600.0)
    source = WithJobs(Still(box(gpu(0))), desk.environ)
    assert source.read().jobs == ()
    ended(desk.sh("exit 0"))
    assert source.read().jobs == ()


def test_the_peak_is_the_most_that_its_processes_had_on_one_device(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(gate.wait)

    def having(*amounts: int) -> Snapshot:
        processes = tuple(Process(10 + n, "compute", memory=amount * MIB) for n, amount in enumerate(amounts))
        device = replace(gpu(0), processes=(*processes, Process(99, "compute", memory=9000 * MIB)))
        pids = tuple(process.pid for process in processes)
        claim = Claim(device.key, own_name(), job=job.id, pids=pids)
        # A record of another user that names our job.
        other = Claim(device.key, "somebody", job=job.id, pids=(99,))
        return replace(box(device), claims=(claim, other))

    still = Still(having(300, 200))
    source = WithJobs(still, desk.environ)
    assert by_id(source)[job.id].peak_memory == 500 * MIB
    still.snapshot = having(100)
    assert by_id(source)[job.id].peak_memory == 500 * MIB
    still.snapshot = having(400, 400)
    assert by_id(source)[job.id].peak_memory == 800 * MIB
    gate.open()


@each_row(
    ("data", "lines"),
    [
        (b"", ()),
        (b"one\ntwo\n\n  \n", ("one", "two")),
        (b"10%\r20%\r\x1b[K", ("20%",)),
        (b"a\x1b]0;title\x07b\x1b[2Ac\n", ("abc",)),
        (b"x" * 9000 + b"\nlast", ("last",)),
        (b"\xff\xfe caf\xc3\xa9", ("\ufffd\ufffd café",)),
    ],
)
def test_the_last_lines_are_plain_text(tmp_path: Path, data: bytes, lines: tuple[str, ...]) -> None:
    (tmp_path / "log").write_bytes(data)
    assert last_lines(tmp_path / "log", 3) == lines


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "log", 3) == ()


def test_on_another_box_only_this_programs_jobs_are_shown_and_their_devices_as_claimed(desk: Desk) -> None:
    still = Still(box(gpu(0)))
    still.label = "demo"
    gate = desk.gate()
    mine, other = desk.sh(gate.wait), desk.sh("true")
    record = json.loads((other.folder / "job.json").read_text())
    (other.folder / "job.json").write_text(json.dumps({**record, "starter": {"pid": 1, "ticks": None}}))
    assert [*by_id(WithJobs(still, desk.environ))] == [mine.id]
    gate.open()


def test_a_demo_shows_the_jobs_that_anybody_started_on_its_devices_and_no_others(desk: Desk) -> None:
    simulated = SimulatedSource(BOXES["idle"])
    devices, gate = simulated.read().devices[:1], desk.gate()
    asked = LaunchRequest(LaunchOptions(), DeviceRequest(demo="idle"))
    there = start_job(Launch(("/bin/sh", "-c", gate.wait), devices=devices), desk.environ, request=asked)
    here = start_job(Launch(("true",), devices=devices), desk.environ, request=LaunchRequest(LaunchOptions()))
    for job in (there, here):
        record = json.loads((job.folder / "job.json").read_text())
        (job.folder / "job.json").write_text(json.dumps({**record, "starter": {"pid": 1, "ticks": None}}))
    seen = WithJobs(simulated, desk.environ).read()
    assert [job.id for job in seen.jobs] == [there.id]
    assert [(claim.job, claim.own) for claim in seen.claims] == [(there.id, True)]
    assert seen.claims[0].user == YOU, "a person has one name on a simulated box"
    other = WithJobs(SimulatedSource(BOXES["rtx3090"]), desk.environ).read()
    assert there.id not in {job.id for job in other.jobs}
    gate.open()
