"""`accelerate launch` on the selected devices."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from messages import numbers
from table_tests import each_row
from unit.accelerating import DEFAULT, FSDP_2, HOME, MODULE, ONE, SPREAD, TWO, made
from unit.builders import gpu, instance
from unit.host_environments import Told
from unit.launches import line, warning

# The options that are added.


@each_row(
    ("command", "count", "expected"),
    [
        ("accelerate launch train.py --lr 1", 2, f"accelerate launch {SPREAD} train.py --lr 1"),
        ("accelerate-launch train.py", 2, f"accelerate-launch {SPREAD} train.py"),
        (f"python -m {MODULE} x.py", 2, f"python -m {MODULE} {SPREAD} x.py"),
        (f"python -X dev -m {MODULE} x.py", 2, f"python -X dev -m {MODULE} {SPREAD} x.py"),
        ("accelerate launch -m train", 2, f"accelerate launch {SPREAD} -m train"),
        ("accelerate launch -qm train", 2, f"accelerate launch {SPREAD} -qm train"),
        ("accelerate launch --no_python ./t.sh", 2, f"accelerate launch {SPREAD} --no_python ./t.sh"),
        ("accelerate launch train.py", 1, f"accelerate launch {ONE} train.py"),
        ("accelerate launch train.py", 0, f"accelerate launch --cpu {ONE} train.py"),
        ("python train.py --lr 1", 2, f"accelerate launch {SPREAD} train.py --lr 1"),
        ("python -m train", 2, f"accelerate launch {SPREAD} --module train"),
        ("accelerate launch --ipex x.py --cpu", 2, f"accelerate launch {SPREAD} --ipex x.py --cpu"),
        ("./t.sh", 2, f"accelerate launch {SPREAD} --no_python ./t.sh"),
        ("/v/bin/python x.py", 2, f"/v/bin/python -m accelerate.commands.launch {SPREAD} x.py"),
        (
            "accelerate launch --mixed_precision bf16 train.py",
            2,
            f"accelerate launch {SPREAD} --mixed_precision bf16 train.py",
        ),
    ],
)
def test_a_command_is_completed(command: str, count: int, expected: str) -> None:
    assert line(made(command, count)) == expected


def _without(word: str) -> str:
    return SPREAD.replace(f" {word}", "")


@each_row(
    ("given_", "expected"),
    [
        ("--multi_gpu", f"{TWO} --main_process_port=0 --multi_gpu"),
        ("--multi-gpu", f"{TWO} --main_process_port=0 --multi-gpu"),
        ("--use_fsdp", f"{TWO} --main_process_port=0 {FSDP_2} --use_fsdp"),
        ("--use_fsdp --fsdp_version 1", f"{TWO} --main_process_port=0 --use_fsdp --fsdp_version 1"),
        ("--use_deepspeed --zero_stage 3", f"{TWO} --main_process_port=0 --use_deepspeed --zero_stage 3"),
        ("--use_megatron_lm", f"{TWO} --main_process_port=0 --use_megatron_lm"),
        ("--num-processes 2", f"{_without('--num_processes=2')} --num-processes 2"),
        ("--num_machines=1", f"{_without('--num_machines=1')} --num_machines=1"),
        ("--gpu_ids all", f"{_without('--gpu_ids=all')} --gpu_ids all"),
        ("--main_process_port 7", f"{_without('--main_process_port=0')} --main_process_port 7"),
        ("--tpu", f"{TWO} --tpu"),
    ],
)
def test_what_the_user_gave_is_not_doubled(given_: str, expected: str) -> None:
    assert line(made(f"accelerate launch {given_} x.py")) == f"accelerate launch {expected} x.py"


def test_one_process_is_not_a_distributed_one() -> None:
    """`--multi_gpu` with one process is an error of accelerate's."""
    assert "--multi_gpu" not in made("accelerate launch --num_processes=1 x.py").argv
    assert "--multi_gpu" not in made("accelerate launch x.py", 1).argv


def test_logs_of_ranks_go_where_they_are_asked_for() -> None:
    assert "--log_dir=/l --tee=3 x.py" in line(made("accelerate launch x.py", logs="/l"))
    assert "--log_dir=/l --tee 1 x.py" in line(made("accelerate launch --tee 1 x.py", logs="/l"))
    assert "/l" not in line(made("accelerate launch --log_dir /m x.py", logs="/l"))


