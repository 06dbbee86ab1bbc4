"""`docker run`, parsed and compared with the parser of the real docker client."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.launching.container_command import ALL, RUN, GpuRequest, read_container, read_gpus
from gputui.vendors.nvidia.vendor import VENDOR
from table_tests import each_row
from unit.builders import gpu
from unit.docker_daemon import Daemon, daemon

needs_docker = pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
BOX = tuple(gpu(index) for index in range(4))


@each_row(
    ("line", "head", "image", "command"),
    [
        ("docker run i", "docker run", "i", ""),
        ("docker run --rm -it i x -y", "docker run", "i", "x -y"),
        ("/usr/bin/docker container run -v /a:/b i x", "/usr/bin/docker container run", "i", "x"),
        ("docker --context far -H tcp://x:1 run i x", "docker --context far -H tcp://x:1 run", "i", "x"),
        ("docker -D --tls run i x", "docker -D --tls run", "i", "x"),
        ("docker run --rm=false -itv/a:/b -p 80 -P i run", "docker run", "i", "run"),
        ("docker run --entrypoint torchrun i t.py", "docker run", "i", "torchrun t.py"),
        ("docker run -- i x", "docker run", "i", "x"),
        ("podman --remote run --tls-verify --userns keep-id i x", "podman --remote run", "i", "x"),
        ("nerdctl --namespace k8s.io run -d i x", "nerdctl --namespace k8s.io run", "i", "x"),
    ],
)
def test_a_run_is_taken_apart_and_put_together(line: str, head: str, image: str, command: str) -> None:
    found = read_container(line.split())
    assert found is not None
    assert (" ".join(found.head), found.image, " ".join(found.command)) == (head, image, command)
    assert found.words == tuple(line.split())
    assert found.with_command(found.command) == found
    other = found.with_command(("a", "b"))
    assert other.command == ("a", "b") and other.image == image


@each_row(
    "line",
    [
        "docker",
        "docker run",
        "docker run -it",
        "docker compose up",
        "docker ps",
        "docker exec c x",
        "python x",
        "docker --version",
        "podman --noout ps",
        "docker container ls",
        "",
    ],
)
def test_what_runs_no_container_is_none(line: str) -> None:
    assert read_container(line.split()) is None


ASKED = [
    ("--gpus all", GpuRequest(ALL)),
    ("--gpus=2", GpuRequest(2)),
    ("--gpus 'device=3'", GpuRequest(None, ("3",))),
    ("--gpus '\"device=2,0\"'", GpuRequest(None, ("2", "0"))),
    # docker refuses this; the inner quotes are missing.
    ("--gpus device=2,0", GpuRequest(None, ("2", "0"))),
    ("--gpus all,capabilities=utility", GpuRequest(ALL)),
    ("--gpus all -e NVIDIA_VISIBLE_DEVICES=3", GpuRequest(None, ("3",))),
    ("--gpus all -e NVIDIA_VISIBLE_DEVICES=all", GpuRequest(ALL)),
    ("--gpus 2 -e NVIDIA_VISIBLE_DEVICES=3", GpuRequest(2)),
    ("--gpus all -e CUDA_VISIBLE_DEVICES=2,0", GpuRequest(None, ("2", "0"), ordered=True)),
    ("-e CUDA_VISIBLE_DEVICES=2,0", GpuRequest(None, ("2", "0"), ordered=True)),
    ("--gpus '\"device=3,1\"' -e CUDA_VISIBLE_DEVICES=1,0", GpuRequest(None, ("3", "1"), ordered=True)),
    ("--gpus '\"device=3,1\"' -e CUDA_VISIBLE_DEVICES=0", GpuRequest(None, ("1",), ordered=True)),
    ("--gpus 3 -e CUDA_VISIBLE_DEVICES=1,0", GpuRequest(2)),
    ("--gpus all -e CUDA_VISIBLE_DEVICES=GPU-a", GpuRequest(None, ("GPU-a",), ordered=True)),
    ("--gpus all -e CUDA_VISIBLE_DEVICES=", GpuRequest(None, (), ordered=True)),
    ("--gpus all -e CUDA_VISIBLE_DEVICES", GpuRequest(ALL)),
    ("--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all", GpuRequest(ALL)),
    ("-e NVIDIA_VISIBLE_DEVICES=0,1", GpuRequest(None, ("0", "1"))),
    ("-e NVIDIA_VISIBLE_DEVICES=none", None),
    ("--device nvidia.com/gpu=0 --device=nvidia.com/gpu=1", GpuRequest(None, ("0", "1"))),
    ("--device nvidia.com/gpu=all", GpuRequest(ALL)),
    ("--device /dev/fuse -e A=1", None),
]


@each_row(("options", "expected"), ASKED)
def test_the_devices_that_a_command_asks_for(options: str, expected: GpuRequest | None) -> None:
    for engine in ("docker", "podman", "nerdctl"):
        found = read_container((engine, "run", *shlex.split(options), "image", "--gpus", "9"))
        assert found is not None and found.asked(VENDOR) == expected


# The real client.


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that records the requests of the real docker."""
    with daemon(tmp_path_factory.mktemp("docker")) as made:
        yield made


