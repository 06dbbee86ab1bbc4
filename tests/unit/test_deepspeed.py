"""`deepspeed` on the selected devices: by --include where possible, else by its second stage."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device
from gputui.launching.compose import compose, why_not_on_machines
from gputui.launching.host_environment import ThisHost
from gputui.launching.intent import CommandContext
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers.deepspeed import HOSTFILE, Deepspeed
from gputui.vendors.registry import default_vendor
from messages import numbers, of_replaced_words
from table_tests import each_row
from unit.builders import gpu, instance
from unit.host_environments import Told
from unit.launches import line, warning
from unit.real_parsers import need

INCLUDED = "--include=localhost:0,2 --master_port=29777"
SECOND = "deepspeed.launcher.launch"
ADDRESS = "W --master_addr=127.0.0.1"
STAGE = f"{ADDRESS} --master_port=29777"
BY_INCLUDE = "deepspeed gets the devices through --include; it then ignores CUDA_VISIBLE_DEVICES"
MODULE = "deepspeed.launcher.runner"
PORT = "--master_port=29777"
PART = instance(gpu(0, mig=True))


def made(
    command: str, indices: Sequence[int] = (0, 2), told: Told | None = None, **launch_options: Any
) -> Launch:
    """The launch of a command on devices, by index."""
    return on([gpu(index) for index in indices], command, told, **launch_options)


def on(devices: Sequence[Device], command: str, told: Told | None = None, **launch_options: Any) -> Launch:
    """The launch of a command on devices."""
    wanted = LaunchOptions(tuple(shlex.split(command)), **{"launcher": "deepspeed", **launch_options})
    return compose(devices, wanted, {"PATH": "/bin"}, told or Told())


# Ascending indices: by --include, without the variable.


@each_row(
    ("command", "expected"),
    [
        ("deepspeed train.py --lr 1", f"deepspeed {INCLUDED} train.py --lr 1"),
        ("python train.py", f"deepspeed {INCLUDED} train.py"),
        ("python -m train", f"deepspeed {INCLUDED} --module train"),
        ("./t.sh", f"deepspeed {INCLUDED} --no_python ./t.sh"),
        ("deepspeed.pt x.py", f"deepspeed.pt {INCLUDED} x.py"),
        ("ds x.py", f"ds {INCLUDED} x.py"),
        (f"python -m {MODULE} x.py", f"python -m {MODULE} {INCLUDED} x.py"),
        ("/v/bin/python x.py", f"/v/bin/python -m {MODULE} {INCLUDED} x.py"),
        ("deepspeed --master_port 7 x.py", "deepspeed --include=localhost:0,2 --master_port 7 x.py"),
        ("deepspeed --save x.py", f"deepspeed {INCLUDED} --save x.py"),
        ("deepspeed --no_ssh x.py --include y", f"deepspeed {INCLUDED} --no_ssh x.py --include y"),
        ("deepspeed --module t", f"deepspeed {INCLUDED} --module t"),
        ("deepspeed --elastic_training x.py -i y", f"deepspeed {INCLUDED} --elastic_training x.py -i y"),
    ],
)
def test_ascending_devices_are_given_by_include(command: str, expected: str) -> None:
    launch = made(command)
    assert line(launch) == expected
    assert launch.remarks == (BY_INCLUDE,)


def test_the_variable_is_taken_away_where_include_says_the_devices() -> None:
    """deepspeed would say that it ignores the variable, and `device_count` must see all included devices."""
    environment = made("deepspeed x.py").environment({"CUDA_VISIBLE_DEVICES": "5"})
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_where_no_port_is_free_that_is_said() -> None:
    """If every ephemeral port of a box is in use, the call must not end with a traceback."""
    launch = on([gpu(0)], "deepspeed x.py", Told(port=None))
    assert shlex.join(launch.argv) == "deepspeed --include=localhost:0 x.py"
    assert "no TCP port" in warning(launch) and "--master_port" in warning(launch)


def test_one_device_is_one_process() -> None:
    assert line(made("deepspeed x.py", (3,))) == f"deepspeed --include=localhost:3 {PORT} x.py"


def test_logs_of_ranks_go_where_they_are_asked_for() -> None:
    assert "--enable_each_rank_log=/l" in made("deepspeed x.py", logs="/l").argv
    assert "--enable_each_rank_log=/l" not in made("deepspeed --enable_each_rank_log /m x.py", logs="/l").argv


@each_row(
    ("command", "together", "named"),
    [
        ("torchrun x.py", False, None),
        ("deepspeed x.py", True, None),
        ("accelerate launch x.py", False, "--on"),
        ("python x.py", True, "--launcher torchrun"),
    ],
)
def test_who_starts_on_several_machines(command: str, together: bool, named: str | None) -> None:
    refused = why_not_on_machines(LaunchOptions(tuple(command.split()), nodes=2), together)
    assert refused is None if named is None else refused is not None and named in refused


def test_torchrun_is_no_remedy_for_a_server() -> None:
    refused = why_not_on_machines(LaunchOptions(("vllm", "serve", "m"), nodes=2), True)
    assert refused is not None and "--launcher" not in refused


def test_what_deepspeed_has_no_word_for_is_said() -> None:
    launch = made("deepspeed x.py", processes=3, nodes=2, numa=True)
    processes, machines = launch.warnings
    assert "deepspeed" in processes and numbers(processes) == [3]
    assert "--launcher torchrun" in machines and "--on" in machines
    (remark,) = (each for each in launch.remarks if "--numa-binding" in each)
    assert "--bind_cores_to_rank" in remark


# All other devices: by its second stage, with the reason.


def world(launch: Launch) -> list[Any]:
    """The devices in the command line of a second stage."""
    (word,) = (word for word in launch.argv if word.startswith("--world_info="))
    found: dict[str, list[Any]] = json.loads(base64.urlsafe_b64decode(word.partition("=")[2]))
    assert list(found) == ["localhost"]
    return found["localhost"]


def second(launch: Launch) -> str:
    """The command line of a second stage, with W for its devices; asserts that there is no warning."""
    return re.sub("--world_info=[^ ]+", "W", line(launch))


@each_row(
    ("devices", "ids", "listed", "visible", "reason"),
    [
        ([gpu(2), gpu(0)], "index", [2, 0], "2,0", "would sort the devices and run on 0,2"),
        ([gpu(0), gpu(2)], "uuid", [gpu(0).uuid, gpu(2).uuid], f"{gpu(0).uuid},{gpu(2).uuid}", "UUIDs"),
        ([PART], "index", [PART.uuid], PART.uuid, "MIG instances"),
        ([], "index", [""], "", "an empty CUDA_VISIBLE_DEVICES"),
    ],
)
def test_what_the_first_stage_cannot_keep_goes_by_the_second(
    devices: list[Device], ids: Any, listed: list[Any], visible: str, reason: str
) -> None:
    launch = on(devices, "deepspeed train.py --deepspeed ds.json", ids=ids)
    assert second(launch) == f"python -m {SECOND} {STAGE} train.py --deepspeed ds.json"
    assert world(launch) == listed
    assert launch.environment({})["CUDA_VISIBLE_DEVICES"] == visible
    assert reason in launch.remarks[0] and "second stage" in launch.remarks[0]
    assert launch.launcher == "deepspeed"


@each_row(
    ("command", "expected"),
    [
        ("deepspeed --module t", f"python -m {SECOND} {STAGE} --module t"),
        ("deepspeed --no_python ./t.sh", f"python -m {SECOND} {STAGE} --no_python ./t.sh"),
        (f"/v/bin/python -X dev -m {MODULE} x.py", f"/v/bin/python -X dev -m {SECOND} {STAGE} x.py"),
        ("deepspeed --no_local_rank -- x.py", f"python -m {SECOND} {STAGE} --no_local_rank -- x.py"),
        ("deepspeed --master_port 7 x.py", f"python -m {SECOND} {ADDRESS} --master_port=7 x.py"),
        (
            "deepspeed -q --bind_cores --bind_core_l 0-3 --enable_each l --log_level error x.py",
            f"python -m {SECOND} {STAGE} --quiet --bind_cores_to_rank --bind_core_list=0-3"
            " --enable_each_rank_log=l --log_level=error x.py",
        ),
        ("uv run deepspeed x.py", f"uv run python -m {SECOND} {STAGE} x.py"),
        ("python x.py --a", f"python -m {SECOND} {STAGE} x.py --a"),
        ("deepspeed --num_gpus 2 --num_nodes 1 x.py", f"python -m {SECOND} {STAGE} x.py"),
        ("deepspeed --hostfile /none --master_addr a x.py", f"python -m {SECOND} {STAGE} x.py"),
    ],
)
def test_the_second_stage_is_given_what_the_first_one_would_hand_to_it(command: str, expected: str) -> None:
    launch = made(command, (2, 0))
    assert second(launch) == expected
    assert world(launch) == [2, 0]
    # If the line is given back to gputui, it stays the same; on other devices, it is the line for those.
    again = made(shlex.join(launch.argv), (2, 0))
    assert again.argv == launch.argv and not of_replaced_words(again.remarks)
    other = made(shlex.join(launch.argv), (5, 1, 3))
    assert world(other) == [5, 1, 3] and other.argv[-1] == launch.argv[-1]


@pytest.mark.parametrize("directory", [None, "/w"])
def test_the_second_stage_is_of_the_environment_that_deepspeed_was_named_in(directory: str | None) -> None:
    place = "" if directory is None else "/w/"
    told = Told({f"{place}.venv/bin/python": ""})
    launch = made(".venv/bin/deepspeed x.py", (2, 0), told, directory=directory)
    assert line(launch).startswith(f".venv/bin/python -m {SECOND} ")
    nothing = made(".venv/bin/deepspeed x.py", (2, 0), directory=directory)
    assert line(nothing).startswith(f"python -m {SECOND} ")


@each_row(
    ("named", "in_path", "expected"),
    [
        (("/v/bin/python3",), "/v/bin/python3", "python3"),
        (("/v/bin/python3",), "/usr/bin/python3", "/v/bin/python3"),
        (("/v/bin/python", "-E"), None, "/v/bin/python -E"),
        (("python3",), "/v/bin/python3", "python3"),
        (None, "/v/bin/python3", "python"),
    ],
)
def test_the_second_stage_is_started_by_the_interpreter_of_the_program(
    named: tuple[str, ...] | None, in_path: str | None, expected: str
) -> None:
    """That is the interpreter in the first line of the `deepspeed` in the PATH."""
    programs = {"deepspeed": "/v/bin/deepspeed", **({"python3": in_path} if in_path else {})}
    told = Told(programs=programs, interpreters={"/v/bin/deepspeed": named} if named else {})
    assert second(made("deepspeed x.py", (2, 0), told)).startswith(f"{expected} -m {SECOND} ")


def test_options_that_the_second_stage_has_not_are_named() -> None:
    launch = made("deepspeed --save_pid --launcher pdsh --no_ssh_check --master_port 7 x.py", (2, 0))
    (left_out,) = launch.remarks[1:]
    assert left_out.endswith(": --save_pid --launcher pdsh --no_ssh_check")


def test_autotuning_needs_the_first_stage() -> None:
    refused = made("deepspeed --autotuning run x.py", (2, 0)).refusal
    assert refused is not None and "ascending" in refused
    assert made("deepspeed --autotuning run x.py", (0, 2)).refusal is None


@pytest.mark.parametrize(("option", "said"), [("", True), ("--no_local_rank", False)])
def test_another_launcher_gives_no_local_rank_and_that_is_said(option: str, said: bool) -> None:
    """A script that tests for it then uses a RandomSampler: every rank reads all the data."""
    launch = made(f"deepspeed {option} x.py", launcher="torchrun")
    assert any("--local_rank" in text for text in launch.warnings) == said


def test_several_instances_are_refused_as_every_process_would_use_the_first() -> None:
    other = instance(gpu(0, mig=True), 1)
    for command in ("deepspeed x.py", f"python -m {SECOND} x.py"):
        refused = on([PART, other], command).refusal
        assert refused is not None and "--launcher torchrun" in refused
        assert on([PART], command).refusal is None


def test_logs_and_processes_are_looked_after_there_too() -> None:
    assert "--enable_each_rank_log=/l" in made("deepspeed x.py", (2, 0), logs="/l").argv
    launch = on([], "deepspeed x.py", processes=2)
    assert world(launch) == ["-1", "-1"]


def test_a_second_stage_for_several_machines_is_not_rewritten() -> None:
    both = base64.urlsafe_b64encode(b'{"a": [0], "b": [0]}').decode()
    launch = made(f"python -m {SECOND} --world_info={both} x.py", (4,))
    assert launch.own is not None and launch.argv[-2:] == (f"--world_info={both}", "x.py")


@each_row("text", ["", "W", "W10=", "bm9uZQ==", "eyJhIjogMX0="])
def test_a_world_that_is_none_is_replaced(text: str) -> None:
    launch = made(f"python -m {SECOND} --world_info={text} x.py", (4,))
    assert world(launch) == [4]


def test_the_version_read_from_files_is_the_installed_one() -> None:
    need("deepspeed")
    if not Path(sysconfig.get_path("purelib"), "deepspeed").is_dir():
        pytest.skip("deepspeed belongs to another environment, which this one only sees")
    beside = str(Path(sys.executable).parent)
    path = shutil.which("deepspeed", path=beside)
    assert path is not None
    read = ThisHost().version("deepspeed", path)
    assert read is not None
    assert ".".join(map(str, read)) == importlib.metadata.version("deepspeed")
    assert ThisHost().version("deepspeed", sys.executable) == read
    assert ThisHost().version("torch", path) is not None
    assert ThisHost().version("no-such-package", path) is None


# The hostfile trap.


def test_a_hostfile_that_is_read_of_itself_is_kept_away() -> None:
    launch = made("deepspeed x.py", told=Told({HOSTFILE: "worker-0 slots=8"}))
    assert line(launch) == f"deepspeed {INCLUDED} --hostfile=/dev/null x.py"
    assert f"{HOSTFILE} would override the devices: --hostfile=/dev/null" in launch.remarks


@each_row("words", ["--hostfile /h", "-H /h", "-H/h", "--hostfile=/h --include worker-0:1", "--hostf /h"])
def test_a_hostfile_of_the_users_own_says_where_it_runs(words: str) -> None:
    command = f"deepspeed {words} x.py"
    launch = made(command, told=Told({"/h": "worker-0 slots=8", HOSTFILE: ""}))
    assert shlex.join(launch.argv) == command
    assert launch.own is not None and launch.own.warning == warning(launch)
    assert launch.own.words.endswith("/h") and "/h " in warning(launch)


def test_a_hostfile_is_looked_for_where_the_launch_is() -> None:
    launch = made("deepspeed -H hosts x.py", told=Told({"/w/hosts": ""}), directory="/w")
    assert launch.own is not None and launch.own.words == "-H hosts" and "hosts " in warning(launch)


def test_a_hostfile_that_is_none_does_not_count() -> None:
    """deepspeed then continues with this machine."""
    command = "deepspeed --hostfile=/dev/null x.py"
    assert line(made(command)) == f"deepspeed {INCLUDED} --hostfile=/dev/null x.py"
    assert SECOND in made(command, (2, 0)).argv


@each_row("name", ["localhost", "127.0.0.1", "this-box"])
@each_row("words", ["--hostfile /h", ""])
def test_a_hostfile_with_this_machine_only_counts_its_slots(name: str, words: str) -> None:
    """deepspeed would use ssh to reach it, and take the first devices."""
    told = Told({"/h" if words else HOSTFILE: f"# ours\n{name} slots=4\n"})
    launch = made(f"deepspeed {words} x.py", (0, 2, 5, 7), told)
    kept = "" if words else "--hostfile=/dev/null "
    assert line(launch) == f"deepspeed --include=localhost:0,2,5,7 {PORT} {kept}x.py"
    assert SECOND in made(f"deepspeed {words} x.py", (2, 0), told).argv
    command = tuple(shlex.split(f"deepspeed {words} x.py"))
    count = Deepspeed().intent(command, CommandContext({}, told, (default_vendor(),))).count
    assert count is not None and (count.number, count.firm) == (4, False)


@each_row("text", ["this-box slots=4\nworker slots=4", "localhost slots=2\nthis-box slots=2", "this-box", ""])
def test_a_hostfile_with_another_machine_or_none_is_no_count(text: str) -> None:
    told = Told({"/h": text})
    launch = made("deepspeed -H /h x.py", told=told)
    assert launch.own is not None and launch.own.words == "-H /h"
    assert (
        Deepspeed()
        .intent(("deepspeed", "-H", "/h", "x.py"), CommandContext({}, told, (default_vendor(),)))
        .count
        is None
    )


def test_other_machines_of_the_default_hostfile_are_the_users_choice() -> None:
    command = "deepspeed --include worker-1:0 x.py"
    launch = made(command, told=Told({HOSTFILE: "worker-1 slots=8"}))
    assert shlex.join(launch.argv) == command
    assert HOSTFILE in warning(launch)


# Devices that the user has named.


@each_row("words", ["--include localhost:0,2", "-i localhost:0,2", "-ilocalhost:0,2", "--inc=localhost:2,0"])
def test_the_chosen_devices_may_be_named_again(words: str) -> None:
    assert line(made(f"deepspeed {words} x.py")) == f"deepspeed {PORT} {words} x.py"


@each_row("words", ["--num_gpus 2", "--num_accelerators=2", "--num_acc 2"])
def test_the_first_devices_may_be_counted(words: str) -> None:
    assert line(made(f"deepspeed {words} x.py", (0, 1))) == f"deepspeed {PORT} {words} x.py"


@each_row("words", ["--num_gpus 2", "--num_gpus=2 --num_nodes 1", "--num_nodes 1", "--num_acc 2"])
def test_a_count_that_agrees_is_not_the_first_devices_of_the_box(words: str) -> None:
    """`--num_gpus 2` with two selected devices contradicts nothing; deepspeed would run on GPU 0 and 1."""
    launch = made(f"deepspeed --save_pid {words} x.py --num_gpus 2")
    assert line(launch) == f"deepspeed {INCLUDED} --save_pid x.py --num_gpus 2"
    assert of_replaced_words(launch.remarks)[0].startswith(f"{words} ")
    other = made(f"deepspeed {words} x.py", (2, 0))
    assert world(other) == [2, 0]
    assert other.environment({})["CUDA_VISIBLE_DEVICES"] == "2,0" and words in other.remarks[0]


@each_row(
    "words",
    [
        *("--include localhost:0,1", "--include localhost", "--include localhost:0@localhost:2"),
        *("--exclude localhost:1", "--num_gpus x", "--include localhost:0,2 --num_gpus 2", "--num_gpus 4"),
        *("--num_gpus 1", "--include this-box:0,2"),
    ],
)
def test_other_devices_give_way_and_that_is_said(words: str) -> None:
    launch = made(f"deepspeed {words} x.py")
    assert line(launch) == f"deepspeed {INCLUDED} x.py"
    assert of_replaced_words(launch.remarks)[0].startswith(f"{words} ") and launch.refusal is None
    for devices in ([], [PART]):
        assert "--world_info" in shlex.join(on(devices, f"deepspeed {words} x.py").argv)


@each_row(
    "words", ["--num_nodes 2", "--num_gpus 2 --num_nodes 2", "--include worker:0", "--exclude worker:0"]
)
def test_other_machines_are_refused_and_stay(words: str) -> None:
    launch = made(f"deepspeed {words} x.py")
    assert f"{words} in the command " in warning(launch)
    assert launch.own is not None and launch.own.warning == warning(launch)
    assert shlex.join(launch.argv) == f"deepspeed {words} x.py"
    assert "CUDA_VISIBLE_DEVICES" not in launch.environment({"CUDA_VISIBLE_DEVICES": "1"})


def test_another_order_than_the_chosen_one_gives_way() -> None:
    launch = made("deepspeed --include localhost:2,0 x.py", (2, 0))
    assert world(launch) == [2, 0] and launch.refusal is None
    sorted_ones = made("deepspeed --include localhost:2,0 x.py", (0, 2))
    assert "--include localhost:2,0" in line(sorted_ones)


# The user's own words stay.

_NAMING_DEVICES = ("--include", "--num_gpus", "-e")
_OURS = ("--include=", "--master_port=")
_words = st.text(st.sampled_from("abn-=_ .3"), max_size=8)
_options = st.lists(
    st.sampled_from(
        (
            *("--include localhost:0", "--num_gpus=9", "--master_port 7", "--save_pid", "-q", "--module"),
            *("--hostfile=/h", "--hostfile /dev/null", "--launcher_args x", "-e localhost:1"),
            "--include worker:0",
        )
    ),
    max_size=3,
)


@given(_options, st.lists(_words, max_size=4), st.sets(st.integers(0, 7), min_size=1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_all_else_that_the_user_wrote_stays_in_its_order_and_twice_is_once(
    options: list[str], arguments: list[str], indices: set[int], trap: bool
) -> None:
    words = [word for option in options for word in option.split()] + ["train.py", *arguments]
    told = Told({"/h": "", **({HOSTFILE: ""} if trap else {})})
    devices = [gpu(index) for index in sorted(indices)]
    once = compose(devices, LaunchOptions(("deepspeed", *words)), {}, told)
    assert once.argv[0] == "deepspeed"
    kept = [each for each in options if once.own is not None or not each.startswith(_NAMING_DEVICES)]
    theirs = [word for option in kept for word in option.split()]
    left = [word for word in once.argv[1 : -1 - len(arguments)] if not word.startswith(_OURS)]
    assert [word for word in left if word in theirs] == theirs
    assert list(once.argv[len(once.argv) - len(arguments) - 1 :]) == ["train.py", *arguments]
    twice = compose(devices, LaunchOptions(once.argv), {}, told)
    assert (twice.argv, twice.warnings) == (once.argv, once.warnings)


@given(st.lists(_words, max_size=4), st.permutations(range(4)))
@settings(max_examples=40, deadline=None)
def test_the_scripts_own_arguments_go_to_the_second_stage_untouched(
    arguments: list[str], order: list[int]
) -> None:
    launch = compose(
        [gpu(i) for i in order], LaunchOptions(("deepspeed", "train.py", *arguments)), {}, Told()
    )
    assert list(launch.argv[len(launch.argv) - len(arguments) - 1 :]) == ["train.py", *arguments]
