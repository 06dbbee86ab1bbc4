"""The page of comparisons, and how a comparison is started from a job."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from gputui.inventory.job import Job
from gputui.jobs.experiments.record import Experiment, Row, Run
from gputui.jobs.experiments.request import ExperimentRequest
from gputui.jobs.experiments.store import begin, kept, running_alone
from gputui.jobs.queued import experiment_job, experiment_of
from gputui.jobs.start import start_job
from gputui.jobs.store import all_jobs
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.experiments import ExperimentsScreen
from gputui.tui.screens.jobs import JobsScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.views.experiments import details, listed
from gputui.tui.views.text import width_of
from gputui.tui.widgets.lines import Lines
from table_tests import each_row
from tui.support import Session
from tui.support import session as moving
from unit.builders import GIB, NOW
from unit.jobs_support import Desk, ended

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


async def test_without_comparisons_it_says_how_to_make_one_and_no_key_does_harm(
    environ: dict[str, str],
) -> None:
    async with session(environ=environ) as s:
        await s.press("D", "V")
        assert isinstance(s.app.screen, ExperimentsScreen)
        assert "gputui compare" in texts(s)[1] and not any(texts(s)[2:])
        await s.press("tab", "y", "x", "x", "pagedown", "j", "G", "escape")
        assert isinstance(s.app.screen, JobsScreen)


@each_row(("state", "so_far"), [("running", True), ("done", False), ("stopped", False)])
def test_the_best_of_one_that_runs_is_the_best_so_far(state: str, so_far: bool) -> None:
    _, line = listed([compared(10.0, state=state)], 130, NOW)
    text = "".join(text for text, _ in line)
    assert "X=0" in text and ("so far" in text) == so_far


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
async def test_the_last_one_is_first_with_its_table_and_bars(
    desk: Desk, environ: dict[str, str], size: tuple[int, int]
) -> None:
    first = store(desk, compared(20.0, 10.0))
    second = store(desk, compared(5.0, created=NOW + 1, state="stopped"))
    async with session(environ=environ, size=size) as s:
        await s.press("D", "V")
        lines = texts(s)
        assert [line.split()[0] for line in lines[2:4]] == ["▸■", "✓"]
        assert second.id in lines[2] and first.id in lines[3]
        await s.press("j")
        lines = texts(s)
        assert any("+100.0%" in line and "ok" in line for line in lines)
        assert any("best" in line and "█" in line for line in lines)
        assert all(len(line) <= size[0] for line in lines)
        shown = [line for line in lines if " of 4 ─" in line]
        assert "time of the process" in shown[0] and len(shown) == 4
        await s.press("tab")
        shown = [line for line in texts(s) if " of 4 ─" in line]
        assert "steps per second" in shown[0]


async def test_a_page_without_room_for_all_bars_scrolls(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(*(float(n) for n in range(1, 40))))
    async with session(environ=environ) as s:
        await s.press("D", "V")
        assert not any("X=38" in line for line in texts(s))
        await s.press(*["pagedown"] * 6)
        assert any("X=38" in line and "█" in line for line in texts(s))
        await s.press(*["pageup"] * 6)
        assert any("X  " in line and "TIME" in line for line in texts(s))


async def test_x_twice_removes_one_and_y_copies_it(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(20.0, 10.0))
    async with session(environ=environ) as s:
        await s.press("D", "V", "y")
        await s.until(lambda: s.written and "clipboard" in texts(s, "#page-footer")[0])
        await s.press("x")
        assert kept(desk.environ).records
        await s.press("x")
        assert not kept(desk.environ).records and "no experiments" in texts(s)[1]


async def test_a_comparison_that_runs_is_not_removed(desk: Desk, environ: dict[str, str]) -> None:
    made = store(desk, compared(1.0, state="running"))
    with running_alone(made):
        async with session(environ=environ) as s:
            await s.press("D", "V", "x", "x")
            assert kept(desk.environ).records and "1 of 1 running" in texts(s)[0]


async def test_in_a_demo_there_are_none(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(1.0))
    async with session(environ=environ) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo shared"))
        await s.press("D", "V")
        assert "no experiments" in texts(s)[1]
        assert texts(s, "#page-footer")[-1] == " esc back  ? help", "no key of an experiment"


@each_row("width", [40, 80, 200])
def test_hostile_values_and_narrow_pages_keep_to_their_cells(width: int) -> None:
    found = compared(1.0, 2.0, axes=(("env:\x1b[2J", "\x1b[2J\u202e" * 20),))
    found = replace(found, request=replace(found.request, metric="(x)"))
    for room in (5, 24, 60):
        assert all(width_of(line) <= width for line in details(found, 3, width, room))


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
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        question = s.app.screen
        assert isinstance(question, ConfirmScreen)
        assert len(all_jobs(desk.environ)) == 1, "nothing is started before a yes"
        assert [line for line in question.reasons if "X=" in line] == ["X=0", "X=1"]
        assert any("about" in line for line in question.reasons), "how long it takes"
        await s.press("enter")
        await s.until(lambda: isinstance(s.app.screen, JobsScreen))
        assert "V shows" in texts(s, "#page-footer")[0]
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
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        await s.press("escape")
        await s.until(lambda: isinstance(s.app.screen, JobsScreen))
    assert len(all_jobs(desk.environ)) == 1 and not kept(desk.environ).records


async def test_s_stops_the_job_that_runs_an_experiment_as_on_the_page_of_jobs(
    desk: Desk, environ: dict[str, str]
) -> None:
    runner = desk.sh("exec sleep 300")
    made = store(desk, compared(1.0, state="running", job=runner.id))
    with running_alone(made):
        async with session(environ=environ) as s:
            await s.press("D", "V", "S")
            assert not all_jobs(desk.environ)[0].over
            await s.press("enter")
            await s.until(lambda: all_jobs(desk.environ)[0].over)


async def test_an_experiment_that_no_job_runs_is_not_stopped(desk: Desk, environ: dict[str, str]) -> None:
    ended(desk.sh("true"))
    made = store(desk, compared(1.0, state="running"))
    with running_alone(made):
        async with session(environ=environ) as s:
            await s.press("D", "V", "S")
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
        ended(experiment_job(made.id, made.request, desk.environ))
        await s.press("v", "R")
        assert isinstance(s.app.screen, JobsScreen)
        await s.press("c")
        assert s.main.app_state.options.command == made.request.words
        assert "cannot be read" not in s.main.message


async def test_sweeps_are_beside_comparisons(desk: Desk, environ: dict[str, str]) -> None:
    store(desk, compared(20.0, 10.0))
    task = Row((), "--seed 1", ("t.py",), (Run(1, "k3f9", "failed", 3, wall=1.0, started=NOW),), ("0",))
    request = ExperimentRequest("sweep", LaunchRequest(LaunchOptions(("t.py",))))
    sweep = store(desk, Experiment(Path(), "done", NOW + 1, request, (), (task,)))
    async with session(environ=environ) as s:
        await s.press("D", "V")
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
        await s.press("D", "V")
        assert any("--seed 1" in line and "status 1" in line for line in texts(s))