# Contradictions are reported and not corrected.


@each_row(
    ("words", "count", "said"),
    [
        ("--num_processes=4", 2, "the command asks for --num_processes=4 on 2 GPUs"),
        ("--cpu", 2, "--cpu in the command leaves the selected devices unused"),
        ("--use_fsdp", 0, "the command asks for --use_fsdp, and no device is selected"),
    ],
)
def test_a_contradiction_is_a_warning_and_stays(words: str, count: Any, said: str) -> None:
    launch = made(f"accelerate launch {words} x.py", count)
    assert said in warning(launch)
    assert launch.argv[-2:] == (words, "x.py")


def test_the_devices_that_were_chosen_may_be_named_again() -> None:
    launch = made("accelerate launch --gpu_ids=2,0 x.py", (2, 0))
    assert launch.argv[-2:] == ("--gpu_ids=2,0", "x.py")
    assert (launch.warnings, launch.remarks) == ((), ())


@each_row("words", ["--gpu_ids=0,1", "--gpu-ids 2", "--gpu_ids=0,2"])
def test_other_devices_give_way_and_that_is_said(words: str) -> None:
    launch = made(f"accelerate launch {words} x.py", (2, 0))
    assert line(launch) == f"accelerate launch {SPREAD} x.py" and launch.own is None
    (remark,) = launch.remarks
    assert words in remark


@each_row(("words", "count"), [("--multi_gpu", 1), ("--multi_gpu --num_processes 1", 2), ("--multi_gpu", 0)])
def test_one_process_is_not_a_run_on_several(words: str, count: int) -> None:
    """accelerate stops with a ValueError there."""
    launch = made(f"accelerate launch {words} x.py", count)
    assert "--multi_gpu" not in launch.argv
    assert any(remark.startswith("--multi_gpu left out") for remark in launch.remarks)


# FSDP.


@each_row(
    ("words", "added"),
    [
        ("--use_fsdp", FSDP_2),
        ("--use_fsdp --fsdp_offload_params true", FSDP_2),
        ("--use_fsdp --fsdp-auto-wrap-policy SIZE_BASED_WRAP", "--fsdp_version=2"),
        ("--use_fsdp --fsdp_version=2", ""),
        ("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP", ""),
        ("--use_fsdp --fsdp_use_orig_params false", ""),
        ("--use_deepspeed", ""),
    ],
)
def test_fsdp_without_its_version_is_fsdp_2_with_a_unit_a_layer(words: str, added: str) -> None:
    launch = made(f"accelerate launch {words} x.py")
    ours = [word for word in launch.argv[: -len(words.split()) - 1] if word.startswith("--fsdp")]
    assert " ".join(ours) == added
    assert any("FSDP 1" in remark for remark in launch.remarks) == bool(added)


@pytest.mark.parametrize(("package", "version"), [("accelerate", (1, 5, 2)), ("torch", (2, 5, 1))])
def test_versions_without_fsdp_2_are_left_at_theirs(package: str, version: tuple[int, ...]) -> None:
    told = Told(programs={"accelerate": "/v/bin/accelerate"}, versions={package: version})
    words = ("accelerate", "launch", "--use_fsdp", "x.py")
    launch = compose([gpu(0), gpu(1)], LaunchOptions(words), HOME, told)
    assert not any(word.startswith("--fsdp") for word in launch.argv)


@each_row("launcher", ["torchrun", "python", "deepspeed", "mpirun"])
@each_row(
    ("words", "config", "lost"),
    [
        ("--use_fsdp", None, "FSDP from --use_fsdp"),
        ("--use_deepspeed --zero_stage 3", None, "DEEPSPEED from --use_deepspeed"),
        ("", "distributed_type: FSDP\n", f"FSDP from {DEFAULT}"),
        ("--config_file /c.yaml", None, "MEGATRON_LM from /c.yaml"),
        ("--multi_gpu", "distributed_type: FSDP\n", None),
        ("", "distributed_type: MULTI_GPU\n", None),
        ("", None, None),
    ],
)
def test_another_launcher_does_not_drop_what_accelerate_makes_of_the_script(
    launcher: str, words: str, config: str | None, lost: str | None
) -> None:
    files = {"/c.yaml": "distributed_type: MEGATRON_LM\n"}
    launch = made(f"accelerate launch {words} x.py", config=config, files=files, launcher=launcher)
    assert (launch.refused is not None) == (lost is not None)
    assert lost is None or (lost in (launch.refusal or "") and launcher in (launch.refusal or ""))
    assert made(f"accelerate launch {words} x.py", config=config, files=files).refusal is None


