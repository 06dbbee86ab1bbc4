"""Steps inside a lease and processes that keep a lease, with real shells, Python's subprocess and tmux."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.allocating.queue import waiters
from simnvml import SimulatedNvml
from table_tests import quick_first
from unit.claims_support import Box, box_at, lines, until

pytestmark = pytest.mark.e2e

HERE = " ".join(map(shlex.quote, GPUTUI))
SWEEP = """
import subprocess, sys
steps = [subprocess.Popen([*sys.argv[1:], "--", "sh", "-c", {used!r}]) for _ in range(3)]
sys.exit(sum(step.wait() for step in steps))
"""


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    with box_at(tmp_path, simulated_nvml) as made:
        yield made


def _run(box: Box, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTUI, *words],
        env={**box.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _never_two_at_once(log: Path, devices: set[str], steps: int) -> None:
    held: set[str] = set()
    for sign, device in lines(log):
        assert (device in held) == (sign == "-"), lines(log)
        held ^= {device}
    assert len(lines(log)) == 2 * steps and {device for _, device in lines(log)} <= devices


@pytest.mark.parametrize("how", quick_first(["bash", "subprocess"]))
def test_a_sweep_divides_the_devices_that_it_was_given(box: Box, how: str) -> None:
    """Python's subprocess closes the descriptors of the lease."""
    log = box.folder / "log"
    used = f"echo + $CUDA_VISIBLE_DEVICES >> {log}; sleep 0.05; echo - $CUDA_VISIBLE_DEVICES >> {log}"
    step = f"{HERE} run -q --wait -n 1"
    if how == "subprocess":
        command = [sys.executable, "-c", SWEEP.format(used=used), *shlex.split(step)]
    else:
        inner = f'(exec {step} -- sh -c "$0") & '
        command = ["bash", "-c", f"{inner * 3} for job in $(jobs -p); do wait $job || exit 1; done", used]
    done = _run(box, "run", "-q", "--gpus", "6,3", "--", *command)
    assert done.returncode == 0, done.stderr
    _never_two_at_once(log, {"3", "6"}, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["\r", ":return\r"], ids=["enter", "return"])
def test_the_screen_starts_a_step_without_a_question(box: Box, start: Start, key: str) -> None:
    """Meanwhile a launch outside waits for eight devices, and another step uses one of the lease's."""
    box.make_folder()
    box.start("run", "-q", "--wait", "-n", "8", "--", "true")
    until(lambda: waiters(box.environ))
    shown = "exec " + shlex.join([*GPUTUI, "--", "sh", "-c", "echo on-$CUDA_VISIBLE_DEVICES"])
    first = f"({HERE} run -q -n 1 -- sleep 99 &); until {HERE} claims | grep -q step; do :; done; {shown}"
    terminal = start(
        argv=[*GPUTUI, "run", "-q", "--force", "--gpus", "2,5", "--", "sh", "-c", first],
        environment={**box.environ, "TERM": "xterm-256color"},
    )
    terminal.until("○ free")
    terminal.send("b")
    terminal.until("cuda:0 = GPU 5")
    terminal.send(key)
    terminal.until("on-5")
    if key != "\r":
        terminal.until("press Enter to return to gputui")
        terminal.send("\r")
        terminal.until("─ launch")
        terminal.send("q")
    assert terminal.end() == 0
    # Closing the terminal ends the other step, too.
    until(lambda: box.claimed() == [])


# what keeps a lease


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_tmux_server_that_keeps_a_lease_is_named(box: Box) -> None:
    socket = ["tmux", "-S", str(box.folder / "socket"), "-f", os.devnull]
    server = shlex.join([*socket, "new-session", "-d", "sleep 99"])
    try:
        assert _run(box, "run", "-q", "-n", "1", "--", "sh", "-c", server).returncode == 0
        pid = subprocess.run(
            [*socket, "display-message", "-p", "#{pid}"], env=box.environ, capture_output=True, check=True
        ).stdout
        (claim,) = json.loads(_run(box, "claims", "--json").stdout)["claims"]
        assert claim["kept_by"] == [{"pid": int(pid), "name": "tmux: server"}]
        assert f"kept by tmux: server {int(pid)}" in _run(box, "claims").stdout
        refused = _run(box, "run", "--gpus", "0", "--", "true")
        assert refused.returncode == 4 and "gputui claims" in refused.stderr
        # Its panes are still inside: the server has started them, and was started in the lease.
        inside = box.folder / "inside"
        script = f"echo $CUDA_VISIBLE_DEVICES > {inside}.new; mv {inside}.new {inside}"
        step = f"{HERE} run -q -n 1 -- sh -c {shlex.quote(script)}"
        subprocess.run([*socket, "new-window", step], env=box.environ, check=True)
        until(inside.exists)
        assert inside.read_text() == "0\n"
    finally:
        subprocess.run([*socket, "kill-server"], env=box.environ, capture_output=True, check=False)
    until(lambda: box.claimed() == [])


def test_a_command_that_runs_is_kept_by_nobody_else(box: Box) -> None:
    job = box.start("run", "-q", "-n", "1", "--", "sh", "-c", "sleep 99 & echo begun; wait")
    until(lambda: job.out)
    (claim,) = json.loads(_run(box, "claims", "--json").stdout)["claims"]
    assert claim["pid"] == job.pid and claim["kept_by"] is None
    job.kill()
    (claim,) = json.loads(_run(box, "claims", "--json").stdout)["claims"]
    (kept,) = claim["kept_by"]
    assert kept["name"] == "sleep"
    os.kill(kept["pid"], signal.SIGKILL)
    until(lambda: box.claimed() == [])
