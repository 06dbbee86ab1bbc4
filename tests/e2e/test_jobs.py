"""Jobs of the real program: they outlive the terminal, and the real torchrun is stopped with its workers."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.inventory.process import Identity
from gputui.jobs.process_tree import alive, identity
from gputui.jobs.store import all_jobs
from unit.jobs_support import Desk, command, desk_at, ended, says, until

pytestmark = pytest.mark.e2e

GPUTUI_LINE = " ".join(GPUTUI)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def test_a_job_outlives_the_terminal_that_it_was_started_in(desk: Desk, start: Start) -> None:
    gate = desk.gate()
    # A shell as under ssh: it hangs its jobs up when the connection is lost.
    script = f"sh -c '{gate.wait}; echo went on; exit 6'"
    terminal = start(
        "-i", "-c", f"{GPUTUI_LINE} run --demo dgx-1 --detach -- {script}; cat",
        argv=("/bin/bash", "--norc"),
        environment=desk.environ,
        size=(200, 24),
    )  # fmt: skip
    terminal.until(lambda seen: re.search(r"^\w\d\w\d$", seen.text, re.MULTILINE))
    (job,) = all_jobs(desk.environ)
    shell = identity(terminal.pid)
    terminal.hang_up()
    until(lambda: not alive(shell))
    assert alive(command(job))
    gate.open()
    job = ended(job)
    assert (job.state, job.status, job.log.read_text()) == ("failed", 6, "went on\n")


def test_a_job_has_no_terminal_that_could_reach_it(desk: Desk, start: Start) -> None:
    script = "(: < /dev/tty) 2>/dev/null && echo terminal || echo none"
    terminal = start("run", "--demo", "dgx-1", "--detach", "--", "sh", "-c", script, environment=desk.environ)
    assert terminal.end() == 0
    assert ended(all_jobs(desk.environ)[0]).log.read_text() == "none\n"


def test_a_hostile_log_is_followed_in_a_terminal_without_harm(desk: Desk, start: Start) -> None:
    bar = r" 10%%|#  |\r\033]0;owned\007\033[31m100%%\033[0m|###|\n"
    harm = r"\033[6n\033[?1049h\033]52;c;eA==\007\033[9A"
    job = desk.sh(rf"printf 'start\n{bar}{harm}'; exec sleep 100")
    terminal = start("jobs", "log", "-f", job.id, environment=desk.environ)
    terminal.until("100%|###|")
    # The output that is still unread is there when the command has ended.
    os.kill(command(job).pid, signal.SIGKILL)
    assert terminal.end() == 0
    assert terminal.lines[:2] == ["start", "100%|###|"]
    for sequence in (b"\x1b]", b"\x07", b"[6n", b"1049", b"\x1b[9A"):
        assert sequence not in terminal.raw
    assert b"\x1b[31m" in terminal.raw and terminal.raw.rstrip().endswith(b"\x1b[0m")


WORKER = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("worker", os.getpid(), os.getpgid(0), flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun_is_stopped_with_every_worker(desk: Desk, start: Start) -> None:
    (desk.folder / "train.py").write_text(WORKER)
    environment = {
        **desk.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    words = ("run", "--demo", "idle", "-n", "2", "--launcher", "torchrun", "--detach", "--", "train.py")
    terminal = start(*words, environment=environment, cwd=desk.folder)
    assert terminal.end() == 0, terminal.text
    (job,) = all_jobs(desk.environ)
    until(lambda: job.log.read_text().count("worker") == 2)
    found = re.findall(r"worker (\d+) (\d+)", job.log.read_text())
    workers: list[Identity] = [identity(int(pid)) for pid, _ in found]
    assert str(command(job).pid) not in {group for _, group in found}, "no signal to the group reaches them"
    stopping = start("jobs", "stop", "--grace", "0.5", job.id, environment=desk.environ, size=(200, 24))
    stopping.until("SIGTERM, and SIGKILL for ")
    assert stopping.end() == 0
    assert not any(map(alive, workers)) and ended(job).state == "stopped"


def test_the_log_is_live_for_a_python_that_knows_nothing_of_it(desk: Desk, start: Start) -> None:
    gate = desk.gate()
    (desk.folder / "train.py").write_text("print('step 1')\nopen('gate1').read()\n")
    environment = {key: value for key, value in desk.environ.items() if key != "PYTHONUNBUFFERED"}
    words = ("run", "--demo", "idle", "-n", "1", "--detach", "--", sys.executable, "train.py")
    assert start(*words, environment=environment, cwd=desk.folder).end() == 0
    says(all_jobs(desk.environ)[0], "step 1")
    gate.open()
