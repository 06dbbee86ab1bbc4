"""A real Slurm of two simulated machines (packages slurmctld, slurmd, slurm-client), one per test run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "srun"))),
    reason="Slurm is not installed, or we are not root",
)

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n1 NodeAddr=127.0.0.1 Port={ports[1]} CPUs=16 Gres=gpu:h100:4
NodeName=n2 NodeAddr=127.0.0.1 Port={ports[2]} CPUs=16 Gres=gpu:a100:2,gpu:h100:2
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=big Nodes=n1 MaxTime=2:00:00 State=UP
"""
PATIENCE = 120.0


@dataclass(frozen=True)
class Slurm:
    """A cluster and the folder of its files."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a user who submits jobs."""
        return {
            "PATH": f"{self.folder}:/usr/local/bin:/usr/bin:/bin:/usr/sbin",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "CUDA_VISIBLE_DEVICES": "3",
            "PYTHONUTF8": "1",
        }

    def call(self, *words: str, cwd: Path | None = None) -> str:
        """The output of one of Slurm's programs."""
        done = subprocess.run(
            words, env=self.environ, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def idle(self) -> bool:
        """Whether both machines are idle."""
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"], env=self.environ, capture_output=True, text=True, check=False
        )
        return set(done.stdout.split()) == {"idle"}

    def run(self, script: str, cwd: Path) -> str:
        """The output of the script, which must end with success."""
        file = cwd / "job.sh"
        file.write_bytes(os.fsencode(script) + b"\n")
        job = self.call("sbatch", "--parsable", str(file), cwd=cwd).strip()
        until(lambda: "JobState=COMPLETED" in self._ended(job), lambda: self._output(cwd, job))
        return self._output(cwd, job)

    def _ended(self, job: str) -> str:
        told = self.call("scontrol", "show", "job", job)
        assert not any(f"JobState={state}" in told for state in ("FAILED", "CANCELLED", "NODE_FAIL")), told
        return told

    def _output(self, cwd: Path, job: str) -> str:
        return "".join(file.read_text() for file in cwd.rglob(f"*-{job}.out"))


def until(done: Any, why: Any) -> None:
    """Wait for the condition, with a deadline."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, why()
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def slurm(slurm_cluster: Slurm) -> Iterator[Slurm]:
    """The cluster, with nothing running; jobs that a test leaves are cancelled."""
    until(slurm_cluster.idle, lambda: slurm_cluster.call("squeue"))
    yield slurm_cluster
    slurm_cluster.call("scancel", "--quiet", "--user=root")


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A cluster of two machines with four GPUs each, which are device nodes that do nothing."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    try:
        for index in range(4):
            os.mknod(folder / f"nvidia{index}", 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("device nodes cannot be made here")
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, ports=_free_ports(3))
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(
        f"NodeName=n1 Name=gpu Type=h100 File={folder}/nvidia[0-3]\n"
        f"NodeName=n2 Name=gpu Type=a100 File={folder}/nvidia[0-1]\n"
        f"NodeName=n2 Name=gpu Type=h100 File={folder}/nvidia[2-3]\n"
    )
    made = Slurm(folder)
    started = []
    for words in (("slurmctld", "-D", "-c"), ("slurmd", "-D", "-N", "n1"), ("slurmd", "-D", "-N", "n2")):
        with (folder / f"{words[-1]}.log").open("wb") as log:
            started.append(subprocess.Popen(words, env=made.environ, stdout=log, stderr=log, cwd=folder))
    try:
        until(made.idle, lambda: "".join(file.read_text() for file in folder.glob("*.log")))
        yield made
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(PATIENCE)
