"""The ray form, `ray start` with a launch's devices, and the counts of a real Ray (package ray[default])."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.slurm_cluster import until
from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportOptions
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Task
from simnvml import SimulatedNvml
from unit.builders import gpu

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("ray", path=PATH) is None, reason="ray is not installed"),
]

TELL = "import os, sys; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('VALUE'), sys.argv[1:])"
PATIENCE = 90.0


class Head:
    """A Ray for one test: the command that starts it, and the environment of its clients."""

    def __init__(self, name: str) -> None:
        # The paths of its sockets are long, and must not exceed 107 bytes.
        self.folder = Path("/tmp") / f"ray-{os.getpid()}-{name}"
        ports = []
        for _ in range(4):
            with socket.create_server(("127.0.0.1", 0)) as made:
                ports.append(made.getsockname()[1])
        self.command = (
            *("ray", "start", "--head", "--block", f"--port={ports[0]}", f"--dashboard-port={ports[1]}"),
            *("--num-cpus=2", "--disable-usage-stats", f"--temp-dir={self.folder}", "--min-worker-port=0"),
            # (Their defaults are fixed: of two Rays on one machine, one could take no jobs.)
            *("--max-worker-port=0", f"--dashboard-agent-listen-port={ports[2]}"),
            f"--metrics-export-port={ports[3]}",
        )
        self.address = {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{ports[1]}"}

    def takes_jobs(self) -> bool:
        """Whether a job can be submitted: the agent that starts jobs is ready later than the head."""
        environ = {**os.environ, "PATH": PATH, **self.address}
        words = ("ray", "job", "submit", "--", "true")
        return not subprocess.run(
            words, env=environ, capture_output=True, timeout=PATIENCE, check=False
        ).returncode

    @contextlib.contextmanager
    def started(self, argv: Sequence[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        """Start it with this command and wait until it is ready; end it at the end."""
        running = subprocess.Popen(
            argv, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert running.stdout is not None
        try:
            for line in running.stdout:
                if "block forever" in line:
                    break
            assert running.poll() is None
            yield running
        finally:
            running.terminate()
            try:
                running.wait(PATIENCE)
            finally:
                if running.returncode is None:
                    os.killpg(running.pid, signal.SIGKILL)
            running.stdout.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def answer(environ: dict[str, str], *words: str) -> Any:
    """The answer of gputui, as JSON."""
    argv = [sys.executable, "-m", "gputui", *words, "--json"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ray() -> Iterator[dict[str, str]]:
    """A Ray of four devices that do not exist, started by a launch; the environment of its clients."""
    head = Head("four")
    launch = compose([gpu(5), gpu(4), gpu(1), gpu(0)], LaunchOptions(head.command), {})
    with head.started(launch.argv, launch.environment({**os.environ, "PATH": PATH})):
        until(head.takes_jobs, lambda: "Ray takes no jobs")
        yield {**os.environ, "PATH": PATH, **head.address}


def test_a_job_gets_as_many_of_the_devices_that_ray_was_started_on(
    ray: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    words = ("a b", "it's", "$HOME", "x\ny", ";ls", "--help")
    options = LaunchOptions(("python3", "tell.py", *words), additions=(("VALUE", "a'b $c"),))
    line = FORMS["ray"].write(compose((gpu(3), gpu(2), gpu(1)), options, {}), ExportOptions())
    done = subprocess.run(
        ["sh", "-c", line],
        env=ray,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [out for out in done.stdout.splitlines() if out.endswith(f"a'b $c {[*words]}")]
    assert len(told) == 1, done.stdout
    devices = told[0].split(" ", 1)[0].split(",")
    assert len(set(devices)) == 3 and set(devices) <= {"5", "4", "1", "0"}


def test_what_it_has_given_out_is_counted_beside_the_devices(
    ray: dict[str, str], tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    """The devices that Ray has assigned are counted, and the process of a Ray job is known as Ray's."""
    simulated_nvml.show_box(replace(BOXES["dgx-h100"], tasks=()))
    environ = simulated_nvml.environment({**ray, "GPUTUI_CLAIMS": str(tmp_path / "claims")})
    end, began = tmp_path / "end", tmp_path / "began"
    script = f"echo $$ > {began}.part; mv {began}.part {began}; while [ ! -e {end} ]; do sleep 0.05; done"
    words = ("ray", "job", "submit", "--no-wait", "--entrypoint-num-gpus=3", "--", "sh", "-c", script)
    done = subprocess.run(words, env=ray, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {}

    def given() -> bool:
        found.update(answer(environ, "ls", "--ray")["ray"]["here"] or {})
        return bool(found.get("given"))

    try:
        until(began.exists, lambda: "the job has not begun")
        job = int(began.read_text())
        task = Task(devices=("2",), user="ana", command="sh", pid=job, memory=9000, load=50)
        simulated_nvml.show_box(replace(BOXES["dgx-h100"], tasks=(task,)))
        # Ray's own sums are some seconds old.
        until(given, lambda: found)
    finally:
        end.touch()
    assert (found["counted"], found["given"], found["devices"], found["by_ray"]) == (4, 3, 8, 1)
    assert [each["kind"] for each in found["differences"]] == ["idle"]


def test_ray_started_by_run_counts_what_was_claimed_until_it_ends(
    tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(replace(BOXES["dgx-h100"], tasks=()))
    head = Head("run")
    around = {**os.environ, "PATH": PATH, **head.address, "GPUTUI_CLAIMS": str(tmp_path / "claims")}
    environ = simulated_nvml.environment(around)
    run = [sys.executable, "-m", "gputui", "run", "-q", "-n", "4", "--", *head.command]
    found: dict[str, Any] = {}

    def counted() -> bool:
        found.update(answer(environ, "ls", "--ray")["ray"]["here"] or {})
        return bool(found)

    with head.started(run, environ) as running:
        until(counted, lambda: found)
        claims = answer(environ, "claims")["claims"]
        assert found["counted"] == len(claims) == 4
        assert {each["pid"] for each in claims} == {running.pid}
        # Where it finds a driver, Ray counts GPUs by itself, too: it must not have counted those of the box.
        assert found["devices"] == 8
        running.terminate()
        # The status is Ray's own: it is not negative, since Ray shut its node down and no signal ended it.
        assert running.wait(PATIENCE) >= 0
    assert answer(environ, "claims")["claims"] == []
