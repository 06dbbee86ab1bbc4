"""`idle_release`: a job that does not use its devices is warned and then stopped, where its owner said so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.choosing.verdict_text import your_job
from gputui.cli import recorder
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.job import Job
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.jobs.columns import how_long
from gputui.jobs.store import all_jobs
from gputui.jobs.supervise import _Look, _Watch
from gputui.jobs.wait import refreshed
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.spec import Task
from gputui.system.namespaces import in_initial_namespace
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import NOW, busy, gpu
from unit.builders import box as box_of
from unit.builders import job as process
from unit.calling import Call
from unit.claims_support import EIGHT, Box, box_at
from unit.jobs_support import desk_at, ended, until

of_this_namespace = pytest.mark.skipif(
    not in_initial_namespace(), reason="pids of this namespace are not the driver's"
)


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    # The desk ends the jobs of the box.
    with box_at(tmp_path, simulated_nvml) as made, desk_at(tmp_path):
        yield made


def set_rules(box: Box, text: str) -> None:
    file = box.folder / "config" / "gputui" / "config.toml"
    file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    file.write_text(text)


def started(box: Box, *words: str, script: str = "echo $$; sleep 600") -> Job:
    """A job on GPUs 6 and 7 whose command prints its pid; it is read ten times a second."""
    code = "import gputui.jobs.start as s; s._EVERY = '.1 .1'\nfrom gputui.cli.main import entry; entry()"
    call = [sys.executable, "-c", code, "run", "-q", "--detach", "--gpus", "6,7", *words, "--", "sh", "-c"]
    done = subprocess.run([*call, script], env=box.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    job = max(all_jobs(box.environ), key=lambda each: each.created)
    until(job.log.read_text)
    return job


def load(box: Box, percent: int, places: dict[int, int]) -> None:
    """Have the driver list processes on these GPUs, which work at this load."""
    work = Task(devices=(), user="x", command="x", pid=0, memory=900, load=percent, swing=0)
    tasks = [replace(work, devices=(str(place),), pid=pid) for place, pid in places.items()]
    box.driver.show_box(replace(EIGHT, tasks=tuple(tasks)), elapsed=60.0)


def told(box: Box, job: Job) -> dict[str, object]:
    found: dict[str, object] = json.loads(box.call("jobs", "show", job.id, "--json")[1])["job"]
    return found


# A job


@of_this_namespace
def test_an_idle_job_is_warned_and_then_stopped_with_the_reason(box: Box) -> None:
    heard = box.folder / "heard"
    set_rules(box, f'[wait]\nnotify = ["sh", "-c", "echo \\"$0\\" >> {heard}", "{{message}}"]\n')
    job = started(box, "--idle-release", "2")
    load(box, 0, {6: int(job.log.read_text())})
    over = ended(job)
    assert (over.state, over.stop, over.signal) == ("stopped", signal.SIGTERM, signal.SIGTERM)
    assert over.why is not None and over.why.startswith("its devices were idle for ")
    assert told(box, job)["reason"] == over.why and over.why in box.call("jobs")[1]
    # The warning came before, in the log and by the command of the settings.
    assert "unless it uses its devices" in job.log.read_text()
    until(lambda: heard.exists() and len(heard.read_text().splitlines()) == 2)
    warning, end = heard.read_text().splitlines()
    assert f"job {job.id} (sh) idle for" in warning and "stopped after" in end
    assert not json.loads(box.call("claims", "--json")[1])["claims"]


@pytest.mark.thorough
@of_this_namespace
@pytest.mark.thorough
def test_the_warning_is_told_until_the_job_uses_its_devices_again(box: Box) -> None:
    job = started(box, "--idle-release", "20")
    pid = int(job.log.read_text())
    load(box, 0, {6: pid})
    assert told(box, job)["idle_release_at"] is None
    until(lambda: told(box, job)["idle_release_at"])
    assert " idle, stopped in " in box.call("jobs")[1]
    load(box, 50, {6: pid})
    until(lambda: told(box, job)["idle_release_at"] is None)
    assert told(box, job)["state"] == "running" and " idle" not in box.call("jobs")[1]


@of_this_namespace
def test_a_job_that_uses_one_of_its_devices_goes_on(box: Box) -> None:
    job = started(box, "--idle-release", "1")
    load(box, 90, {7: int(job.log.read_text())})
    box.driver.reset_counts()
    # It was read four times, and its time would be over.
    until(lambda: box.driver.counts().get("nvmlDeviceGetUtilizationRates", 0) >= 8 * 4)
    until(lambda: time.time() > (job.started or 0) + 2.5)
    assert refreshed(job).state == "running" and "idle" not in box.call("jobs")[1]


@pytest.mark.parametrize("words", [(), ("--idle-release", "none")])
def test_nothing_is_stopped_where_nobody_said_so(box: Box, words: tuple[str, ...]) -> None:
    set_rules(box, "[rules]\nidle_release = 600\n" if words else "")
    assert told(box, started(box, *words))["idle_release"] is None


def test_the_settings_are_for_every_job_and_the_start_has_the_last_word(box: Box) -> None:
    set_rules(box, "[rules]\nidle_release = 600\n")
    assert told(box, started(box))["idle_release"] == 600
    assert told(box, started(box, "--force", "--idle-release", "2h"))["idle_release"] == 7200


def test_a_job_in_line_keeps_what_its_owner_said(box: Box) -> None:
    box.hold(*range(8))
    words = ("run", "-q", "--detach", "--wait", "-n", "1", "--idle-release", "2h", "--", "sleep", "600")
    id = box.call(*words)[1].strip()
    shown = json.loads(box.call("jobs", "show", id, "--json")[1])["job"]
    assert (shown["state"], shown["idle_release"]) == ("waiting", 7200)
    again = box.call("jobs", "show", "--command", id)[1]
    # Without --detach, a run refuses it.
    assert "--idle-release 2h" in again and " --detach " in again
    assert "idle release  2h" in box.call("jobs", "show", id)[1]


# What counts as idle

ID = "k3f9"


def claimed(*devices: Device, **facts: Any) -> Snapshot:
    """A box on whose first devices our job has claims."""
    claim = Claim("", "mira", NOW - 60, pid=40, job=ID, own=True, pids=(40,))
    claims = [replace(claim, **{"key": each.key, **facts}) for each in devices]
    return replace(box_of(*devices, gpu(5)), claims=tuple(claims))


def resting(place: int = 0, **facts: Any) -> Device:
    return replace(busy(gpu(place), process(40)), **{"utilization": 0, **facts})


@each_row(
    ("snapshot", "idle"),
    [
        (claimed(resting()), True),
        (claimed(resting(), gpu(1)), True),
        (claimed(resting(), resting(1, utilization=3)), False),
        (claimed(resting(utilization=None)), False),
        (claimed(resting(), user="bo", own=False), False),
        (claimed(resting(), job="m6u5"), False),
        (claimed(resting(), pids=None), False),
        (claimed(), False),
        (claimed(resting(telemetry=Telemetry(encoder=30))), False),
        (claimed(resting(telemetry=Telemetry(encoder=0, decoder=0))), True),
        (claimed(resting(processes=(process(40, sm=12),))), False),
        (claimed(resting(), key="GPU-of-another-box"), False),
    ],
    ids=[
        "idle",
        "claim",
        "used",
        "unknown",
        "other-user",
        "other-job",
        "no-pids",
        "no-claim",
        "video",
        "rests",
        "lately",
        "gone",
    ],
)
def test_idle_is_what_is_known_to_be_unused(snapshot: Snapshot, idle: bool) -> None:
    assert recorder._unused(ID, snapshot) is idle


def test_a_job_that_is_seen_on_other_devices_is_not_idle() -> None:
    snapshot = claimed(gpu(0))
    elsewhere = replace(snapshot, devices=(gpu(0), busy(gpu(5), process(40))))
    assert recorder._unused(ID, snapshot) and not recorder._unused(ID, elsewhere)


# How long

WORKS, RESTS, FAILS, KILLED = 0, recorder.UNUSED << 8, 3 << 8, signal.SIGKILL


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Watch:
    """The supervisor of a job that is stopped after an hour, without its processes."""
    made = object.__new__(_Watch)
    made._look, made._folder = _Look(30.0, 30.0, 3600.0, [b"gputui"]), str(tmp_path)
    made._stop, made._ended, made._warned = None, None, False
    monkeypatch.setattr(made, "_begin_to_stop", lambda asked: setattr(made, "_stop", asked[0]))
    return made


def read(watch: _Watch, status: int, since: int, until: int, every: int = 30) -> str:
    """Have the supervisor read at these seconds; return what has become of the job."""
    for moment in range(since, until, every):
        watch._look._begun = 1000.0 + moment
        watch._release(watch._look.ended(status))
    return "stopped" if watch._stop else "warned" if watch._warned else "left alone"


def warning(watch: _Watch) -> Path:
    return Path(watch._folder) / "idle.json"


def test_a_job_is_warned_five_minutes_before_its_hour_is_over(watch: _Watch) -> None:
    assert read(watch, RESTS, 0, 3300) == "left alone"
    assert read(watch, RESTS, 3300, 3600) == "warned" and warning(watch).exists()
    assert read(watch, RESTS, 3600, 3601) == "stopped"


@pytest.mark.parametrize("other", [WORKS, FAILS, KILLED])
def test_work_and_a_failed_reading_begin_the_hour_again(watch: _Watch, other: int) -> None:
    assert read(watch, RESTS, 0, 3570) == "warned"
    assert read(watch, other, 3570, 3600) == "left alone" and not warning(watch).exists()
    assert read(watch, RESTS, 3600, 6900) == "left alone"
    assert read(watch, RESTS, 6900, 7200) == "warned"


def test_a_pause_without_readings_begins_the_hour_again(watch: _Watch) -> None:
    assert read(watch, RESTS, 0, 3570) == "warned"
    assert read(watch, RESTS, 3700, 7000) == "left alone"


def test_readings_that_are_rare_never_add_up(watch: _Watch) -> None:
    assert read(watch, RESTS, 0, 86_400, every=120) == "left alone"


def test_no_job_is_stopped_without_a_warning(watch: _Watch) -> None:
    watch._look.idle = 20.0
    assert read(watch, RESTS, 0, 60) == "warned"
    assert read(watch, RESTS, 60, 61) == "stopped"


def test_the_state_of_its_devices_and_the_list_of_jobs_tell_of_the_warning() -> None:
    job = Job(id=ID, state="running", created=NOW - 3600, started=NOW - 3600, idle_release_at=NOW + 250)
    assert your_job(job, NOW) == "your job k3f9 idle, stopped in 4m"
    assert how_long(job, NOW) == "1h idle, stopped in 4m"
    # (A reading comes up to half a minute later.)
    assert your_job(job, NOW + 260).endswith("stopped in 0s")


# The call


def test_only_a_job_can_be_watched(call: Call) -> None:
    refused = call("run", "--gpus", "none", "--idle-release", "1h", "--", "true").refused(2)
    assert "--detach" in refused
    words = ("run", "--demo=idle", "--dry-run", "--idle-release", "1h", "--", "true")
    assert "idle for 1h" in call(*words).err
    words = ("run", "--demo=idle", "--dry-run", "--idle-release", "20", "--", "true")
    assert "idle for 20s" in call(*words).err


@each_row("text", ["", "0", "-1", "nan", "soon", "400d"])
def test_what_is_no_time_is_a_wrong_call(call: Call, text: str) -> None:
    words = ("run", "--detach", "--gpus", "none", f"--idle-release={text}", "--", "true")
    assert "time" in call(*words).refused(2)


def test_the_launch_line_has_nothing_of_it() -> None:
    options = LaunchOptions(("python", "t.py"), idle_release="1h")
    plain = compose([gpu(0)], replace(options, idle_release=None), {})
    assert compose([gpu(0)], options, {}).line == plain.line
