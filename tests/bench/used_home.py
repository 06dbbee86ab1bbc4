"""A home after a month of use, next to an empty one and to the peers: first frame, `pick`, `ls`.

All are measured in turn, so that a machine that is busy for a while slows all of them down.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import one_shot, screen
from bench.report import row, tool
from gputui.checking.kept_bandwidth import keep
from gputui.jobs.experiments import store
from gputui.jobs.experiments.record import Experiment, Row, Run
from gputui.jobs.experiments.request import ExperimentRequest
from gputui.jobs.record_folders import new_folder
from gputui.jobs.start import start_job
from gputui.jobs.wait import wait_for
from gputui.launching.history_file import remember
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.timeline import usage
from gputui.timeline.keeper import Keeper
from gputui.timeline.store import Store
from simnvml import SimulatedNvml

DAYS, JOBS_A_DAY = 30, 4
_DAY = 86_400.0
_EPOCHS = 2_000
"""Lines in the log of a job."""


def rows(driver: SimulatedNvml, box: str, times: int) -> Iterator[str]:
    """The medians: those of the used home, with those of the empty home in brackets."""
    with tempfile.TemporaryDirectory() as folder:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        plain["GPUTUI_CLAIMS"] = str(Path(folder, "claims"))
        empty, used = ({**plain, "HOME": str(Path(folder, name))} for name in ("empty", "used"))
        fill({**plain, "XDG_STATE_HOME": str(Path(folder, "used/.local/state"))}, box)
        ours = tool("gputui") or ""
        for what, words, peer, theirs in (
            ("first frame", (), "nvitop", ()),
            ("pick -n 2", ("pick", "-n", "2"), "nvisel", ("-n", "2")),
            ("ls --json", ("ls", "--json"), "gpustat", ("--json",)),
        ):
            found = tool(peer)
            calls = [([ours, *words], empty), ([ours, *words], used)]
            calls += [([found, *theirs], empty)] if found else []
            once = one_shot.seconds if words else _first_frame
            taken = in_turn(driver, once, calls, times)
            beside = f"{peer} {taken[2]:.0f} ms" if found else f"{peer} not installed"
            yield row(f"used for a month: {what} (empty home)", f"{taken[1]:.0f} ({taken[0]:.0f}) ms", beside)
        fill_usage(used)
        for by in usage.BY:
            argv = [ours, "usage", "--since", "366d", "--by", by]
            lowest = min(cpu_of(argv, used) for _ in range(times))
            yield row(f"usage of a year by {by}: CPU", f"{lowest * 1000:.0f} ms", "", "at most 150")


def cpu_of(argv: Sequence[str], environ: Mapping[str, str]) -> float:
    """The CPU seconds of a program from its start to its end."""
    child = subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, child.returncode, used = os.wait4(child.pid, 0)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime


def fill_usage(environ: Mapping[str, str]) -> None:
    """Fill a home with a year's usage of eight devices: twelve users, and five jobs a day on each device."""
    folder = usage.folder_of(Path(environ["HOME"], ".local/state/gputui"))
    folder.mkdir(mode=0o700)
    numbers, now = random.Random(1), time.time()
    for ago in range(366):
        labels = {f"GPU-{place:08x}-aaaa-bbbb-cccc-000000000000": str(place) for place in range(8)}
        day = usage.Day(now - ago * _DAY, now - ago * _DAY, _DAY, labels)
        for key in labels:
            day.counters[key] = [numbers.random() * 1e9, 0.0]
            for job in range(6):
                seconds = _DAY / 6 * numbers.random()
                used = usage.Figures(
                    seconds, seconds, 0.0, 300 * seconds, 90 * seconds, 1 << 34, 0.0, seconds
                )
                who = (f"user{numbers.randrange(12)}", f"{ago:03x}{key[11]}{job}") if job else ("", "")
                day.count(used, device=key, user=who[0], job=who[1])
        usage.file_of(folder, now - ago * _DAY).write_bytes(day.text())


