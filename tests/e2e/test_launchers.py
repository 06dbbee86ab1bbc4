"""The real launchers, started through gputui under every condition that makes them fail without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.ranks import TIMEOUT, Ended, Workplace, free_port, need, port_taken, workplace
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu
from unit.host_environments import Told

pytestmark = pytest.mark.e2e

ELSEWHERE = "distributed_type: MULTI_GPU\ngpu_ids: '0,1'\nnum_processes: 4\nmain_process_port: 29500\n"
"""A configuration of accelerate with other devices, another number and the port of another program."""


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A directory with a script."""
    return workplace(tmp_path)


def met(done: Ended, visible: str) -> None:
    """Assert that two ranks have started on these devices and added up 1 and 2 over gloo."""
    assert [rank["LOCAL_RANK"] for rank in done.ranks] == ["0", "1"]
    assert done.every("WORLD_SIZE") == ["2"]
    assert done.every("CUDA_VISIBLE_DEVICES") == [visible]
    assert done.every("CUDA_DEVICE_ORDER") == ["PCI_BUS_ID"]
    assert done.every("total") == [3.0] and done.every("size") == [2]
    assert "29500" not in done.every("MASTER_PORT")


def logs(folder: Path, text: str) -> list[str]:
    """The files in a directory of logs that contain this text."""
    return [file.name for file in sorted(folder.rglob("*")) if file.is_file() and text in file.read_text()]


# Two ranks meet under every obstacle.


@pytest.mark.parametrize(
    ("launcher", "module", "gpus"),
    [("torchrun", "torch", "2,1"), ("accelerate", "accelerate", "2,1"), ("deepspeed", "deepspeed", "1,2")],
)
def test_two_ranks_meet_on_the_chosen_devices(
    place: Workplace, launcher: str, module: str, gpus: str
) -> None:
    """With port 29500 taken, PET_* set, devices in accelerate's configuration, a variable in the shell."""
    need(module)
    place.configure(ELSEWHERE)
    place.trains()
    asked = ("--demo", "dgx-1", "--gpus", gpus, "--launcher", launcher, "--logs", "logs")
    inherited = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "PET_NPROC_PER_NODE": "3"}
    with port_taken():
        done = place.run(*asked, "--", "python", "train.py", **inherited)
    met(done, gpus)
    assert ("PET_NPROC_PER_NODE=3" in done.err) == (launcher != "deepspeed")
    assert len(logs(place.folder / "logs", "this is rank")) == 2, "a log a rank is kept"


@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED"])
def test_a_kind_of_run_in_accelerates_configuration_is_respected(place: Workplace, kind: str) -> None:
    need("accelerate")
    need("deepspeed")
    place.configure(
        f"distributed_type: {kind}\ngpu_ids: '0,1'\nnum_processes: 4\n{kind.lower()}_config: {{}}\n"
    )
    done = place.run("--demo", "dgx-1", "--gpus", "2,1", "--", "accelerate", "launch", "train.py")
    assert done.every(f"ACCELERATE_USE_{kind}") == ["true"]
    assert done.every("CUDA_VISIBLE_DEVICES") == ["2,1"] and len(done.ranks) == 2
    assert f"note: {kind}, as " in done.err


GUARDED = '[ -z "$CUDA_VISIBLE_DEVICES" ] && export CUDA_VISIBLE_DEVICES=0,1\n'
"""The line of many scripts for an environment without a list."""


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("torch", "torchrun --standalone --nproc_per_node {} train.py"),
        ("torch", "python -m torch.distributed.run --standalone --nproc_per_node={} train.py"),
        ("accelerate", "accelerate launch --config_file own.yaml train.py"),
    ],
)
def test_as_many_ranks_as_a_script_starts_are_asked_for(place: Workplace, module: str, line: str) -> None:
    need(module)
    script, config = place.folder / "run.sh", place.folder / "own.yaml"
    kind = "distributed_type: MULTI_GPU\ngpu_ids: all\nmain_process_port: 0\nnum_processes: "
    script.write_text(GUARDED + line.format(8))
    config.write_text(f"{kind}8\n")
    started = ("--demo", "dgx-1", "--gpus", "2,1", "--", "bash", "run.sh")
    refused = place.ended(place.begin(*started))
    assert (refused.status, refused.ranks) == (2, []), refused.err
    script.write_text(GUARDED + line.format(2))
    config.write_text(f"{kind}2\n")
    done = place.run(*started)
    assert len(done.ranks) == 2 and done.every("CUDA_VISIBLE_DEVICES") == ["2,1"]


