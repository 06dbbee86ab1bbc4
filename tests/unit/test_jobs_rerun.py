"""Running a job again: its rerun has every option of `gputui run`, except those that are named here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gputui.cli.launch_call import launch_request
from gputui.cli.request_options import device_request
from gputui.cli.run import parser
from gputui.jobs.rerun import rerun_of
from gputui.jobs.store import all_jobs
from gputui.launching.launch_options import LaunchOptions, table
from gputui.requesting.launch_request import LaunchRequest
from table_tests import each_row
from unit.calling import Call
from unit.jobs_support import Desk, desk_at, ended

KEPT = {
    "min_free": ["--min-free=20971520K"],
    "max_util": ["--max-util=5"],
    "group": ["--group", "tp=2"],
    "order": ["--order", "emptiest"],
    "never": ["--never=3,7"],
    "prefer": ["--prefer=1"],
    "mine": ["--mine"],
    "ignore_user": ["--ignore-user=dcgm", "--ignore-user=-x"],
    "busy_memory": ["--busy-memory=1048576K"],
    "busy_util": ["--busy-util=0"],
    "window": ["--window=2.5"],
    "wait": ["--wait"],
    "threads": ["--threads", "near"],
    "vendor": ["--vendor", "nvidia"],
}
"""A constraint of each kind, in the words that a rerun has."""

NOT_KEPT = {
    "help": "prints the help",
    "help_all": "prints the help",
    "n": "the number of devices that it had counts",
    "gpus": "a rerun is on as many of the best free devices",
    "if_free": "of devices that are named, and a rerun names none",
    "force": "what others have claimed is taken once, and not again without being asked for",
    "name": "it means one job",
    "why": "says something once",
    "quiet": "says nothing, once",
    "dry_run": "starts no job",
    "json": "says how an answer is printed, once",
    "detach": "a rerun is a job always",
    "attach": "it is followed once, by whoever started it",
    "on": "a rerun is on the box that has the job",
    "own_directory": "the directory has been looked at when the job was started there",
    "request": "it is kept itself",
    **dict.fromkeys(("after", "after_ok"), "those jobs have ended"),
    "held": "the other boxes are not started again with it",
    "saved": "its options are kept in full",
    "slurm": "Slurm starts it, and it is no job of ours",
    "env": "variables are kept with the launch options",
    **dict.fromkeys(
        (
            *("model", "parameters", "batch", "sequence", "precision", "optim", "checkpointing", "lora"),
            "accumulation",
        ),
        "the number of devices that they led to is kept",
    ),
    "demo": "where to look",
    "root": "where to look",
    "recording": "where to look",
}

OPTIONS = {
    "launcher": "torchrun",
    "processes": 3,
    "python": "/usr/bin/python3",
    "directory": "/",
    "ids": "uuid",
    "logs": "logs",
    "numa": True,
    "confine": "never",
    "nodes": 2,
    "rendezvous": "node0",
    "time": "4h",
    "idle_release": "2h",
    "command": ("python", "train.py"),
    "additions": (("COLOUR", "blue"),),
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        monkeypatch.setenv("XDG_STATE_HOME", made.environ["XDG_STATE_HOME"])
        monkeypatch.chdir(tmp_path)
        yield made


def test_nothing_that_run_can_be_told_is_forgotten() -> None:
    """A new option must be saved, or be named with the reason why it is not."""
    told = {action.dest for action in parser()._actions}
    assert told == {*KEPT, *NOT_KEPT, *table()}
    assert OPTIONS.keys() == {field.name for field in fields(LaunchOptions)}


@pytest.mark.parametrize("name", KEPT)
def test_a_constraint_comes_back_as_the_words_that_mean_it(desk: Desk, name: str) -> None:
    args = parser().parse_args(["-n", "2", *KEPT[name], "--force", "--why"])
    job = ended(desk.start("true", request=launch_request(args, ("true",))))
    found = replace(rerun_of(job).request, options=LaunchOptions(("true",)))
    assert found.words == ["--gpus", "none", "--", "true"], "it ran without a device"
    found = rerun_of(replace(job, waits=3)).request
    assert found.words[:-2] == ["-n", "3", *KEPT[name]]


@each_row(
    ("typed", "word"),
    [
        (["--wait", "30m"], "--wait=1800"),
        (["--busy-memory", "700K"], "--busy-memory=700K"),
        (["--busy-memory", "0.3K"], "--busy-memory=0.2998046875K"),
        (["--group", "none"], "none"),
        (["--group", "all"], "all"),
        (["--group", "tp=2,pp=4"], "tp=2,pp=4"),
    ],
)
def test_its_value_is_exactly_what_it_was(typed: list[str], word: str) -> None:
    asked = device_request(parser().parse_args(typed))
    assert asked.words[-1] == word and device_request(parser().parse_args(asked.words)) == asked


@pytest.mark.parametrize("name", OPTIONS)
def test_a_launch_option_is_kept(desk: Desk, name: str) -> None:
    options = LaunchOptions(**{"command": ("true",), name: OPTIONS[name]})  # type: ignore[arg-type]
    job = ended(desk.start("true", request=LaunchRequest(options)))
    assert rerun_of(job).request.options == options


def test_a_rerun_has_the_constraints_of_the_job_and_so_has_its_own_rerun(call: Call, desk: Desk) -> None:
    given = ["--group", "tp=2", "--order", "given", "--never=0", "--prefer=7"]
    call("run", "-q", "--demo", "shared", "-n", "2", *given, "--detach", "--", "true")
    (first,) = all_jobs(desk.environ)
    assert rerun_of(ended(first)).request.words[2:-2] == [*given, "--demo=shared"]
    shown = call("jobs", "show", "--command", first.id).line
    assert shown == "gputui run -n 2 --group tp=2 --order given --never=0 --prefer=7 --demo=shared -- true"
    told = call("jobs", "rerun", first.id, "-q")
    second = next(job for job in all_jobs(desk.environ) if job.id == told.out.strip())
    assert rerun_of(ended(second)).request == rerun_of(first).request
    # An added option overrides the recorded one.
    refused = call("jobs", "rerun", second.id, "-n", "3", "--dry-run")
    assert "groups of tp=2" in refused.err
    line = call("jobs", "rerun", second.id, "-n", "1", "--group", "all", "--dry-run").out
    assert "CUDA_VISIBLE_DEVICES=7 " in line
