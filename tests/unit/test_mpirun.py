"""`mpirun` starts one process per device, and the devices are in the variable."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers import mpirun
from messages import of_replaced_words
from table_tests import each_row
from unit.builders import gpu, instance
from unit.host_environments import Told

ELSEWHERE = "processes on other machines get other devices, by their own indices"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def made(command: str, count: int = 2, **launch_options: Any) -> Launch:
    """The launch of a command."""
    wanted = LaunchOptions(tuple(shlex.split(command)), **{"launcher": "mpirun", **launch_options})
    return compose([gpu(index) for index in range(count)], wanted, {}, Told())


def test_this_machine_alone_is_no_other() -> None:
    assert made("mpirun -H localhost:2 ./t").warnings == ()
    assert made("mpirun -np 2 --host this-box ./t").warnings == ()


def test_a_number_for_all_machines_is_compared_with_all_of_them() -> None:
    assert not [text for text in made("mpirun -np 4 -H a:2,b:2 ./t").warnings if "-np" in text]
    assert [text for text in made("mpirun -np 4 -H a:2,b:2 ./t", count=3).warnings if "-np" in text]


def line(launch: Launch) -> str:
    """The command as a line; asserts that the launch has no warning."""
    assert launch.warnings == ()
    return shlex.join(launch.argv)


@each_row(
    ("command", "count", "expected"),
    [
        ("mpirun python x.py -np 9", 2, "mpirun -np 2 python x.py -np 9"),
        ("mpirun python x.py", 1, "mpirun -np 1 python x.py"),
        ("mpirun python x.py", 0, "mpirun -np 1 python x.py"),
        ("mpirun -np 2 python x.py", 2, "mpirun -np 2 python x.py"),
        ("mpirun -n 2 python x.py", 2, "mpirun -n 2 python x.py"),
        ("mpirun --np 2 python x.py", 2, "mpirun --np 2 python x.py"),
        ("mpirun -c 2 python x.py", 2, "mpirun -c 2 python x.py"),
        ("mpirun -np=2 python x.py", 2, "mpirun -np=2 python x.py"),
        ("mpirun -npernode 2 python x.py", 2, "mpirun -npernode 2 python x.py"),
        ("mpirun -ppn 2 python x.py", 2, "mpirun -ppn 2 python x.py"),
        ("mpirun -pernode python x.py", 1, "mpirun -pernode python x.py"),
        ("mpirun --oversubscribe -x A ./t", 2, "mpirun -np 2 --oversubscribe -x A ./t"),
        ("mpirun --mca btl self -v ./t -x", 2, "mpirun -np 2 --mca btl self -v ./t -x"),
        ("mpiexec -genv A=1 ./t", 2, "mpiexec -np 2 -genv A=1 ./t"),
        ("mpiexec -genv A 1 ./t", 2, "mpiexec -np 2 -genv A 1 ./t"),
        ("/usr/bin/mpiexec.hydra ./t", 2, "/usr/bin/mpiexec.hydra -np 2 ./t"),
        ("mpirun --bind-to none ./t", 2, "mpirun -np 2 --bind-to none ./t"),
        ("python x.py", 2, "mpirun -np 2 python x.py"),
        ("python -m train", 2, "mpirun -np 2 python -m train"),
        ("/v/bin/python x.py", 2, "mpirun -np 2 /v/bin/python x.py"),
        ("./t.sh -n", 2, "mpirun -np 2 ./t.sh -n"),
        ("train.py", 2, "mpirun -np 2 python train.py"),
        ("torchrun -m train", 2, "mpirun -np 2 python -m train"),
    ],
)
def test_a_command_is_completed(command: str, count: int, expected: str) -> None:
    assert line(made(command, count)) == expected


def test_the_devices_are_in_the_variable() -> None:
    assert made("mpirun ./t").environment({})["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_more_processes_than_devices_can_be_asked_for() -> None:
    launch = made("mpirun ./t", processes=4)
    assert "-np 4" in shlex.join(launch.argv)
    (warning,) = launch.warnings
    assert "-np=4" in warning and "2 GPUs" in warning


@each_row(
    ("command", "said"),
    [
        ("mpirun -np 4 ./t", "the command asks for -np=4 on 2 GPUs"),
        ("mpirun -N 3 ./t", "the command asks for -np=3 on 2 GPUs"),
        ("mpirun -H a,b ./t", f"-H: {ELSEWHERE}"),
        ("mpirun --hostfile h ./t", f"--hostfile: {ELSEWHERE}"),
        (
            "mpirun -x CUDA_VISIBLE_DEVICES=3 ./t : -x CUDA_VISIBLE_DEVICES=0 ./t",
            "-x CUDA_VISIBLE_DEVICES=3 in the command overrides the selected devices",
        ),
    ],
)
def test_a_contradiction_is_a_warning_and_stays(command: str, said: str) -> None:
    launch = made(command)
    assert launch.warnings[:1] == (said,)
    assert shlex.join(launch.argv).endswith(command.partition(" ")[2])


@each_row(
    ("command", "words"),
    [
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES=3 ./t", "-x CUDA_VISIBLE_DEVICES={}"),
        ("mpiexec -np 2 -env CUDA_VISIBLE_DEVICES 3 ./t", "-env CUDA_VISIBLE_DEVICES {}"),
        ("mpiexec -np 2 -genv CUDA_VISIBLE_DEVICES=3 ./t", "-genv CUDA_VISIBLE_DEVICES={}"),
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES=0 ./t", "-x CUDA_VISIBLE_DEVICES={}"),
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES=1,0 ./t", "-x CUDA_VISIBLE_DEVICES={}"),
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES= ./t", "-x CUDA_VISIBLE_DEVICES={}"),
        ("mpirun -np 2 -x CUDA_DEVICE_ORDER=FASTEST_FIRST ./t", "-x CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ],
)
def test_a_list_of_the_command_is_rewritten_to_the_selected_devices(command: str, words: str) -> None:
    launch = made(command)
    start, end = command.split()[0], "./t"
    assert line(launch) == f"{start} -np 2 {words.format('0,1')} {end}"
    assert len(of_replaced_words(launch.remarks)) == 1
    again = made(shlex.join(launch.argv))
    assert again.argv == launch.argv and not of_replaced_words(again.remarks)


def test_a_list_is_emptied_for_the_cpu_and_named_by_uuid_where_that_is_wanted() -> None:
    command = "mpirun -np 1 -x CUDA_VISIBLE_DEVICES=3 ./t"
    assert "CUDA_VISIBLE_DEVICES=" in made(command, 0).argv
    assert f"CUDA_VISIBLE_DEVICES={gpu(0).uuid}" in made(command, 1, ids="uuid").argv


def test_several_instances_are_refused_as_every_process_would_use_the_first() -> None:
    parts = [instance(gpu(0, mig=True), index) for index in range(2)]
    launch = compose(parts, LaunchOptions(("mpirun", "./t")), {}, Told())
    assert launch.refusal is not None and "--launcher torchrun" in launch.refusal
    assert compose(parts[:1], LaunchOptions(("mpirun", "./t")), {}, Told()).refusal is None


def test_a_variable_that_is_only_passed_on_is_none() -> None:
    assert made("mpirun -x CUDA_VISIBLE_DEVICES ./t").warnings == ()


def test_several_programs_have_their_own_counts() -> None:
    command = "mpirun -np 1 ./a : -np 1 ./b"
    assert line(made(command)) == command


def test_every_process_sees_all_devices_and_that_is_said() -> None:
    assert "rank" in made("mpirun ./t").remarks[0]
    assert made("mpirun ./t", 1).remarks == ()
    assert "--output-filename" in made("mpirun ./t", 1, logs="/l").remarks[0]


def test_its_options_but_for_the_count_are_named_when_they_are_left_out() -> None:
    launch = made("mpirun -np 2 --mca btl self -v python x.py --lr 1", launcher="torchrun")
    assert line(launch) == "torchrun --standalone --nproc-per-node=2 x.py --lr 1"
    (remark,) = launch.remarks
    assert remark.endswith(": --mca btl self -v")


@each_row(
    ("command", "expected"),
    [
        ("mpirun -v python x.py", "mpirun -np 2 -v /v/python x.py"),
        ("mpirun -v train.py", "mpirun -np 2 -v /v/python train.py"),
        ("mpirun -v ./t", "mpirun -np 2 -v ./t"),
    ],
)
def test_another_interpreter_is_for_the_program(command: str, expected: str) -> None:
    assert line(made(command, python="/v/python")) == expected


def test_the_table_of_options_is_open_mpis_own() -> None:
    """From the installed mpirun: an option that takes a value in a new version fails here."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    told = subprocess.run(
        ["mpirun", "--help", "full"],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **AS_ROOT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout
    if "Open MPI) 4" not in told:
        pytest.skip("the installed mpirun is not Open MPI 4")
    found = re.findall(r"^ *(-[\w-]+(?:\|-+[\w-]+)*)((?: +<arg\d>)*)", told, re.MULTILINE)
    assert len(found) > 80
    for names, values in found:
        count = values.count("<arg")
        for name in (text.lstrip("-") for text in names.split("|")):
            if name in ("h", "help"):
                continue  # with or without
            assert (name in mpirun.OPTIONS.flags) == (count == 0), name
            assert (name in mpirun.OPTIONS.pairs) == (count == 2), name


_words = st.text(st.sampled_from("abn-=_ .3:"), max_size=6)
_options = st.lists(
    st.sampled_from(("-np 2", "-n=3", "--mca a b", "-v", "-x A=1", "--host h", "-genv A=1", "-pernode")),
    max_size=3,
)


@given(_options, st.lists(_words, max_size=4), st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_every_word_of_the_user_stays_in_its_order_and_twice_is_once(
    options: list[str], arguments: list[str], count: int
) -> None:
    words = [word for option in options for word in option.split()] + ["./t", *arguments]
    devices = [gpu(index) for index in range(count)]
    once = compose(devices, LaunchOptions(("mpirun", *words)), {}, Told())
    assert once.argv[0] == "mpirun"
    assert list(once.argv[len(once.argv) - len(words) :]) == words
    assert len(once.argv) <= len(words) + 3
    assert compose(devices, LaunchOptions(once.argv), {}, Told()).argv == once.argv