def test_two_machines_meet(place: Workplace) -> None:
    """Both lines are started here, each with devices of its own."""
    need("torch")
    meeting = ("--nodes", "2", "--rendezvous", f"localhost:{free_port()}", "--", "torchrun", "train.py")
    first = place.begin("--demo", "dgx-1", "--gpus", "2,1", *meeting)
    second = place.run("--demo", "dgx-1", "--gpus", "5,7", *meeting)
    done = place.ended(first)
    assert done.status == 0, done.err
    assert done.every("WORLD_SIZE") == ["4"]
    assert sorted(rank["RANK"] for rank in done.ranks) == ["0", "1", "2", "3"]
    assert sorted(rank["LOCAL_RANK"] for rank in done.ranks) == ["0", "0", "1", "1"]
    by_device = [rank["CUDA_VISIBLE_DEVICES"] for rank in done.ranks]
    assert sorted(by_device) == ["2,1", "2,1", "5,7", "5,7"]
    assert "--nodes 2 --rendezvous localhost" in second.err


def test_wrappers_are_passed_through(place: Workplace) -> None:
    need("torch")
    done = place.run(
        *("--demo", "dgx-1", "--gpus", "2,1", "--", "env", "SHOWN=1", "nice", "-n", "5", "timeout", "60"),
        *("torchrun", "train.py", "--lr", "1"),
    )
    assert done.every("SHOWN") == ["1"] and len(done.ranks) == 2
    assert done.every("CUDA_VISIBLE_DEVICES") == ["2,1"]
    assert done.every("argv") == [["--lr", "1"]]


def test_uv_runs_the_torchrun_of_its_environment(place: Workplace) -> None:
    need("torch")
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None or sys.prefix == sys.base_prefix:
        pytest.skip("there is no uv, or no environment for it")
    command = (uv, "run", "--no-project", "--offline", "torchrun", "train.py")
    done = place.run("--demo", "dgx-1", "--gpus", "2,1", "--", *command, VIRTUAL_ENV=sys.prefix)
    assert done.every("CUDA_VISIBLE_DEVICES") == ["2,1"] and len(done.ranks) == 2


# Each rank reads its own part of the data.

_SAMPLES = """
import argparse, json, os
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
data = list(range(64))
# DeepSpeed-Chat, training/step1_supervised_finetuning/main.py: who has no --local_rank reads all of it.
if args.local_rank == -1:
    sampler = RandomSampler(data)
else:
    torch.distributed.init_process_group("gloo")
    sampler = DistributedSampler(data)
rank = os.environ["RANK"]
with open(f"rank{rank}.json", "w") as file:
    seen = {"read": sorted(int(each) for each in DataLoader(data, sampler=sampler, batch_size=None))}
    seen["argument"] = args.local_rank
    json.dump(seen | {name: os.environ.get(name) for name in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES")}, file)
"""


def test_every_rank_of_deepspeed_reads_its_own_part(place: Workplace) -> None:
    """In the selected order, with the variables of another run in the shell, and port 29500 taken."""
    need("deepspeed")
    (place.folder / "train.py").write_text(_SAMPLES)
    left = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    with port_taken():
        done = place.run("--demo", "dgx-1", "--gpus", "2,1", "--", "deepspeed", "train.py", **left)
    assert done.every("CUDA_VISIBLE_DEVICES") == ["2,1"]
    assert [(rank["LOCAL_RANK"], rank["argument"]) for rank in done.ranks] == [("0", 0), ("1", 1)]
    parts = [set(rank["read"]) for rank in done.ranks]
    assert parts[0] | parts[1] == set(range(64)) and not parts[0] & parts[1]


def test_bare_fsdp_reaches_the_workers_as_fsdp_2_with_a_wrap_policy(place: Workplace) -> None:
    need("accelerate")
    left = {"RANK": "3", "WORLD_SIZE": "8", "PET_NNODES": "2"}
    command = ("accelerate", "launch", "--use_fsdp", "train.py")
    done = place.run("--demo", "dgx-1", "--gpus", "2,1", "--", *command, **left)
    assert done.every("ACCELERATE_USE_FSDP") == ["true"] and done.every("FSDP_VERSION") == ["2"]
    assert done.every("FSDP_AUTO_WRAP_POLICY") == ["TRANSFORMER_BASED_WRAP"]
    # No variable of another run in the shell reaches the ranks, and no launch waits for another.
    assert [rank["RANK"] for rank in done.ranks] == ["0", "1"] and done.every("WORLD_SIZE") == ["2"]


