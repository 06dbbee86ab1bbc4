"""A driver that fails and heals: every function with every error, and changes while the program runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.allocating.allocate import allocate
from gputui.allocating.request import Request
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import Divided, Prohibited, verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import _PACES, Sampler
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import uniform
from gputui.sources.source import NoSourceError, Want
from gputui.system.processes import ProcessTable
from gputui.tui.app_state import AppState
from gputui.vendors.box import BoxSource
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SHUTDOWN_WHILE_INSIDE, SimulatedNvml
from unit.fault_matrix import CHANGED, FULL, ONE_OF_A_KIND, PLAIN, WIRED, Ticks, try_all
from unit.test_allocation import Heard

PROHIBITED = 2
WHOLE = replace(
    BOXES["a100-mig"],
    gpus=(replace(BOXES["a100-mig"].gpus[1], bus="07:00.0"), BOXES["a100-mig"].gpus[1]),
    tasks=(),
)
"""The box with MIG instances before its first GPU was divided."""


class Desk:
    """A source on a simulated driver, with a clock that a test sets."""

    def __init__(self, driver: SimulatedNvml) -> None:
        self.driver, self.ticks = driver, Ticks()
        self.source = NvmlSource(ProcessTable(host_pids=False), ticks=self.ticks)

    def read(self, want: Want = PLAIN, seconds: float = 1) -> Snapshot:
        self.ticks.now += seconds
        return self.source.read(want)

    def states(self, want: Want = PLAIN, seconds: float = 1) -> dict[str, str]:
        """The states of the devices, by label."""
        snapshot = self.read(want, seconds)
        judged = verdicts(snapshot)
        return {snapshot.label(device): judged[device.key].state for device in snapshot.devices}


@pytest.fixture
def desk(nvml_here: SimulatedNvml) -> Iterator[Desk]:
    nvml_here.show_box(BOXES["idle"])
    made = Desk(nvml_here)
    yield made
    nvml_here.heal()
    made.source.close()


def test_every_fault_of_every_function_stays_where_it_is_and_heals(nvml_here: SimulatedNvml) -> None:
    # A tenth of the faults, others in each run; `python -m unit.fault_matrix` tries every error.
    functions, faults, wrong = try_all(nvml_here, ONE_OF_A_KIND, share=0.1)
    assert functions > 50 and faults > 30
    assert wrong == []


def test_the_links_of_a_gpu_that_was_lost_are_back_soon_after_it(desk: Desk) -> None:
    links = desk.driver.show_box(BOXES["rtx3090"]).links
    desk.driver.error("*", 15, 1)
    for _ in range(600):
        assert desk.read(WIRED if not desk.source._wired.parts else PLAIN).links[0][1] is None
    desk.driver.heal()
    desk.read(PLAIN)
    assert desk.read(PLAIN).links == links


@pytest.mark.parametrize("jump", [365 * 86_400, -86_400])
@pytest.mark.parametrize("jumps_at", ["lost", "healed"])
def test_a_clock_that_jumps_keeps_no_healed_gpu_away_and_makes_none_cool(
    nvml_here: SimulatedNvml, jump: int, jumps_at: str
) -> None:
    """The wall clock jumps; durations come from the monotonic clock, which nobody sets."""
    nvml_here.show_box(BOXES["idle"])
    ticks, clock = Ticks(), Ticks()
    clock.now = 1_750_000_000.0
    nvml = NvmlSource(ProcessTable(host_pids=False), clock, ticks=ticks)
    source, seen = BoxSource([nvml], ticks=ticks), AppState({}, rules=Rules(window=10))

    def states(seconds: float = 1, jump: float = 0) -> list[str]:
        nonlocal seen
        ticks.now += seconds
        clock.now += seconds + jump
        snapshot = source.read(PLAIN)
        seen = seen.with_snapshot(snapshot)
        return [seen.verdicts[device.key].state for device in snapshot.devices]

    def lasts(place: int) -> float:
        return seen.seconds_in_state(keys[place])

    try:
        before = [states() for _ in range(30)][-1]
        keys = [device.key for device in seen.snapshot.devices] if seen.snapshot else []
        nvml_here.error("*", 15, device=1)
        others = ["free"] * (len(before) - 2)
        assert states() == ["free", "lost", *others]
        assert states(jump=jump if jumps_at == "lost" else 0) == ["free", "lost", *others]
        assert lasts(1) == 1
        nvml_here.heal()
        states(jump=jump if jumps_at == "healed" else 0)
        assert states() == ["free", "cooling", *others]
        assert states(7) == ["free", "cooling", *others]
        assert states(3) == ["free", "free", *others]
        assert lasts(0) == 43
        assert seen.snapshot is not None and seen.snapshot.time == clock.now
    finally:
        nvml_here.heal()
        source.close()


# Changes by an administrator while the program runs.


@pytest.mark.parametrize("want", [Want.VERDICT | Want.MODES, FULL])
def test_a_compute_mode_that_changes_is_seen_by_the_next_reading_of_modes(desk: Desk, want: Want) -> None:
    assert desk.states(want)["0"] == "free"
    desk.driver.show_box(BOXES["idle"], facts={"0": {"compute_mode": PROHIBITED}})
    snapshot = desk.read(want)
    assert isinstance(verdicts(snapshot)[snapshot.devices[0].key].cause, Prohibited)
    desk.driver.show_box(BOXES["idle"])
    assert desk.states(want)["0"] == "free"


@pytest.mark.parametrize("want", [Want.VERDICT | Want.MODES, FULL])
def test_mig_that_is_switched_on_and_off_is_seen_by_the_next_reading_of_modes(desk: Desk, want: Want) -> None:
    desk.driver.show_box(WHOLE)
    assert desk.states(want) == {"0": "free", "1": "free"}
    desk.driver.show_box(BOXES["a100-mig"])
    snapshot = desk.read(want)
    assert isinstance(verdicts(snapshot)[snapshot.devices[0].key].cause, Divided)
    assert len(snapshot.devices) == 6
    desk.driver.show_box(WHOLE)
    assert desk.states(want) == {"0": "free", "1": "free"}


def test_mig_that_is_switched_on_takes_the_utilization_away_and_is_seen_at_once(desk: Desk) -> None:
    desk.driver.show_box(WHOLE)
    desk.read(FULL)
    desk.driver.show_box(BOXES["a100-mig"])
    assert desk.states(PLAIN)["0"] == "busy"


def test_gpus_that_come_and_go_are_counted_again(desk: Desk) -> None:
    box = BOXES["rtx3090"]
    fewer = replace(box, gpus=box.gpus[:1] + box.gpus[2:], links=uniform(3, "PHB"), pcie=uniform(3, "PHB"))
    keys = [device.key for device in desk.driver.show_box(box).devices]
    desk.read(WIRED)
    left = desk.driver.show_box(fewer)
    snapshot = desk.read(FULL)
    assert [d.key for d in snapshot.devices] == [d.key for d in left.devices]
    assert all(device.name and device.processes is not None for device in snapshot.devices)
    desk.driver.show_box(box)
    snapshot = desk.read(FULL)
    assert [d.key for d in snapshot.devices] == keys
    assert len(snapshot.links) == 4


def test_another_gpu_in_the_same_place_is_another_device(desk: Desk) -> None:
    box = BOXES["rtx3090"]
    before = desk.driver.show_box(box)
    desk.read(WIRED)
    text = desk.driver.box.read_text()
    desk.driver.rewrite(text.replace(before.devices[1].uuid, "GPU-00000000-1111-2222-3333-444444444444"))
    for want in (PLAIN, PLAIN):
        snapshot = desk.read(want)
    assert snapshot.devices[1].uuid == "GPU-00000000-1111-2222-3333-444444444444"
    assert verdicts(snapshot)[snapshot.devices[1].key].state == "free"
    assert snapshot.devices[1].name == before.devices[1].name


def test_the_screen_reads_modes_at_its_own_pace_and_whenever_it_asks() -> None:
    assert [every for part, every in _PACES if Want.MODES in part] == [30]
    wants: list[Want] = []

    class Source:
        label = ""

        def open(self) -> None: ...

        def read(self, want: Want = Want.ALL, among: object = None) -> Snapshot:
            wants.append(want)
            raise NoSourceError("none")

        def close(self) -> None: ...

    sampler = Sampler(Source(), lambda *news: None)  # type: ignore[arg-type]
    sampler._last_good, sampler._linked = 1.0, True
    sampler._due = {part: float("inf") for part, _ in _PACES}
    assert Want.MODES not in sampler._wanted(asked=False)
    assert Want.MODES in sampler._wanted(asked=True)


class Meanwhile(NvmlSource):
    """A source whose box somebody changes just before the devices are read again."""

    def __init__(self, driver: SimulatedNvml, change: Callable[[SimulatedNvml], object]) -> None:
        super().__init__(ProcessTable(host_pids=False))
        self._driver, self._change = driver, change

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        if Want.MODES in want:
            self._change(self._driver)
        return super().read(want, among)


def _divide(driver: SimulatedNvml) -> None:
    driver.show_box(BOXES["a100-mig"])


def _prohibit(driver: SimulatedNvml) -> None:
    driver.show_box(WHOLE, facts={"0": {"compute_mode": PROHIBITED}})


@pytest.mark.parametrize("change", [_divide, _prohibit])
@pytest.mark.parametrize("rules", [Rules(), Rules(ignore=("nobody",))], ids=["quick", "by owner"])
def test_before_a_launch_the_modes_are_read_again(
    nvml_here: SimulatedNvml, tmp_path: Path, change: Callable[[SimulatedNvml], None], rules: Rules
) -> None:
    nvml_here.show_box(WHOLE)
    source = Meanwhile(nvml_here, change)
    environ = {"GPUTUI_CLAIMS": str(tmp_path / "claims")}
    allocation = allocate(Request(1, rules=rules), source, environ, Heard(), holds=True)
    assert [device.index for device in allocation.devices] == [1]
    assert [notice.kind for notice in allocation.notices] == ["note"]
    allocation.release()
    source.close()


# Driver strings that are not text.


def test_text_that_is_not_utf_8_is_shown_escaped(desk: Desk) -> None:
    text = desk.driver.box.read_text()
    name = "NVIDIA \udcff\udc80 card"
    lines = [f"name {name}" if line.startswith("name ") else line for line in text.splitlines()]
    lines = ["driver 5\udcfe0" if line.startswith("driver ") else line for line in lines]
    desk.driver.rewrite("\n".join(lines) + "\n")
    snapshot = desk.read(FULL)
    assert snapshot.devices[0].name == r"NVIDIA \xff\x80 card"
    assert snapshot.host.driver == r"5\xfe0"
    assert snapshot.devices[0].name.encode()


@pytest.mark.parametrize("uuid", ["GPU-\udcff", "GPU-1,2", "-", "GPU-a b"])
def test_a_uuid_that_is_none_makes_a_device_unknown(desk: Desk, uuid: str) -> None:
    text = desk.driver.box.read_text().splitlines()
    place = next(n for n, line in enumerate(text) if line.startswith("gpu 0 "))
    text[place] = f"gpu 0 {uuid}"
    desk.driver.rewrite("\n".join(text) + "\n")
    assert desk.states(FULL)["0"] == "unknown"
    desk.driver.show_box(BOXES["idle"])
    assert [desk.states(PLAIN)["0"] for _ in range(2)][-1] == "free"


# Calls that fail in the middle of a reading, and their cost.


@pytest.mark.parametrize("after", range(12))
def test_a_device_that_is_lost_in_the_middle_of_a_reading_keeps_its_identity(desk: Desk, after: int) -> None:
    box = BOXES["dgx-h100"]
    truth = desk.driver.show_box(box)
    desk.driver.error("*", 15, 2, after=after)
    states = desk.states(FULL)
    assert states["2"] == "lost"
    assert {states[label] for label in "01345"} == {"free"}
    desk.driver.heal()
    assert desk.states(PLAIN)["2"] == "free"
    snapshot = desk.read(CHANGED, seconds=61)
    assert [(d.uuid, d.name) for d in snapshot.devices] == [(d.uuid, d.name) for d in truth.devices]


def test_what_is_refused_costs_less_than_a_fifth_of_a_call_a_second(desk: Desk) -> None:
    desk.driver.show_box(BOXES["gb10"])
    desk.read(WIRED)
    desk.read(FULL)
    desk.driver.reset_counts()
    desk.read(PLAIN)
    usual = sum(desk.driver.counts().values())
    desk.driver.reset_counts()
    for _ in range(600):
        desk.read(PLAIN)
    assert sum(desk.driver.counts().values()) <= 600 * (usual + 0.2)


# Calls that do not return.


HANGING = (
    "nvmlInitWithFlags",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlSystemGetDriverVersion",
)


@pytest.mark.parametrize("function", HANGING)
def test_a_call_that_hangs_holds_its_thread_only_and_the_box_is_read_when_it_comes_back(
    desk: Desk, function: str
) -> None:
    found: list[Snapshot] = []
    desk.driver.hang(function)
    # Calls for one GPU hang in a thread of their own, longer than this test waits.
    thread = threading.Thread(target=lambda: found.append(desk.read(WIRED)), daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive() and not found
    desk.driver.heal()
    thread.join(90)
    assert {verdict.state for verdict in verdicts(found[0]).values()} == {"free"}


def _of_one(*functions: str) -> tuple[str, ...]:
    return tuple(name for name in functions if name.startswith("nvmlDevice") and "Count" not in name)


@pytest.mark.parametrize("function", [*_of_one(*HANGING), "*"])
@pytest.mark.parametrize("begins", [False, True], ids=["from the start", "begins"])
def test_one_gpu_that_hangs_holds_up_no_other_and_is_back_when_its_call_is(
    nvml_here: SimulatedNvml, function: str, begins: bool
) -> None:
    truth = nvml_here.show_box(BOXES["dgx-h100"])
    ticks = Ticks()
    source = NvmlSource(ProcessTable(host_pids=False), ticks=ticks, patience=0.3)
    if begins:
        source.read(FULL)
    nvml_here.hang(function, 2)
    threads = threading.active_count()
    for want in (FULL, FULL, PLAIN):
        ticks.now += 1
        snapshot = source.read(want)
        states = [verdict.state for verdict in verdicts(snapshot).values()]
        assert states[:2] + states[3:] == ["free"] * 7
        # A value that was read at the first look is not read again, so its function cannot hang.
        asked = not begins or function not in ("nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex_v2")
        assert states[2] == ("unknown" if asked and "Ancestor" not in function else "free")
    assert threading.active_count() < threads + 15
    nvml_here.heal()
    while source._hanging and not all(turn.over for _, turn in source._hanging.values()):
        for _, turn in source._hanging.values():
            turn.wait(60)
    for want in (PLAIN, CHANGED):
        snapshot = source.read(want)
    assert {verdict.state for verdict in verdicts(snapshot).values()} == {"free"}
    assert [device.uuid for device in snapshot.devices] == [device.uuid for device in truth.devices]
    source.close()
    assert not nvml_here.counts().get(SHUTDOWN_WHILE_INSIDE)


WIRING = (
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlDeviceGetCpuAffinityWithinScope",
)


@pytest.mark.parametrize("function", WIRING)
@pytest.mark.parametrize("begins", [False, True], ids=["from the start", "begins"])
def test_links_that_hang_hold_up_no_gpu_and_are_there_when_their_call_has_come_back(
    nvml_here: SimulatedNvml, function: str, begins: bool
) -> None:
    truth = nvml_here.show_box(BOXES["rtx3090"])
    ticks = Ticks()
    source = NvmlSource(ProcessTable(host_pids=False), ticks=ticks, patience=0.2)
    if begins:
        assert source.read(WIRED & ~Want.DETAILS).links == truth.links
    nvml_here.hang(function)
    threads = threading.active_count()
    for want in (WIRED & ~Want.DETAILS, PLAIN, CHANGED, WIRED & ~Want.DETAILS, PLAIN):
        ticks.now += 100
        snapshot = source.read(want)
        assert {verdict.state for verdict in verdicts(snapshot).values()} == {"free"}
        assert snapshot.links == truth.links if begins else len(snapshot.links) == len(truth.links)
    assert threading.active_count() <= threads + 2
    turn = source._hanging_wiring
    assert turn is not None
    nvml_here.heal()
    assert turn._over.wait(60)
    for _ in range(2):
        ticks.now += 1
        snapshot = source.read(PLAIN)
    assert snapshot.links == truth.links and snapshot.topology is not None
    assert {verdict.state for verdict in verdicts(snapshot).values()} == {"free"}
    source.close()
    assert not nvml_here.counts().get(SHUTDOWN_WHILE_INSIDE)


def test_whoever_waits_for_links_that_hang_leaves_the_gpus_alone_when_it_comes_back(
    nvml_here: SimulatedNvml,
) -> None:
    nvml_here.show_box(BOXES["rtx3090"])
    source = NvmlSource(ProcessTable(host_pids=False), patience=0.2)
    nvml_here.hang("nvmlDeviceGetTopologyCommonAncestor")
    source.read(WIRED & ~Want.DETAILS)
    turn = source._hanging_wiring
    assert turn is not None
    # The calls after this one would report that the devices are lost.
    nvml_here.heal()
    nvml_here.error("nvmlDeviceGetCpuAffinityWithinScope", 15)
    assert turn._over.wait(60)
    assert not any(gpu.devices[0].fault for gpu in source._gpus)
    nvml_here.heal()
    source.close()


def test_a_source_that_is_closed_while_links_hang_shuts_nothing_down(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["rtx3090"])
    source = NvmlSource(ProcessTable(host_pids=False), patience=0.2)
    nvml_here.hang("nvmlDeviceGetTopologyCommonAncestor")
    source.read(WIRED & ~Want.DETAILS)
    source.close()
    assert not nvml_here.counts().get("nvmlShutdown")
    nvml_here.heal()


@pytest.mark.parametrize("function", ["nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMaxClockInfo"])
def test_how_fast_a_gpu_is_may_hang_too(nvml_here: SimulatedNvml, function: str) -> None:
    nvml_here.show_box(BOXES["mixed"])
    source = NvmlSource(ProcessTable(host_pids=False), patience=0.2)
    source.read(PLAIN & ~Want.NAMES)
    nvml_here.hang(function, 1)
    states = [verdict.state for verdict in verdicts(source.read(PLAIN & ~Want.NAMES | Want.SPEED)).values()]
    assert states[1] == "unknown" and "free" in states
    nvml_here.heal()
    source.close()


def test_a_source_that_is_closed_while_a_call_hangs_shuts_nothing_down(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["rtx3090"])
    source = NvmlSource(ProcessTable(host_pids=False), patience=0.2)
    nvml_here.hang("nvmlDeviceGetMemoryInfo_v2", 0)
    source.read(PLAIN)
    source.close()
    assert not nvml_here.counts().get("nvmlShutdown")
    nvml_here.heal()