def test_several_machines_need_all_their_processes_and_no_free_port() -> None:
    launch = made("accelerate launch --num_machines=2 --machine_rank 0 --main_process_ip h x.py")
    assert launch.warnings == ()
    assert "--num_processes=4" in launch.argv
    assert not any("main_process_port" in word for word in launch.argv)
    agreed = made("accelerate launch --num_machines=2 --num_processes=4 x.py")
    assert not any("4 on 2" in said for said in agreed.warnings)


def test_several_processes_on_the_cpu_are_only_one() -> None:
    for launch, asked in (
        (made("accelerate launch x.py", 0, processes=3), 3),
        (made("accelerate launch --cpu --num_processes 2 x.py", 0), 2),
    ):
        assert "CPU" in warning(launch) and numbers(warning(launch)) == [asked]


def test_torchruns_variables_count_and_are_named() -> None:
    launch = made("accelerate launch x.py", environ={**HOME, "PET_MAX_RESTARTS": "3"})
    assert "torchrun's defaults from PET_MAX_RESTARTS=3" in warning(launch)
    assert "machines" not in launch.warnings[0]
    left = {**HOME, "PET_NNODES": "2"}
    unset = made("accelerate launch x.py", environ=left)
    assert "PET_NNODES" not in unset.environment(left) and any("unset" in said for said in unset.remarks)
    several = made("accelerate launch --num_machines 2 x.py", environ=left)
    assert several.environment(left)["PET_NNODES"] == "2"
    waits = made("env PET_NNODES=2 accelerate launch x.py")
    assert "PET_NNODES=2" in warning(waits) and "2 machines" in warning(waits)
    assert made("accelerate launch x.py", 1, environ={**HOME, "PET_NNODES": "2"}).warnings == ()


# The user's own options stay.

_words = st.text(st.sampled_from("abn-=_ .3"), max_size=8)
_options = st.lists(
    st.sampled_from(
        (
            *("--multi_gpu", "--num_processes=2", "--num_processes 4", "--gpu-ids=all", "--use_fsdp", "-q"),
            *("--cpu", "--main_process_port=7", "--mixed_precision bf16", "--config_file=/c.yaml", "--debug"),
        )
    ),
    max_size=4,
)
_configs = st.sampled_from((None, "distributed_type: FSDP", "distributed_type: 'NO'\ngpu_ids: '1'", "[", ""))


@given(_options, st.lists(_words, max_size=4), st.integers(0, 4), _configs)
@settings(max_examples=60, deadline=None)
def test_every_word_of_the_user_stays_in_its_order_and_twice_is_once(
    options: list[str], arguments: list[str], count: int, config: str | None
) -> None:
    words = [word for option in options for word in option.split()] + ["train.py", *arguments]
    files = {} if config is None else {DEFAULT: config, "/c.yaml": config}
    once = compose(
        [gpu(index) for index in range(count)],
        LaunchOptions(("accelerate", "launch", *words)),
        HOME,
        Told(files),
    )
    assert once.argv[:2] == ("accelerate", "launch")
    if any("left out" in remark for remark in once.remarks):
        words = [word for word in words if word != "--multi_gpu" or word in arguments]
    assert list(once.argv[len(once.argv) - len(words) :]) == words
    twice = compose([gpu(index) for index in range(count)], LaunchOptions(once.argv), HOME, Told(files))
    assert twice.argv == once.argv


def test_an_instance_is_visible_by_its_uuid() -> None:
    part = instance(gpu(0, mig=True))
    launch = compose([part], LaunchOptions(("accelerate", "launch", "x.py")), HOME, Told())
    assert shlex.join(launch.argv) == f"accelerate launch {ONE} x.py"
    assert launch.environment({})["CUDA_VISIBLE_DEVICES"] == part.uuid


def test_another_interpreter_starts_accelerate_with_all_the_users_words() -> None:
    for command in ("accelerate launch --debug x.py", "python -m accelerate.commands.launch --debug x.py"):
        launch = made(command, 1, python="/v/bin/python")
        assert line(launch) == f"/v/bin/python -m accelerate.commands.launch {ONE} --debug x.py"
