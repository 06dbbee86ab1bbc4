"""The published JSON Schemas of boxes: documents agree with them, and they name every key.

Those of other calls are in test_json_answers.py. Documents of boxes over ssh are checked in test_hosts.py, of
Ray in test_ls_ray.py, of a real Slurm in e2e/.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from gputui import read
from gputui.choosing.rules import Rules
from gputui.cli.boxes import entry, live_entry, own
from gputui.cli.ls_slurm import document as cluster_document
from gputui.inventory.claim import Claim
from gputui.inventory.device import Fault
from gputui.inventory.waiter import Waiter
from gputui.sources.hosts.channel import BoxState
from gputui.sources.hosts.reading import Reading
from gputui.sources.hosts.reading import read as read_answer
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.slurm.cluster import Cluster, Gpus, Job, Node, Partition
from published_schemas import SCHEMAS, closed, made
from table_tests import each_row
from unit.builders import NOW, box, document, gpu
from unit.calling import Call

jsonschema = pytest.importorskip("jsonschema")
referencing = pytest.importorskip("referencing")


def installed(name: str) -> Any:
    """An installed schema."""
    return json.loads(files("gputui.inventory").joinpath(f"{name}.schema.json").read_text())


SCHEMA: dict[str, Any] = installed("ls")
BOXES_SCHEMA: dict[str, Any] = installed("boxes")
CHECK = jsonschema.Draft202012Validator(closed(SCHEMA))
"""Checks the document of one box."""
BOXES_CHECK = jsonschema.Draft202012Validator(
    closed(BOXES_SCHEMA),
    registry=referencing.Registry().with_resource(
        "ls.schema.json", referencing.Resource.from_contents(closed(SCHEMA))
    ),
    format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
)
"""Checks the document of several boxes."""


def boxes_document(readings: list[Reading]) -> dict[str, Any]:
    """The document that `ls --json --hosts` prints."""
    return {"schema": 1, "boxes": [entry(each.alias, each.error, own(each, Rules())) for each in readings]}


@each_row("name", SCHEMAS)
def test_the_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(installed(name))


@each_row("name", SCHEMAS)
def test_the_schema_is_what_the_records_read_and_write(name: str) -> None:
    assert made(name) == installed(name)


def test_of_several_boxes_each_has_the_keys_of_one() -> None:
    of_one, of_several = (set(found) for found in (SCHEMA["properties"], _box_properties()))
    assert of_several - of_one == {"error", "hostname", "state", "since", "slurm"}
    # Only the machine on which Ray runs asks it.
    assert of_one - of_several == {"schema", "ray"}


def _box_properties() -> dict[str, Any]:
    found: dict[str, Any] = BOXES_SCHEMA["$defs"]["box"]["properties"]
    return found


@each_row("details", [(), ("--details",)], ids=["plain", "details"])
@each_row("name", BOXES)
def test_what_ls_prints_of_every_box_agrees_with_the_schema(
    name: str, details: tuple[str, ...], call: Call
) -> None:
    CHECK.validate(call("ls", f"--demo={name}", "--json", *details).json)


@each_row("name", BOXES)
def test_every_moment_of_a_box_agrees_with_the_schema(name: str) -> None:
    for elapsed in (0.0, 3.5, 61.25, 600.0):
        CHECK.validate(document(at(BOXES[name], elapsed, NOW)))
    CHECK.validate(read(demo=name).document())


def test_faults_claims_and_waiters_agree_with_the_schema() -> None:
    lost = gpu(0, fault=Fault("lost", "GPU is lost", NOW))
    claim = Claim(gpu(1).key, "ana", NOW, "python t.py", 4242, "m6u5", own=True, pids=(1, 2))
    waiter = Waiter((1, "a"), "ben", 2, frozenset(["GPU-1"]), NOW, "torchrun t.py", job="k3f9")
    snapshot = replace(box(lost, gpu(1), errors=("slow",)), claims=(claim,), waiters=(waiter, waiter))
    CHECK.validate(document(snapshot))


def test_what_joins_the_cpus_agrees_with_the_schema() -> None:
    wired = at(BOXES["dgx-h100"], 0.0, NOW)
    assert wired.topology is not None
    CHECK.validate(document(replace(wired, topology=replace(wired.topology, between_cpus=22.0))))


def test_a_document_with_a_wrong_unit_or_type_does_not_agree() -> None:
    right = document(box(gpu(0)))
    for key, wrong in (("memory_used", "N/A"), ("utilization", -1), ("verdict", None), ("unheard_of", 1)):
        device = {**right["devices"][0], key: wrong}
        assert not CHECK.is_valid({**right, "devices": [device]}), key
    assert not CHECK.is_valid({key: value for key, value in right.items() if key != "devices"})


# Several boxes


def live(name: str = "idle") -> Reading:
    snapshot = at(BOXES[name], 60.0, NOW)
    return read_answer("gpu1", json.dumps(document(snapshot)).encode(), "run", NOW)


STATES = [
    BoxState("gpu1", since=NOW),
    BoxState("gpu1", "live", live(), None, NOW),
    BoxState("gpu1", "stale", live("shared"), "no recent reading", NOW),
    BoxState("gpu1", "stale", None, "its answer cannot be read", NOW),
    BoxState("gpu1", "dead", live("a100-mig"), "connection refused", NOW),
    BoxState("gpu1", "dead", None, "host key changed", NOW, "changed key"),
]


@each_row("state", STATES, ids=lambda state: state.state)
def test_every_state_of_a_box_that_is_followed_agrees_with_the_schema(state: BoxState) -> None:
    BOXES_CHECK.validate({"schema": 1, "boxes": [live_entry(state, Rules()), live_entry(state, Rules())]})


def test_what_an_older_gputui_tells_agrees_with_the_schema() -> None:
    """Its document has exactly the keys of the contract."""
    here = document(at(BOXES["shared"], 60.0, NOW))
    defined = SCHEMA["$defs"]
    of_old = {
        **{key: here[key] for key in SCHEMA["required"]},
        "devices": [
            {
                **{key: device[key] for key in defined["device"]["required"]},
                "processes": [
                    {key: each[key] for key in defined["process"]["required"]}
                    for each in device["processes"] or ()
                ],
            }
            for device in here["devices"]
        ],
    }
    reading = read_answer("gpu1", json.dumps(of_old).encode(), "run", NOW)
    assert reading.error is None
    BOXES_CHECK.validate(boxes_document([reading, Reading("gpu2", error="connection refused")]))


@each_row(
    ("key", "wrong"),
    [
        ("error", 1),
        ("error", "not live"),
        ("devices", None),
        ("time", 1.0),
        ("state", "live"),
        ("host", None),
    ],
)
def test_a_box_that_is_told_wrongly_does_not_agree(key: str, wrong: object) -> None:
    right = boxes_document([live()])
    BOXES_CHECK.validate(right)
    assert not BOXES_CHECK.is_valid({**right, "boxes": [{**right["boxes"][0], key: wrong}]})
    without = {name: value for name, value in right["boxes"][0].items() if name != "links"}
    assert not BOXES_CHECK.is_valid({**right, "boxes": [without]})


def test_what_is_said_of_a_cluster_agrees_with_the_schema(call: Call) -> None:
    found = call("ls", "--slurm", "--demo", "--json").json
    BOXES_CHECK.validate(found)
    assert not BOXES_CHECK.is_valid({**found, "boxes": [{**found["boxes"][0], "slurm": None}]})
    unknown = Cluster(
        (Node("n", ()), Node("m", ("IDLE",), "", (), (Gpus("", 4, 2),))),
        (Partition("night", up=False),),
        (Job("7", "x", "PENDING", "night"),),
        ("squeue: no answer in time",),
    )
    BOXES_CHECK.validate(cluster_document(unknown, NOW))
    BOXES_CHECK.validate(cluster_document(Cluster(()), NOW))
