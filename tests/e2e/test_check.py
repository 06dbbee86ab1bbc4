"""`gputui check` with the simulated driver's two libraries, the real torch, and real launchers."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import simcuda
from e2e.conftest import GPUTUI
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from messages import numbers
from simnvml import SimulatedNvml

pytestmark = pytest.mark.e2e

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"
)

NO_TORCH = (sys.executable, "-S", "train.py")
"""The interpreter of a training without torch: the check asks the CUDA driver itself."""


class ThisHost:
    """A machine with the simulated NVML and the simulated CUDA of one box."""

    def __init__(self, base: Mapping[str, str], nvml: SimulatedNvml, library: Path) -> None:
        self.base, self.nvml, self.library = base, nvml, library
        self.folder = Path(base["HOME"])

    def show(self, name: str) -> Snapshot:
        return self.nvml.show_box(BOXES[name])

    def check(self, *words: str, init: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*GPUTUI, "check", *words],
            env={**simcuda.environment(self.nvml.environment(self.base), self.library, init), **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def script(self, name: str, text: str) -> str:
        """An executable script, by its path."""
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)
        return str(file)


@pytest.fixture
def machine(base_environment: dict[str, str], simulated_nvml: SimulatedNvml) -> ThisHost:
    return ThisHost({**base_environment, "OMP_NUM_THREADS": "1"}, simulated_nvml, simcuda.build())


def uuids(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The UUIDs of the table; asserts that each of its lines ends in "equal"."""
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("cuda:")]
    assert all(row[-1] == "equal" for row in rows), done.stdout
    return [row[3] for row in rows]


