"""The command lines that a launcher makes: missing options are added, contradictions only reported."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.compose import compose, launcher_of
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LAUNCHER_NAMES, LaunchOptions
from gputui.launching.launchers import LAUNCHERS
from gputui.launching.python_command import is_python
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from table_tests import each_row
from unit.builders import gpu, instance
from unit.host_environments import Told

TWO = 2


def _complete(
    launcher: str, command: str, count: int = TWO, environ: Mapping[str, str] | None = None
) -> Launch:
    return _made(launcher, shlex.split(command), count, environ)


def _made(
    launcher: str, words: Sequence[str], count: int = TWO, environ: Mapping[str, str] | None = None
) -> Launch:
    devices = [gpu(index) for index in range(count)]
    return compose(devices, LaunchOptions(tuple(words), launcher), environ or {}, Told())


def _line(launcher: str, command: str, count: int = TWO) -> str:
    completed = _complete(launcher, command, count)
    assert completed.warnings == ()
    return shlex.join(completed.argv)


def _warnings(command: str, count: int = TWO, environ: Mapping[str, str] | None = None) -> str:
    return "\n".join(_complete("torchrun", command, count, environ).warnings)


# The choice of the launcher.


@each_row(
    ("command", "name"),
    [
        ("python train.py", "python"),
        ("python3.11 -m train", "python"),
        ("/opt/venv/bin/python train.py", "python"),
        ("./train.sh", "python"),
        ("", "python"),
        ("torchrun train.py", "torchrun"),
        ("/opt/venv/bin/torchrun train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "torchrun"),
        ("python3 -m torch.distributed.launch train.py", "torchrun"),
        ("python -u -m torch.distributed.run train.py", "torchrun"),
        ("python -m torch.distributed.runner train.py", "python"),
        ("nice torchrun train.py", "torchrun"),
        ("accelerate launch train.py", "accelerate"),
        ("accelerate-launch train.py", "accelerate"),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("python -m accelerate.commands.accelerate_cli launch train.py", "accelerate"),
        ("accelerate config", "python"),
        ("deepspeed train.py", "deepspeed"),
        ("python -m deepspeed.launcher.runner train.py", "deepspeed"),
        ("mpirun -np 2 python train.py", "mpirun"),
        ("/usr/bin/mpiexec -n 2 python train.py", "mpirun"),
        ("uv run torchrun train.py", "torchrun"),
        ("uv run --with accelerate accelerate launch train.py", "accelerate"),
        ("uv run train.py", "python"),
        ("uv pip install torch", "python"),
        ("conda run -n ml deepspeed train.py", "deepspeed"),
        ("env A=1 OMP_NUM_THREADS=2 torchrun train.py", "torchrun"),
        ("timeout -k 5 60 torchrun train.py", "torchrun"),
        ("numactl -N 0 -m 0 torchrun train.py", "torchrun"),
    ],
)
def test_auto_recognises_what_the_command_starts_with(command: str, name: str) -> None:
    assert launcher_of(LaunchOptions(tuple(shlex.split(command)))).name == name


def test_a_launcher_that_is_named_is_taken_whatever_the_command() -> None:
    assert launcher_of(LaunchOptions(("python", "train.py"), "torchrun")).name == "torchrun"
    assert launcher_of(LaunchOptions(("torchrun", "train.py"), "python")).name == "python"


def test_the_choices_of_the_option_are_the_launchers_in_their_order() -> None:
    assert tuple(LAUNCHERS) == LAUNCHER_NAMES


@each_row("name", LAUNCHERS)
def test_every_launcher_goes_by_its_own_name(name: str) -> None:
    assert LAUNCHERS[name].name == name


@each_row("name", ["python", "python3", "python3.11", "/usr/bin/python3", "pypy", "pypy3", "python3.13t"])
def test_an_interpreter_is_known(name: str) -> None:
    assert is_python((name, "x.py"))


@each_row("name", ["pythonic", "python-config", "ipython", "python3-dbg", "", "python/x"])
def test_another_program_is_no_interpreter(name: str) -> None:
    assert not is_python((name, "x.py"))


# python: the command stays as it is.


@each_row(
    "command",
    [
        "python train.py --lr 3e-4",
        "/opt/venv/bin/python -u -m train",
        "./train.sh",
        "bin/train.py",
        "./train.py",
        "uv run train.py",
        "python -c 'print(1)'",
    ],
)
@each_row("count", [0, 1, 8])
def test_a_plain_command_stays_as_it_is(command: str, count: int) -> None:
    assert _line("python", command, count) == command


def test_a_bare_script_is_given_to_python() -> None:
    assert _line("python", "train.py --lr 3e-4") == "python train.py --lr 3e-4"


def test_no_command_stays_none() -> None:
    assert _complete("python", "").argv == _complete("torchrun", "").argv == ()


# torchrun: missing options are added, in front of the user's own.


@each_row(
    ("command", "line"),
    [
        ("torchrun train.py --lr 3e-4", "torchrun --standalone --nproc-per-node=2 train.py --lr 3e-4"),
        ("torchrun -m train", "torchrun --standalone --nproc-per-node=2 -m train"),
        (
            "torchrun -m train --nproc-per-node 9",
            "torchrun --standalone --nproc-per-node=2 -m train --nproc-per-node 9",
        ),
        ("torchrun --module train", "torchrun --standalone --nproc-per-node=2 --module train"),
        ("torchrun --no-python ./t.sh", "torchrun --standalone --nproc-per-node=2 --no-python ./t.sh"),
        ("torchrun --no_python ./t.sh", "torchrun --standalone --nproc-per-node=2 --no_python ./t.sh"),
        ("torchrun --tee 3 train.py", "torchrun --standalone --nproc-per-node=2 --tee 3 train.py"),
        ("torchrun -t 3 -r 0:3 train.py", "torchrun --standalone --nproc-per-node=2 -t 3 -r 0:3 train.py"),
        ("torchrun --standalone train.py", "torchrun --nproc-per-node=2 --standalone train.py"),
        ("torchrun --nnodes 1 train.py", "torchrun --standalone --nproc-per-node=2 --nnodes 1 train.py"),
        ("torchrun --nnodes=1:1 train.py", "torchrun --standalone --nproc-per-node=2 --nnodes=1:1 train.py"),
        (
            "python -m torch.distributed.run train.py",
            "python -m torch.distributed.run --standalone --nproc-per-node=2 train.py",
        ),
        (
            "/opt/venv/bin/torchrun train.py",
            "/opt/venv/bin/torchrun --standalone --nproc-per-node=2 train.py",
        ),
        (
            "torchrun --virtual-local-rank train.py --nproc-per-node 9",
            "torchrun --standalone --nproc-per-node=2 --virtual-local-rank train.py --nproc-per-node 9",
        ),
        (
            "torchrun -m -- train --nproc-per-node 9",
            "torchrun --standalone --nproc-per-node=2 -m -- train --nproc-per-node 9",
        ),
    ],
)
def test_torchrun_is_completed(command: str, line: str) -> None:
    assert _line("torchrun", command) == line


@each_row(
    "given",
    [
        "--nproc-per-node=2",
        "--nproc_per_node=2",
        "--nproc-per-node 2",
        "--nproc_per_node 2",
        "--nproc 2",
        "--np 2",
    ],
)
def test_a_count_that_was_given_is_not_doubled(given: str) -> None:
    assert _line("torchrun", f"torchrun {given} train.py") == f"torchrun --standalone {given} train.py"


@each_row(
    "given",
    [
        "--standalone",
        "--rdzv-backend=c10d --rdzv-endpoint host:29400",
        "--rdzv_id 7",
        "--master-port 29501",
        "--master_addr host",
        "--nnodes 2 --node-rank 0",
        "--nnodes=2:4",
    ],
)
def test_a_meeting_place_that_was_given_is_kept(given: str) -> None:
    assert _line("torchrun", f"torchrun {given} train.py") == f"torchrun --nproc-per-node=2 {given} train.py"


def test_nothing_that_was_given_in_full_is_changed() -> None:
    command = "torchrun --standalone --nproc-per-node=2 train.py"
    assert _line("torchrun", command) == command


def test_completing_twice_changes_nothing_more() -> None:
    once = _complete("torchrun", "python -u train.py").argv
    assert _made("torchrun", once).argv == once


@pytest.mark.parametrize("count", [0, 1])
def test_at_least_one_process_is_started(count: int) -> None:
    assert (
        _line("torchrun", "torchrun train.py", count) == "torchrun --standalone --nproc-per-node=1 train.py"
    )


def test_the_count_is_always_a_number() -> None:
    assert _line("torchrun", "torchrun train.py", 8).split()[2] == "--nproc-per-node=8"


# A command without torchrun becomes one with it.


@each_row(
    ("command", "line"),
    [
        ("python train.py --lr 1", "torchrun --standalone --nproc-per-node=2 train.py --lr 1"),
        ("python3 -m train --lr 1", "torchrun --standalone --nproc-per-node=2 -m train --lr 1"),
        ("python -u -m train", "torchrun --standalone --nproc-per-node=2 -m train"),
        ("python -um train", "torchrun --standalone --nproc-per-node=2 -m train"),
        ("python -u train.py -u", "torchrun --standalone --nproc-per-node=2 train.py -u"),
        ("train.py --lr 1", "torchrun --standalone --nproc-per-node=2 train.py --lr 1"),
        ("./train.py", "torchrun --standalone --nproc-per-node=2 ./train.py"),
        ("./train.sh --lr 1", "torchrun --standalone --nproc-per-node=2 --no-python ./train.sh --lr 1"),
        ("python -c 'f()'", "torchrun --standalone --nproc-per-node=2 --no-python python -c 'f()'"),
        (
            "python -X dev train.py",
            "torchrun --standalone --nproc-per-node=2 --no-python python -X dev train.py",
        ),
        (
            "/venv/bin/python x.py",
            "/venv/bin/python -m torch.distributed.run --standalone --nproc-per-node=2 x.py",
        ),
        (
            "/venv/bin/python -u -m mod",
            "/venv/bin/python -m torch.distributed.run --standalone --nproc-per-node=2 -m mod",
        ),
        (
            "python x.py --nproc-per-node 9",
            "torchrun --standalone --nproc-per-node=2 x.py --nproc-per-node 9",
        ),
        ("./t.sh --standalone", "torchrun --standalone --nproc-per-node=2 --no-python ./t.sh --standalone"),
    ],
)
def test_a_command_without_torchrun_becomes_one_with_it(command: str, line: str) -> None:
    assert _line("torchrun", command) == line


def test_torchrun_behind_an_interpreters_options_is_not_started_twice() -> None:
    argv = _complete("torchrun", "python -u -m torch.distributed.run train.py").argv
    assert sum("torch" in word for word in argv) == 1


# Contradictions are reported and not corrected.


@each_row("given", ["--nproc-per-node=4", "--nproc_per_node 4", "--nproc-per-node 4"])
def test_a_count_that_contradicts_the_selection_is_a_warning(given: str) -> None:
    warning = _warnings(f"torchrun {given} train.py")
    assert "--nproc-per-node=4" in warning and "2 GPUs" in warning
    assert given in shlex.join(_complete("torchrun", f"torchrun {given} train.py").argv)


def test_one_device_is_one_device() -> None:
    assert _warnings("torchrun --nproc-per-node=4 x.py", 1).endswith("on 1 GPU")


def test_a_count_that_agrees_is_none() -> None:
    assert _warnings("torchrun --nproc-per-node=2 train.py") == ""


@pytest.mark.parametrize("word", ["auto", "gpu"])
def test_a_word_for_a_count_is_the_users_own(word: str) -> None:
    assert _warnings(f"torchrun --nproc-per-node={word} train.py") == ""


@each_row("odd", ["²", "2x", "", "-1", "9" * 5_000])
def test_an_odd_count_is_left_to_torchrun(odd: str) -> None:
    completed = _complete("torchrun", f"torchrun --nproc-per-node='{odd}' train.py")
    assert completed.argv[-2:] == (f"--nproc-per-node={odd}", "train.py")


def test_variables_that_change_torchruns_defaults_are_named() -> None:
    said = _warnings("torchrun x.py", environ={"PET_NPROC_PER_NODE": "3", "HOME": "/", "PET_NNODES": "2"})
    assert "PET_NNODES=2 PET_NPROC_PER_NODE=3" in said and "HOME" not in said


def test_python_has_nothing_to_warn_of() -> None:
    assert _complete("python", "python x.py", environ={"PET_NNODES": "2"}).warnings == ()


# Options of the script belong to the script.

_words = st.text(st.sampled_from("abn-=_ .3"), max_size=8)


@given(st.lists(_words, max_size=5), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_the_scripts_own_arguments_are_untouched(arguments: list[str], count: int) -> None:
    for start in (("torchrun", "train.py"), ("python", "train.py"), ("python", "-m", "train"), ("./t.sh",)):
        completed = _made("torchrun", (*start, *arguments), count)
        assert completed.argv[: len(completed.argv) - len(arguments)][-1] == start[-1]
        assert completed.argv[len(completed.argv) - len(arguments) :] == tuple(arguments)
        assert completed.warnings == ()


@given(st.lists(_words, max_size=6), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_every_word_of_the_user_stays_in_its_order(words: list[str], count: int) -> None:
    argv = list(_made("torchrun", ("torchrun", *words), count).argv)
    assert argv[len(argv) - len(words) :] == words
    assert len(argv) <= len(words) + 3


# From devices and a command to the launch.


def test_a_launch_has_the_devices_and_the_completed_command() -> None:
    launch = compose((gpu(5), gpu(4)), LaunchOptions(("python", "train.py"), "torchrun"), {})
    assert launch.line == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=5,4"
        " torchrun --standalone --nproc-per-node=2 train.py"
    )


def test_variables_before_the_command_stay_behind_ours() -> None:
    launch = compose((gpu(1),), LaunchOptions(("python", "x.py"), additions=(("OMP_NUM_THREADS", "4"),)), {})
    assert launch.changes[-1] == ("OMP_NUM_THREADS", "4")
    assert launch.line.endswith("CUDA_VISIBLE_DEVICES=1 OMP_NUM_THREADS=4 python x.py")


def test_devices_written_before_the_command_give_way_and_that_is_said() -> None:
    launch = compose(
        (gpu(1),), LaunchOptions(("python", "x.py"), additions=(("CUDA_VISIBLE_DEVICES", "7"),)), {}
    )
    assert launch.environment({})["CUDA_VISIBLE_DEVICES"] == "1"
    assert any("CUDA_VISIBLE_DEVICES=7" in remark for remark in launch.remarks)


def test_a_pet_variable_before_the_command_is_warned_of_too() -> None:
    launch = compose((gpu(1),), LaunchOptions(("torchrun", "x.py"), additions=(("PET_NNODES", "2"),)), {})
    assert any("PET_NNODES=2" in warning for warning in launch.warnings)


# A process uses one MIG instance only.

PARENT = gpu(0, mig=True)
PARTS = (instance(PARENT, 0), instance(PARENT, 1))
NAMED = {"torchrun": "/v/bin/torchrun", "accelerate": "/v/bin/accelerate"}


def _on_parts(command: str, *, torch: tuple[int, ...] | None = None, **environ: str) -> Launch:
    told = Told(programs=NAMED, versions={} if torch is None else {"torch": torch})
    return compose(PARTS, LaunchOptions(tuple(command.split())), {"HOME": "/h", **environ}, told)


def test_several_instances_for_one_process_are_a_warning() -> None:
    launch = _on_parts("python x.py")
    assert len(launch.warnings) == 1 and "MIG instance" in launch.warnings[0]
    assert compose(PARTS[:1], LaunchOptions(("python", "x.py")), {}).warnings == ()
    one = _on_parts("accelerate launch --num_processes 1 x.py")
    assert any("single process" in warning for warning in one.warnings)


@each_row("torch", [None, (2, 10), (2, 13)])
def test_several_instances_are_shown_to_a_process_each(torch: tuple[int, ...] | None) -> None:
    launch = _on_parts("torchrun x.py", torch=torch)
    assert shlex.join(launch.argv) == "torchrun --standalone --nproc-per-node=2 --virtual-local-rank x.py"
    assert launch.refusal is None
    (remark,) = launch.remarks
    assert remark.startswith("--virtual-local-rank: ")
    given = _on_parts("torchrun --virtual-local-rank x.py", torch=torch)
    assert given.argv.count("--virtual-local-rank") == 1
    by_accelerate = _on_parts("accelerate launch x.py", torch=torch)
    assert by_accelerate.environment({})["PET_VIRTUAL_LOCAL_RANK"] == "1"
    assert by_accelerate.refusal is None


@pytest.mark.parametrize("command", ["torchrun x.py", "accelerate launch x.py"])
def test_an_older_torch_cannot_and_so_it_is_refused(command: str) -> None:
    launch = _on_parts(command, torch=(2, 9, 1))
    assert launch.refusal is not None and "2.9.1" in launch.refusal and "2.10" in launch.refusal
    assert "PET_VIRTUAL_LOCAL_RANK" not in launch.environment({})


@pytest.mark.parametrize(("inner", "refused"), [("deepspeed", True), ("torchrun", False)])
def test_a_launcher_in_a_container_is_refused_as_outside(inner: str, refused: bool) -> None:
    launch = _on_parts(f"docker run image {inner} x.py")
    assert (launch.refusal is not None) == refused
    assert ("--virtual-local-rank" in launch.argv) != refused


def test_what_collectives_need_among_instances_of_one_gpu_is_said() -> None:
    """NCCL takes two ranks on one GPU for a mistake."""
    (warning,) = _on_parts("torchrun x.py").warnings
    assert "NCCL_MULTI_RANK_GPU_ENABLE=1" in warning
    assert _on_parts("torchrun x.py", NCCL_MULTI_RANK_GPU_ENABLE="1").warnings == ()
    apart = (instance(gpu(0, mig=True)), instance(gpu(1, mig=True)))
    assert compose(apart, LaunchOptions(("torchrun", "x.py")), {}, Told()).warnings == ()


# Variables of another run in a shell.

LEFT = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "NODE_RANK": "2"}


@each_row("launcher", LAUNCHERS)
@each_row("count", [1, 2])
def test_old_variables_of_ranks_do_not_reach_the_program(launcher: str, count: int) -> None:
    environ = {**LEFT, "HOME": "/h", "KEPT": "1"}
    launch = _complete(launcher, "python x.py", count, environ)
    left = launch.environment(environ).keys() & LEFT.keys()
    # torch's launcher sets them again for its processes.
    by_torch = launcher == "torchrun" or (launcher == "accelerate" and count > 1)
    assert left == (LEFT.keys() if by_torch else set())
    assert any("RANK=1 WORLD_SIZE=4" in remark for remark in launch.remarks) != by_torch
    assert launch.environment(environ)["KEPT"] == "1"


@pytest.mark.parametrize("command", ["bash train.sh", "./run"])
def test_a_shell_script_may_read_them(command: str) -> None:
    """`torchrun --node-rank $RANK` in a script, on a cluster that sets the variables."""
    assert LEFT.keys() <= _complete("python", command, 1, LEFT).environment(LEFT).keys()


def test_variables_of_ranks_that_are_written_before_the_command_stay() -> None:
    options = LaunchOptions(("env", "RANK=0", "python", "x.py"), additions=(("WORLD_SIZE", "2"),))
    launch = compose((gpu(1),), options, {"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "h"}, Told())
    environment = launch.environment({"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "h"})
    assert environment["WORLD_SIZE"] == "2" and environment["MASTER_ADDR"] == "h"
    assert compose((gpu(1),), LaunchOptions(("python", "x.py")), {"MASTER_ADDR": "h"}).changes[2:] == ()


def test_what_is_written_before_the_command_is_not_said_to_be_unset() -> None:
    inherited = {"RANK": "7", "LOCAL_RANK": "3", "MASTER_ADDR": "h"}
    launch = compose((gpu(1),), LaunchOptions(("env", "RANK=0", "python", "x.py")), inherited, Told())
    (remark,) = (remark for remark in launch.remarks if "unset" in remark)
    assert "LOCAL_RANK=3 MASTER_ADDR=h unset" in remark and "RANK=7" not in remark
    unset = [name for name, value in launch.changes if value is None]
    assert unset == ["LOCAL_RANK", "MASTER_ADDR"]


# One process on several devices.


TRAINER = "from transformers import Trainer, TrainingArguments"


def _said_of_trainer(remarks: Sequence[str]) -> list[str]:
    return [remark for remark in remarks if "Trainer of transformers" in remark]


@each_row(
    ("command", "text", "count", "said"),
    [
        ("python x.py", TRAINER, 2, True),
        ("python -X dev x.py", TRAINER, 2, True),
        ("uv run x.py", TRAINER, 2, True),
        ("python -m x", TRAINER, 2, True),
        (f"python -c '{TRAINER}'", "", 2, True),
        ("bash run.sh", TRAINER, 2, True),
        ("python x.py", TRAINER, 1, False),
        ("python x.py", TRAINER, 0, False),
        ("torchrun x.py", TRAINER, 2, False),
        ("bash ranks.sh", TRAINER, 2, False),
        ("python x.py", "from transformers import AutoModel", 2, False),
        ("python x.py", "import jax", 2, False),
        ("python x.py", "import tensorflow as tf", 2, False),
        ("python x.py", "from lightning import Trainer", 2, False),
        ("python unknown.py", TRAINER, 2, False),
    ],
)
def test_that_the_trainer_in_one_process_may_be_slow_is_said_once_and_of_it_only(
    command: str, text: str, count: int, said: bool
) -> None:
    files = {"x.py": text, "run.sh": "echo a\npython x.py", "ranks.sh": "torchrun x.py"}
    options = LaunchOptions(tuple(shlex.split(command)))
    remarks = compose([gpu(place) for place in range(count)], options, {}, Told(files)).remarks
    assert len(_said_of_trainer(remarks)) == said


@each_row(
    ("link", "figure"),
    [("NV18", "8.5 % slower"), ("NV4", "8.5 % slower"), ("PHB", "15.9 % faster"), (None, "")],
)
def test_it_is_said_what_holds_for_the_links_of_the_devices(link: str | None, figure: str) -> None:
    """transformers 4.49, docs/source/en/perf_train_gpu_many.md: 110.6 s; DDP: 101.9 s, without NVLink 131.4
    s."""
    options = LaunchOptions(("python", "-c", TRAINER))
    (said,) = _said_of_trainer(compose([gpu(0), gpu(1)], options, {}, Told(), link=link).remarks)
    assert figure in said and ("%" in said) == bool(figure)
    assert link is None or link in said


@each_row(("name", "splits"), [("idle", True), ("amd", True), ("intel", False), ("gaudi", False)])
def test_what_one_process_makes_of_several_devices_is_said_as_it_is_with_their_vendor(
    name: str, splits: bool
) -> None:
    """transformers, training_args.py: `_n_gpu` is more than 1 for torch.cuda only."""
    devices = at(BOXES[name], 0.0, 0.0).devices[:2]
    options = LaunchOptions(("python", "-c", TRAINER))
    (said,) = _said_of_trainer(compose(devices, options, {}, Told(), link="PHB").remarks)
    assert ("DataParallel" in said) == splits and ("first one only" in said) != splits


def test_no_devices_is_the_cpu() -> None:
    launch = compose((), LaunchOptions(("python", "x.py")), {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert launch.environment({"CUDA_VISIBLE_DEVICES": "0,1"})["CUDA_VISIBLE_DEVICES"] == ""


def test_the_environment_is_looked_at_and_never_changed() -> None:
    environ = {"PET_NNODES": "2", "CUDA_VISIBLE_DEVICES": "3"}
    launch = compose((gpu(1),), LaunchOptions(("torchrun", "x.py"), additions=(("A", "1"),)), environ)
    launch.environment(environ)
    assert environ == {"PET_NNODES": "2", "CUDA_VISIBLE_DEVICES": "3"}