def in_turn(
    driver: SimulatedNvml,
    once: Callable[..., float],
    calls: Sequence[tuple[Sequence[str], Mapping[str, str]]],
    times: int,
) -> list[float]:
    """The median milliseconds of each call; each round makes all calls one after the other."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(times):
        for (argv, environ), of_it in zip(calls, taken, strict=True):
            of_it.append(once(driver, argv, 1, environ) * 1000)
    return [statistics.median(of_it) for of_it in taken]


def _first_frame(driver: SimulatedNvml, argv: Sequence[str], times: int, environ: Mapping[str, str]) -> float:
    ours = Path(argv[0]).name == "gputui"
    seen = "○ free" if ours else "79.65GiB"
    return screen.first_picture(driver, argv, lambda terminal: seen in terminal.text, times, environ)


def fill(environ: Mapping[str, str], box: str) -> None:
    """Fill a home with a month's files: jobs with their logs, launches, comparisons, sweeps, the last hours'
    timelines, measured bandwidths. Jobs that have ended leave no claims."""
    now, numbers = time.time(), random.Random(1)
    begun = [now - _DAY * DAYS + place * _DAY / JOBS_A_DAY for place in range(DAYS * JOBS_A_DAY)]
    words = [("python", "train.py", "--lr", f"{numbers.random():.5f}") for _ in begun]
    _fill_jobs(environ, begun)
    for when, command in zip(begun, words, strict=True):
        remember(environ, LaunchOptions(command), 1, when)
    for when, command in zip(begun[::10], words[::10], strict=True):
        launch = LaunchRequest(LaunchOptions(command))
        runs = tuple(Run(number, None, "done", 0, wall=60.0) for number in (1, 2, 3))
        sizes = ("8", "16", "32")
        variants = tuple(Row((size,), size, command, runs, ("0",), " ".join(command)) for size in sizes)
        request = ExperimentRequest("comparison", launch, repeat=3)
        axes = (("batch", "batch"),)
        store.begin(Experiment(Path(), "done", when, request, axes, variants, ("0",)), environ)
        run = Run(1, None, "done", 0, started=when, ended=when + 60)
        tasks = tuple(Row((), str(number), command, (run,), ("0",)) for number in range(1, 21))
        store.begin(Experiment(Path(), "done", when, ExperimentRequest("sweep", launch), (), tasks), environ)
    devices = at(BOXES[box], 0.0, now).devices
    keep(environ, {(one.key, other.key): 200.0 for one in devices for other in devices if one is not other})
    _fill_timelines(environ, box, now)


def _fill_jobs(environ: Mapping[str, str], begun: Sequence[float]) -> None:
    """Jobs that began at these moments: copies of one job that was really started here."""
    log = f"import sys\nfor epoch in range({_EPOCHS}): print('epoch', epoch, 'loss', 1 / (1 + epoch))"
    job = wait_for(start_job(Launch((sys.executable, "-c", log)), environ), 60.0)
    assert job.state == "done", job
    for when in begun:
        copy = new_folder(job.folder.parent)
        shutil.copytree(job.folder, copy, dirs_exist_ok=True)
        for name, *moments in (("job.json", "created"), ("started.json", "started"), ("ended.json", "ended")):
            file = copy / name
            document = json.loads(file.read_text())
            file.write_text(json.dumps(document | dict.fromkeys(moments, when)))
            os.utime(file, (when, when))
    shutil.rmtree(job.folder)


def _fill_timelines(environ: Mapping[str, str], box: str, now: float) -> None:
    """The last twelve hours, a reading a minute, as a screen saves them."""
    keeper, store = Keeper(environ, lambda: now), Store()
    keeper.read()
    for minute in range(720, 0, -1):
        store.add(now - 60.0 * minute, at(BOXES[box], 60.0 * (720 - minute), now).devices, 60.0)
    for moment in (now - 720 * 60.0, now):
        keeper.keep(store, at(BOXES[box], 0.0, moment))
    keeper.join(60.0)
    keeper.close()
