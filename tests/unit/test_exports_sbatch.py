"""The sbatch form: bash reads the script, with an srun and an scontrol that print their arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device
from gputui.launching.compose import compose
from gputui.launching.exports import ExportError, ExportOptions
from gputui.launching.exports.sbatch import sbatch_notes, to_sbatch
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.vendors.nvidia.vendor import VENDOR
from table_tests import each_row
from unit.builders import gpu, instance
from unit.host_environments import Told
from unit.test_quoting_in_shells import HOSTILE, words

TWO = (gpu(5), gpu(4))
SLURM = {
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_NNODES": "2",
    "SLURM_JOB_ID": "77",
    "SLURM_CPUS_PER_TASK": "8",
}

SRUN = """
import json, os, sys
told = {"argv": sys.argv[1:], "environ": dict(os.environ), "directory": os.getcwd()}
print(json.dumps(told))
"""
SCONTROL = """
import sys
assert sys.argv[1:] == ["show", "hostnames", "node[1-2]"], sys.argv
print("node1\\nnode2")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an srun and an scontrol."""
    folder = tmp_path_factory.mktemp("bin")
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / name).write_text(f"#!{sys.executable} -SE\n{text}")
        (folder / name).chmod(0o755)
    return folder


def _ran(script: str, cluster: Path, cwd: Path | None = None) -> dict[str, Any]:
    """The arguments of srun, with the script read by bash as under Slurm."""
    file = cluster / "job.sh"
    file.write_bytes(os.fsencode(script) + b"\n")
    done = subprocess.run(
        ["bash", str(file)],
        env={"PATH": f"{cluster}:/usr/bin:/bin", "PYTHONUTF8": "1", "GONE": "x", **SLURM},
        cwd=cwd,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _bytes(words: Iterable[str]) -> list[bytes]:
    return [os.fsencode(word) for word in words]


def _launch(*argv: str, devices: tuple[Device, ...] = TWO, **facts: Any) -> Launch:
    return compose(devices, LaunchOptions(argv, **facts), {})


def _asked(script: str) -> dict[str, str]:
    """The options that the script requests from Slurm."""
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    return dict(line.split("=", 1) for line in lines)


def test_it_asks_for_as_many_devices_and_names_none(cluster: Path) -> None:
    script = to_sbatch(_launch("python", "train.py", "--lr", "3e-4"))
    assert _asked(script) == {
        "job-name": "train",
        "nodes": "1",
        "ntasks-per-node": "1",
        "gpus-per-node": "2",
        "output": "%x-%j.out",
    }
    told = _ran(script, cluster)
    assert told["argv"] == ["python", "train.py", "--lr", "3e-4"]
    assert not [name for name in told["environ"] if name.startswith("CUDA_")]
    comments = [line for line in script.splitlines() if line.startswith("# ")]
    assert len(comments) == 1 and "Slurm" in comments[0] and "CUDA_VISIBLE_DEVICES" in comments[0]
    assert "not for 5,4" in sbatch_notes(_launch("x"))[0]


def test_on_one_machine_torchrun_stays_as_it_is(cluster: Path) -> None:
    told = _ran(to_sbatch(_launch("torchrun", "train.py")), cluster)
    assert told["argv"] == ["torchrun", "--standalone", "--nproc-per-node=2", "train.py"]


@pytest.mark.parametrize(
    "argv",
    [
        ("torchrun", "--max-restarts", "3", "train.py", "--standalone"),
        ("torchrun", "--standalone", "--rdzv-conf=a=b", "-m", "pkg", "--rdzv_id"),
        ("/opt/venv/bin/python", "-m", "torch.distributed.run", "--no_python", "prog", "x y", ":"),
        ("uv", "run", "torchrun", "--nnodes", "7", "--rdzv_endpoint=other:1", "train.py"),
    ],
    ids=" ".join,
)
def test_between_machines_torchrun_meets_where_slurm_says(cluster: Path, argv: tuple[str, ...]) -> None:
    launch = _launch(*argv, nodes=2)
    script = to_sbatch(launch, ExportOptions(nodes=2))
    assert _asked(script)["nodes"] == "2" and _asked(script)["ntasks-per-node"] == "1"
    told = _ran(script, cluster)["argv"]
    if ":" in argv:
        assert told[:2] == ["bash", "-c"] and ":" not in told
        told = _ran_by_bash(told[2])
    place = told.index("--nnodes=2")
    assert told[place : place + 4] == [
        *("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=77", "--rdzv-endpoint=node1:29500"),
    ]
    kept = [*told[:place], *told[place + 4 :]]
    theirs = [word for word in kept if word.startswith("--nproc-per-node")]
    assert theirs == ["--nproc-per-node=2"]
    gone = {"--nnodes", "7", "--rdzv_endpoint=other:1"}
    if argv[1] == "--standalone":
        gone.add("--standalone")
    expected = [w for w in argv if w not in gone]
    assert sorted(word for word in kept if word not in theirs) == sorted(expected)


def _ran_by_bash(text: str) -> list[str]:
    """The words that bash on a node reads from the text."""
    shown = text.removeprefix("exec ")
    environ = {"head": "node1", "PATH": "/usr/bin:/bin", **SLURM}
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {shown}"], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


@each_row("launcher", ["python", "accelerate", "mpirun"])
def test_several_machines_without_torchrun_are_refused_and_torchrun_is_named(launcher: str) -> None:
    with pytest.raises(ExportError, match="--launcher torchrun"):
        to_sbatch(_launch("python", "train.py", launcher=launcher), ExportOptions(nodes=2))


def test_a_command_that_names_devices_itself_is_refused() -> None:
    for devices in (TWO[:1], TWO, TWO[::-1]):
        with pytest.raises(ExportError, match="names devices"):
            to_sbatch(_launch("deepspeed", "t.py", devices=devices))


def test_a_program_that_srun_would_take_for_its_option_is_refused() -> None:
    with pytest.raises(ExportError, match="srun"):
        to_sbatch(Launch(("--uid=0", "x")))


def test_without_a_command_there_is_nothing_to_submit() -> None:
    with pytest.raises(ExportError, match="after --"):
        to_sbatch(Launch((), VENDOR.visibility.changes(TWO), devices=TWO))


def test_cpu_only_asks_for_no_device_and_sees_none(cluster: Path) -> None:
    script = to_sbatch(_launch("x", devices=()))
    assert "gpus-per-node" not in _asked(script)
    # An exported variable would not get through srun.
    assert _ran(script, cluster)["argv"] == ["env", "CUDA_VISIBLE_DEVICES=", "x"]


# Commands that start Slurm's tasks themselves.


STARTING = [
    ("mpirun python t.py", "2", "mpirun -np 2 python t.py"),
    ("mpirun -np 2 python t.py", "2", "mpirun -np 2 python t.py"),
    ("mpiexec -n 4 ./a", "4", "mpiexec -n 4 ./a"),
    ("mpirun --npernode 3 ./a", "3", "mpirun --npernode 3 ./a"),
    ("mpirun --pernode ./a", "1", "mpirun --pernode ./a"),
    ("uv run mpirun python t.py", "2", "uv run mpirun -np 2 python t.py"),
    ("mpirun -np 1 ./a : -np 2 ./b", "3", "mpirun -np 1 ./a : -np 2 ./b"),
    ("srun --gpus-per-task=1 -n 2 python t.py", "2", "srun --gpus-per-task=1 -n 2 python t.py"),
    ("srun -lun4 python t.py", "4", "srun -lun4 python t.py"),
    ("srun --mpi pmix --ntasks 2 ./a -n 9", "2", "srun --mpi pmix --ntasks 2 ./a -n 9"),
    ("srun ./a", "1", "srun ./a"),
]


@each_row(("line", "tasks", "started"), STARTING)
def test_what_starts_the_tasks_itself_is_given_as_many_and_no_srun(
    line: str, tasks: str, started: str
) -> None:
    script = to_sbatch(_launch(*line.split()))
    assert script.splitlines()[-1] == started
    assert _asked(script)["ntasks-per-node"] == tasks and _asked(script)["gpus-per-node"] == "2"


def test_threads_of_an_mpi_process_are_the_cores_of_its_task() -> None:
    launch = _launch("mpirun", "python", "t.py", additions=(("OMP_NUM_THREADS", "4"),))
    assert _asked(to_sbatch(launch))["cpus-per-task"] == "4"


def test_mpirun_without_devices_hides_them() -> None:
    script = to_sbatch(_launch("mpirun", "-np", "3", "./a", ":", "-n", "2", "b c", devices=()))
    env = "env CUDA_VISIBLE_DEVICES="
    assert script.splitlines()[-1] == f"mpirun -np 3 {env} ./a : -n 2 {env} 'b c'"
    assert _asked(script)["ntasks-per-node"] == "5" and "gpus-per-node" not in _asked(script)
    assert to_sbatch(_launch("srun", "-n2", "./a", devices=())).splitlines()[-1] == f"srun -n2 {env} ./a"


def test_threads_of_the_processes_become_cores_of_the_task(cluster: Path) -> None:
    launch = _launch("torchrun", "train.py", additions=(("OMP_NUM_THREADS", "4"),))
    script = to_sbatch(launch)
    assert _asked(script)["cpus-per-task"] == "8"
    assert _ran(script, cluster)["environ"]["SRUN_CPUS_PER_TASK"] == "8"
    assert not [note for note in sbatch_notes(launch) if "cpus-per-task" in note]
    assert [note for note in sbatch_notes(_launch("x")) if "cpus-per-task" in note]


def test_an_instance_may_need_its_type() -> None:
    assert any("MIG" in note for note in sbatch_notes(_launch("x", devices=(instance(gpu(0, mig=True)),))))


def test_the_users_variables_are_exported_and_unset(cluster: Path) -> None:
    launch = Launch(
        ("x",),
        (*VENDOR.visibility.changes(TWO), ("A", "a'b\n$c"), ("GONE", None), ("EMPTY", "")),
        devices=TWO,
    )
    environ = _ran(to_sbatch(launch), cluster)["environ"]
    assert environ["A"] == "a'b\n$c" and environ["EMPTY"] == "" and "GONE" not in environ


@pytest.mark.parametrize("name", ["plain", "two words", "it's", "new\nline", "$HOME", "-", "#x", "100%"])
def test_it_starts_in_the_directory(cluster: Path, tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    script = to_sbatch(_launch("x", directory=str(place)))
    if "chdir" in _asked(script):
        assert _asked(script)["chdir"] == str(place)
    else:
        assert _ran(script, cluster, Path("/"))["directory"] == str(place)


@given(st.lists(words, min_size=1, max_size=12), st.lists(words, max_size=3))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_words_and_values_reach_srun(cluster: Path, argv: list[str], values: list[str]) -> None:
    more = tuple((f"VALUE_{place}", value) for place, value in enumerate(values))
    argv = ["prog", *(word for word in argv if word != ":")]
    told = _ran(to_sbatch(Launch(tuple(argv), more, devices=TWO)), cluster)
    assert _bytes(told["argv"]) == _bytes(argv)
    assert _bytes(told["environ"][name] for name, _ in more) == _bytes(values)


def test_hostile_words_reach_srun(cluster: Path) -> None:
    told = _ran(to_sbatch(Launch(("x", *HOSTILE), devices=TWO)), cluster)
    assert _bytes(told["argv"]) == _bytes(["x", *HOSTILE])


@each_row(
    ("argv", "name"),
    [
        (("python", "a/b/my train.py"), "my-train"),
        (("torchrun", "-m", "pkg"), "torchrun"),
        (("x\n#SBATCH --uid=0",), "x-SBATCH---uid-0"),
        (("'",), "gputui"),
    ],
)
def test_the_job_is_named_after_the_script(argv: tuple[str, ...], name: str) -> None:
    script = to_sbatch(Launch(argv))
    assert _asked(script)["job-name"] == name
    assert sum(line.startswith("#SBATCH") for line in script.splitlines()) == 4


def test_the_job_is_named_as_asked() -> None:
    assert _asked(to_sbatch(Launch(("x",)), ExportOptions(name="mine-2")))["job-name"] == "mine-2"
    for name in ("two words", "x\n#SBATCH --uid=0", "a/b", "%j", ""):
        with pytest.raises(ExportError, match="name of a job"):
            to_sbatch(Launch(("x",)), ExportOptions(name=name))


@pytest.mark.parametrize("gpus", ["all", '"device=4,5"'])
def test_a_container_that_names_devices_of_this_box_is_refused(gpus: str) -> None:
    launch = compose(TWO, LaunchOptions(("sudo", "docker", "run", "--gpus", gpus, "i", "x")), {}, Told())
    with pytest.raises(ExportError, match="devices of this machine"):
        to_sbatch(launch)
