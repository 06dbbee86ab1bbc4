"""torchrun with variables of its own, on several machines, bound to CPUs, with logs."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from gputui.cli.run import parser as run_parser
from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, Meeting
from table_tests import each_row
from unit.builders import gpu
from unit.host_environments import Told

TWO = "--standalone --nproc-per-node=2"


def made(
    command: str,
    count: int = 2,
    told: Told | None = None,
    environ: Mapping[str, str] | None = None,
    meeting: Meeting | None = None,
    **options: Any,
) -> Launch:
    """The launch of a command."""
    wanted = LaunchOptions(tuple(shlex.split(command)), **{"launcher": "torchrun", **options})
    return compose(
        [gpu(index) for index in range(count)], wanted, environ or {}, told or Told(), meeting=meeting
    )


def line(launch: Launch) -> str:
    """The command as a line; asserts that the launch has no warning."""
    assert launch.warnings == ()
    return shlex.join(launch.argv)


# Its variables.


@each_row("text", ["2", "1:2", "2:2"])
def test_machines_that_a_variable_waits_for_are_not_waited_for(text: str) -> None:
    """--standalone is a rendezvous that no other machine knows: it would wait for ever."""
    launch = made("torchrun x.py", environ={"PET_NNODES": text})
    assert shlex.join(launch.argv) == "torchrun --standalone --nnodes=1 --nproc-per-node=2 x.py"
    (remark,), (warning,) = launch.remarks, launch.warnings
    assert remark.startswith("--nnodes=1: ") and remark.endswith(f"PET_NNODES={text}")
    assert f"PET_NNODES={text} in your environment" in warning


@each_row(
    ("words", "refused"),
    [
        ("--nnodes 2 --node-rank 1", False),
        ("--nnodes 2 --node-rank 2", True),
        ("--nnodes=2 --node_rank=-1", True),
        ("--nnodes 1:4 --node-rank 3", False),
        ("--node-rank 1 --master-port 29500", True),
        # Only a static rendezvous counts it.
        ("--nnodes 2 --node-rank 5 --rdzv-backend c10d --rdzv-endpoint h", False),
        ("--nnodes 2 --node-rank $RANK", False),
    ],
)
def test_the_number_of_a_machine_is_below_their_number(words: str, refused: bool) -> None:
    assert (made(f"torchrun {words} x.py").refusal is not None) == refused
    launch = made("torchrun --node-rank 1 x.py", environ={"PET_NNODES": "2"})
    assert launch.refusal is None


@pytest.mark.parametrize("text", ["1", "1:1"])
def test_one_machine_is_one(text: str) -> None:
    assert "--nnodes=1" not in made("torchrun x.py", environ={"PET_NNODES": text}).argv


@each_row("given", ["--nnodes=2", "--rdzv-endpoint=h:1", "--master-addr h"])
def test_a_meeting_place_of_the_users_own_may_wait(given: str) -> None:
    launch = made(f"torchrun {given} x.py", environ={"PET_NNODES": "2"})
    assert not any(word in launch.argv for word in ("--nnodes=1", "--standalone"))


def test_a_variable_that_the_command_takes_away_does_not_count() -> None:
    launch = made("env -u PET_NNODES torchrun x.py", environ={"PET_NNODES": "2"})
    assert line(launch) == f"env -u PET_NNODES torchrun {TWO} x.py"


# Several machines.


@each_row(
    ("rendezvous", "endpoint"),
    [
        ("head", "head:29400"),
        ("head:7", "head:7"),
        ("head:", "head:29400"),
        ("10.0.0.1", "10.0.0.1:29400"),
        ("10.0.0.1:7", "10.0.0.1:7"),
        ("[fe80::1]:7", "[fe80::1]:7"),
        ("[fe80::1]", "[fe80::1]:29400"),
        ("fe80::1", "[fe80::1]:29400"),
        ("::1", "[::1]:29400"),
    ],
)
def test_several_machines_meet_at_the_first(rendezvous: str, endpoint: str) -> None:
    launch = made("torchrun x.py", nodes=3, rendezvous=rendezvous)
    (meeting,) = (word for word in launch.argv if word.startswith("--rdzv-id=gputui-"))
    assert line(launch).replace("'", "") == (
        f"torchrun --nnodes=3 --rdzv-backend=c10d --rdzv-endpoint={endpoint} {meeting}"
        " --nproc-per-node=2 x.py"
    )


def test_all_machines_of_a_run_name_their_meeting_alike_and_other_runs_otherwise() -> None:
    """Otherwise two users on the same head node and port would form one job."""

    def meeting(command: str, user: str) -> str:
        launch = made(command, nodes=2, rendezvous="h", additions=(("USER", user),))
        return next(word for word in launch.argv if word.startswith("--rdzv-id="))

    assert meeting("torchrun x.py", "ana") == meeting("torchrun x.py", "ana")
    assert (
        len(
            {meeting("torchrun x.py", "ana"), meeting("torchrun x.py", "bo"), meeting("torchrun y.py", "ana")}
        )
        == 3
    )


def test_the_other_machines_are_started_as_this_one() -> None:
    """A rank without the variables of the others (NCCL_IB_DISABLE) makes all of them hang."""
    launch = made(
        "torchrun x.py",
        nodes=2,
        rendezvous="h",
        additions=(("NCCL_IB_DISABLE", "1"), ("A", "b c")),
        python="/v/bin/python",
        processes=4,
        directory="/data",
        logs="l",
        numa=True,
    )
    (told,) = (remark for remark in launch.remarks if remark.startswith("on each of the other machines: "))
    call = shlex.split(told.partition(": ")[2])
    assert call[:2] == ["gputui", "run"] and call[-3:] == ["--", "torchrun", "x.py"]
    args = run_parser().parse_args(call[2:-3])
    assert (args.n, args.nodes, args.rendezvous, args.processes, args.numa) == (2, 2, "h", 4, True)
    assert (args.python, args.directory, args.logs) == ("/v/bin/python", "/data", "l")
    assert args.env == [("NCCL_IB_DISABLE", "1"), ("A", "b c")]


def test_a_batch_script_has_nobody_else_to_start() -> None:
    """Without a rendezvous only a scheduler can start them (`export --as sbatch --nodes 2`)."""
    assert made("torchrun x.py", nodes=2).remarks == ()


def test_what_the_user_said_of_the_meeting_is_kept() -> None:
    launch = made("torchrun --rdzv-id 7 --rdzv_backend=etcd x.py", nodes=2, rendezvous="h")
    assert not any(word.startswith("--rdzv-id=gputui") for word in launch.argv)
    assert "--rdzv-backend=c10d" not in launch.argv
    assert "--rdzv-endpoint=h:29400" in launch.argv


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--standalone", "--standalone in the command means one machine; 2 are asked for"),
        ("--nnodes=4", "--nnodes=4 is in the command; 2 machines are asked for"),
    ],
)
def test_another_number_of_machines_is_a_warning(given: str, said: str) -> None:
    launch = made(f"torchrun {given} x.py", nodes=2, rendezvous="h")
    assert launch.warnings == (said,)
    assert launch.argv[-2:] == (given, "x.py")
    assert made("torchrun --nnodes=2 x.py", nodes=2, rendezvous="h").warnings == ()


# Several machines that are started together.


def test_machines_that_are_started_together_are_told_all_that_they_must_agree_on() -> None:
    lines = [
        line(made("torchrun x.py", nodes=2, rendezvous="10.0.0.1:7", meeting=meeting))
        for meeting in (Meeting("m1", True, "10.0.0.1"), Meeting("m1", False, "10.0.0.2"))
    ]
    first, second = (dict(word[2:].split("=", 1) for word in each.split()[1:-1]) for each in lines)
    assert (first["rdzv-id"], first["rdzv-endpoint"], first["nnodes"]) == ("m1", "10.0.0.1:7", "2")
    assert (first["rdzv-conf"], first["local-addr"]) == ("is_host=true", "10.0.0.1")
    assert (second["rdzv-conf"], second["local-addr"]) == ("is_host=false", "10.0.0.2")
    same = {name: value for name, value in first.items() if name not in ("rdzv-conf", "local-addr")}
    assert same.items() <= second.items()


def test_what_the_command_says_of_the_meeting_is_kept_and_nobody_else_is_to_be_started() -> None:
    launch = made(
        "torchrun --rdzv-conf=timeout=9 --local-addr=me x.py",
        nodes=2,
        rendezvous="h",
        meeting=Meeting("m1", True, "10.0.0.1"),
    )
    assert [word for word in launch.argv if "rdzv-conf" in word or "local-addr" in word] == [
        "--rdzv-conf=timeout=9",
        "--local-addr=me",
    ]
    assert len(launch.remarks) == 1 and "--rdzv-conf" in launch.remarks[0]


@pytest.mark.parametrize(
    "command", ["accelerate launch --num_machines 4 x.py", "deepspeed --master_port 9 x.py"]
)
def test_other_launchers_are_given_the_number_of_each_machine_and_where_they_meet(command: str) -> None:
    for rank in (0, 1):
        launch = made(
            command,
            launcher=command.split()[0],
            nodes=2,
            rendezvous="[fe80::1]:7",
            meeting=Meeting("m1", rank == 0, "fe80::1", rank),
        )
        assert launch.refusal is None and launch.warnings == ()
        words = dict(word[2:].split("=", 1) for word in launch.argv if word.startswith("--") and "=" in word)
        if command.startswith("accelerate"):
            assert (words["num_machines"], words["num_processes"]) == ("2", "4")
            assert (words["machine_rank"], words["main_process_ip"]) == (str(rank), "fe80::1")
            assert words["main_process_port"] == "7" and words["gpu_ids"] == "all"
        else:
            assert (words["node_rank"], words["master_addr"]) == (str(rank), "fe80::1")
            assert words["master_port"] == "7"
            world = json.loads(base64.urlsafe_b64decode(words["world_info"]))
            assert [len(each) for each in world.values()] == [2, 2]
        assert "4" not in launch.argv and "9" not in launch.argv


def test_accelerate_with_deepspeed_starts_its_own_processes_on_each_machine() -> None:
    meeting = Meeting("m1", True, "10.0.0.1")
    line = "accelerate launch --use_deepspeed x.py"
    launch = made(line, launcher="accelerate", nodes=2, rendezvous="10.0.0.1:7", meeting=meeting)
    assert "--deepspeed_multinode_launcher=standard" in launch.argv


# Processes.


def test_more_processes_than_devices_can_be_asked_for() -> None:
    launch = made("torchrun x.py", processes=4)
    assert "--nproc-per-node=4" in launch.argv
    (warning,) = launch.warnings
    assert "--nproc-per-node=4" in warning and "2 GPUs" in warning
    assert "--nproc-per-node=3" in line(made("torchrun x.py", 0, processes=3))


# Binding and logs.

NUMACTL = {"numactl": "/usr/bin/numactl", "torchrun": "/v/bin/torchrun"}


@each_row(
    ("version", "programs", "count", "remark"),
    [
        ((2, 9), NUMACTL, 2, None),
        ((2, 13), NUMACTL, 2, None),
        (None, NUMACTL, 2, None),
        ((2, 8, 1), NUMACTL, 2, "torch 2.8.1 has no --numa-binding (2.9 has)"),
        ((2, 9), {"torchrun": "/t"}, 2, "--numa-binding needs the program numactl, which is not installed"),
        ((2, 9), NUMACTL, 0, "without a device there is nothing to bind processes to"),
    ],
)
def test_processes_are_bound_where_that_can_be(
    version: tuple[int, ...] | None, programs: dict[str, str], count: int, remark: str | None
) -> None:
    told = Told(programs=programs, versions={} if version is None else {"torch": version})
    launch = made("torchrun x.py", count, told, numa=True)
    assert ("--numa-binding=node" in launch.argv) == (remark is None)
    assert launch.remarks == (() if remark is None else (remark,))


def test_a_binding_that_was_given_stays() -> None:
    launch = made("torchrun --numa-binding=core-complex x.py", 2, Told(), numa=True)
    assert line(launch) == f"torchrun {TWO} --numa-binding=core-complex x.py"


@each_row(
    ("given", "added"),
    [
        ("", "--log-dir=/l --redirects=3 --tee=3"),
        ("-r 1 -t 0:3", "--log-dir=/l"),
        ("--redirects=1", "--log-dir=/l --tee=3"),
        ("--log_dir /m", ""),
    ],
)
def test_a_log_a_rank_is_kept(given: str, added: str) -> None:
    expected = " ".join(filter(None, ("torchrun", TWO, added, given, "x.py")))
    assert line(made(f"torchrun {given} x.py", logs="/l")) == expected


# Its interpreter.


@each_row(
    ("command", "expected"),
    [
        ("torchrun x.py", "/v/python -m torch.distributed.run {} x.py"),
        ("/w/torchrun -m t", "/v/python -m torch.distributed.run {} -m t"),
        ("python -X dev -m torch.distributed.run x.py", "/v/python -X dev -m torch.distributed.run {} x.py"),
        ("python -m torch.distributed.launch x.py", "/v/python -m torch.distributed.launch {} x.py"),
    ],
)
def test_another_interpreter_starts_it_with_all_the_users_words(command: str, expected: str) -> None:
    assert line(made(command, python="/v/python")) == expected.format(TWO)
