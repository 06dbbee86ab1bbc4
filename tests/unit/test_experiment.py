"""Results of variants: medians, differences, the table, bars, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.inventory.job import Job
from gputui.jobs.experiments.record import Experiment, Row, Run, as_csv, document, summaries
from gputui.jobs.experiments.request import ExperimentRequest, Kind
from gputui.jobs.experiments.runner import with_outcome_of_jobs
from gputui.jobs.experiments.table import bars, figures, lines, table
from gputui.jobs.store import Stored
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from table_tests import each_row
from unit.builders import GIB, NOW


def run(number: int = 1, **more: object) -> Run:
    return replace(Run(number, "k3f9", "done", 0, wall=10.0), **more)  # type: ignore[arg-type]


FAILED = Run(1, "m4x2", "failed", 3, wall=1.0)


def asked(kind: Kind = "comparison") -> ExperimentRequest:
    return ExperimentRequest(kind, LaunchRequest(LaunchOptions(("t.py",))))


def compared(*runs: tuple[Run, ...], **more: object) -> Experiment:
    """A comparison with a variant for each group of runs."""
    rows = tuple(
        Row((str(place),), f"X={place}", ("t.py",), each, ("0", "1"), f"X={place} t.py")
        for place, each in enumerate(runs)
    )
    made = Experiment(
        Path("/state/comparisons/c3c3"), "done", NOW, asked(), (("env:X", "X"),), rows, ("0", "1")
    )
    asked_for = {name: more.pop(name) for name in ("metric", "less") if name in more}
    request = replace(asked(), repeat=max(map(len, runs)), **asked_for)  # type: ignore[arg-type]
    return replace(made, request=request, **more)  # type: ignore[arg-type]


def differences(comparison: Experiment) -> list[float | None]:
    return [each.difference and round(each.difference, 1) for each in summaries(comparison)]


def test_a_comparison_without_a_run_that_went_well_has_failed_for_people() -> None:
    well, not_well = compared((run(),), (FAILED,)), compared((FAILED,), (FAILED,))
    assert (well.outcome, not_well.outcome) == ("done", "failed")
    assert not_well.state == "done", "it has ended"


def test_the_guides_benchmark() -> None:
    """Hugging Face's guide for one machine with several GPUs: DP, DDP with NVLink, DDP without P2P."""
    found = compared(*((run(runtime=time),) for time in (110.5948, 101.9003, 131.4367)))
    assert found.basis == "runtime" and differences(found) == [8.5, 0, 29.0]
    shown = [line.split() for line in table(found)]
    assert [row[1:4] for row in shown[1:]] == [
        ["110.6", "s", "+8.5%"],
        ["101.9", "s", "best"],
        ["131.4", "s", "+29.0%"],
    ]


def test_the_time_of_the_log_counts_only_where_every_good_run_has_it() -> None:
    assert compared((run(runtime=5.0),), (run(),)).basis == "wall"
    assert compared((run(runtime=5.0),), (FAILED,)).basis == "runtime"
    assert compared((FAILED,), (FAILED,)).basis == "wall"


def test_a_repeated_variant_has_a_median_and_a_spread() -> None:
    found = compared(
        tuple(run(n, wall=wall) for n, wall in enumerate((12.0, 10.0, 14.0), 1)), (run(wall=24.0),)
    )
    first = summaries(found)[0]
    assert first.basis == (12.0, 10.0, 14.0) and differences(found) == [0, 100.0]
    assert "12.0 s (10.0-14.0)" in table(found)[1]


def test_runs_that_failed_have_no_part_in_the_figures() -> None:
    found = compared((run(wall=20.0), replace(FAILED, round=2)), (FAILED, replace(FAILED, round=2)))
    first, second = summaries(found)
    assert (first.basis, len(first.failed)) == ((20.0, 20.0, 20.0), 1)
    assert (second.basis, second.difference, len(second.failed)) == (None, None, 2)
    assert "status 3" in table(found)[1] and "status 3" in table(found)[2]


def test_a_signal_that_ended_a_run_has_its_name() -> None:
    killed = replace(FAILED, status=137, signal=9)
    assert "SIGKILL" in table(compared((run(wall=20.0),), (killed,)))[2]


def test_more_of_a_metric_is_better_unless_less_is() -> None:
    runs = (run(metric=100.0),), (run(metric=80.0),), (run(),)
    assert differences(compared(*runs, metric="(x)")) == [0, -20.0, None]
    assert differences(compared(*runs, metric="(x)", less=True)) == [25.0, 0, None]


def test_tasks_that_run_at_the_same_time_are_not_compared_unless_by_a_metric() -> None:
    tasks = replace(compared((run(runtime=9.0),), (run(runtime=8.0),)), request=asked("sweep"))
    assert "LOG TIME" in table(tasks)[0] and "VS BEST" not in table(tasks)[0]
    measured = replace(compared((run(metric=9.0),)), request=replace(asked("sweep"), metric="(x)"))
    assert "VS BEST" in table(measured)[0]