def test_one_process_of_accelerate_is_not_a_rank_of_another_run(place: Workplace) -> None:
    need("accelerate")
    left = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "MASTER_ADDR": "nowhere"}
    command = ("accelerate", "launch", "--multi_gpu", "--gpu_ids", "0,1", "train.py")
    done = place.run("--demo", "dgx-1", "--force", "--gpus", "5", "--", *command, **left)
    assert done.every("WORLD_SIZE") == done.every("RANK") == done.every("LOCAL_RANK") == [None]
    assert done.every("CUDA_VISIBLE_DEVICES") == ["5"]


# The reasons for the lines: the behaviour of the launchers without our words. If one of these changes, so can
# the line.

_ACCELERATE = """
import json, os, sys
from accelerate.commands import launch
from accelerate.commands.config import config_args
from accelerate.utils import launch as prepare
start = dict(os.environ)
answers = []
for case in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(start | case["environment"])
    launch.default_config_file = config_args.default_config_file = case["file"]
    parser = launch.launch_command_parser()
    try:
        args, _, _ = launch._validate_launch_command(parser.parse_args(case["words"]))
        spreads = args.use_fsdp or args.multi_gpu
        if spreads:
            environment = prepare.prepare_multi_gpu_env(args)
        elif args.use_deepspeed:
            environment = prepare.prepare_deepspeed_cmd_env(args)[1]
        else:
            environment = prepare.prepare_simple_launcher_cmd_env(args)[1]
    except (ValueError, AttributeError) as error:
        answers.append({"error": type(error).__name__})
        continue
    answers.append({name: value for name, value in environment.items() if name.startswith(("ACC", "CUDA_V"))})
print("ANSWER" + json.dumps(answers))
"""


def asked(program: str, cases: list[dict[str, Any]], place: Workplace) -> list[Any]:
    """The answer of a launcher's own code in a child process."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(cases),
        env=dict(place.environment),
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("ANSWER")[2])


@pytest.fixture(scope="module")
def accelerates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The environments that accelerate prepares for its processes, by case."""
    need("accelerate")
    place = workplace(tmp_path_factory.mktemp("accelerate"))
    configurations = {
        "none": None,
        "elsewhere": ELSEWHERE,
        "fsdp": "distributed_type: FSDP\nnum_processes: 2\n",
        "affinity": "distributed_type: MULTI_GPU\nnum_processes: 2\nenable_cpu_affinity: true\n",
        "cpu": "distributed_type: MULTI_GPU\nnum_processes: 2\nuse_cpu: true\n",
        "one on the cpu": "distributed_type: 'NO'\nuse_cpu: true\n",
        "unquoted": "distributed_type: NO\n",
        "number": "distributed_type: MULTI_GPU\ngpu_ids: 2\nnum_processes: 2\n",
    }
    for name, text in configurations.items():
        if text is not None:
            (place.folder / f"{name}.yaml").write_text(text)
    ours = ("--num_processes=2", "--num_machines=1", "--gpu_ids=all", "--main_process_port=0")
    cases = {
        "devices of the configuration": ("elsewhere", ours[:2]),
        "all devices": ("elsewhere", ours),
        "fsdp": ("fsdp", ours),
        "fsdp and --multi_gpu": ("fsdp", ("--multi_gpu", *ours)),
        "--multi_gpu with one": ("none", ("--multi_gpu", "--num_processes=1")),
        "one under a configuration for many": ("elsewhere", ("--num_processes=1", *ours[1:])),
        "affinity of the configuration": ("affinity", ours),
        "affinity of the line": ("none", ("--multi_gpu", "--enable_cpu_affinity", *ours)),
        "use_cpu for many": ("cpu", ours),
        "use_cpu for one": ("one on the cpu", ("--num_processes=1", *ours[1:])),
        "unquoted": ("unquoted", ("--multi_gpu", *ours)),
        "an unquoted number": ("number", ours[:2]),
        "--cpu": ("fsdp", ("--cpu", "--num_processes=1", *ours[1:])),
    }
    asking = [
        {
            "file": str(place.folder / f"{file}.yaml"),
            "words": [*words, "train.py"],
            "environment": {"CUDA_VISIBLE_DEVICES": "2,0"},
        }
        for file, words in cases.values()
    ]
    return dict(zip(cases, asked(_ACCELERATE, asking, place), strict=True))


