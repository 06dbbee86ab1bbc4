"""One box, one request: every call, the library and the screen choose the same devices in the same order.

The tests use the simulated driver, whose devices are read in part first, and more of them where a choice
needs that. Demo boxes return everything at once, and hide a reading that loses track of the devices.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import sysfs
from gputui import NotEnoughError
from gputui import pick as pick_from_python
from gputui.allocating.claims.files import new_token
from gputui.allocating.claims.folder import own_place
from gputui.allocating.claims.source import WithClaims
from gputui.inventory.matrix_text import read
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import Box
from gputui.sources.source import Want
from gputui.system.root import Root
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from table_tests import quick_first
from unit.calling import Call, best_on_screen
from unit.wired import TOPOLOGIES, indices

OF_NVIDIA = ("shared", "dgx-h100", "dgx-1", "dgx-2", "rtx3090", "rtx4090", "mixed", "idle", "laptop", "gb10")
RECORDED = [box_of(read(file.read_text()), file.stem) for file in sorted(TOPOLOGIES.glob("*.txt"))]
EVERY = [*(BOXES[name] for name in OF_NVIDIA), *RECORDED]
SOME = [*(BOXES[name] for name in ("shared", "dgx-1", "mixed", "laptop")), *RECORDED[::4]]

LAUNCH = ("--", "torchrun", "train.py")
LISTED = re.compile(r"CUDA_VISIBLE_DEVICES=([0-9,]+)")


@pytest.fixture
def look(nvml_here: SimulatedNvml, tmp_path: Path) -> Iterator[Look]:
    yield Look(nvml_here, tmp_path / "sys")


class Look:
    """Shows a box to the driver, and requests devices in one way after another."""

    def __init__(self, driver: SimulatedNvml, root: Path) -> None:
        self.driver, self.root = driver, root

    def show(self, box: Box) -> None:
        self.driver.show_box(box)
        sysfs.make(self.root, box)

    def show_empty(self, box: Box) -> None:
        """Show the same box without any program on it."""
        found = detailed(at(box, 0.0, 1.0), box, 0.0)
        empty = tuple(
            replace(device, processes=(), memory_used=0, memory_free=device.memory_total)
            for device in found.devices
        )
        self.driver.show(replace(found, devices=empty), box)
        sysfs.make(self.root, box)

    def screen(self, count: int) -> list[int]:
        """The devices that `b` selects after this number of presses."""
        return best_on_screen(NvmlSource(root=Root(str(self.root.parent))), count)


Ask = Callable[[Call, int], "list[int] | None"]
"""The devices in order, by index; None where there are too few."""


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _picked(*words: str) -> Ask:
    def ask(call: Call, count: int) -> list[int] | None:
        ended = call("pick", "-n", str(count), *words)
        assert ended.status in (0, 4), ended
        return None if ended.status else _numbers(ended.out.strip())

    return ask


def _of_document(call: Call, count: int) -> list[int] | None:
    ended = call("pick", "-n", str(count), "--format", "json")
    return None if ended.status else [device["index"] for device in json.loads(ended.out)["devices"]]


def _by_uuid(call: Call, count: int) -> list[int] | None:
    ended = call("pick", "-n", str(count), "--ids", "uuid")
    if ended.status:
        return None
    there = {d["uuid"]: d["index"] for d in json.loads(call("ls", "--json").out)["devices"]}
    return [there[uuid] for uuid in ended.out.strip().split(",")]


def _printed(*words: str) -> Ask:
    def ask(call: Call, count: int) -> list[int] | None:
        ended = call(words[0], "-n", str(count), *words[1:])
        assert ended.status in (0, 4), ended
        return None if ended.status else _numbers(LISTED.findall(ended.out)[0])

    return ask


def _exported(call: Call, count: int) -> list[int] | None:
    ended = call("export", "-n", str(count), "--as", "json", *LAUNCH)
    if ended.status:
        return None
    devices = json.loads(ended.out)["devices"]
    assert all(device["uuid"] for device in devices)
    return [device["index"] for device in devices]


def _in_docker(call: Call, count: int) -> list[int] | None:
    command = ("--", "docker", "run", "--gpus", "all", "image", "python", "train.py")
    ended = call("run", "-n", str(count), "--dry-run", *command)
    if ended.status:
        return None
    there = {d["uuid"]: d["index"] for d in json.loads(call("ls", "--json").out)["devices"]}
    found = re.search(r'"device=([^"]+)"', ended.out)
    assert found is not None, ended
    return [there[uuid] for uuid in found[1].split(",")]


def _from_python(_call: Call, count: int) -> list[int] | None:
    try:
        return indices(pick_from_python(count).devices)
    except NotEnoughError:
        return None


WAYS: dict[str, Ask] = {
    "pick --why": _picked("--why"),
    "pick --format json": _of_document,
    "pick --ids uuid": _by_uuid,
    "pick --format env --why": _printed("pick", "--format", "env", "--why"),
    "run --dry-run": _printed("run", "--dry-run", *LAUNCH),
    "run --dry-run --why": _printed("run", "--dry-run", "--why", *LAUNCH),
    "run --dry-run, docker": _in_docker,
    "export --as sh --why": _printed("export", "--as", "sh", "--why", *LAUNCH),
    "export --as json": _exported,
    "library": _from_python,
}


@pytest.mark.parametrize("box", SOME, ids=lambda box: box.name)
@pytest.mark.parametrize("shown", quick_first(["as it is", "empty"]))
def test_every_way_chooses_the_same_devices(look: Look, call: Call, box: Box, shown: str) -> None:
    if shown == "empty":
        # Without a drawing program, nothing shows that a display is attached.
        look.show_empty(box)
    else:
        look.show(box)
    for count in (1, 3) if shown == "empty" else (2, 4):
        plain = _picked()(call, count)
        found = {way: ask(call, count) for way, ask in WAYS.items()}
        assert found == dict.fromkeys(WAYS, plain)
        if plain is not None:
            assert look.screen(count) == plain


@pytest.mark.parametrize("box", EVERY, ids=lambda box: box.name)
def test_a_reason_names_the_links_of_what_is_chosen(look: Look, call: Call, box: Box) -> None:
    look.show(box)
    ended = call("pick", "-n", "2", "--why")
    assert ended.status in (0, 4)
    assert "links unknown" not in ended.err


def test_a_claim_that_comes_between_two_readings_changes_no_key(look: Look, own_claims: Path) -> None:
    look.show(BOXES["dgx-h100"])
    environ = {"GPUTUI_CLAIMS": str(own_claims)}
    ticket = own_place(environ) / f"wait.1.{new_token()}.ticket"
    source = WithClaims(NvmlSource(root=Root(str(look.root.parent))), environ)
    try:
        before = source.read(Want.VERDICT | Want.WHOLE)
        ticket.touch()
        after = source.read(Want.LINKS | Want.NAMES | Want.WHOLE)
        assert list(before.by_key) == list(after.by_key)
    finally:
        source.close()
