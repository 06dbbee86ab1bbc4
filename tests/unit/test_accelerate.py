"""`accelerate launch` on the chosen devices."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from messages import numbers
from unit.accelerating import DEFAULT, HOME, MODULE, ONE, SPREAD, TWO, line, made, warning
from unit.builders import gpu, instance
from unit.host_environments import Told

# What is added.


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("--multi_gpu", f"{TWO} --main_process_port=0 --multi_gpu"),
        ("--multi-gpu", f"{TWO} --main_process_port=0 --multi-gpu"),
        ("--use_fsdp", f"{TWO} --main_process_port=0 --use_fsdp"),
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


# Contradictions are said and not mended.


@pytest.mark.parametrize(
    ("words", "count", "said"),
    [
        ("--num_processes=4", 2, "the command asks for --num_processes=4 on 2 devices"),
        ("--gpu_ids=0,1", (2, 0), "--gpu_ids=0,1 of the command overrides the chosen devices"),
        ("--cpu", 2, "--cpu of the command leaves the chosen devices unused"),
        ("--multi_gpu", 0, "the command asks for --multi_gpu, and no device is chosen"),
        ("--use_fsdp", 0, "the command asks for --use_fsdp, and no device is chosen"),
        ("--enable_cpu_affinity", (2, 0), "GPU 2's process gets the CPUs near GPU 0"),
    ],
)
def test_a_contradiction_is_a_warning_and_stays(words: str, count: Any, said: str) -> None:
    launch = made(f"accelerate launch {words} x.py", count)
    assert said in warning(launch)
    assert launch.argv[-2:] == (words, "x.py")


def test_the_devices_that_were_chosen_may_be_named_again() -> None:
    assert made("accelerate launch --gpu_ids=2,0 x.py", (2, 0)).warnings == ()


@pytest.mark.parametrize("devices", [(0,), (0, 1), (0, 1, 2)])
def test_affinity_by_index_is_right_for_the_first_devices(devices: tuple[int, ...]) -> None:
    assert made("accelerate launch --enable_cpu_affinity x.py", devices).warnings == ()


def test_several_machines_need_all_their_processes_and_no_free_port() -> None:
    launch = made("accelerate launch --num_machines=2 --machine_rank 0 --main_process_ip h x.py")
    assert "--launcher torchrun" in warning(launch)
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
    waits = made("env PET_NNODES=2 accelerate launch x.py")
    assert "PET_NNODES=2" in warning(waits) and "2 machines" in warning(waits)
    assert made("accelerate launch x.py", 1, environ={**HOME, "PET_NNODES": "2"}).warnings == ()


# What the user wrote stays.

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
@settings(max_examples=200, deadline=None)
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
