"""A job that runs on other devices than it claimed: real processes, which the simulated driver then lists."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from e2e.terminal import Terminal
from gputui.inventory.device import Device
from gputui.inventory.job import Job
from gputui.jobs import start
from gputui.jobs.store import all_jobs
from gputui.jobs.wait import refreshed
from gputui.launching.launch import Inside, Launch
from gputui.sources.simulated.spec import Task
from gputui.system.namespaces import in_initial_namespace
from simnvml import SimulatedNvml
from unit.claims_support import EIGHT, Box, box_at, until
from unit.jobs_support import desk_at, ended

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not in_initial_namespace(), reason="pids of this namespace are not the driver's"),
]

SCRIPT = "sleep 1000 & echo $!; sleep 1000 & echo $!; wait"
"""A launcher with two workers, which prints their pids."""


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    # The desk ends the jobs of the box.
    with box_at(tmp_path, simulated_nvml) as made, desk_at(tmp_path):
        yield made


Ends = Callable[..., None]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Add pids of processes that are ended after the test."""
    pids: list[int] = []
    yield lambda *more: pids.extend(more)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def run_on(box: Box, places: dict[int, int]) -> None:
    """Have the driver list these pids on these devices."""
    tasks = (
        Task(devices=(str(place),), user="x", command="x", pid=pid, memory=9000, load=90)
        for place, pid in places.items()
    )
    box.driver.show_box(replace(EIGHT, tasks=tuple(tasks)), elapsed=60.0)


