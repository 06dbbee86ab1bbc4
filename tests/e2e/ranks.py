"""Launches that are really started, and the report of each of their processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NAMES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_CPU", "SHOWN"),
    *("FSDP_VERSION", "FSDP_AUTO_WRAP_POLICY"),
)

WRITE = f"""
import json, os, sys
rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
seen = {{"argv": sys.argv[1:]}} | {{name: os.environ.get(name) for name in {NAMES!r}}}
def write(**more):
    with open(f"rank{{rank}}.json", "w") as file:
        json.dump(seen | more, file)
"""

PLAIN = f"{WRITE}\nwrite()\n"
"""A script that writes down its arguments and environment."""

TRAINS = f"""{WRITE}
import torch, torch.distributed as group
group.init_process_group("gloo")
total = torch.tensor([group.get_rank() + 1.0])
group.all_reduce(total)
print("this is rank", rank, flush=True)
write(total=total.item(), size=group.get_world_size())
group.destroy_process_group()
"""
"""A script that meets the other ranks over gloo and adds up their values."""

TIMEOUT = 100


def need(module: str) -> None:
    """Skip the test where a package of the extra `launchers` is not installed."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


@dataclass(frozen=True)
class Ended:
    """The result of a launch."""

    status: int
    out: str
    err: str
    ranks: list[dict[str, Any]]

    @property
    def line(self) -> str:
        """The launch line that gputui printed."""
        return next(
            text.removeprefix("gputui: ")
            for text in self.err.splitlines()
            if text.startswith("gputui: ") and " train" in text and ": warning" not in text
        )

    def every(self, name: str) -> list[Any]:
        """The values that the ranks report for one name, each value once."""
        answers = {json.dumps(rank.get(name)) for rank in self.ranks}
        return [json.loads(answer) for answer in sorted(answers)]


def ranks_of(line: str, folder: Path, **variables: str) -> list[dict[str, Any]]:
    """Run a launch line in this folder; return the report of each rank, from its `rank*.json`."""
    done = subprocess.run(
        ["bash", "-c", line],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HF_HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            **variables,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return said_in(folder)


def said_in(folder: Path) -> list[dict[str, Any]]:
    """The reports that the ranks have written there."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("rank*.json"))]


@dataclass(frozen=True)
class Workplace:
    """A directory with `train.py` in it, and the environment of a person who works there."""

    folder: Path
    environment: Mapping[str, str]

    def begin(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start `gputui run` with these words."""
        return subprocess.Popen(
            [sys.executable, "-m", "gputui", "run", *words],
            env={**self.environment, **environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, started: subprocess.Popen[str]) -> Ended:
        """Wait until it has ended."""
        try:
            out, err = started.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            started.terminate()
            out, err = started.communicate()
            raise AssertionError(f"it did not end\n{out}\n{err}") from None
        return Ended(started.returncode, out, err, said_in(self.folder))

    def run(self, *words: str, **environment: str) -> Ended:
        """Run `gputui run` with these words, which must succeed."""
        done = self.ended(self.begin(*words, **environment))
        assert done.status == 0, done.err
        return done

    def trains(self) -> None:
        """Let the script meet the other ranks."""
        (self.folder / "train.py").write_text(TRAINS)

    def configure(self, text: str) -> None:
        """Write the user's own configuration of accelerate."""
        file = Path(self.environment["HOME"], ".cache/huggingface/accelerate/default_config.yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def workplace(folder: Path) -> Workplace:
    """A directory with the plain script, and no variable of the test run in the environment."""
    for name in ("work", "home"):
        (folder / name).mkdir()
    (folder / "work" / "train.py").write_text(PLAIN)
    environment = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin")),
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        # deepspeed counts the devices of a torch without CUDA with this variable.
        "DS_ACCELERATOR": "cpu",
        "LOCAL_SIZE": "8",
        # mpirun: a container with one processor, and root, are enough.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    return Workplace(folder / "work", environment)


@contextmanager
def port_taken(port: int = 29500) -> Iterator[None]:
    """Another program listens on the default port of the launchers."""
    with socket.socket() as other:
        try:
            other.bind(("", port))
            other.listen()
        except OSError:
            pass  # Another program listens already.
        yield


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


STAND_IN = """#!/bin/sh
# Starts the command as often as -np says, with the rank that Open MPI would give it.
[ "$1" = -np ] || exit 2
count=$2
shift 2
rank=0
while [ $rank -lt $count ]; do
    OMPI_COMM_WORLD_RANK=$rank "$@" || exit
    rank=$((rank + 1))
done
"""


def with_mpirun(place: Workplace) -> Workplace:
    """The workplace with the real mpirun where it is installed, else with a stand-in for it."""
    if shutil.which("mpirun", path=place.environment["PATH"]):
        return place
    folder = place.folder.parent / "bin"
    folder.mkdir()
    (folder / "mpirun").write_text(STAND_IN)
    (folder / "mpirun").chmod(0o755)
    path = f"{folder}{os.pathsep}{place.environment['PATH']}"
    return Workplace(place.folder, {**place.environment, "PATH": path})
