"""Reading Slurm: the text that its programs print (from 22.05, shortened)."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputui.cli.ls_slurm import document, table
from gputui.sources.slurm.cluster import Cluster, Gpus, Node
from gputui.sources.slurm.printed import JOB_FORMAT, read_devices, read_jobs, read_nodes
from gputui.sources.slurm.read import Slurm
from gputui.sources.slurm.words import hosts, node_gpus, ranges, read_gres, states
from gputui.sources.source import NoSourceError
from gputui.system.root import Root
from table_tests import each_row

TEXT = (
    "NodeName=n1 Arch=x86_64 CPUTot=16 AvailableFeatures=(null) Gres=gpu:h100:4(S:0-1),shard:8"
    " GresDrain=N/A GresUsed=gpu:h100:3(IDX:0,2-3),shard:0 Port=1 OS=Linux 6.1 #1 SMP @0  RealMemory=1"
    " State=MIXED+DRAIN Owner=N/A Partitions=all,big  BootTime=2026-11-22T16:20:09"
    " Reason=fan Gres=none [root@2026-11-22T20:46:34]\n"
    "NodeName=n2 Arch=x86_64 Gres=(null) GresUsed=gpu:0 State=IDLE* Partitions=all \n"
)
NODES = (
    Node("n1", ("MIXED", "DRAIN"), "fan Gres=none", ("all", "big"), (Gpus("h100", 4, 3, (0, 2, 3)),)),
    Node("n2", ("IDLE", "NOT_RESPONDING"), "", ("all",), ()),
)
SQUEUE = (
    "JOBID|JOBID|STATE|PARTITION|NODELIST|TRES_PER_NODE|REASON|NAME\n"
    "9_1|11|RUNNING|all|n[1-2]|gres:gpu:h100:3|None|a|b c\n"
    "10|10|PENDING|all||N/A|Resources|x\n"
)
SHOWN = (
    "JobId=11 ArrayJobId=9 ArrayTaskId=1 JobName=a|b c UserId=ana(1) JobState=RUNNING NodeList=n[1-2]"
    "   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:h100:3(IDX:0,2-3)   Nodes=n2 CPU_IDs=0-1 Mem=0"
    " GRES=gpu:h100:3(IDX:1-3) MinCPUsNode=1 \n"
    "JobId=12 JobName=y UserId=bo(2)   Nodes=n[1-2] CPU_IDs=4 Mem=0 GRES= MinCPUsNode=1 \n"
)


def test_text_is_read_by_fields_and_a_reason_is_none() -> None:
    assert read_nodes(TEXT) == NODES


def test_jobs_have_the_devices_of_each_node() -> None:
    running, pending = read_jobs(SQUEUE, SHOWN)
    assert (running.id, running.name, running.count, running.nodes) == ("9_1", "a|b c", 3, ("n1", "n2"))
    assert (running.indices_on("n1"), running.indices_on("n2")) == ((0, 2, 3), (1, 2, 3))
    assert (pending.id, pending.state, pending.reason, pending.nodes) == ("10", "PENDING", "Resources", ())
    assert read_devices(SHOWN, ("12",))["12"] == (("n1", ()), ("n2", ()))


def test_a_name_that_looks_like_a_line_about_another_job_says_nothing_of_it() -> None:
    name = "x\nJobId=11 y   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:1)"
    for shown in (f"{SHOWN}JobId=13 JobName={name} UserId=bo(2) \n", f"JobId=13 JobName={name}\n{SHOWN}"):
        assert read_jobs(SQUEUE, shown)[0].devices == ()


def test_nothing_is_made_of_what_the_names_of_other_jobs_say() -> None:
    """A job of anybody's can be named like many devices on 20,000 nodes."""
    name = "   Nodes=n[1-20000] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)" * 20
    lines = [f"JobId={13 + each % 2 * -2} JobName=x{name} \n" for each in range(40)]
    tracemalloc.start()
    try:
        assert read_jobs(SQUEUE, "".join(lines))[0].devices == ()
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@each_row(
    ("text", "found"),
    [
        ("gpu:4", (Gpus("", 4),)),
        ("gpu", (Gpus("", 1),)),
        ("gpu:h100", (Gpus("h100", 1),)),
        ("gpu:a100_3g.20gb:2(IDX:0-1),gpu:h100:1(IDX:5)", (
            Gpus("a100_3g.20gb", 2, indices=(0, 1)), Gpus("h100", 1, indices=(5,)),
        )),
        ("gpu:h100:0(IDX:N/A)", (Gpus("h100", 0, indices=()),)),
        ("gpu:h100:2(IDX:0)", (Gpus("h100", 2),)),
        ("shard:8,mps:100,craynetwork:4", ()),
        ("gres:gpu:h100:2", (Gpus("h100", 2),)),
        ("gres/gpu:2", (Gpus("", 2),)),
        ("N/A", ()),
    ],
)  # fmt: skip
def test_gres(text: str, found: tuple[Gpus, ...]) -> None:
    assert read_gres(text) == found


