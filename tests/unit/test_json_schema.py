"""The published JSON Schema of `ls --json`: the documents of all boxes agree with it; it names every key."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from gputui import read
from gputui.inventory.claim import Claim
from gputui.inventory.device import Fault
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from unit.builders import NOW, box, document, gpu
from unit.calling import Call

jsonschema = pytest.importorskip("jsonschema")

SCHEMA: dict[str, Any] = json.loads(files("gputui.inventory").joinpath("ls.schema.json").read_text())


def closed(schema: Any) -> Any:
    """The schema, by which no key is right that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return {**found, "additionalProperties": False} if schema.get("type") == "object" else found


CHECK = jsonschema.Draft202012Validator(closed(SCHEMA))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("details", [(), ("--details",)], ids=["plain", "details"])
@pytest.mark.parametrize("name", BOXES)
def test_what_ls_prints_of_every_box_agrees_with_the_schema(
    name: str, details: tuple[str, ...], call: Call
) -> None:
    CHECK.validate(call("ls", f"--demo={name}", "--json", *details).json)


@pytest.mark.parametrize("name", BOXES)
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


def test_a_document_with_a_wrong_unit_or_type_does_not_agree() -> None:
    right = document(box(gpu(0)))
    for key, wrong in (("memory_used", "N/A"), ("utilization", -1), ("verdict", None), ("unheard_of", 1)):
        device = {**right["devices"][0], key: wrong}
        assert not CHECK.is_valid({**right, "devices": [device]}), key
    assert not CHECK.is_valid({key: value for key, value in right.items() if key != "devices"})
