"""The folder of the jobs: entries that are no records, and the job that a given name means."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.job import Job, JobError
from gputui.jobs.last_lines import last_lines as shown_lines
from gputui.jobs.log_screen import Tail
from gputui.jobs.process_tree import own_scope
from gputui.jobs.record import read_job
from gputui.jobs.record_folders import RecordError, Unreadable
from gputui.jobs.rerun import as_kept, rerun_of
from gputui.jobs.store import Stored, all_jobs, find_job, forget, stored
from gputui.jobs.wait import follow, start_of_last_lines
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from unit.jobs_support import Desk, desk_at, ended


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def only_unreadable(desk: Desk) -> Unreadable:
    kept = stored(desk.environ)
    assert len(kept.jobs) == 1, "the other job is listed all the same"
    (one,) = kept.unreadable
    assert "\n" not in one.reason
    return one


GARBAGE = [
    b"",
    b"{",
    b"\x00\xff\xfe",
    b"null",
    b"[]",
    b"[" * 200_000,
    b'{"schema": 1}',
    b'{"schema": 2}',
    b'{"schema": true}',
    b"1" * 5000,
]


@pytest.mark.parametrize("file", ["job.json", "started.json", "ended.json"])
def test_a_record_that_is_no_record_is_told_apart(desk: Desk, file: str) -> None:
    ended(desk.sh("true"))
    broken = ended(desk.sh("true"))
    for data in GARBAGE:
        (broken.folder / file).write_bytes(data)
        assert only_unreadable(desk).id == broken.id, data


@pytest.mark.parametrize("field", ["argv", "line", "name", "directory"])
def test_a_record_with_half_of_a_surrogate_pair_is_told_apart(desk: Desk, field: str) -> None:
    ended(desk.sh("true"))
    broken = ended(desk.sh("true"))
    document = json.loads((broken.folder / "job.json").read_text())
    document[field] = ["\ud800"] if field == "argv" else "\ud800"
    (broken.folder / "job.json").write_text(json.dumps(document))
    assert only_unreadable(desk).id == broken.id


def test_launch_options_with_half_of_a_surrogate_pair_are_none(desk: Desk) -> None:
    job = ended(desk.sh("true"))
    kept = as_kept(LaunchRequest(LaunchOptions(("sleep", "1"))))
    assert isinstance(kept, dict)
    assert rerun_of(replace(job, launch=kept)).request.options.command == ("sleep", "1")
    for wrong in (["\ud800"], "sleep", None, [1]):
        options = {**kept["request"]["options"], "command": wrong}
        found = rerun_of(replace(job, launch={**kept, "request": {**kept["request"], "options": options}}))
        assert found.request.options.command == job.argv and found.lacks(()) is not None


def test_launch_options_of_another_gputui_are_told_as_such(desk: Desk) -> None:
    """In the form before there were launch requests, only the command as it ran is known."""
    job = ended(desk.sh("true"))
    found = rerun_of(replace(job, launch={"count": 1, "when": 1.0, "command": ["true"], "launcher": "auto"}))
    assert found.request.options.command == job.argv
    assert job.id in (found.lacks(()) or "")


def test_a_record_cut_off_anywhere_is_told_apart(desk: Desk) -> None:
    job = ended(desk.sh("true"))
    whole = (job.folder / "job.json").read_bytes()
    for length in range(0, len(whole) - 1, 7):
        (job.folder / "job.json").write_bytes(whole[:length])
        with pytest.raises(RecordError):
            read_job(job.folder, own_scope())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
GIVEN = {
    "schema": 1, "name": None, "line": "x", "argv": ["x"], "changes": [["A", None]], "directory": "/",
    "devices": [{"index": 0, "uuid": "GPU-0", "name": None}], "launcher": "python", "user": "u",
    "host": "h", "boot": None, "pids": None, "starter": {"pid": 2, "ticks": 3}, "created": 1.0,
}  # fmt: skip
STARTED = {"supervisor": {"pid": 2, "ticks": 3}, "command": {"pid": 2, "ticks": 3}, "started": 1.0}
FINISHED = {
    "ended": 1.0, "status": 0, "signal": None, "stop": None, "killed": 0, "left": 0,
    "peak_process_memory": 1,
    "trouble": {"step": "program", "errno": 2},
}  # fmt: skip


@given(
    st.fixed_dictionaries({key: JSON | st.just(value) for key, value in GIVEN.items()}),
    st.fixed_dictionaries({key: JSON | st.just(value) for key, value in STARTED.items()}),
    st.fixed_dictionaries({key: JSON | st.just(value) for key, value in FINISHED.items()}),
)
@settings(max_examples=25, deadline=None)
def test_whatever_a_record_says_it_is_a_job_or_refused(
    given: dict[str, object], started: dict[str, object], finished: dict[str, object]
) -> None:
    documents = (given, started, finished)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, document in zip(("job.json", "started.json", "ended.json"), documents, strict=True):
            (folder / file).write_text(json.dumps(document))
        try:
            assert isinstance(read_job(folder, own_scope()), Job)
        except RecordError as error:
            assert "\n" not in str(error)


def test_a_process_group_cannot_stand_for_a_process(desk: Desk) -> None:
    job = ended(desk.sh("true"))
    for pid in (0, -1, 2**70):
        bad = {**json.loads((job.folder / "started.json").read_text()), "command": {"pid": pid, "ticks": 1}}
        (job.folder / "started.json").write_text(json.dumps(bad))
        with pytest.raises(RecordError, match="whole number"):
            read_job(job.folder, own_scope())


@pytest.mark.parametrize("facts", [{"status": 2**40}, {"trouble": {"step": "program", "errno": 2**40}}])
def test_a_number_that_the_system_does_not_take_is_none(desk: Desk, facts: dict[str, object]) -> None:
    """One record would end every list of jobs."""
    job = ended(desk.sh("true"))
    bad = {**json.loads((job.folder / "ended.json").read_text()), **facts}
    (job.folder / "ended.json").write_text(json.dumps(bad))
    with pytest.raises(RecordError, match="whole number"):
        read_job(job.folder, own_scope())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_record_that_belongs_to_another_user_is_not_ours(desk: Desk) -> None:
    ended(desk.sh("true"))
    foreign = ended(desk.sh("true"))
    os.chown(foreign.folder, 12345, -1)
    assert "another user" in only_unreadable(desk).reason
    os.chown(foreign.folder, os.geteuid(), -1)


def test_what_is_no_folder_is_not_looked_at(desk: Desk) -> None:
    ended(desk.sh("true"))
    (desk.jobs / "notes.txt").write_text("mine")
    (desk.jobs / ".hidden").mkdir()
    assert len(stored(desk.environ).jobs) == 1 and not stored(desk.environ).unreadable


def test_no_folder_yet_is_no_job(desk: Desk) -> None:
    assert stored(desk.environ) == Stored() and all_jobs({"HOME": "/no/such/home"}) == []


def test_jobs_are_listed_in_the_order_they_were_started(desk: Desk) -> None:
    started = [ended(desk.sh("true")).id for _ in range(4)]
    assert [job.id for job in all_jobs(desk.environ)] == started


# The job that a name means.


def test_a_job_is_meant_by_its_id_the_beginning_of_it_or_its_name(desk: Desk) -> None:
    job = ended(desk.start("/bin/true", name="llama"))
    kept = stored(desk.environ)
    for word in (job.id, job.id[:1], job.id[:3], "llama"):
        assert find_job(word, kept) == job
    for word in ("", "lla", job.id + "x", "../" + job.id):
        with pytest.raises(JobError, match="no job is called"):
            find_job(word, kept)


def test_a_word_that_means_several_jobs_means_none(desk: Desk) -> None:
    jobs = [ended(desk.start("/bin/true", name="llama")) for _ in range(2)]
    with pytest.raises(JobError) as error:
        find_job("llama", stored(desk.environ))
    assert all(job.id in str(error.value) for job in jobs)
    for number, job in enumerate(jobs):
        job.folder.rename(desk.jobs / f"zz{number}")
    with pytest.raises(JobError, match="'zz' matches more than one job: zz0, zz1"):
        find_job("zz", stored(desk.environ))


def test_of_several_jobs_of_a_name_the_one_that_runs_is_meant(desk: Desk) -> None:
    gate = desk.gate()
    ended(desk.start("/bin/true", name="llama"))
    running = desk.start("/bin/sh", "-c", gate.wait, name="llama")
    ended(desk.start("/bin/true", name="llama"))
    meant = find_job("llama", stored(desk.environ))
    assert isinstance(meant, Job) and meant.id == running.id


def test_an_id_is_meant_before_a_name_and_a_name_before_a_beginning(desk: Desk) -> None:
    first = ended(desk.sh("true"))
    second = ended(desk.start("/bin/true", name=first.id))
    third = ended(desk.start("/bin/true", name=second.id[:1]))
    kept = stored(desk.environ)
    assert find_job(first.id, kept) == first and find_job(second.id[:1], kept) == third


# Forgetting.


def test_a_job_that_has_ended_can_be_forgotten(desk: Desk) -> None:
    job = ended(desk.sh("true"))
    forget(job)
    forget(job)  # the second time is no error
    assert all_jobs(desk.environ) == [] and not job.folder.exists()


def test_a_job_that_runs_is_not_forgotten(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(gate.wait)
    with pytest.raises(JobError, match=f"gputui jobs stop {job.id}"):
        forget(job)
    assert job.folder.exists()
    gate.open()


def test_a_job_of_another_machine_is_forgotten_only_by_force(desk: Desk) -> None:
    job = replace(ended(desk.sh("true")), state="elsewhere")
    with pytest.raises(JobError, match="--force"):
        forget(job)
    forget(job, force=True)
    assert not job.folder.exists()
    gate = desk.gate()
    with pytest.raises(JobError, match="gputui jobs stop"):
        forget(desk.sh(gate.wait), force=True)
    gate.open()


def test_what_is_no_record_can_be_removed(desk: Desk) -> None:
    ended(desk.sh("true"))
    (desk.jobs / "k3f9").mkdir()
    forget(only_unreadable(desk))
    assert not (desk.jobs / "k3f9").exists()


def test_what_has_ended_is_not_read_again(desk: Desk) -> None:
    """A screen reads every second, and forty ended jobs do not change any more."""
    job = ended(desk.sh("true"))
    before = stored(desk.environ)
    (job.folder / "job.json").write_text("garbage")
    assert stored(desk.environ, before).jobs == before.jobs
    assert stored(desk.environ).jobs == ()


def test_a_name_that_is_given_again_every_night_means_the_last_one_where_that_is_asked(desk: Desk) -> None:
    jobs = [ended(desk.start("true", name="nightly")) for _ in range(2)]
    kept = stored(desk.environ)
    assert find_job("nightly", kept, newest=True).id == jobs[-1].id
    with pytest.raises(JobError, match="matches more than one job"):
        find_job("nightly", kept)


@pytest.mark.parametrize("name", ["job.json", "started.json", "ended.json", "log"])
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda place: place.symlink_to("/dev/zero")], ids=["pipe", "link"]
)
def test_a_job_that_puts_a_pipe_or_a_link_into_its_own_folder_makes_nobody_wait(
    desk: Desk, name: str, make: Callable[[Path], None]
) -> None:
    """A job can do anything with its own folder."""
    job = ended(desk.sh("echo line"))
    (job.folder / name).unlink()
    make(job.folder / name)
    seen = stored(desk.environ)
    assert len(seen.jobs) + len(seen.unreadable) == 1 and (name != "log" or seen.jobs)
    if name == "log":
        assert shown_lines(job.log, 3) == () and start_of_last_lines(job.log, 3) == 0
        assert not Tail(job.log).feed()
        with pytest.raises(JobError):
            list(follow(job))
    forget(seen.jobs[0] if seen.jobs else seen.unreadable[0])
    assert stored(desk.environ) == Stored()