def test_devices_that_are_only_counted_are_in_use_somewhere() -> None:
    node = Node("n", ("MIXED",), gpus=node_gpus("gpu:h100:4", "gpu:h100:2"))
    assert (node.total(), node.free(), node.in_use()) == (4, 2, None)
    full = Node("n", ("ALLOCATED",), gpus=node_gpus("gpu:h100:4", "gpu:h100:4"))
    assert full.in_use() == {0, 1, 2, 3}


@each_row(
    ("text", "found"),
    [
        ("n[1-2,07],login", ("n1", "n2", "n07", "login")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("", ()),
    ],
)
def test_hosts(text: str, found: tuple[str, ...]) -> None:
    assert hosts(text) == found


def test_lists_are_bounded() -> None:
    assert len(hosts("n[0-19999],m[0-19999]")) == 20_000
    assert hosts(f"n[{'9' * 5000}]") == () and len(hosts("[0]" * 100_000)) == 1
    assert hosts("n" + "[0-19998]" * 4 + "[9-1]") == ()
    assert hosts("n[0-999999999]") == () and ranges("0-999999") == ()


@each_row(
    ("text", "word", "usable"),
    [
        ("IDLE", "idle", True),
        ("MIXED+PLANNED", "mixed", True),
        ("IDLE+CLOUD+POWERED_DOWN", "idle", True),
        ("IDLE+DRAIN", "drained", False),
        ("ALLOCATED+DRAIN", "draining", False),
        ("DOWN*", "down", False),
        ("IDLE*", "not responding", False),
        ("MIXED+MAINT", "maint", False),
        ("", "unknown", False),
    ],
)
def test_states(text: str, word: str, usable: bool) -> None:
    node = Node("n", states(text))
    assert (node.state, node.usable) == (word, usable)


def test_hostile_names_reach_no_screen_as_they_are() -> None:
    bad = "x\x1b[2J"
    node = Node(bad, ("IDLE", "DRAIN"), bad, (bad,), (Gpus(bad, 1),))
    assert "\x1b" not in table(Cluster((node,), errors=(bad,)), None)
    assert "\x1b" not in json.dumps(document(Cluster((node,)), 0.0))


def _programs(folder: Path, answers: Mapping[str, str]) -> Root:
    """Programs that print the text for each call, such as "scontrol show node"; every other call fails."""
    (folder / "bin").mkdir()
    for name in ("scontrol", "squeue"):
        cases = ""
        for place, (call, printed) in enumerate(answers.items()):
            if call.split()[0] == name:
                (folder / f"{name}{place}").write_text(printed)
                cases += f'"{call.partition(" ")[2]}") exec cat {folder}/{name}{place};;\n'
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) exit 1;;\nesac\n')
        program.chmod(0o755)
    return Root(str(folder))


NODES_TEXT = "scontrol -d -o show node"


def test_what_cannot_be_read_beside_the_nodes_is_told(tmp_path: Path) -> None:
    cluster = Slurm(_programs(tmp_path, {NODES_TEXT: TEXT}), "ana").read()
    assert cluster.nodes == NODES
    assert len(cluster.errors) == 2, "neither the partitions nor the jobs can be read"


def test_no_jobs_are_no_error(tmp_path: Path) -> None:
    answers = {
        NODES_TEXT: TEXT,
        "scontrol -o show partition": "PartitionName=all Default=YES MaxTime=1:00:00 State=DOWN\n",
        f"squeue -u ana -o {JOB_FORMAT}": SQUEUE.splitlines()[0] + "\n",
    }
    cluster = Slurm(_programs(tmp_path, answers), "ana").read()
    assert cluster.jobs == () and cluster.errors == ()
    partition = cluster.partition("all")
    assert partition is not None
    assert (partition.default, partition.up, partition.limit) == (True, False, "1:00:00")


def test_a_controller_that_does_not_answer_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        Slurm(_programs(tmp_path, {}), "ana").read()


def test_a_machine_without_slurm_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        Slurm(Root(str(tmp_path)), "ana").read()
