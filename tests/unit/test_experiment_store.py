"""Experiments in the state folder: what a change costs, what is read again, and what cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gputui.jobs.experiments import store
from gputui.jobs.experiments.record import Experiment, Row, Run
from gputui.jobs.experiments.request import ExperimentRequest
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from unit.builders import NOW
from unit.claims_support import Box


@pytest.fixture
def sweep(box: Box) -> Experiment:
    """A recorded sweep of three tasks, of which none has run."""
    rows = tuple(Row((), str(number), ("t.py", str(number))) for number in range(3))
    request = ExperimentRequest("sweep", LaunchRequest(LaunchOptions(("t.py", "{0..2}"))))
    return store.begin(Experiment(Path(), "stopped", NOW, request, (), rows), box.environ)


def changed(sweep: Experiment, place: int, run: Run) -> Experiment:
    change = replace(sweep.change(place, run), devices=("4",), line="t.py")
    after = sweep.with_changes([change])
    store.keep(after, change)
    return after


def test_a_change_is_a_line_more_and_is_read_with_the_record(box: Box, sweep: Experiment) -> None:
    record = (sweep.folder / "sweep.json").read_bytes()
    after = changed(sweep, 1, Run(1, "k3f9", "running", started=NOW))
    after = changed(after, 1, Run(1, "k3f9", "failed", 3, wall=1.5, started=NOW, ended=NOW + 1.5))
    after = changed(after, 2, Run(1, "m6u5", "done", 0, utilizations=(1.0, None)))
    assert (sweep.folder / "sweep.json").read_bytes() == record
    assert store.kept(box.environ).records == (after,)
    store.keep(after)
    assert not (sweep.folder / "changes.jsonl").exists()
    assert store.kept(box.environ).records == (after,)


def test_a_change_that_was_written_in_part_is_left_out(box: Box, sweep: Experiment) -> None:
    after = changed(sweep, 0, Run(1, "k3f9", "running"))
    with (sweep.folder / "changes.jsonl").open("a") as file:
        file.write('\n{"place": 1, "run": {"rou')
    assert store.kept(box.environ).records == (after,)
    after = changed(after, 2, Run(1, "m6u5", "running"))
    assert store.kept(box.environ).records == (after,)


def test_the_changes_do_not_grow_for_ever(
    box: Box, sweep: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_MOST_CHANGES", 10_000)
    for number in range(200):
        sweep = changed(sweep, number % 3, Run(1, "k3f9", "running", attempts=number + 1))
        file = sweep.folder / "changes.jsonl"
        assert not file.exists() or file.stat().st_size < 11_000
    assert store.kept(box.environ).records == (sweep,)


def test_only_what_has_changed_is_read_again(box: Box, sweep: Experiment) -> None:
    before = store.kept(box.environ)
    assert store.kept(box.environ, before).records[0] is before.records[0]
    with store.running_alone(sweep):
        after = changed(replace(sweep, state="running"), 0, Run(1, "k3f9", "running"))
        store.keep(after)
        (running,) = store.kept(box.environ, before).records
        assert (running.state, running.count("running")) == ("running", 1)
    (over,) = store.kept(box.environ, store.kept(box.environ, before)).records
    assert over.state == "stopped", "its process has ended without a word"


@pytest.mark.parametrize(
    ("subcommand", "kept"),
    [("compare", "comparisons/k3f9/comparison.json"), ("each", "sweeps/k3f9/sweep.json")],
)
@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 2}', "[" * 100_000, "\0"])
def test_a_record_that_cannot_be_read_is_told_and_can_be_forgotten(
    box: Box, subcommand: str, kept: str, text: str
) -> None:
    file = box.folder / "state/gputui" / kept
    file.parent.mkdir(parents=True)
    file.write_text(text)
    status, out, err = box.call(subcommand, "--list")
    assert (status, out) == (0, "") and "k3f9" in err
    assert [box.call(subcommand, reader, "k3f9")[0] for reader in ("--show", "--resume")] == [2, 2]
    assert box.call(subcommand, "--forget", "k3f9")[0] == 0 and not file.parent.exists()


def test_a_link_that_somebody_has_put_there_is_not_followed_and_says_why_it_stays(box: Box) -> None:
    kept = box.folder / "state/gputui/comparisons"
    kept.mkdir(parents=True)
    (kept / "k3f9").symlink_to(box.folder)
    status, out, err = box.call("compare", "--forget", "k3f9")
    assert (status, out) == (2, "") and "None" not in err and err.count("\n") == 1
    assert box.folder.exists()


@pytest.mark.parametrize("place", ["comparisons/k3f9", "comparisons", "."])
def test_a_record_that_others_could_have_changed_is_named_and_not_read(box: Box, place: str) -> None:
    folder = box.folder / "state/gputui/comparisons/k3f9"
    folder.mkdir(parents=True, mode=0o700)
    changed = (box.folder / "state/gputui" / place).resolve()
    changed.chmod(0o777)
    _, out, err = box.call("compare", "--list")
    assert not out and "other users can write to" in err and changed.name in err


def test_no_job_is_taken_from_a_folder_in_which_others_could_have_exchanged_two(box: Box) -> None:
    jobs = box.folder / "state/gputui/jobs"
    jobs.mkdir(parents=True)
    jobs.chmod(0o777)
    for words in (("jobs",), ("jobs", "stop", "k3f9")):
        status, out, err = box.call(*words)
        assert (status, out) == (2, "") and "other users can write to" in err and repr(str(jobs)) in err


@pytest.mark.parametrize("words", [("jobs",), ("launches",), ("compare", "--list"), ("each", "--list")])
def test_whatever_is_kept_where_others_can_write_is_named_and_not_used(
    box: Box, words: tuple[str, ...]
) -> None:
    state = box.folder / "state"
    (state / "gputui").mkdir(parents=True, mode=0o700)
    state.chmod(0o777)
    status, out, err = box.call(*words)
    assert (status, out) == (2, "") and repr(str(state)) in err