@pytest.mark.parametrize(("state", "made"), [("done", 2), ("stopped", 1)])
def test_a_run_that_was_stopped_with_its_experiment_is_still_to_be_made(state: str, made: int) -> None:
    found = compared((run(),), (run(state="stopped", status=None),), state=state)
    assert (found.runs_over, found.runs_in_all) == (made, 2)


def test_a_best_of_zero_divides_nothing() -> None:
    found = compared((run(metric=0.0),), (run(metric=2.0),), metric="(x)", less=True)
    assert differences(found) == [None, None]
    assert lines(found, 80)


@each_row("width", [30, 40, 80, 130])
def test_bars_keep_to_the_width_and_the_longest_is_full(width: int) -> None:
    found = compared((run(wall=10.0),), (run(wall=20.0),), (FAILED,))
    figure = figures(found)[0]
    shown = bars(found, figure, width)
    full = "█"
    assert figure.name == "wall" and all(len(line) <= width for line in shown)
    assert shown[1].count(full) >= 8 and shown[2].count(full) == 0
    assert abs(shown[0].count(full) - shown[1].count(full) / 2) <= 1


def test_only_figures_that_are_known_have_bars() -> None:
    assert [each.name for each in figures(compared((run(),)))] == ["wall"]
    found = compared((run(runtime=1.0, steps_per_second=2.0, peak_memory=GIB, utilization=50.0),))
    assert [each.name for each in figures(found)] == [
        "runtime",
        "steps_per_second",
        "peak_memory",
        "utilization",
    ]


def test_a_comparison_that_goes_on_says_what_runs_and_what_waits() -> None:
    going = compared((run(),), (Run(1, "j2j2", "running"),), (), state="running")
    assert [line.split()[-1] for line in table(going)[1:]] == ["ok", "running", "waits"]
    over = replace(going, state="stopped")
    assert "not finished" in table(over)[2] and "not run" in table(over)[3]


@pytest.mark.parametrize(("begun", "adopted"), [(NOW - 1, []), (NOW, ["k5b4"])])
def test_a_job_that_is_older_than_a_sweep_is_none_of_its_runs(begun: float, adopted: list[str]) -> None:
    """Ids are short, so an earlier job may have the name that a run of this sweep would have."""
    sweep = Experiment(
        Path("/state/sweeps/k3f9"), "stopped", NOW, asked("sweep"), (), (Row(words=("t.py",)),)
    )
    job = Job(id="k5b4", name="k3f9.1", state="running", created=begun)
    (row,) = with_outcome_of_jobs(sweep, Stored((job,))).rows
    assert [run.job for run in row.runs] == adopted


def test_hostile_values_do_nothing_to_the_screen() -> None:
    row = Row(("\x1b[2Jx\n",), "\x1b[2Jx\n", ("x",), (run(),))
    shown = lines(compared((run(),), rows=(row,), axes=(("env:\x1b", "\x1b]0;"),)), 80)
    assert all(line.isprintable() for line in shown)


def test_json_has_the_runs_and_what_they_come_to() -> None:
    found = json.loads(json.dumps(document(compared((run(runtime=5.0, peak_memory=GIB),), (FAILED,)))))
    assert (found["schema"], found["basis"], found["metric"]) == (1, "runtime", None)
    first, second = found["variants"]
    assert first["difference"] == 0 and first["summary"]["runtime"] == {
        "median": 5.0,
        "low": 5.0,
        "high": 5.0,
    }
    assert first["runs"][0]["peak_memory"] == GIB and first["values"] == ["0"]
    assert second["runs"][0]["status"] == 3 and second["summary"]["runtime"] is None


def test_csv_has_a_line_a_run() -> None:
    found = list(csv.DictReader(io.StringIO(as_csv(compared((run(1), run(2, wall=11.0)), (FAILED,))))))
    assert [(row["env:X"], row["round"], row["state"], row["wall"]) for row in found] == [
        ("0", "1", "done", "10.0"),
        ("0", "2", "done", "11.0"),
        ("1", "1", "failed", "1.0"),
    ]


def test_the_time_for_many_tasks_grows_with_their_number() -> None:
    """Ten times as many tasks take about ten times as long, not a hundred: each is summarized separately."""

    def seconds(number: int) -> float:
        rows = tuple(Row((), str(place), ("t.py",), (run(),), ("0",)) for place in range(number))
        made = Experiment(Path("/state/comparisons/c3c3"), "done", NOW, asked("sweep"), (), rows)
        began = time.process_time()
        lines(made, 80)
        document(made)
        return time.process_time() - began

    seconds(10)
    few = min(seconds(200) for _ in range(3))
    assert seconds(4000) < 80 * few
