"""Commands that ask for devices of their own: those are not claimed, so nothing is started on them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.inventory.device import Device
from gputui.jobs.store import all_jobs
from gputui.launching.compose import compose, own_devices
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers.deepspeed import HOSTFILE
from gputui.launching.shell_words import assignments
from unit.builders import gpu
from unit.claims_support import Box
from unit.host_environments import Told

ASKING = {
    # The command line, and the option of gputui that asks for the same.
    "deepspeed --num_gpus 2 t.py": "-n 2",
    "deepspeed --include localhost:0,1 t.py": "--gpus 0,1",
    "deepspeed --include=localhost:1 t.py": "--gpus 1",
    "deepspeed --exclude localhost:4 t.py": None,
    "deepspeed --num_nodes 2 t.py": None,
    "accelerate launch --gpu_ids 0,1 t.py": "--gpus 0,1",
    "accelerate launch --gpu-ids=1 t.py": "--gpus 1",
    "env CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "uv run env CUDA_VISIBLE_DEVICES=1 torchrun t.py": "--gpus 1",
    "sudo CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "env CUDA_VISIBLE_DEVICES= python t.py": "--gpus none",
    "env -u CUDA_VISIBLE_DEVICES python t.py": None,
    "env CUDA_DEVICE_ORDER=FASTEST_FIRST python t.py": None,
    "CUDA_VISIBLE_DEVICES=2,0 torchrun t.py": "--gpus 2,0",
    "CUDA_VISIBLE_DEVICES= python t.py": "--gpus none",
    "CUDA_VISIBLE_DEVICES=GPU-12345678 python t.py": "--gpus GPU-12345678",
    "mpirun -np 1 -x CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "bash -c 'CUDA_VISIBLE_DEVICES=1 python t.py'": "--gpus 1",
    """bash -c 'export CUDA_VISIBLE_DEVICES="0,1"; python t.py'""": "--gpus 0,1",
    "bash -euo pipefail -c '(CUDA_VISIBLE_DEVICES=1)>log; CUDA_VISIBLE_DEVICES=4 python t.py'": "--gpus 1",
    "make CUDA_VISIBLE_DEVICES=1 train": "--gpus 1",
    "systemd-run --user --scope -E CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "systemd-run --scope --setenv=CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    # Behind a launcher.
    "mpirun -np 1 env CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "mpirun -np 1 bash -c 'CUDA_VISIBLE_DEVICES=1 python t.py'": "--gpus 1",
    "mpirun -np 1 a : -np 1 -x CUDA_VISIBLE_DEVICES=1 b": "--gpus 1",
    "mpirun -np 1 a : -np 1 env CUDA_VISIBLE_DEVICES=1 b": "--gpus 1",
    "torchrun --no-python env CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "torchrun --no-python bash -c 'CUDA_VISIBLE_DEVICES=1 python t.py'": "--gpus 1",
    # No option of gputui names a device twice.
    "env CUDA_VISIBLE_DEVICES=0,0 python t.py": None,
}

NOT_ASKING = [
    "python t.py",
    "torchrun --nproc-per-node 2 t.py",
    "deepspeed t.py",
    "deepspeed --num_gpus 1 t.py",
    "accelerate launch t.py",
    "accelerate launch --gpu_ids all t.py",
    "mpirun -np 1 -x CUDA_VISIBLE_DEVICES python t.py",
    "CUDA_DEVICE_ORDER=FASTEST_FIRST python t.py",
    "env NCCL_DEBUG=INFO python t.py",
    # The script's own words, a shell's variable, a container's own numbers.
    "python t.py CUDA_VISIBLE_DEVICES=3",
    "bash -c 'CUDA_VISIBLE_DEVICES=$1 python t.py'",
    """bash -c 'CUDA_VISIBLE_DEVICES="$GPUS" python t.py'""",
    "bash -c 'CUDA_VISIBLE_DEVICES=1$X python t.py'",
    "bash -c 'CUDA_VISIBLE_DEVICES=1,$X python t.py'",
    """bash -c 'CUDA_VISIBLE_DEVICES=1"$X" python t.py'""",
    "docker run -e CUDA_VISIBLE_DEVICES=0 image python t.py",
    # The CPU, for a part of the work.
    "bash -c 'CUDA_VISIBLE_DEVICES=-1 python prepare.py && python t.py'",
    "bash -c 'CUDA_VISIBLE_DEVICES= python prepare.py && python t.py'",
    # Words that only look like it.
    "./t.sh --note CUDA_VISIBLE_DEVICES=1",
    "grep -r CUDA_VISIBLE_DEVICES=1 .",
    "bash train.sh CUDA_VISIBLE_DEVICES=1",
    "bash -c 'X-CUDA_VISIBLE_DEVICES=1 y'",
    # The last one counts.
    "env CUDA_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=4 python t.py",
    "env -u CUDA_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES=4 python t.py",
]


def launch_options(line: str) -> LaunchOptions:
    additions, command = assignments(shlex.split(line))
    return LaunchOptions(command, additions=additions)


@pytest.mark.parametrize("line", ASKING)
def test_a_command_that_asks_for_devices_is_known_whichever_it_is_to_run_on(line: str) -> None:
    own = own_devices(launch_options(line), 1, {})
    assert own is not None and own.option == ASKING[line]
    assert own.words in line.replace("--gpu_ids ", "--gpu_ids=").replace("--gpu-ids", "--gpu_ids")
    launch = compose([gpu(4)], launch_options(line), {})
    assert launch.own is not None and launch.own.warning in launch.warnings
    # What is said instead asks for nothing that the line would not have had.
    assert (own.option or "leave it out") in own.refusal and "--force" in own.refusal


@pytest.mark.parametrize("line", NOT_ASKING)
def test_one_that_leaves_it_to_us_is_not_refused(line: str) -> None:
    if "=4" not in line:
        assert own_devices(launch_options(line), 1, {}) is None
    assert compose([gpu(4)], launch_options(line), {}).own is None


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("deepspeed --num_gpus 2 t.py", (4, 5)),
        ("deepspeed --include localhost:4,5 t.py", (4, 5)),
        ("deepspeed --include localhost:5,4 t.py", (4, 5)),
        ("accelerate launch --gpu_ids 4,5 t.py", (4, 5)),
        ("accelerate launch --gpu_ids 5,4 t.py", (4, 5)),
        ("env CUDA_VISIBLE_DEVICES=4,5 python t.py", (4, 5)),
        (f"env CUDA_VISIBLE_DEVICES={gpu(4).uuid},{gpu(5).uuid[:12]} python t.py", (4, 5)),
        ("CUDA_VISIBLE_DEVICES=5,4 deepspeed t.py", (4, 5)),
        ("CUDA_VISIBLE_DEVICES=4,5 deepspeed t.py", (4, 5)),
        ("CUDA_VISIBLE_DEVICES= python t.py", ()),
        ("bash -c 'CUDA_VISIBLE_DEVICES=04 python t.py'", (4,)),
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES=4,5 python t.py", (4, 5)),
        ("env CUDA_VISIBLE_DEVICES=-1 python t.py", ()),
        ("CUDA_VISIBLE_DEVICES=-1 python t.py", ()),
        ("accelerate launch --cpu --gpu_ids 0 t.py", ()),
    ],
)
def test_one_that_asks_for_the_very_same_devices_agrees(line: str, devices: tuple[int, ...]) -> None:
    selected: list[Device] = [gpu(index) for index in devices]
    assert compose(selected, launch_options(line), {}).own is None


@pytest.mark.parametrize(
    "line",
    [
        "bash -c 'CUDA_VISIBLE_DEVICES=4 python a.py & CUDA_VISIBLE_DEVICES=5 python b.py; wait'",
        "env CUDA_VISIBLE_DEVICES=4 python t.py",
        "mpirun -np 1 -x CUDA_VISIBLE_DEVICES=4 a : -np 1 -x CUDA_VISIBLE_DEVICES=5 b",
        "accelerate launch --num_processes 1 --gpu_ids 4 t.py",
        "deepspeed --include localhost:4 t.py",
    ],
)
def test_one_that_uses_some_of_its_devices_only_is_not_refused(line: str) -> None:
    assert compose([gpu(4), gpu(5)], launch_options(line), {}).own is None


@pytest.mark.parametrize(
    "line",
    [
        "env CUDA_VISIBLE_DEVICES=4 python t.py",
        "env CUDA_VISIBLE_DEVICES=4 CUDA_DEVICE_ORDER=FASTEST_FIRST python t.py",
        "bash -c 'CUDA_VISIBLE_DEVICES=4 python t.py'",
        "accelerate launch --gpu_ids 4 t.py",
    ],
)
def test_numbers_beside_devices_by_uuid_may_be_any_device(line: str) -> None:
    """Without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA counts the fastest first."""
    by_uuid = replace(launch_options(line), ids="uuid")
    assert compose([gpu(4)], by_uuid, {}).own is not None


def test_an_order_of_counting_beside_uuids_changes_nothing() -> None:
    line = f"env CUDA_DEVICE_ORDER=FASTEST_FIRST CUDA_VISIBLE_DEVICES={gpu(4).uuid} python t.py"
    assert compose([gpu(4)], launch_options(line), {}).own is None


@pytest.mark.parametrize(
    ("line", "warnings"),
    [
        (f"env CUDA_VISIBLE_DEVICES={gpu(4).uuid},{gpu(5).uuid} python t.py", 0),
        ("env CUDA_VISIBLE_DEVICES=4,5 python t.py", 0),
        ("env CUDA_VISIBLE_DEVICES=5,4 python t.py", 1),
    ],
)
def test_the_same_devices_in_other_words_need_no_warning(line: str, warnings: int) -> None:
    assert len(compose([gpu(4), gpu(5)], launch_options(line), {}).warnings) == warnings


@pytest.mark.parametrize(
    ("line", "forced"),
    [
        ("CUDA_VISIBLE_DEVICES=2,0 torchrun t.py", "ignores it"),
        ("env CUDA_VISIBLE_DEVICES=1 python t.py", "starts it as it is"),
        ("deepspeed --num_gpus 2 t.py", "starts it as it is"),
    ],
)
def test_the_refusal_tells_what_force_would_do(line: str, forced: str) -> None:
    own = own_devices(launch_options(line), 1, {})
    assert own is not None and f"--force {forced}" in own.refusal
    launch = compose([gpu(4)], launch_options(line), {})
    assert (
        launch.environment({}).get("CUDA_VISIBLE_DEVICES") == "4" and launch.argv[0] == "torchrun"
    ) == own.ignored


def test_the_hostfile_that_is_read_of_itself_is_not_in_the_command() -> None:
    own = own_devices(
        launch_options("deepspeed --num_gpus 3 t.py"), 1, {}, Told({HOSTFILE: "worker slots=8"})
    )
    assert own is not None and own.words == "--num_gpus 3"
    own = own_devices(launch_options("deepspeed --hostfile /h t.py"), 1, {}, Told({"/h": "worker slots=8"}))
    assert own is not None and own.words == "--hostfile /h"


# the calls


@pytest.fixture
def programs(box: Box) -> Path:
    """Launchers that write down that they were started."""
    folder = box.folder / "bin"
    folder.mkdir()
    for name in ("deepspeed", "accelerate", "torchrun", "python"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$CUDA_VISIBLE_DEVICES" "$@"\n')
        (folder / name).chmod(0o755)
    return folder


LINES = [
    "deepspeed --num_gpus 2 t.py",
    "deepspeed --include localhost:0,1 t.py",
    "accelerate launch --gpu_ids 0,1 t.py",
    "env CUDA_VISIBLE_DEVICES=1 python t.py",
    "CUDA_VISIBLE_DEVICES=2,0 torchrun t.py",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--dry-run",),
        ("--detach",),
        ("--wait",),
        ("--detach", "--wait"),
        ("--gpus", "4"),
        ("--gpus", "4", "--wait"),
        ("--gpus", "4", "--detach", "--wait"),
    ],
    ids=" ".join,
)
def test_such_a_call_is_refused_in_one_sentence(
    box: Box, programs: Path, line: str, words: tuple[str, ...]
) -> None:
    holder = box.hold(0, 1)
    path = f"{programs}:{box.environ['PATH']}"
    status, out, err = box.call("run", "-q", *words, "--", *shlex.split(line), PATH=path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert ASKING[line] in err and "--force" in err
    assert box.claimed() == [0, 1] and not holder.over
    assert all_jobs(box.environ) == []


@pytest.mark.parametrize("line", LINES)
def test_it_is_refused_for_that_also_on_a_full_box(box: Box, line: str) -> None:
    box.hold(*range(8))
    assert box.call("run", "-q", "--", *shlex.split(line))[0] == 2


@pytest.mark.parametrize("line", LINES)
def test_force_starts_it_all_the_same(box: Box, programs: Path, line: str) -> None:
    path = f"{programs}:{box.environ['PATH']}"
    words = ("run", "-q", "--force", "--gpus", "4", "--", *shlex.split(line))
    status, out, err = box.call(*words, PATH=path)
    assert status == 0 and out.endswith("t.py\n") and "gputui: warning: " in err


def test_devices_that_are_named_twice_alike_are_started_on(box: Box, programs: Path) -> None:
    path = f"{programs}:{box.environ['PATH']}"
    for options, line, program in (
        (("--gpus", "0,1"), "accelerate launch --gpu_ids 0,1 t.py", "accelerate"),
        (("--gpus", "1"), "env CUDA_VISIBLE_DEVICES=1 python t.py", "python"),
        (("-n", "2"), "deepspeed --num_gpus 2 t.py", "deepspeed"),
        (("--gpus", "2,0"), "CUDA_VISIBLE_DEVICES=2,0 torchrun t.py", "torchrun"),
        (("--gpus", "none"), "CUDA_VISIBLE_DEVICES= python t.py", "python"),
    ):
        status, out, err = box.call("run", "-q", *options, "--", *shlex.split(line), PATH=path)
        assert (status, out.split()[0]) == (0, program), err


def test_a_claim_on_what_both_name_is_a_shortage_and_no_wrong_call(box: Box) -> None:
    box.hold(0)
    words = ("run", "-q", "--gpus", "0,1", "--", "accelerate", "launch", "--gpu_ids", "0,1", "t.py")
    assert box.call(*words)[0] == 4