def conclusion(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of the report."""
    return done.stdout.splitlines()[-1]


def test_the_devices_that_the_driver_gives_are_the_chosen_ones_in_their_order(machine: ThisHost) -> None:
    box = machine.show("dgx-h100")
    done = machine.check("--gpus", "5,2,4", "--", *NO_TORCH)
    assert done.returncode == 0, done.stderr
    assert uuids(done) == [box.devices[place].uuid for place in (5, 2, 4)]
    assert conclusion(done).startswith("equal: ") and numbers(conclusion(done)) == [3]


def test_devices_that_were_picked_are_proved_by_their_uuids(machine: ThisHost) -> None:
    box = machine.show("dgx-h100")
    done = machine.check("-n", "2", "--", *NO_TORCH)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    assert uuids(done) == [device.uuid for device in box.devices[:2]]
    done = machine.check("-n", "2", "--json", "--", *NO_TORCH)
    told = json.loads(done.stdout)
    assert (done.returncode, told["equal"]) == (0, True)


def test_by_uuid_and_as_a_mig_instance_it_is_the_same(machine: ThisHost) -> None:
    box = machine.show("dgx-h100")
    done = machine.check("--gpus", "3,1", "--ids", "uuid", "--", *NO_TORCH)
    assert (done.returncode, uuids(done)) == (0, [box.devices[3].uuid, box.devices[1].uuid])
    instances = [device.uuid for device in machine.show("a100-mig").devices if device.parent]
    done = machine.check("--gpus", instances[1], "--", *NO_TORCH)
    assert (done.returncode, uuids(done)) == (0, instances[1:2])


def test_indices_count_as_they_were_chosen_where_the_fastest_is_not_the_first(machine: ThisHost) -> None:
    # CUDA would count the fastest first; the launch line sets PCI_BUS_ID.
    box = machine.show("mixed")
    everything = ",".join(str(device.index) for device in box.devices)
    done = machine.check("--gpus", everything, "--", *NO_TORCH)
    assert (done.returncode, uuids(done)) == (0, [device.uuid for device in box.devices])
    # A wrapper that loses that variable gets other devices, and the check reports it.
    loses = machine.script("python", f'#!/bin/sh\nunset CUDA_DEVICE_ORDER\nexec {sys.executable} -S "$@"\n')
    done = machine.check("--gpus", everything, "--", loses, "train.py")
    assert done.returncode == 5 and "CUDA_DEVICE_ORDER" in done.stdout


def test_a_wrapper_that_changes_the_variable_is_caught(machine: ThisHost) -> None:
    machine.show("dgx-h100")
    changes = machine.script(
        "python3", f'#!/bin/sh\nexport CUDA_VISIBLE_DEVICES=0\nexec {sys.executable} -S "$@"\n'
    )
    done = machine.check("--gpus", "5,2", "--", changes, "train.py")
    assert done.returncode == 5
    (first,) = (line for line in done.stdout.splitlines() if line.startswith("cuda:0  "))
    assert first.startswith("cuda:0  GPU 5") and "differs: is GPU 0" in first
    assert conclusion(done).startswith("not equal: ")
    assert re.findall(r"CUDA_VISIBLE_DEVICES|'[\d,]*'", conclusion(done)) == [
        "CUDA_VISIBLE_DEVICES",
        "'5,2'",
        "'0'",
    ]


def test_env_within_the_command_is_caught(machine: ThisHost) -> None:
    machine.show("dgx-h100")
    command = ("env", "CUDA_VISIBLE_DEVICES=5,4", *NO_TORCH)
    done = machine.check("--gpus", "5", "--", *command)
    assert done.returncode == 2 and "CUDA_VISIBLE_DEVICES=5,4" in done.stderr
    # Without an option, the list in the command is the request, and is proved.
    assert machine.check("--", *command).returncode == 0


def test_cpu_only_is_proved_on_a_box_full_of_gpus(machine: ThisHost) -> None:
    machine.show("dgx-h100")
    done = machine.check("--gpus", "none", "--", *NO_TORCH)
    assert (done.returncode, done.stderr) == (0, "")
    assert conclusion(done).startswith("equal: ") and "(CPU only)" in conclusion(done)


def test_a_driver_that_does_not_start_is_named_with_the_remedy(machine: ThisHost) -> None:
    machine.show("dgx-h100")
    done = machine.check("--gpus", "0", "--", *NO_TORCH, init=803)
    assert done.returncode == 5
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in done.stdout and "reboot" in done.stdout


def test_what_the_interpreter_prints_does_not_count(machine: ThisHost) -> None:
    box = machine.show("dgx-h100")
    noisy = machine.script(
        "python",
        f"#!/bin/sh\necho '{{\"devices\": []}}'; printf '\\033[2J\\377'\n{sys.executable} -S \"$@\"\n"
        "echo cuda:0 is wrong\nexit 7\n",
    )
    done = machine.check("--gpus", "5", "--", noisy, "train.py")
    assert (done.returncode, uuids(done)) == (0, [box.devices[5].uuid])
    assert "wrong" not in done.stdout + done.stderr and "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo broken >&2; exit 3", "the interpreter ended with 3 without answering: broken"),
        ("kill -SEGV $$", "the interpreter ended by signal 11 without answering"),
        ("exec sleep 600", "no answer within 1 seconds"),
        ('for last; do :; done; echo "{" > "$2/0.json"', "the answer is not JSON"),
    ],
)
def test_an_interpreter_that_does_not_answer_is_status_5_with_the_reason(
    machine: ThisHost, body: str, reason: str
) -> None:
    machine.show("dgx-h100")
    python = machine.script("python", f"#!/bin/sh\n{body}\n")
    seconds = "1" if "sleep" in body else "60"
    done = machine.check("--gpus", "5", "--timeout", seconds, "--", python, "train.py")
    assert (done.returncode, done.stdout) == (5, f"not proved: {reason}\n")


def test_the_command_starts_in_its_directory_and_its_interpreter_is_found_there(machine: ThisHost) -> None:
    machine.show("dgx-h100")
    work = machine.folder / "work"
    work.mkdir()
    (work / "python").symlink_to(machine.script("real", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n'))
    done = machine.check("--gpus", "5", "--directory", str(work), "--", "./python", "train.py")
    assert done.returncode == 0, done.stdout


def test_the_python_of_a_real_launcher_is_found_and_its_torch_asked(machine: ThisHost) -> None:
    if shutil.which("torchrun", path=machine.base["PATH"]) is None:
        pytest.skip("torchrun is not installed")
    machine.show("dgx-h100")
    done = machine.check("--gpus", "5,2", "--", "torchrun", "train.py")
    assert done.returncode == 5
    assert "(CPU build)" in done.stdout
    assert conclusion(done).startswith("not equal: ") and "CPU build" in conclusion(done)
    assert "install" in conclusion(done) and "CUDA driver itself" in conclusion(done)


@needs_torch
@needs_accelerate
def test_accelerate_is_asked_through_its_launcher_under_a_configuration_that_says_otherwise(
    machine: ThisHost,
) -> None:
    machine.show("dgx-h100")
    config = machine.folder / ".cache" / "huggingface" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\ngpu_ids: '0'\nnum_processes: 1\n"
        "num_machines: 1\nmachine_rank: 0\nmixed_precision: 'no'\nuse_cpu: false\ndebug: false\n"
    )
    done = machine.check("--gpus", "5", "--json", "--", "accelerate", "launch", "train.py")
    told = json.loads(done.stdout)
    assert told["interpreter"]["argv"][:2] == ["accelerate", "launch"]
    seen = {each["name"]: each["seen"] for each in told["environment"]}
    assert seen["CUDA_VISIBLE_DEVICES"] == "5", "the configuration's gpu_ids would have made it 0"


@needs_torch
def test_an_all_reduce_over_the_cpu_runs_for_real_where_torch_has_no_cuda(machine: ThisHost) -> None:
    machine.show("dgx-h100")
    words = ("--gpus", "none", "--bandwidth", "--processes", "2", "--json", "--", sys.executable, "t.py")
    done = machine.check(*words)
    told = json.loads(done.stdout)
    reduced = told["measured"]["all_reduce"]
    assert (done.returncode, told["measured"]["problems"]) == (0, []), done.stderr
    assert (reduced["backend"], reduced["processes"], reduced["verified"]) == ("gloo", 2, True)
    assert reduced["algorithm_gb_per_s"] == reduced["bus_gb_per_s"] > 0
    assert [each["bytes"] for each in reduced["sizes"]] == [16 * 1024, 1024**2, 16 * 1024**2]
    assert not (machine.folder / "t.py").exists() and list(machine.folder.iterdir()) == [], "nothing is left"
