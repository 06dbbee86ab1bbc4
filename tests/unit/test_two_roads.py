"""Two ways to a snapshot, the simulated source and NVML on the simulated library, agree on every box."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import Want
from gputui.system.processes import Owner, ProcessTable
from gputui.system.root import Root
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml

OPENED = 1_750_000_000.0
NVIDIA = [name for name, box in BOXES.items() if box.vendor == "nvidia" and name != "mixed-vendors"]
MOMENTS = (1.5, 47.0)


class Directory(ProcessTable):
    """Owners as they are in a snapshot: the processes of a simulated box do not exist."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(host_pids=True)
        self._owners = {
            p.pid: Owner(p.user, p.command, p.started, p.note, p.container, p.ancestors)
            for d in snapshot.devices
            for p in d.processes or ()
        }

    def owner(self, pid: int) -> Owner:
        return self._owners[pid]


def comparable(snapshot: Snapshot) -> Snapshot:
    """A snapshot without the facts that differ between the two ways: the name of the host, the time of the
    reading, and the facts that the driver does not know (claims, jobs, waiters, and since when a device is
    idle)."""
    faults = tuple(
        replace(d, fault=d.fault and replace(d.fault, since=None), idle_since=None) for d in snapshot.devices
    )
    topology = snapshot.topology and replace(snapshot.topology, between_cpus=None)
    return replace(
        snapshot,
        host=replace(snapshot.host, name=None),
        time=0.0,
        devices=faults,
        topology=topology,
        claims=(),
        waiters=(),
        jobs=(),
    )


@pytest.mark.parametrize("elapsed", MOMENTS)
@pytest.mark.parametrize("name", NVIDIA)
def test_both_roads_give_the_same_snapshot(
    nvml_here: SimulatedNvml, tmp_path: Path, name: str, elapsed: float
) -> None:
    box = BOXES[name]
    # The first reading sees a healthy box, as that of a running program does: a GPU that is lost later keeps
    # its name.
    healthy = replace(box, gpus=tuple(replace(gpu, fails_after=float("inf")) for gpu in box.gpus))
    truth = at(box, elapsed, OPENED)
    nvml_here.show_box(healthy, elapsed, OPENED)
    directory = Directory(at(healthy, elapsed, OPENED))
    source = NvmlSource(directory, clock=lambda: OPENED + elapsed, root=Root(str(tmp_path)))
    source.read()
    nvml_here.show(truth, box)
    seen = source.read()
    source.close()
    assert comparable(seen) == comparable(truth)


@pytest.mark.parametrize("elapsed", MOMENTS)
@pytest.mark.parametrize("name", NVIDIA)
def test_the_short_reading_of_pick_comes_to_the_same_choice(
    nvml_here: SimulatedNvml, name: str, elapsed: float
) -> None:
    truth = nvml_here.show_box(BOXES[name], elapsed, OPENED)
    source = NvmlSource(Directory(truth))
    for count in range(1, len(truth.devices) + 1):
        constraints = Constraints(count)
        judged = verdicts(source.read(Want.VERDICT))
        free = {key for key, verdict in judged.items() if verdict.free}
        short, whole = source.read(Want.LINKS, among=free), source.read(Want.ALL)
        chosen = [
            [d.uuid for d in pick(snapshot, verdicts(snapshot), constraints).devices]
            for snapshot in (short, whole)
        ]
        assert chosen[0] == chosen[1]
    source.close()
