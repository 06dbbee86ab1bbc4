"""Recorded Intel machines and answers of xpu-smi, read field by field."""

from __future__ import annotations

import json
from typing import Any

from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.inventory.device import Device
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import from_document
from gputui.inventory.link import strength
from gputui.system.drm import clients
from gputui.system.pci_tree import long_bus_id
from gputui.system.root import Root
from gputui.vendors.intel import xpu_smi
from gputui.vendors.intel.source import IntelSource
from table_tests import each_row
from unit.recorded import VENDORS, needs

RECORDED = VENDORS / "intel"
CASES = sorted(
    case.name for case in (RECORDED.iterdir() if RECORDED.is_dir() else ()) if any(case.glob("root*"))
)

pytestmark = needs(RECORDED)


def expected(case: str) -> dict[str, Any]:
    return dict(json.loads((RECORDED / case / "expected.json").read_text()))


def answer(case: str, name: str) -> str:
    return (RECORDED / case / name).read_text()


def _shown(device: Device, name: str) -> Any:
    if name == "integrated":
        return device.apart == "integrated"
    return device.uuid or None if name == "uuid" else getattr(device, name)


@each_row("case", CASES or ["none"])
def test_every_field_is_what_the_description_says(case: str) -> None:
    wanted = expected(case)
    snapshot = IntelSource(Root(str(RECORDED / case / "root"))).read()
    assert len(snapshot.devices) == len(wanted["devices"])
    for device, facts in zip(snapshot.devices, wanted["devices"], strict=True):
        for name in {name.removesuffix("_any_of") for name in facts} - {"driver", "power_limit_why"}:
            allowed = facts.get(f"{name}_any_of", [facts.get(name)])
            if allowed is not None:
                assert _shown(device, name) in allowed, name
    assert [list(row) for row in snapshot.links] == wanted["links"]
    again = from_document(
        json.loads(json.dumps(to_document(snapshot, for_document(verdicts(snapshot), 0.0))))
    )
    assert [device.key for device in again.devices] == [device.key for device in snapshot.devices]
    # Nothing here reports the memory in use: it is unknown, and so the devices are never free.
    assert {verdict.state for verdict in verdicts(snapshot).values()} == {"unknown"}


def test_counters_of_a_recording_that_stand_still_are_no_power_and_no_load() -> None:
    moments = iter(range(100))
    source = IntelSource(Root(str(RECORDED / "b580_xe" / "root")), ticks=lambda: float(next(moments)))
    source.read()
    device = source.read().devices[0]
    assert (device.power, device.utilization) == (None, None)


def test_a_job_on_two_tiles_has_the_memory_of_both() -> None:
    case = "fdinfo_xe_pvc"
    wanted = expected(case)
    (client,) = clients(Root(str(RECORDED / case)))
    assert (client.pid, long_bus_id(client.function)) == (wanted["pid"], wanted["pci_bus_id"])
    assert client.device_memory == wanted["memory"]
    assert [client.memory["vram0"], client.memory["vram1"]] == wanted["memory_per_tile"]
    assert client.cycles["ccs"] > 0


def test_xe_links_are_read_and_ranked() -> None:
    case = "xpu_smi_13_two_cards_four_tiles"
    wanted = expected(case)["topology_m"]
    found = xpu_smi.wires(answer(case, "topology_m.txt"))
    assert found is not None
    assert [f"{card}/{tile}" for card, tile in found.labels] == wanted["labels"]
    assert [["S" if word == "X" else word for word in row] for row in found.words] == wanted["matrix"]
    assert strength("MDF") > strength("XL16") > strength("XL4") > strength("XL*") > strength("PIX")


def test_version_1_tells_who_the_devices_are() -> None:
    case = "xpu_smi_13_two_cards_four_tiles"
    (device,) = xpu_smi.devices(answer(case, "discovery.json"))
    (listed,) = expected(case)["discovery"]
    assert device.function is not None
    found = (device.number, device.name, long_bus_id(device.function), device.uuid)
    assert found == tuple(listed[name] for name in ("device_id", "name", "pci_bus_id", "uuid"))