def test_accelerates_configuration_wins_without_our_word_and_not_with_it(accelerates: dict[str, Any]) -> None:
    assert accelerates["devices of the configuration"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert accelerates["all devices"]["CUDA_VISIBLE_DEVICES"] == "2,0"
    assert accelerates["an unquoted number"] == {"error": "AttributeError"}


def test_accelerates_multi_gpu_drops_the_configurations_kind_and_needs_two(
    accelerates: dict[str, Any],
) -> None:
    assert accelerates["fsdp"]["ACCELERATE_USE_FSDP"] == "true"
    assert "ACCELERATE_USE_FSDP" not in accelerates["fsdp and --multi_gpu"]
    assert accelerates["--multi_gpu with one"] == {"error": "ValueError"}
    assert accelerates["one under a configuration for many"]["CUDA_VISIBLE_DEVICES"] == "2,0"
    assert accelerates["unquoted"]["CUDA_VISIBLE_DEVICES"] == "2,0"


def test_accelerates_affinity_counts_on_the_line_only(accelerates: dict[str, Any]) -> None:
    assert accelerates["affinity of the line"]["ACCELERATE_CPU_AFFINITY"] == "1"
    assert "ACCELERATE_CPU_AFFINITY" not in accelerates["affinity of the configuration"]


def test_accelerates_use_cpu_counts_for_one_process_only(accelerates: dict[str, Any]) -> None:
    assert accelerates["use_cpu for one"]["ACCELERATE_USE_CPU"] == "True"
    assert "ACCELERATE_USE_CPU" not in accelerates["use_cpu for many"]


def test_accelerate_does_not_read_the_configuration_on_the_cpu(accelerates: dict[str, Any]) -> None:
    assert accelerates["--cpu"]["ACCELERATE_USE_CPU"] == "True"
    assert "ACCELERATE_USE_FSDP" not in accelerates["--cpu"]


_DEEPSPEED = """
import base64, json, os, sys
from deepspeed.launcher import runner
start, started = dict(os.environ), []

class Noted:
    returncode = 0
    def __init__(self, command, env):
        started.append(command)
    def wait(self):
        return 0

runner.subprocess.Popen = Noted
answers = []
for case in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(start | case["environment"])
    started.clear()
    try:
        runner.main(case["words"])
    except ValueError as error:
        answers.append("ValueError")
        continue
    said = dict(word[2:].split("=", 1) for word in started[0] if word.startswith("--") and "=" in word)
    devices = json.loads(base64.urlsafe_b64decode(said["world_info"]))
    answers.append([devices["localhost"], int(said["master_port"])])
print("ANSWER" + json.dumps(answers))
"""


@pytest.fixture(scope="module")
def deepspeeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The devices and the port with which deepspeed starts, by case; the box has eight devices."""
    need("deepspeed")
    place = workplace(tmp_path_factory.mktemp("deepspeed"))
    hosts = place.folder / "hosts"
    hosts.write_text("worker-0 slots=8\n")
    ours = compose([gpu(0), gpu(2)], LaunchOptions(("deepspeed", "train.py")), {}, Told()).argv[1:]
    uuid = gpu(0).uuid
    cases: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "ours": (None, ours),
        "ours without a hostfile": (None, (*ours[:-1], "--hostfile=/dev/null", "train.py")),
        "ours with one": (None, (*ours[:-1], f"--hostfile={hosts}", "train.py")),
        "another order": ("2,0", ("train.py",)),
        "another order by --include": (None, ("--include=localhost:2,0", "train.py")),
        "uuid": (uuid, ("train.py",)),
        "uuid by --include": (None, (f"--include=localhost:{uuid}", "train.py")),
        "instance": ("MIG-5bfc0fc6-1944-5053-bd63-b7df543843fd", ("train.py",)),
        "none": ("", ("train.py",)),
        "--num_gpus beside the variable": ("2,3", ("--num_gpus=2", "train.py")),
        "--num_nodes": ("2,3", ("--num_nodes=1", "train.py")),
    }
    asking = [
        {"words": list(words), "environment": {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}}
        for visible, words in cases.values()
    ]
    return dict(zip(cases, asked(_DEEPSPEED, asking, place), strict=True))


def test_deepspeed_starts_on_the_devices_and_the_port_of_our_line(deepspeeds: dict[str, Any]) -> None:
    assert deepspeeds["ours"] == [[0, 2], Told().port]
    assert deepspeeds["ours without a hostfile"] == deepspeeds["ours"]
    assert deepspeeds["ours with one"] == "ValueError"


def test_deepspeed_really_does_what_we_do_not_use_it_for(deepspeeds: dict[str, Any]) -> None:
    """It sorts, takes no UUIDs and no instances, takes an empty list for all devices, and has one port."""
    assert deepspeeds["another order"] == [[0, 2], 29500]
    assert deepspeeds["another order by --include"] == [[0, 2], 29500]
    assert deepspeeds["uuid"] == deepspeeds["uuid by --include"] == "ValueError"
    assert deepspeeds["instance"] == "ValueError"
    assert deepspeeds["none"] == [list(range(8)), 29500]
    assert deepspeeds["--num_gpus beside the variable"] == [[0, 1], 29500]
    assert deepspeeds["--num_nodes"] == "ValueError"
