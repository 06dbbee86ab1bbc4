"""`ls --details` shows the same facts as the device page, in lines that fit."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import brief, reason
from gputui.cli.details_text import details_text
from gputui.cli.ls_text import table
from gputui.inventory.device import Device
from gputui.inventory.device_facts import fact_groups, facts_elsewhere
from gputui.inventory.formatting import UNKNOWN
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.vendors.registry import vendor_named
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, instance, job
from unit.test_device_facts import on


def words(text: str) -> str:
    return " ".join(text.split())


@each_row("width", [None, 40, 80, 200])
def test_every_known_fact_of_the_device_page_is_there_at_every_width(width: int | None) -> None:
    device = replace(on(throttle=("power limit", "thermal slowdown"), pcie_width=8), unified=True)
    text = details_text(box(device), width)
    for group in fact_groups(device, NOW):
        assert group.name in text
        for fact in group.facts:
            assert f"{fact.name} {words(fact.text)}" in words(text)
    assert width is None or all(len(line) <= width for line in text.splitlines())


def test_what_is_not_known_is_left_out_with_the_name_of_its_group() -> None:
    unread = Device(index=0, uuid="GPU-0", name="H100", utilization=3)
    text = details_text(box(unread), 80)
    assert UNKNOWN not in text and "utilization 3 %" in text and "Errors" not in text
    assert "no details" in details_text(box(replace(unread, utilization=None)), 80)


def test_a_command_that_is_too_long_is_without_its_path_and_cut_with_a_sign() -> None:
    process = job(7, command="/very/long/path/to/python train.py " + "--x 1 " * 30)
    device = replace(on(), processes=(process,))
    last = details_text(box(device), 60).splitlines()[-1]
    assert " python train.py" in last and last.endswith("…") and len(last) <= 60
    assert "…" not in details_text(box(device), None)


def test_a_process_in_a_container_names_it_in_a_column_and_hostile_names_do_nothing() -> None:
    plain, evil = job(1), job(2, container="lxc \x1b[2Jweb")
    lines = details_text(box(gpu(0, processes=(plain, evil))), None).splitlines()
    assert any("CONTAINER" in line for line in lines)
    assert any("[2Jweb" in line and "\x1b" not in line for line in lines)
    assert "CONTAINER" not in details_text(box(gpu(0, processes=(plain,))), None)


def test_where_a_reason_does_not_fit_the_table_has_the_brief_states_of_the_screen() -> None:
    snapshot = box(busy(gpu(0)), gpu(1))
    judged = verdicts(snapshot)
    wide, narrow = (table(snapshot, judged, width, False) for width in (None, 80))
    for device in snapshot.devices:
        verdict = judged[device.key]
        assert reason(verdict, NOW) in wide and brief(verdict, NOW) in narrow
    assert "…" not in narrow and all(len(line) <= 80 for line in narrow.splitlines())


def test_an_instance_has_its_own_facts_and_says_where_the_others_are() -> None:
    divided = gpu(0, mig=True)
    part = replace(instance(divided, 2), memory_used=GIB)
    snapshot = box(divided, part)
    block = details_text(snapshot, None).split("GPU 0:2", 1)[1]
    assert "in use 1.0 of" in block and str(facts_elsewhere(part, snapshot)) in block


def test_hostile_text_does_nothing_to_the_terminal() -> None:
    evil = "\x1b]0;x\x07\u202e"
    process = job(1, user=evil, command=evil, memory=GIB)
    device = replace(on(throttle=(evil,)), name=evil, processes=(process,))
    assert all(line.isprintable() for line in details_text(box(device, busy(gpu(1))), 80).splitlines())


@each_row("name", ["amd", "amd-cpx", "intel", "gaudi", "apple"])
def test_of_another_vendor_there_are_no_rows_that_only_nvidia_fills(name: str) -> None:
    box = BOXES[name]
    snapshot = detailed(at(box, 30.0, 1_700_000_000.0), box, 30.0)
    device = snapshot.devices[0]
    vendor = vendor_named(device.vendor)
    rows = [
        fact.name for group in fact_groups(device, 0.0, vendor.fact_names(device)) for fact in group.facts
    ]
    assert "in use" in rows and not {
        "SM",
        "SM active",
        "tensor cores",
        "NVLink",
        "driver error",
        "video",
    } & set(rows)
    # A fact that cannot be known is reported as such.
    assert vendor.untold(device) in details_text(snapshot, None)
    assert bool(vendor.untold(device)) == (name != "amd")


def test_a_fact_that_is_known_is_not_left_out() -> None:
    device = on(xid=79)
    rows = {
        fact.name: fact.text
        for group in fact_groups(device, 0.0, {"driver error": "", "SM": "GPU"})
        for fact in group.facts
    }
    assert rows["driver error"].startswith("XID 79") and "GPU" in rows and "SM" not in rows