@needs_docker
def test_every_flag_of_the_real_client_is_one_here_and_nothing_else_is() -> None:
    told = subprocess.run(["docker", "run", "--help"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ {2}(?:-(\w), | {4})--([a-z0-9-]+)(?: (\S+))?(?: {2,}|$)", told, re.MULTILINE)
    assert len(rows) > 90
    for letter, name, value in rows:
        assert RUN.value_count(RUN.long_name(name), ("x",)) == bool(value), name
        if letter:
            assert RUN.value_count(RUN.letter(letter), ("x",)) == bool(value), letter


@needs_docker
@pytest.mark.parametrize(
    "value",
    [
        "all",
        "2",
        "count=2",
        "device=0",
        '"device=0,1"',
        '"device=GPU-u2,GPU-u0",capabilities=utility',
        '"device=1,0","capabilities=compute,utility"',
        "capabilities=utility",
        "count=all",
        "-1",
    ],
)
def test_the_real_client_reads_the_same_devices(docker: Daemon, value: str) -> None:
    asked = docker.run(f"docker run -it --gpus={shlex.quote(value)} image".encode())
    request = asked["HostConfig"]["DeviceRequests"][0]
    found = read_gpus(value)
    assert list(found.names) == (request["DeviceIDs"] or [])
    if not found.names:
        assert found.count == request["Count"]


OPTIONS = st.sampled_from(
    [
        "--rm",
        "-it",
        "-v /a:/b",
        "-e A=1",
        "-eB=2",
        "--env=C=3",
        "--shm-size 8g",
        "--ulimit memlock=-1",
        "--name n",
        "-p 80:80",
        "-itw /x",
        "--init",
        "--network host",
        "--cap-add SYS_PTRACE",
        "-u 1:1",
        "--hostname=h",
        "--read-only",
        "-l a=b",
        "--gpus all",
        "--entrypoint run",
        "-h run",
    ]
)


@pytest.mark.thorough
@needs_docker
@given(st.lists(OPTIONS, max_size=5, unique=True))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_real_client_finds_the_same_image_and_command(docker: Daemon, options: list[str]) -> None:
    line = " ".join(["docker run -it", *options, "image x --gpus y"])
    found = read_container(line.split())
    asked = docker.run(line.encode())
    assert found is not None
    assert (found.image, list(found.command)) == (
        asked["Image"],
        [*(asked["Entrypoint"] or []), *asked["Cmd"]],
    )
    assert sorted(found.environment.items()) == sorted(
        tuple(entry.split("=", 1)) for entry in asked["Env"] or []
    )
