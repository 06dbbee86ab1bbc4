"""A launch through Slurm: the words of srun and sbatch, and their reading by the shell inside."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.slurm_launch import SlurmError, SlurmRequest, through_slurm
from gputui.vendors.gaudi.vendor import VENDOR as GAUDI
from table_tests import each_row
from unit.builders import gpu

TWO = (gpu(0), gpu(1))
ON_N1 = SlurmRequest(node="n1", type="h100")


def _launch(*command: str, **more: object) -> Launch:
    return compose(TWO, LaunchOptions(command, **more), {})  # type: ignore[arg-type]


def test_srun_asks_for_as_many_of_the_type_on_the_node() -> None:
    launch = through_slurm(_launch("torchrun", "t.py"), ON_N1)
    assert launch.argv == (
        *("srun", "--nodelist=n1", "--nodes=1", "--ntasks=1", "--gpus-per-node=h100:2"),
        *("torchrun", "--standalone", "--nproc-per-node=2", "t.py"),
    )
    assert launch.changes == (), "the devices are Slurm's"
    assert shlex.split(launch.line) == [*launch.argv]


def test_variables_and_cores_go_along() -> None:
    launch = through_slurm(_launch("python", "t.py", additions=(("OMP_NUM_THREADS", "3"),)), SlurmRequest())
    assert launch.changes == (("OMP_NUM_THREADS", "3"),)
    assert "--cpus-per-task=3" in launch.argv and "--gpus-per-node=2" in launch.argv
    detached = through_slurm(
        _launch("python", "t.py", additions=(("OMP_NUM_THREADS", "3"),)), SlurmRequest(detach=True)
    )
    assert detached.argv[-1] == "--wrap=exec srun --cpus-per-task=3 python t.py"


def test_devices_that_are_no_gpus_to_slurm_are_a_gres() -> None:
    devices = [gpu(0, vendor="gaudi"), gpu(1, vendor="gaudi")]
    launch = compose(devices, LaunchOptions(("python", "t.py")), {}, box=(GAUDI,))
    assert "--gres=hpu:2" in through_slurm(launch, SlurmRequest()).argv


@each_row(
    ("request_", "expected"),
    [
        (SlurmRequest(processes=2, order=(0, 1)), ["--gpu-bind=single:1"]),
        (SlurmRequest(processes=2, order=(1, 0), whole=True), ["--gpu-bind=map_gpu:1,0"]),
        (SlurmRequest(processes=2, order=(1, 0)), []),
        (SlurmRequest(processes=4), []),
        (SlurmRequest(), []),
    ],
)
def test_tasks_are_bound_where_slurm_can(request_: SlurmRequest, expected: list[str]) -> None:
    argv = through_slurm(_launch("python", "t.py"), request_).argv
    assert [word for word in argv if word.startswith("--gpu-bind")] == expected


TELL = (sys.executable, "-S", "-c", "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:])")


@each_row(
    ("request_", "environ", "listed"),
    [
        (SlurmRequest(order=(1, 0)), {"CUDA_VISIBLE_DEVICES": "2,3"}, "3,2"),
        (SlurmRequest(order=(1, 0), processes=2), {"CUDA_VISIBLE_DEVICES": "2,3", "SLURM_LOCALID": "0"}, "3"),
        (SlurmRequest(order=(1, 0), processes=2), {"CUDA_VISIBLE_DEVICES": "2,3", "SLURM_LOCALID": "1"}, "2"),
    ],
)
@each_row("words", [("a b", "$HOME", "it's", "x\ny"), ("a", ":", "b")], ids=["words", "colon"])
def test_the_order_inside_is_made_of_slurms_own_list(
    request_: SlurmRequest, environ: dict[str, str], listed: str, words: tuple[str, ...]
) -> None:
    argv = through_slurm(_launch(*TELL, *words), request_).argv
    inner = argv[argv.index("bash") :]
    assert ":" not in inner
    done = subprocess.run(
        inner, env={"PATH": "/usr/bin:/bin", **environ}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{listed} {[*words]}\n"


def test_a_list_that_is_too_short_ends_the_job() -> None:
    argv = through_slurm(_launch(*TELL), SlurmRequest(order=(1, 0))).argv
    inner = argv[argv.index("bash") :]
    done = subprocess.run(
        inner, env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "2"}, capture_output=True, check=False
    )
    assert done.returncode != 0 and done.stdout == b""


def test_in_the_background_the_words_arrive_through_another_shell() -> None:
    launch = through_slurm(_launch("echo", "a b", "$HOME", "it's", "x\ny"), SlurmRequest(detach=True))
    script = launch.argv[-1].removeprefix("--wrap=")
    assert launch.argv[:2] == ("sbatch", "--parsable") and "--job-name=echo" in launch.argv
    assert shlex.split(script) == ["exec", "srun", "echo", "a b", "$HOME", "it's", "x\ny"]


def test_mpirun_has_the_tasks_of_a_batch_job() -> None:
    launch = _launch("mpirun", "./train")
    with pytest.raises(SlurmError):
        through_slurm(launch, SlurmRequest())
    argv = through_slurm(launch, SlurmRequest(detach=True)).argv
    assert "--ntasks=2" in argv and argv[-1].startswith("--wrap=exec mpirun ")


@each_row(
    "command",
    [
        ("deepspeed", "t.py"),
        ("docker", "run", "--gpus", "all", "image", "python", "t.py"),
        ("-x",),
    ],
)
def test_a_command_that_names_devices_itself_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(SlurmError):
        through_slurm(_launch(*command), SlurmRequest())


def test_a_job_without_devices_and_a_wrong_order_are_refused() -> None:
    with pytest.raises(SlurmError):
        through_slurm(compose((), LaunchOptions(("python", "t.py")), {}), SlurmRequest())
    with pytest.raises(SlurmError):
        through_slurm(_launch("python", "t.py"), SlurmRequest(order=(1, 2)))
