"""Experiments on the page of jobs, and how a comparison is started from a job."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from gputui.allocating.device_request import DeviceRequest
from gputui.cli.experiment import new_experiment
from gputui.cli.experiment_call import prepared
from gputui.inventory.job import Job
from gputui.jobs.experiments.axes import Axis
from gputui.jobs.experiments.record import Experiment, Row, Run
from gputui.jobs.experiments.request import ExperimentRequest
from gputui.jobs.experiments.store import begin, kept, running_alone
from gputui.jobs.queued import experiment_job, experiment_of
from gputui.jobs.start import start_job
from gputui.jobs.store import all_jobs
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.views.experiments import details
from gputui.tui.views.text import width_of
from gputui.tui.widgets.lines import Lines
from table_tests import each_row
from tui.support import Session
from tui.support import session as moving
from unit.builders import GIB, NOW
from unit.jobs_support import Desk, ended, until

session = functools.partial(moving, interval=1000)


def compared(*times: float, **more: object) -> Experiment:
    figures = {"steps_per_second": 2.0, "peak_memory": GIB, "utilization": 50.0}
    rows = tuple(
        Row((str(n),), f"X={n}", ("t.py",), (Run(1, "k3f9", "done", 0, wall=time, **figures),))  # type: ignore[arg-type]
        for n, time in enumerate(times)
    )
    request = ExperimentRequest("comparison", LaunchRequest(LaunchOptions(("t.py",))))
    made = Experiment(Path(), "done", NOW, request, (("env:X", "X"),), rows, ("0",))
    return replace(made, **more)  # type: ignore[arg-type]


def store(desk: Desk, experiment: Experiment) -> Experiment:
    """Store the experiment as its own process would."""
    return begin(experiment, desk.environ)


def texts(s: Session, part: str = "#page-body") -> list[str]:
    return [text.rstrip() for text in s.app.screen.query_one(part, Lines).texts]


def rows(s: Session) -> list[str]:
    """The lines of the list."""
    lines = texts(s)
    return lines[2 : next(n for n, line in enumerate(lines) if n and line.startswith(" ─ "))]


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
async def test_an_experiment_that_no_job_runs_has_a_row_with_its_table_and_bars(
    desk: Desk, environ: dict[str, str], size: tuple[int, int]
) -> None:
    first = store(desk, compared(20.0, 10.0))
    second = store(desk, compared(5.0, created=NOW + 1, state="stopped"))
    async with session(environ=environ, size=size) as s:
        await s.press("D")
        assert second.id in rows(s)[0] and first.id in rows(s)[1] and "X" in rows(s)[1]
        await s.press("j")
        lines = texts(s)
        assert any("+100.0%" in line and "ok" in line for line in lines)
        assert all(len(line) <= size[0] for line in lines)
        await s.press("enter")
        lines = texts(s)
        assert not any(second.id in line for line in lines), "it has the whole page"
        assert any("best" in line and "█" in line for line in lines)
        titles = [line for line in lines if line.startswith(" ─ ")]
        assert "time of the process" in titles[1] and "steps per second" in titles[2]
        await s.press("enter")
        assert second.id in rows(s)[0]


async def test_results_without_room_for_all_bars_scroll(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(*(float(n) for n in range(1, 40))))
    async with session(environ=environ) as s:
        await s.press("D")
        assert not any("X=38" in line for line in texts(s))
        await s.press(*["pagedown"] * 6)
        assert any("X=38" in line and "█" in line for line in texts(s))
        await s.press(*["pageup"] * 6)
        assert any("X  " in line and "TIME" in line for line in texts(s))


async def test_x_twice_removes_one_and_y_copies_it(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(20.0, 10.0))
    async with session(environ=environ) as s:
        await s.press("D", "y")
        await s.until(lambda: s.written and "clipboard" in texts(s, "#page-footer")[0])
        (said,) = s.main.messages
        # The first of several lines.
        assert said.text.endswith(" …") and said.text.count("\n") == 0
        await s.press("x")
        assert kept(desk.environ).records
        await s.press("x")
        assert not kept(desk.environ).records and "no jobs" in texts(s)[1]


async def test_a_comparison_that_runs_is_not_removed(desk: Desk, environ: dict[str, str]) -> None:
    made = store(desk, compared(1.0, state="running"))
    with running_alone(made):
        async with session(environ=environ) as s:
            await s.press("D", "x", "x")
            assert kept(desk.environ).records and "1 running" in texts(s)[0]


async def test_in_a_demo_there_are_none(desk: Desk, environ: dict[str, str]) -> None:
    made = store(desk, compared(1.0))
    async with session(environ=environ) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D")
        assert not any(made.id in line for line in texts(s))


@each_row("width", [40, 80, 200])
def test_hostile_values_and_narrow_pages_keep_to_their_cells(width: int) -> None:
    found = compared(1.0, 2.0, axes=(("env:\x1b[2J", "\x1b[2J\u202e" * 20),))
    found = replace(found, request=replace(found.request, metric="(x)"))
    assert all(width_of(line) <= width for line in details(found, width))


# Starting one


def a_job(desk: Desk) -> Job:
    """A job without a device, with a launch option."""
    options = LaunchOptions(("sh", "-c", "echo $X $Y"), additions=(("Y", "y"),))
    launch = Launch(("sh", "-c", "echo $X $Y"), (("Y", "y"),))
    return ended(start_job(launch, desk.environ, request=LaunchRequest(options)))


async def test_v_starts_variants_of_a_jobs_command_as_a_job(desk: Desk) -> None:
    job = a_job(desk)
    async with session(environ={**os.environ, **desk.environ}) as s:
        await s.press("D", "v")
        prompt = s.app.screen
        assert isinstance(prompt, LineScreen) and job.id in prompt.prompt
        await s.press(*"env", "colon", *"X=0,1", "enter")
        await s.until(lambda: isinstance(s.app.screen, JobsScreen))
        question = " ".join(texts(s, "#page-footer"))
        assert len(all_jobs(desk.environ)) == 1, "nothing is started before a yes"
        assert "X=0, X=1" in question and "about" in question, "the variants, and how long it takes"
        assert texts(s, "#page-footer")[-1].startswith(" ⏎ yes  esc no"), "in place of the keys of the page"
        await s.press("enter")
        (runner,) = (each for each in all_jobs(desk.environ) if experiment_of(each))
        await s.until(lambda: isinstance(s.app.screen, JobsScreen) and s.app.screen.key == runner.id)
    (client,) = (each for each in all_jobs(desk.environ) if experiment_of(each))
    assert ended(client).status == 0, client.log.read_text()
    (found,) = kept(desk.environ).records
    assert found.job == client.id
    logs = {each.id: each.log.read_text() for each in all_jobs(desk.environ)}
    assert [logs[row.runs[0].job or ""] for row in found.rows] == ["0 y\n", "1 y\n"]


async def test_no_to_a_comparison_starts_nothing(desk: Desk) -> None:
    a_job(desk)
    async with session(environ={**os.environ, **desk.environ}) as s:
        await s.press("D", "v", *"env", "colon", *"X=0,1", "enter")
        await s.until(lambda: isinstance(s.app.screen, JobsScreen))
        await s.press("escape")
        assert isinstance(s.app.screen, JobsScreen), "Escape answers the question"
    assert len(all_jobs(desk.environ)) == 1 and not kept(desk.environ).records


async def test_a_comparison_is_a_row_with_its_runs_below_and_s_stops_all_of_it(desk: Desk) -> None:
    """The question to stop a run says what follows."""
    gate = desk.gate()
    options = LaunchOptions(("sh", "-c", gate.wait))
    request = ExperimentRequest("comparison", LaunchRequest(options, DeviceRequest(names="none")))
    request = replace(request, axes=(Axis("env", "X", ("0", "1", "2")),))
    made = store(desk, new_experiment(request, prepared(request, print)))
    runner = experiment_job(made, request, desk.environ)
    until(lambda: len(all_jobs(desk.environ)) == 2)
    async with session(environ={**os.environ, **desk.environ}, size=(130, 40)) as s:
        (run,) = (each for each in all_jobs(desk.environ) if each.id != runner.id)
        await s.press("D")
        assert runner.id in rows(s)[0] and "0 of 3" in rows(s)[0]
        assert rows(s)[1].startswith(f"    {run.id}") and "X=0, 1st of 3" in rows(s)[1]
        assert s.app.screen.head(130)[-1][0].strip(" ─").startswith("1 running")  # type: ignore[attr-defined]
        assert "stopped" not in " ".join(texts(s)), "an experiment that runs was called stopped"
        await s.press("j", "S")
        question = " ".join(texts(s, "#page-footer"))
        assert "2 of 3 runs" in question and runner.id in question
        await s.press("escape", "k", "S")
        assert f"comparison {made.id}" in " ".join(texts(s, "#page-footer"))
        assert not any(each.over for each in all_jobs(desk.environ))
        await s.press("enter")
        await s.until(lambda: all(each.over for each in all_jobs(desk.environ)))
    assert len(all_jobs(desk.environ)) == 2, "no further run has started"


async def test_r_starts_a_comparison_again_as_the_command_line_does(desk: Desk) -> None:
    request = ExperimentRequest("comparison", LaunchRequest(LaunchOptions(("sh", "-c", "echo $X"))))
    launch = replace(request.launch, devices=DeviceRequest(names="none"))
    request = replace(request, launch=launch, axes=(Axis("env", "X", ("0", "1")),))
    made = store(desk, new_experiment(request, prepared(request, print)))
    runner = ended(experiment_job(made, request, desk.environ))
    async with session(environ={**os.environ, **desk.environ}) as s:
        await s.press("D", "R")
        assert len(kept(desk.environ).records) == 1, "it asks"
        await s.press("enter")
        await s.until(lambda: len(kept(desk.environ).records) == 2)
        page = s.app.screen
        assert isinstance(page, JobsScreen)

        def job() -> str:
            page.draw()
            return str(page.key)

        await s.until(lambda: job() != runner.id)
        assert experiment_of(next(each for each in all_jobs(desk.environ) if each.id == job())) is not None
    for each in all_jobs(desk.environ):
        ended(each)


async def test_an_experiment_that_no_job_runs_is_not_stopped(desk: Desk, environ: dict[str, str]) -> None:
    ended(desk.sh("true"))
    made = store(desk, compared(1.0, state="running"))
    with running_alone(made):
        async with session(environ=environ) as s:
            await s.press("D", "S")
            assert "Ctrl-C" in texts(s, "#page-footer")[0]


async def test_words_that_cannot_be_meant_start_nothing_and_say_why(desk: Desk) -> None:
    a_job(desk)
    async with session(environ={**os.environ, **desk.environ}) as s:
        await s.press("D", "v", *"nothing=1", "enter")
        assert isinstance(s.app.screen, LineScreen), "such a line is not taken"
        await s.press("escape", "v", *"word", "colon", *"x=1", "enter")
        assert isinstance(s.app.screen, LineScreen)
        assert "{x}" in str(s.app.screen.query_one("#what", Static).render())
        await s.press("escape", "v", "enter")
    assert len(all_jobs(desk.environ)) == 1


async def test_a_comparison_itself_and_no_job_at_all_are_not_compared(desk: Desk) -> None:
    async with session(environ={**os.environ, **desk.environ}) as s:
        await s.press("D", "v")
        assert isinstance(s.app.screen, JobsScreen)
        made = store(desk, compared(1.0))
        ended(experiment_job(made, made.request, desk.environ))
        await s.press("v", "R", "escape")
        assert isinstance(s.app.screen, JobsScreen)
        await s.press("e")
        assert s.main.app_state.options.command == made.request.words
        assert "cannot be read" not in s.main.message


async def test_sweeps_are_beside_comparisons(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(20.0, 10.0))
    task = Row((), "--seed 1", ("t.py",), (Run(1, "k3f9", "failed", 3, wall=1.0, started=NOW),), ("0",))
    request = ExperimentRequest("sweep", LaunchRequest(LaunchOptions(("t.py",))))
    sweep = store(desk, Experiment(Path(), "done", NOW + 1, request, (), (task,)))
    async with session(environ=environ) as s:
        await s.press("D")
        lines = texts(s)
        assert sweep.id in lines[2] and any("--seed 1" in line and "status 3" in line for line in lines)
        await s.press("x", "x")
        (left,) = kept(desk.environ).records
        assert left.request.kind == "comparison"


async def test_a_run_whose_job_was_not_recorded_any_more_is_shown_as_it_ended(
    desk: Desk, environ: dict[str, str]
) -> None:
    """As `gputui each --show` finds it: by the name of its job."""
    task = Row((), "--seed 1", ("t.py",), (Run(1, None, "waiting", attempts=0),))
    request = ExperimentRequest("sweep", LaunchRequest(LaunchOptions(("t.py",))))
    sweep = store(desk, Experiment(Path(), "stopped", NOW, request, (), (task,)))
    ended(desk.start("false", name=f"{sweep.id}.1"))
    async with session(environ=environ) as s:
        await s.press("D", "j")
        assert any("--seed 1" in line and "status 1" in line for line in texts(s))
