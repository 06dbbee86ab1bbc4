"""Recorded AMD machines, read field by field.

The recordings are files of other people and stay outside the checkout: in `../shared/vendors`, or where
GPUTUI_RECORDED_VENDORS says.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.inventory.device import Device
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import from_document
from gputui.inventory.snapshot import Snapshot
from gputui.system.root import Root
from gputui.vendors.amd.source import AmdSource
from table_tests import each_row

_BESIDE = Path(__file__).parents[2].parent / "shared" / "vendors"
RECORDED = Path(os.environ.get("GPUTUI_RECORDED_VENDORS", _BESIDE)) / "amd"
CASES = sorted(
    case.name for case in (RECORDED.iterdir() if RECORDED.is_dir() else ()) if any(case.glob("root*"))
)

pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded machines at {RECORDED}")

_NOT_SHOWN = ("kfd_node", "revision", "gpu_id")
"""Fields of a recording's description that gputui does not show; they help a person who reads the files."""


def _root(case: str, tmp_path: Path) -> Root:
    packed = RECORDED / case / "root.tar.xz"
    if not packed.exists():
        return Root(str(RECORDED / case / "root"))
    with tarfile.open(packed) as archive:
        for member in archive:
            archive.extract(member, tmp_path)
    return Root(str(tmp_path))


def _shown(device: Device, name: str) -> Any:
    shown = {
        "hip_index": None if device.index < 0 else device.index,
        "gfx": device.compute_capability,
        "parent": device.board,
        "uuid": device.uuid or None,
    }
    return shown[name] if name in shown else getattr(device, name)


@each_row("case", CASES or ["none"])
def test_every_field_is_what_the_description_says(case: str, tmp_path: Path) -> None:
    expected = json.loads((RECORDED / case / "expected.json").read_text())
    snapshot = AmdSource(_root(case, tmp_path)).read()
    assert len(snapshot.devices) == len(expected["devices"])
    for device, wanted in zip(snapshot.devices, expected["devices"], strict=True):
        for name in wanted:
            plain = name.removesuffix("_any_of")
            if plain in _NOT_SHOWN:
                continue
            allowed = wanted.get(f"{plain}_any_of") or [wanted[plain]]
            assert _shown(device, plain) in allowed, (device.index, plain)
    links = [list(row) for row in snapshot.links]
    if "links" in expected:
        assert links == expected["links"]
    if "link_weights" in expected:
        assert [list(row) for row in snapshot.link_weights] == expected["link_weights"]
    if "links_all_pairs" in expected:
        _same_everywhere(snapshot, expected)


def _same_everywhere(snapshot: Snapshot, expected: dict[str, Any]) -> None:
    for i, one in enumerate(snapshot.devices):
        for j, other in enumerate(snapshot.devices):
            if i != j:
                near = "link_weight_same_parent" if one.board == other.board else "link_weight_other_parent"
                assert snapshot.links[i][j] == expected["links_all_pairs"]
                assert snapshot.link_weights[i][j] == expected[near]


@each_row("case", CASES or ["none"])
def test_a_snapshot_of_one_survives_json(case: str, tmp_path: Path) -> None:
    snapshot = AmdSource(_root(case, tmp_path)).read()
    document = json.loads(json.dumps(to_document(snapshot, for_document(verdicts(snapshot), 0.0))))
    again = from_document(document)
    assert [device.key for device in again.devices] == [device.key for device in snapshot.devices]
    assert again.link_weights == snapshot.link_weights
    assert again.devices[0].board == snapshot.devices[0].board
    assert [d.index >= 0 for d in again.devices] == [d.index >= 0 for d in snapshot.devices]
