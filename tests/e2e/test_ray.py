"""The ray form, `ray start` with the devices of a launch, what a real Ray counts (package ray[default])."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.slurm_cluster import until
from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportOptions
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import DGX_H100
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


@pytest.fixture(scope="module")
def ray() -> Iterator[dict[str, str]]:
    """A Ray of four devices that are none, started by a launch; the environment of who submits to it."""
    # (Its sockets' paths are long, and must not be longer than 107 bytes.)
    folder = Path("/tmp") / f"ray-{os.getpid()}"
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as made:
            ports.append(made.getsockname()[1])
    command = (
        *("ray", "start", "--head", "--block", f"--port={ports[0]}", f"--dashboard-port={ports[1]}"),
        *("--num-cpus=2", "--disable-usage-stats", f"--temp-dir={folder}", "--min-worker-port=0"),
        *("--max-worker-port=0",),
    )
    launch = compose([gpu(5), gpu(4), gpu(1), gpu(0)], LaunchOptions(command), {})
    started = subprocess.Popen(
        launch.argv,
        env=launch.environment({**os.environ, "PATH": PATH}),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    try:
        for line in started.stdout:
            if "block forever" in line:
                break
        assert started.poll() is None
        yield {**os.environ, "PATH": PATH, "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{ports[1]}"}
    finally:
        started.terminate()
        try:
            started.wait(PATIENCE)
        finally:
            if started.returncode is None:
                os.killpg(started.pid, signal.SIGKILL)
        started.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


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
    """And what a job of Ray's has started is known as Ray's on its device."""
    simulated_nvml.show_box(replace(DGX_H100, tasks=()))
    environ = simulated_nvml.environment({**ray, "GPUTUI_CLAIMS": str(tmp_path / "claims")})
    end, began = tmp_path / "end", tmp_path / "began"
    script = f"echo $$ > {began}.part; mv {began}.part {began}; while [ ! -e {end} ]; do sleep 0.05; done"
    words = ("ray", "job", "submit", "--no-wait", "--entrypoint-num-gpus=3", "--", "sh", "-c", script)
    subprocess.run(words, env=ray, check=True, capture_output=True, timeout=PATIENCE)
    found = {}

    def given() -> bool:
        done = subprocess.run(
            [sys.executable, "-m", "gputui", "ls", "--ray", "--json"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.update(json.loads(done.stdout)["ray"]["here"])
        return bool(found["given"])

    try:
        until(began.exists, lambda: "the job has not begun")
        job = int(began.read_text())
        task = Task(devices=("2",), user="ana", command="sh", pid=job, memory=9000, load=50)
        simulated_nvml.show_box(replace(DGX_H100, tasks=(task,)))
        # (Ray's own sums are some seconds old.)
        until(given, lambda: found)
    finally:
        end.touch()
    assert (found["counted"], found["given"], found["devices"], found["by_ray"]) == (4, 3, 8, 1)
    assert [each["kind"] for each in found["differences"]] == ["idle"]