def called(box: Box, *words: str) -> str:
    """The output of the installed program."""
    done = subprocess.run([*GPUTUI, *words], env=box.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_launch_whose_workers_are_elsewhere_is_told_as_soon_as_they_are(box: Box, ends: Ends) -> None:
    job = box.start("run", "-q", "--gpus", "6,7", "--", "sh", "-c", SCRIPT)
    until(lambda: len(job.out.split()) == 2)
    first, second = map(int, job.out.split())
    ends(first, second)
    # Its workers load their data, on no device yet, while a colleague is on 3; then they are on the claimed
    # devices.
    for places in ({3: os.getpid()}, {6: first}, {6: first, 7: second}):
        run_on(box, places)
        assert "runs on" not in called(box, "claims") + called(box, "ls") + called(box, "people")
    rows = json.loads(called(box, "claims", "--json"))["claims"]
    assert [row["runs_on"] for row in rows] == [[box.uuids[6], box.uuids[7]]] * 2
    assert [row["outside"] for row in rows] == [[], []]
    run_on(box, {0: first, 1: second})
    assert called(box, "claims").count("(claimed 6,7, runs on 0,1) sh") == 2
    assert "claimed 6,7, runs on 0,1" in called(box, "people")
    rows = json.loads(called(box, "claims", "--json"))["claims"]
    assert [row["outside"] for row in rows] == [[box.uuids[0], box.uuids[1]]] * 2
    lines = called(box, "ls").splitlines()
    assert "claimed 6,7" in lines[2] and "claimed 6,7" in lines[3] and "runs on 0,1" in lines[8]
    states = [device["verdict"]["state"] for device in json.loads(called(box, "ls", "--json"))["devices"]]
    assert states == ["busy", "busy", "free", "free", "free", "free", "claimed", "claimed"]
    # Choosing does not look for strays, and chooses as before.
    assert called(box, "pick", "-n", "4") == "2,3,4,5\n"


@pytest.mark.thorough
def test_a_job_and_what_it_left_behind_are_told_by_the_list_and_on_the_screen(
    box: Box, start: Start, base_environment: dict[str, str]
) -> None:
    # A worker whose parent ends, in a session of its own, without the lease: its supervisor has adopted it.
    left = "setsid -w bash -c 'for n in {100..119}; do eval \"exec $n>&-\"; done; sleep 1000 & echo $!'"
    called(box, "run", "-q", "--gpus", "6,7", "--detach", "--", "bash", "-c", f"{left}; {SCRIPT}")
    (job,) = all_jobs(box.environ)
    until(lambda: len(job.log.read_text().split()) == 3)
    adopted, worker, _ = map(int, job.log.read_text().split())
    assert "runs on" not in called(box, "jobs")
    run_on(box, {0: adopted, 6: worker})
    assert "(claimed 6,7, runs on 0,6) bash" in called(box, "jobs")
    (row,) = json.loads(called(box, "jobs", "--json"))["jobs"]
    assert (row["runs_on"], row["outside"]) == ([box.uuids[0], box.uuids[6]], [box.uuids[0]])
    terminal = start(environment={**base_environment, **box.environ})
    terminal.until(
        lambda seen: ", claimed 6,7" in _row(seen, 0) and f"your job {job.id}, on 0,6" in _row(seen, 7)
    )
    terminal.send("D")
    # The panel of jobs shows it too.
    terminal.until(lambda seen: f"devices of {job.id}" in seen.text and "runs on 0,6  bash" in seen.text)
    terminal.send("\x1b")
    terminal.until("STATE")
    terminal.send(":people\r")
    # (It may stand on two lines.)
    where = f"job {job.id} claimed 6,7, runs on 0,6"
    terminal.until(lambda seen: where in " ".join(seen.text.split()))
    # Without a driver the list is printed all the same.
    box.driver.fail_init(9)
    assert job.id in called(box, "jobs")
    assert json.loads(called(box, "jobs", "--json"))["jobs"][0]["runs_on"] is None


def _row(terminal: Terminal, index: int) -> str:
    """The row of a GPU on the main screen."""
    rows = (line for line in terminal.lines if line.replace("▸", " ").split()[:1] == [str(index)])
    return next((line for line in rows if "%" in line), "")


def detached(box: Box, stray: str) -> Job:
    """A job whose workers print their pids, checked ten times a second, with this setting."""
    settings = box.folder / "config" / "gputui" / "config.toml"
    settings.parent.mkdir(parents=True, mode=0o700)
    settings.write_text(f'[run]\nstray = "{stray}"\n')
    code = "import gputui.jobs.start as s; s._EVERY = '.1 .1'\nfrom gputui.cli.main import entry; entry()"
    call = [sys.executable, "-c", code, "run", "-q", "--detach", "--gpus", "6,7", "--", "sh", "-c", SCRIPT]
    done = subprocess.run(call, env=box.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (job,) = all_jobs(box.environ)
    until(lambda: len(job.log.read_text().split()) == 2)
    return job


def test_a_job_that_runs_elsewhere_is_stopped_where_the_settings_say_so(box: Box) -> None:
    job = detached(box, "stop")
    first, second = map(int, job.log.read_text().split())
    # On its claimed devices the job goes on, and is not reported.
    run_on(box, {6: first, 7: second})
    called(box, "jobs", "stop", "--if-stray", job.id)
    assert not refreshed(job).over
    run_on(box, {0: first, 7: second})
    over = ended(job)
    assert (over.state, over.stop, over.why) == ("stopped", signal.SIGTERM, "claimed 6,7, runs on 0,7")
    (row,) = json.loads(called(box, "jobs", "--json"))["jobs"]
    assert row["reason"] == over.why and over.why in called(box, "jobs", "show", job.id)
    assert not json.loads(called(box, "claims", "--json"))["claims"]


def test_a_job_that_runs_elsewhere_goes_on_where_the_settings_say_so(box: Box) -> None:
    job = detached(box, "warn")
    first, _ = map(int, job.log.read_text().split())
    run_on(box, {0: first})
    assert "runs on 0" in called(box, "jobs") and not refreshed(job).over
    # Stop it by hand.
    called(box, "jobs", "stop", "--if-stray", job.id)
    assert ended(job).state == "stopped"


def test_only_a_job_that_could_get_elsewhere_is_looked_at(box: Box) -> None:
    def stops(launch: Launch) -> bool:
        return f"--if-stray={job.id}" in start._look(start._settings(box.environ), launch, job)[1]

    job = detached(box, "stop")
    device = Device(index=6, uuid="GPU-6", vendor="nvidia")
    launch = Launch(("true",), devices=(device,))
    confined = replace(launch, inside=Inside((), (), ("/dev/nvidia0",), ""))
    assert stops(launch) and not stops(confined)
    # Every job with devices is read for the usage.
    assert start._look(start._settings(box.environ), confined, job)[1][-1] == "--note"
    assert not start._look(start._settings(box.environ), replace(launch, devices=()), job)[1]
    (box.folder / "config" / "gputui" / "config.toml").unlink()
    assert not stops(launch)
