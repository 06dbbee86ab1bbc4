"""Reading Slurm: the text and the JSON of its versions, and which of them is asked for.

`TEXT` and `JSON_22` are what 22.05 printed, shortened; `JSON_23` is written after the documentation of 23.11
(data_parser/v0.0.40) and was not printed by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputui.cli.ls_slurm import document, table
from gputui.inventory.typed_json import DocumentError
from gputui.sources.slurm import json_form, text_form
from gputui.sources.slurm.cluster import Cluster, Gpus, Node
from gputui.sources.slurm.read import Slurm
from gputui.sources.slurm.words import hosts, node_gpus, ranges, read_gres, states
from gputui.sources.source import NoSourceError
from gputui.system.root import Root

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
    "JOBID|STATE|PARTITION|NODELIST|TRES_PER_NODE|REASON|NAME\n"
    "9_1|RUNNING|all|n[1-2]|gres:gpu:h100:3|None|a|b c\n"
    "10|PENDING|all||N/A|Resources|x\n"
)


def _json_22() -> str:
    first = {
        "name": "n1",
        "state": "mixed",
        "state_flags": ["DRAIN"],
        "reason": "fan Gres=none",
        "partitions": ["all", "big"],
        "gres": "gpu:h100:4(S:0-1),shard:8",
        "gres_used": "gpu:h100:3(IDX:0,2-3),shard:0",
        "owner": None,
    }
    second = {
        "name": "n2",
        "state": "idle",
        "state_flags": ["NOT_RESPONDING"],
        "gres": "",
        "gres_used": "gpu:0",
    }
    return json.dumps({"meta": {}, "errors": [], "nodes": [first, {**second, "partitions": ["all"]}]})


def _json_23() -> str:
    first = {
        "name": "n1",
        "state": ["MIXED", "DRAIN"],
        "reason": "fan Gres=none",
        "partitions": ["all", "big"],
        "gres": "gpu:h100:4(S:0-1),shard:8",
        "gres_used": "gpu:h100:3(IDX:0,2-3),shard:0",
        "reason_changed_at": {"set": True, "infinite": False, "number": 1795380394},
    }
    second = {"name": "n2", "state": ["IDLE", "NOT_RESPONDING"], "partitions": ["all"], "gres": ""}
    return json.dumps({"nodes": [first, second], "meta": {}, "errors": [], "warnings": []})


def _jobs(version: int) -> str:
    """Two of ana's, one of somebody else's, one that has ended."""
    number = (lambda n: n) if version == 22 else (lambda n: {"set": True, "infinite": False, "number": n})
    unset = None if version == 22 else {"set": False, "infinite": False, "number": 0}
    state = (lambda word: word) if version == 22 else (lambda word: [word])
    running = {
        "job_id": 11,
        "array_job_id": number(9),
        "array_task_id": number(1),
        "job_state": state("RUNNING"),
        "user_name": "ana",
        "name": "a|b c",
        "partition": "all",
        "nodes": "n[1-2]",
        "gres_detail": ["gpu:h100:3(IDX:0,2-3)", "gpu:h100:3(IDX:1-3)"],
        "tres_per_node": "gres:gpu:h100:3" if version == 22 else "gres/gpu:h100:3",
        "state_reason": "None",
    }
    plain = {"array_job_id": number(0), "array_task_id": unset, "nodes": "", "gres_detail": []}
    other = {**running, **plain, "job_id": 10, "tres_per_node": "", "name": "x"}
    pending = {**other, "job_state": state("PENDING"), "state_reason": "Resources"}
    ended = {**other, "job_id": 12, "job_state": state("COMPLETED")}
    return json.dumps({"jobs": [running, pending, ended, {**other, "user_name": "bo"}]})


def test_text_is_read_by_fields_and_a_reason_is_none() -> None:
    assert text_form.read_nodes(TEXT) == NODES


@pytest.mark.parametrize("written", [_json_22(), _json_23()], ids=["22.05", "23.11"])
def test_both_forms_of_json_say_what_the_text_says(written: str) -> None:
    assert json_form.read_nodes(written) == NODES


@pytest.mark.parametrize("version", [22, 23])
def test_jobs_are_ones_own_that_have_not_ended(version: int) -> None:
    running, pending = json_form.read_jobs(_jobs(version), "ana")
    assert (running.id, running.count, running.indices_on("n2")) == ("9_1", 3, {1, 2, 3})
    assert (pending.id, pending.state, pending.reason, pending.nodes) == ("10", "PENDING", "Resources", ())
    by_text = text_form.read_jobs(SQUEUE)
    assert [(job.id, job.name, job.state, job.nodes, job.count) for job in by_text] == [
        (job.id, job.name, job.state, job.nodes, job.count) for job in (running, pending)
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": 1}', '{"nodes": [{"name": 1}]}', "[" * 9999])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        json_form.read_nodes(text)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    assert hosts("n[0-999999999]") == () and ranges("0-999999") == ()


@pytest.mark.parametrize(
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
    """Programs that print what a call of theirs, "sinfo --json", is to print; every other call fails."""
    (folder / "bin").mkdir()
    for name in ("sinfo", "scontrol", "squeue"):
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
NODES_JSON = "scontrol --json -d show nodes"


@pytest.mark.parametrize(
    "answers",
    [
        {"sinfo --version": "slurm 20.11.9", NODES_TEXT: TEXT},
        {"sinfo --version": "slurm-wlm 22.05.8", "sinfo --json": _json_22()},
        {"sinfo --version": "slurm 23.11.4", NODES_JSON: _json_23()},
        {"sinfo --version": "slurm 22.05.8", "sinfo --json": "no plugin", NODES_TEXT: TEXT},
        {"sinfo --version": "slurm 25.05.1", NODES_JSON: '{"nodes": 3}', NODES_TEXT: TEXT},
        {"sinfo --version": "of another form", NODES_TEXT: TEXT},
    ],
    ids=["20.11", "22.05", "23.11", "no JSON", "other JSON", "unknown"],
)
def test_what_the_version_has_is_asked_for(tmp_path: Path, answers: Mapping[str, str]) -> None:
    cluster = Slurm(_programs(tmp_path, answers), "ana").read()
    assert cluster.nodes == NODES
    assert len(cluster.errors) == 2, "neither the partitions nor the jobs can be read"


def test_no_jobs_are_no_error(tmp_path: Path) -> None:
    answers = {
        "sinfo --version": "slurm 20.11.9",
        NODES_TEXT: TEXT,
        "scontrol -o show partition": "PartitionName=all Default=YES MaxTime=1:00:00 State=DOWN\n",
        f"squeue -u ana -o {text_form.JOB_FORMAT}": SQUEUE.splitlines()[0] + "\n",
    }
    cluster = Slurm(_programs(tmp_path, answers), "ana").read()
    assert cluster.jobs == () and cluster.errors == ()
    partition = cluster.partition("all")
    assert partition is not None
    assert (partition.default, partition.up, partition.limit) == (True, False, "1:00:00")


@pytest.mark.parametrize(
    "answers", [{}, {"sinfo --version": "slurm 22.05.8"}], ids=["no version", "no answer"]
)
def test_a_controller_that_does_not_answer_is_no_source(tmp_path: Path, answers: Mapping[str, str]) -> None:
    with pytest.raises(NoSourceError):
        Slurm(_programs(tmp_path, answers), "ana").read()


def test_a_machine_without_slurm_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        Slurm(Root(str(tmp_path)), "ana").read()
