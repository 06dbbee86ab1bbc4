"""The facts about a device beyond the table, and their layout at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.choosing.verdict_text import state_and_reason
from gputui.cli.details_text import details_text
from gputui.inventory.device import Device
from gputui.inventory.device_facts import Fact, fact_groups
from gputui.inventory.job import Job, JobDevice
from gputui.inventory.snapshot import HostLoad
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.xid import MEANINGS
from gputui.tui.app_state import AppState
from gputui.tui.views.device import device_facts, device_head, device_panel
from gputui.tui.views.text import width_of
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, instance, job

FULL = Telemetry(
    encoder=3,
    decoder=7,
    memory_clock=2619,
    max_memory_clock=2619,
    fan=40,
    memory_temperature=75,
    slowdown_temperature=87,
    shutdown_temperature=92,
    throttle=("power limit",),
    performance_state=0,
    persistence=False,
    ecc_corrected=4,
    ecc_uncorrected=0,
    retired_pages=0,
    remapped_rows=0,
    xid=31,
    xid_at=NOW - 720,
    pcie_generation=5,
    pcie_width=16,
    max_pcie_generation=5,
    max_pcie_width=16,
    pcie_sent=1.2e9,
    pcie_received=40e6,
    nvlink_sent=18.2e9,
    nvlink_received=17.9e9,
    sm_active=88.0,
    sm_occupancy=41.0,
    tensor_active=12.0,
    energy=3.6e7,
)


def fact(device: Device, group: str, name: str) -> Fact:
    (found,) = [f for g in fact_groups(device, NOW) if g.name == group for f in g.facts if f.name == name]
    return found


def test_the_energy_says_since_when_it_is_counted() -> None:
    device = replace(gpu(0), telemetry=FULL)
    assert "driver was loaded" in fact(device, "Power and temperature", "energy").more
    device = replace(gpu(0), telemetry=replace(FULL, energy=None))
    assert fact(device, "Power and temperature", "energy").text == "–"


def on(utilization: int | None = 97, **telemetry: object) -> Device:
    return replace(busy(gpu(0)), utilization=utilization, telemetry=replace(FULL, **telemetry))  # type: ignore[arg-type]


def page(device: Device, width: int) -> list[str]:
    lines = device_facts(AppState({}).with_snapshot(box(device, gpu(1))), device, width)
    assert all(width_of(line) <= width for line in lines)
    return ["".join(text for text, _ in line) for line in lines]


def test_persistence_mode_stands_beside_the_performance_state() -> None:
    assert fact(on(), "Clocks", "state").text == "P0, persistence off"
    assert fact(on(persistence=None), "Clocks", "state").text == "P0"
    low = fact(on(performance_state=8), "Clocks", "state")
    assert low.text.startswith("P8") and "P0" in low.more


@each_row(
    ("utilization", "generation", "width", "trained", "alarm"),
    [
        (97, 5, 16, "gen 5 ×16", False),
        (0, 1, 16, "gen 1 ×16 (gen 5 when busy)", False),
        (None, 1, 16, "gen 1 ×16 (gen 5 when busy)", False),
        (97, 4, 16, "gen 4 ×16, down-trained (gen 5 possible)", True),
        (0, 5, 8, "gen 5 ×8, down-trained (×16 possible)", True),
        (97, 1, 4, "gen 1 ×4, down-trained (gen 5 ×16 possible)", True),
        (97, None, None, "–", False),
    ],
)
def test_a_pcie_link_is_called_down_trained_when_it_is_narrow_or_slow_under_load(
    utilization: int | None, generation: int | None, width: int | None, trained: str, alarm: bool
) -> None:
    """An idle GPU lowers its link generation by itself."""
    device = on(utilization, pcie_generation=generation, pcie_width=width)
    found = fact(device, "Links", "PCIe")
    assert (found.text + found.more, found.alarm) == (trained, alarm)


def test_a_temperature_has_its_thresholds_and_is_an_alarm_from_the_first() -> None:
    name = "Power and temperature", "temperature"
    cool = fact(replace(on(), temperature=68), *name)
    assert cool == Fact("temperature", "68 °C, slows at 87", more=", off at 92")
    assert fact(replace(on(), temperature=87), *name).alarm
    assert fact(replace(on(), temperature=None), *name).text == "–"


def test_an_xid_has_its_age_and_its_meaning() -> None:
    found = fact(on(), "Errors", "driver error")
    assert found.alarm and (found.text, found.more) == ("XID 31, 12m ago", f": {MEANINGS[31]}")
    unknown = fact(on(xid=9999, xid_at=None), "Errors", "driver error")
    assert (unknown.text, unknown.more) == ("XID 9999", "")


def test_throttling_is_an_alarm_with_its_reasons() -> None:
    def throttle(*reasons: str) -> Fact:
        return fact(on(throttle=reasons), "Clocks", "throttling")

    assert (throttle().text, throttle().alarm) == ("none", False)
    hot = throttle("power limit", "thermal")
    assert (hot.text, hot.alarm) == ("power limit, thermal", True)


def test_an_instance_has_what_the_driver_tells_of_it_and_names_its_gpu_for_the_rest() -> None:
    gpu_0 = gpu(0, mig=True)
    part = instance(gpu_0, 1)
    assert [group.name for group in fact_groups(part, NOW)] == ["Load", "Memory"]
    for width in (60, 130):
        state = AppState({}).with_snapshot(box(gpu_0, part))
        lines = [*device_head(state, part, width), *device_facts(state, part, width)]
        text = " ".join(piece for line in lines for piece, _ in line)
        assert "GPU 0:1" in text and "those of GPU 0" in " ".join(text.split())


def test_memory_that_is_the_hosts_is_said_to_be() -> None:
    """On GB10, Jetson and GH200, the host loses the memory that a program uses on the device."""
    shared = "shared with the host"
    assert fact(replace(on(), unified=True), "Memory", "unified").text == shared
    for unified in (None, False):
        assert all(
            f.text != shared for g in fact_groups(replace(on(), unified=unified), NOW) for f in g.facts
        )


@each_row(
    ("memory", "fan", "said"),
    [
        (75, 40, ("memory", "75 °C, fan 40 %")),
        (75, None, ("memory", "75 °C")),
        (None, 40, ("fan", "40 %")),
        (None, None, ("memory, fan", "–")),
    ],
)
def test_memory_temperature_and_fan_share_a_line_that_names_what_is_known(
    memory: int | None, fan: int | None, said: tuple[str, str]
) -> None:
    device = on(memory_temperature=memory, fan=fan)
    assert fact(device, "Power and temperature", said[0]) == Fact(*said)


def test_errors_are_counted_and_zero_is_none() -> None:
    assert fact(on(), "Errors", "ECC errors").text == "4 corrected"
    assert fact(on(), "Errors", "bad memory").text == "none"
    assert fact(on(ecc_uncorrected=2), "Errors", "ECC errors").alarm
    assert fact(on(remapped_rows=1), "Errors", "bad memory").text == "1 remapped row"
    assert fact(replace(on(), telemetry=None), "Errors", "ECC errors").text == "–"


def test_what_is_not_known_is_a_dash_and_has_no_bar() -> None:
    unread = Device(index=0, uuid="GPU-0")
    for group in fact_groups(unread, NOW):
        for each in group.facts:
            assert (each.text, each.fraction, each.alarm) == ("–", None, False)
    assert not any("░" in line for line in page(unread, 80))


@each_row(("width", "columns"), [(60, 1), (80, 2), (130, 3), (200, 3)])
def test_every_fact_is_shown_at_every_width_in_columns(width: int, columns: int) -> None:
    shown = page(on(), width)
    whole = " ".join("\n".join(shown).split())
    for group in fact_groups(on(), NOW):
        assert group.name in whole
        for each in group.facts:
            # Only the first word is compared: a long text is wrapped within its column.
            assert f"{each.name} " in whole and each.text.split()[0] in whole
    first = next(line for line in shown if line.startswith(" Load"))
    titles = [g.name for g in fact_groups(on(), NOW) if g.name in first]
    assert len(titles) == columns


@pytest.mark.parametrize("own", [False, True])
def test_the_head_says_who_it_is_and_its_state_in_full(own: bool) -> None:
    device = on()
    job = Job(id="m6u5", name="sft", state="running", devices=(JobDevice(0, device.key, None),))
    app_state = AppState({}).with_snapshot(replace(box(device), jobs=(job,) if own else ()))
    app_state, _ = app_state.toggle(device)
    text = "\n".join("".join(piece for piece, _ in line) for line in device_head(app_state, device, 130))
    for words in (device.uuid, "PCI 10:00.0", "NUMA node 0", "compute capability 9.0", "selected: cuda:0"):
        assert words in text
    if own:
        assert "your job m6u5: sft" in text
    else:
        assert state_and_reason(app_state.verdicts[device.key], NOW) in " ".join(text.split())


def test_hostile_names_do_nothing_to_the_terminal() -> None:
    evil = "\x1b]0;x\x07\u202e"
    device = replace(
        busy(gpu(0, name=evil, uuid=evil), job(1, user=evil, command=evil, memory=GIB)),
        telemetry=replace(FULL, throttle=(evil,)),
    )
    app_state = AppState({}).with_snapshot(
        replace(
            box(device),
            jobs=(Job(id=evil, name=evil, state="running", devices=(JobDevice(0, device.key, None),)),),
        )
    )
    for line in device_facts(app_state, device, 130):
        assert all(piece.isprintable() for piece, _ in line)


@each_row(("capability", "text"), [("8.0", "– (MIG: Hopper and newer)"), ("9.0", "–"), (None, "–")])
def test_the_unknown_load_of_an_instance_has_its_reason(capability: str | None, text: str) -> None:
    part = replace(instance(gpu(0), 1), compute_capability=capability, utilization=None)
    (fact,) = (f for g in fact_groups(part, NOW) for f in g.facts if f.name == "utilization")
    assert fact.text == text


@each_row(
    ("told", "fact"),
    [
        (
            Telemetry(
                nvlink_fabric="ready", nvlink_domain="1b8f0000-0000-4000-8000-000000000001", nvlink_clique=3
            ),
            Fact("fabric", "domain 1b8f0000, clique 3"),
        ),
        (Telemetry(nvlink_fabric="ready"), Fact("fabric", "ready")),
        (Telemetry(nvlink_fabric="in progress"), Fact("fabric", "in progress")),
        (Telemetry(nvlink_fabric="failed"), Fact("fabric", "failed", alarm=True)),
        (Telemetry(), None),
    ],
)
def test_the_place_in_an_nvlink_fabric_is_a_line_of_its_own(told: Telemetry, fact: Fact | None) -> None:
    facts = [f for g in fact_groups(replace(gpu(0), telemetry=told), NOW) for f in g.facts]
    assert [f for f in facts if f.name == "fabric"] == ([fact] if fact else [])


def test_unified_memory_is_a_number_the_hosts() -> None:
    unified = gpu(0, unified=True, memory_total=None, memory_used=None, memory_free=None)
    load = HostLoad(memory_used=30 * GIB, memory_total=120 * GIB)
    shown = box(unified)
    shown = replace(shown, host=replace(shown.host, load=load))
    text = " ".join(
        piece for line in device_facts(AppState({}).with_snapshot(shown), unified, 100) for piece, _ in line
    )
    assert "30.0 of 120.0G" in text
    assert "30.0 of 120.0G" in details_text(shown, 100)


@each_row("width", [45, 49, 60, 75, 92, 130])
def test_in_the_panel_no_fact_moves_another_one_when_its_text_gets_longer(width: int) -> None:
    """A longer state, a longer reason or a link that lowers its generation shifted everything below it."""
    short = on(0, encoder=0, decoder=0, throttle=(), pcie_sent=0, pcie_received=0, xid=None)
    long = on(
        100,
        encoder=100,
        decoder=100,
        throttle=("software cap", "hardware thermal slowdown", "brake"),
        performance_state=8,
        persistence=True,
        energy=9.6e9,
        pcie_generation=1,
        pcie_width=8,
        ecc_corrected=123456,
        ecc_uncorrected=99,
    )

    def places(device: Device) -> dict[str, tuple[int, int]]:
        state = AppState({}).with_snapshot(box(device))
        lines = ["".join(text for text, _ in line) for line in device_panel(state, width, 40)]
        assert all(len(line) <= width for line in lines)
        names = [f.name for g in fact_groups(device, NOW) for f in g.facts]
        return {
            name: (at, line.index(f" {name} "))
            for name in names
            for at, line in enumerate(lines)
            if f" {name} " in line
        }

    assert len(places(short)) > 15
    assert places(short) == places(long)


@pytest.mark.parametrize("width", [49, 75])
def test_the_panel_has_the_usual_facts_of_an_idle_gpu_uncut(width: int) -> None:
    idle = on(0, encoder=0, decoder=0, energy=9.6e9, performance_state=8, persistence=True)
    state = AppState({}).with_snapshot(box(idle))
    text = "\n".join("".join(text for text, _ in line) for line in device_panel(state, width, 40))
    for name in ("video", "energy", "temperature", "state", "PCIe traffic"):
        (found,) = [f for g in fact_groups(idle, NOW) for f in g.facts if f.name == name]
        assert found.text in text
    assert "…" not in text
