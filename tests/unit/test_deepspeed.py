"""`deepspeed` on the chosen devices: by --include where it can, through torchrun where it cannot."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.device import Device
from gputui.launching.compose import compose
from gputui.launching.host_environment import ThisHost
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers.deepspeed import HOSTFILE, SORTS_SINCE
from messages import numbers
from unit.builders import gpu, instance
from unit.host_environments import Told
from unit.real_parsers import need

INCLUDED = "--include=localhost:0,2 --master_port=29777"
THROUGH = "--standalone --nproc-per-node=2"
BY_INCLUDE = "deepspeed is given the devices by --include; it ignores CUDA_VISIBLE_DEVICES then"
MODULE = "deepspeed.launcher.runner"
PORT = "--master_port=29777"
PART = instance(gpu(0, mig=True))
OLD = Told(programs={"deepspeed": "/old/bin/deepspeed"}, versions={"deepspeed": (0, 15, 1)})


def made(
    command: str, indices: Sequence[int] = (0, 2), told: Told | None = None, **launch_options: Any
) -> Launch:
    """The launch of a command on devices by index."""
    return on([gpu(index) for index in indices], command, told, **launch_options)


def on(devices: Sequence[Device], command: str, told: Told | None = None, **launch_options: Any) -> Launch:
    """The launch of a command on devices."""
    wanted = LaunchOptions(tuple(shlex.split(command)), **{"launcher": "deepspeed", **launch_options})
    return compose(devices, wanted, {"PATH": "/bin"}, told or Told())


def line(launch: Launch) -> str:
    """The command; it goes without a warning."""
    assert launch.warnings == ()
    return shlex.join(launch.argv)


def warning(launch: Launch) -> str:
    """The only warning."""
    assert len(launch.warnings) == 1, launch.warnings
    return launch.warnings[0]


# Ascending indices: by --include, without the variable.


@pytest.mark.parametrize(
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
    """deepspeed would say that it ignores it, and `device_count` must see all devices that are included."""
    environment = made("deepspeed x.py").environment({"CUDA_VISIBLE_DEVICES": "5"})
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_where_no_port_is_free_that_is_said() -> None:
    """A box on which every ephemeral port is taken: the call must not end with a traceback."""
    launch = on([gpu(0)], "deepspeed x.py", Told(port=None))
    assert shlex.join(launch.argv) == "deepspeed --include=localhost:0 x.py"
    assert "no TCP port" in warning(launch) and "--master_port" in warning(launch)


def test_one_device_is_one_process() -> None:
    assert line(made("deepspeed x.py", (3,))) == f"deepspeed --include=localhost:3 {PORT} x.py"


def test_logs_of_ranks_go_where_they_are_asked_for() -> None:
    assert "--enable_each_rank_log=/l" in made("deepspeed x.py", logs="/l").argv
    assert "--enable_each_rank_log=/l" not in made("deepspeed --enable_each_rank_log /m x.py", logs="/l").argv


def test_what_deepspeed_has_no_word_for_is_said() -> None:
    launch = made("deepspeed x.py", processes=3, nodes=2, numa=True)
    processes, machines = launch.warnings
    assert "deepspeed" in processes and numbers(processes) == [3]
    assert "--launcher torchrun" in machines
    (remark,) = (each for each in launch.remarks if "--numa-binding" in each)
    assert "--bind_cores_to_rank" in remark


# Everything else: through torchrun, with the reason.


@pytest.mark.parametrize(
    ("devices", "ids", "visible", "reason"),
    [
        ([gpu(2), gpu(0)], "index", "2,0", "deepspeed would sort the devices and run on 0,2"),
        ([gpu(0), gpu(2)], "uuid", f"{gpu(0).uuid},{gpu(2).uuid}", "deepspeed cannot be given UUIDs"),
        ([PART], "index", PART.uuid, "deepspeed cannot be given MIG instances"),
        ([], "index", "", "for deepspeed an empty CUDA_VISIBLE_DEVICES does not mean no GPU"),
    ],
)
def test_what_deepspeed_cannot_keep_goes_through_torchrun(
    devices: list[Device], ids: Any, visible: str, reason: str
) -> None:
    launch = on(devices, "deepspeed train.py --deepspeed ds.json", ids=ids)
    count = max(1, len(devices))
    assert line(launch) == f"torchrun --standalone --nproc-per-node={count} train.py --deepspeed ds.json"
    assert launch.environment({})["CUDA_VISIBLE_DEVICES"] == visible
    assert launch.remarks[0] == f"through torchrun: {reason}"
    assert launch.launcher == "deepspeed"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("deepspeed --module t", f"torchrun {THROUGH} -m t"),
        ("deepspeed --no_python ./t.sh", f"torchrun {THROUGH} --no-python ./t.sh"),
        (f"/v/bin/python -m {MODULE} x.py", f"/v/bin/python -m torch.distributed.run {THROUGH} x.py"),
        ("deepspeed --master_port 7 -- x.py", f"torchrun {THROUGH} x.py"),
        ("uv run deepspeed x.py", f"uv run torchrun {THROUGH} x.py"),
    ],
)
def test_torchrun_starts_the_same(command: str, expected: str) -> None:
    assert line(made(command, (2, 0))) == expected


@pytest.mark.parametrize("directory", [None, "/w"])
def test_torchrun_is_of_the_environment_that_deepspeed_was_named_in(directory: str | None) -> None:
    """The torchrun of the PATH may be another torch, or none."""
    place = "" if directory is None else "/w/"
    told = Told({f"{place}.venv/bin/python": ""})
    launch = made(".venv/bin/deepspeed x.py", (2, 0), told, directory=directory)
    assert line(launch).startswith(".venv/bin/python -m torch.distributed.run --standalone")
    nothing = made(".venv/bin/deepspeed x.py", (2, 0), directory=directory)
    assert line(nothing).startswith("torchrun ")


def test_options_that_torchrun_has_not_are_named() -> None:
    launch = made("deepspeed --save_pid --bind_core_list 0-3 --no_local_rank --master_port 7 x.py", (2, 0))
    (left_out,) = launch.remarks[1:]
    assert left_out.endswith(": --save_pid --bind_core_list 0-3")


def test_the_argument_that_deepspeed_gives_and_torchrun_does_not_is_named() -> None:
    (remark,) = (each for each in made("deepspeed x.py", (2, 0)).remarks if "--local_rank" in each)
    assert "LOCAL_RANK" in remark


def test_logs_and_torchruns_variables_are_looked_after_there_too() -> None:
    launch = made("deepspeed x.py", (2, 0), logs="/l", additions=(("PET_NNODES", "2"),))
    assert "--log-dir=/l" in launch.argv and "--nnodes=1" in launch.argv
    assert "PET_NNODES=2" in warning(launch)


# Older versions keep the order.


@pytest.mark.parametrize(
    ("version", "keeps"),
    [
        ((0, 14), True),
        ((0, 15, 1), True),
        (SORTS_SINCE, False),
        ((0, 15, 10), False),
        ((0, 19, 8), False),
        ((1,), False),
    ],
)
def test_a_version_that_does_not_sort_is_given_the_order(version: tuple[int, ...], keeps: bool) -> None:
    told = Told(programs={"deepspeed": "/v/bin/deepspeed"}, versions={"deepspeed": version})
    launch = made("deepspeed x.py", (2, 0), told)
    assert ("--include=localhost:2,0" in launch.argv) == keeps
    assert (launch.argv[0] == "torchrun") != keeps


def test_a_version_behind_another_environment_is_not_known() -> None:
    """`uv run deepspeed` is not the deepspeed of our PATH."""
    assert made("deepspeed x.py", (2, 0), OLD).argv[0] == "deepspeed"
    assert made("uv run deepspeed x.py", (2, 0), OLD).argv[2] == "torchrun"


def test_the_version_is_that_of_the_program_where_the_launch_is() -> None:
    asked: list[str] = []

    class Noting(Told):
        def program(self, name: str, environ: Mapping[str, str]) -> str | None:
            asked.append(name)
            return None

    made(".venv/bin/deepspeed x.py", (2, 0), Noting(), directory="/w")
    assert asked == ["/w/.venv/bin/deepspeed"]


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


@pytest.mark.parametrize(
    "words", ["--hostfile /h", "-H /h", "-H/h", "--hostfile=/h --include worker-0:1", "--hostf /h"]
)
def test_a_hostfile_of_the_users_own_says_where_it_runs(words: str) -> None:
    command = f"deepspeed {words} x.py"
    launch = made(command, told=Told({"/h": "worker-0 slots=8", HOSTFILE: ""}))
    assert shlex.join(launch.argv) == command
    assert launch.own is not None and launch.own.warning == warning(launch)
    assert launch.own.words.endswith("/h") and warning(launch).startswith("/h ")


def test_a_hostfile_is_looked_for_where_the_launch_is() -> None:
    launch = made("deepspeed -H hosts x.py", told=Told({"/w/hosts": ""}), directory="/w")
    assert launch.own is not None and launch.own.words == "-H hosts" and warning(launch).startswith("hosts ")


def test_a_hostfile_that_is_none_does_not_count() -> None:
    """deepspeed goes on with this machine then."""
    command = "deepspeed --hostfile=/dev/null x.py"
    assert line(made(command)) == f"deepspeed {INCLUDED} --hostfile=/dev/null x.py"
    assert made(command, (2, 0)).argv[0] == "torchrun"


def test_other_machines_of_the_default_hostfile_are_the_users_choice() -> None:
    command = "deepspeed --include worker-1:0 x.py"
    launch = made(command, told=Told({HOSTFILE: "worker-1 slots=8"}))
    assert shlex.join(launch.argv) == command
    assert HOSTFILE in warning(launch)


# Devices that the user has named.


@pytest.mark.parametrize(
    "words", ["--include localhost:0,2", "-i localhost:0,2", "-ilocalhost:0,2", "--inc=localhost:2,0"]
)
def test_the_chosen_devices_may_be_named_again(words: str) -> None:
    assert line(made(f"deepspeed {words} x.py")) == f"deepspeed {PORT} {words} x.py"


@pytest.mark.parametrize("words", ["--num_gpus 2", "--num_accelerators=2", "--num_acc 2"])
def test_the_first_devices_may_be_counted(words: str) -> None:
    assert line(made(f"deepspeed {words} x.py", (0, 1))) == f"deepspeed {PORT} {words} x.py"


@pytest.mark.parametrize(
    "words", ["--num_gpus 2", "--num_gpus=2 --num_nodes 1", "--num_nodes 1", "--num_acc 2"]
)
def test_a_count_that_agrees_is_not_the_first_devices_of_the_box(words: str) -> None:
    """`--num_gpus 2` beside two chosen devices contradicts nothing; deepspeed would run on GPU 0 and 1."""
    launch = made(f"deepspeed --save_pid {words} x.py --num_gpus 2")
    assert line(launch) == f"deepspeed {INCLUDED} --save_pid x.py --num_gpus 2"
    assert launch.remarks[0].startswith(f"{words} left out")
    other = made(f"deepspeed {words} x.py", (2, 0))
    assert line(other) == "torchrun --standalone --nproc-per-node=2 x.py"
    assert other.environment({})["CUDA_VISIBLE_DEVICES"] == "2,0" and words in other.remarks[0]


@pytest.mark.parametrize(
    "words", ["--num_gpus 1", "--num_gpus 4", "--num_nodes 2", "--num_gpus 2 --num_nodes 2"]
)
def test_a_count_that_does_not_agree_is_a_contradiction(words: str) -> None:
    launch = made(f"deepspeed {words} x.py")
    assert warning(launch).startswith(f"{words} of the command ")
    assert words in shlex.join(launch.argv)


@pytest.mark.parametrize(
    "words",
    [
        *("--include localhost:0,1", "--include localhost", "--include localhost:0@localhost:2"),
        *("--exclude localhost:1", "--num_nodes 2", "--num_gpus x", "--include localhost:0,2 --num_gpus 2"),
    ],
)
def test_other_devices_are_a_warning_and_stay(words: str) -> None:
    launch = made(f"deepspeed {words} x.py")
    assert warning(launch).startswith(f"{words} of the command ")
    assert launch.own is not None and launch.own.warning == warning(launch)
    assert shlex.join(launch.argv) == f"deepspeed {PORT} {words} x.py"
    assert "CUDA_VISIBLE_DEVICES" not in launch.environment({"CUDA_VISIBLE_DEVICES": "1"})


def test_another_order_than_the_chosen_one_is_a_warning() -> None:
    launch = made("deepspeed --include localhost:2,0 x.py", (2, 0))
    assert launch.own is None
    assert re.findall(r"\d,\d", warning(launch)) == ["2,0", "0,2"]
    assert made("deepspeed --include localhost:2,0 x.py", (2, 0), OLD).warnings == ()
    old = made("deepspeed --include localhost:2,0 x.py", (0, 2), OLD)
    assert re.findall(r"\d,\d", warning(old)) == ["2,0", "2,0"]


@pytest.mark.parametrize("devices", [[], [PART]])
def test_devices_of_another_kind_are_a_warning(devices: list[Device]) -> None:
    launch = on(devices, "deepspeed --include localhost:0 x.py")
    assert launch.own is not None and launch.own.words == "--include localhost:0"
    assert launch.own.warning == warning(launch)


# What the user wrote stays.

_words = st.text(st.sampled_from("abn-=_ .3"), max_size=8)
_options = st.lists(
    st.sampled_from(
        (
            *("--include localhost:0", "--num_gpus=9", "--master_port 7", "--save_pid", "-q", "--module"),
            *("--hostfile=/h", "--hostfile /dev/null", "--launcher_args x", "-e localhost:1"),
        )
    ),
    max_size=3,
)


@given(_options, st.lists(_words, max_size=4), st.sets(st.integers(0, 7), min_size=1), st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_word_of_the_user_stays_in_its_order_and_twice_is_once(
    options: list[str], arguments: list[str], indices: set[int], trap: bool
) -> None:
    words = [word for option in options for word in option.split()] + ["train.py", *arguments]
    told = Told({"/h": "", **({HOSTFILE: ""} if trap else {})})
    devices = [gpu(index) for index in sorted(indices)]
    once = compose(devices, LaunchOptions(("deepspeed", *words)), {}, told)
    assert once.argv[0] == "deepspeed"
    assert list(once.argv[len(once.argv) - len(words) :]) == words
    twice = compose(devices, LaunchOptions(once.argv), {}, told)
    assert (twice.argv, twice.warnings) == (once.argv, once.warnings)


@given(st.lists(_words, max_size=4), st.permutations(range(4)))
@settings(max_examples=100, deadline=None)
def test_the_scripts_own_arguments_go_to_torchrun_untouched(arguments: list[str], order: list[int]) -> None:
    launch = compose(
        [gpu(i) for i in order], LaunchOptions(("deepspeed", "train.py", *arguments)), {}, Told()
    )
    assert list(launch.argv[len(launch.argv) - len(arguments) - 1 :]) == ["train.py", *arguments]
