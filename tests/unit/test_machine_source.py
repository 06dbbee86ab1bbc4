"""What the sources of a machine's files have in common: how its devices are wired is read once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.topology import Topology
from gputui.sources.source import Want
from gputui.vendors.machine_source import MachineSource
from unit.builders import gpu


class Machine(MachineSource):
    """A machine with devices that come and go; it counts the readings of their wires."""

    devices: tuple[Device, ...] = (gpu(0), gpu(1), gpu(2))
    links = topologies = 0

    def open(self) -> None:
        pass

    def _read(self, want: Want, among: Collection[str] | None) -> tuple[Device, ...]:
        return self.devices

    def _read_links(self) -> dict[str, Any]:
        self.links += 1
        size = range(len(self.devices))
        return {"links": tuple(tuple("X" if a == b else "PHB" for b in size) for a in size)}

    def _read_topology(self) -> Topology | None:
        self.topologies += 1
        return None


def test_the_links_are_read_when_they_are_wanted_and_then_once() -> None:
    source = Machine()
    assert source.read(Want.VERDICT).links == () and source.links == 0
    for _ in range(2):
        assert len(source.read(Want.LINKS).links) == 3
    assert (source.links, source.topologies) == (1, 0)
    for _ in range(2):
        source.read(Want.TOPOLOGY)
    assert (source.links, source.topologies) == (1, 1)


def test_the_links_are_read_again_for_other_devices() -> None:
    source = Machine()
    source.read(Want.LINKS | Want.TOPOLOGY)
    source.devices = source.devices[:2]
    assert source.read(Want.VERDICT).links == (), "those of devices that are gone are not shown"
    assert len(source.read(Want.LINKS | Want.TOPOLOGY).links) == 2
    assert (source.links, source.topologies) == (2, 2)


def test_a_source_that_was_closed_reads_everything_again() -> None:
    source = Machine()
    source.read(Want.LINKS)
    source.close()
    source.read(Want.LINKS)
    assert source.links == 2
