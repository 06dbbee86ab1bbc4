"""Intel's devices on a machine: from /sys and /proc, the drivers' own queries, and xpu-smi where it is
installed.

Devices are numbered as Level Zero numbers them: discrete GPUs first, then integrated GPUs, each in PCI order
(compute-runtime, execution_environment.cpp). Tiles of a Data Center GPU Max are devices unless
ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE; tiles of other GPUs are devices only if it is FLAT or COMBINED.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import Among, Apart, Device, Facts
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.process import Kind, Process
from gputui.inventory.snapshot import Host
from gputui.sources.source import Want
from gputui.system.drm import cards, clients, may_open
from gputui.system.environment import Environ
from gputui.system.pci_tree import long_bus_id, numa_nodes
from gputui.system.program import Program
from gputui.system.root import HERE, Root
from gputui.vendors.intel import memory, names, xpu_smi
from gputui.vendors.intel.card import IntelCard
from gputui.vendors.machine_source import MachineSource, left_of

if TYPE_CHECKING:
    from gputui.inventory.topology import Topology

HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"

NO_DEVICES = (
    "no Intel GPU: the kernel has none with the driver xe or i915; load it (`sudo modprobe xe`), or start the"
    " container with --device /dev/dri"
)

_DRIVERS = ("xe", "i915")
_FRESH = 4.0
"""Seconds for which xpu-smi's report of the load is cached: it takes up to a second per device."""

_SAMPLE = 0.05
"""Seconds between two readings of the counters, where only one reading is requested (`pick`)."""


_SENSED_BY_SMI = ("temperature", "power", "sm_clock")
"""The readings of a card that `xpu_smi.Load` has, too."""


@dataclass
class _Gpu:
    """A card and the facts of its last reading; `listed` is its entry in xpu-smi."""

    card: IntelCard
    listed: xpu_smi.Found | None = None
    total: int | None = None
    load: xpu_smi.Load | None = None

    @property
    def function(self) -> str | None:
        """Its PCI function."""
        return self.card.card.function

    @property
    def number(self) -> int | None:
        """The number of the card in xpu-smi."""
        return self.listed.number if self.listed else None

    @property
    def integrated(self) -> bool:
        """Whether it is part of a processor."""
        return (self.function or "").endswith(":00:02.0")


@dataclass
class _Unit:
    """A device: a card, or a tile of one."""

    device: Device
    gpu: _Gpu
    tile: int | None = None


class IntelSource(MachineSource):
    """Intel's devices, as programs with the environment `environ` count them."""

    def __init__(self, root: Root = HERE, environ: Environ | None = None, **options: Any) -> None:
        """`options` are those of MachineSource."""
        self._environ = os.environ if environ is None else environ
        super().__init__(root, **options)

    def _forget(self) -> None:
        super()._forget()
        self._smi = Program(self._root, "xpu-smi", self._deadline)
        self._units: list[_Unit] | None = None
        self._gpus: list[_Gpu] = []
        self._by_smi: xpu_smi.Used | None = None

    def open(self) -> None:
        if self._units is not None:
            return
        self._gpus = [
            _Gpu(IntelCard(self._root, card)) for card in cards(self._root) if card.driver in _DRIVERS
        ]
        if not self._gpus:
            # What xpu-smi says may be the reason.
            self._list()
            raise self._nothing_found(NO_DEVICES, *self._troubles.values())
        self._units = self._numbered()

    def _read(self, want: Want, among: Among) -> tuple[Device, ...]:
        units = self._units or []
        if Want.NAMES in want or Want.SPEED in want:
            self._read_names()
        if want & (Want.LOAD | Want.VERDICT):
            self._read_load(alone=Want.VERDICT in want)
        if Want.SENSORS in want:
            self._read_sensors()
        # A GPU that is not offered needs no process list for its verdict: many processors have one.
        offered = any(unit.device.apart is None for unit in units)
        if want & (Want.PROCESSES | Want.CHANGED_PROCESSES) or (Want.VERDICT in want and offered):
            self._read_processes()
        return tuple(unit.device for unit in units)

    # Discovery.

    def _numbered(self) -> list[_Unit]:
        """Return the devices in Level Zero's order. Where no render node can be opened, no
        device has a number."""
        opens = [self._may_open(gpu) for gpu in self._gpus]
        closed = not any(opens)
        gpus = [gpu for gpu, may in zip(self._gpus, opens, strict=True) if may or closed]
        gpus.sort(key=lambda gpu: (gpu.integrated, gpu.function or ""))
        units: list[_Unit] = []
        for gpu in gpus:
            parts: list[int | None] = [*range(gpu.card.tiles)] if self._is_flat(gpu) else [None]
            for tile in parts:
                units.append(self._unit(gpu, tile, len(units), closed))
        return units

    def _unit(self, gpu: _Gpu, tile: int | None, place: int, closed: bool) -> _Unit:
        card = gpu.card
        apart: Apart | None = "no access" if closed else "integrated" if gpu.integrated else None
        bus = long_bus_id(gpu.function) if gpu.function else None
        device = Device(
            index=-1 - place if closed else place,
            uuid="",
            # xpu-smi's UUID encodes the card's place and model: two cards can have the same UUID.
            uuid_usable=False,
            vendor="intel",
            pci_bus_id=bus,
            board=bus if tile is not None else None,
            partition=tile,
            apart=apart,
            render=card.card.render,
            pci_id=card.card.pci_id,
            numa_node=card.number("numa_node"),
            unified=gpu.integrated,
            max_sm_clock=card.max_clock(),
        )
        return _Unit(device, gpu, tile)

    def _is_flat(self, gpu: _Gpu) -> bool:
        """Return whether the tiles of a card are devices."""
        said = self._environ.get(HIERARCHY, "").upper()
        flat = said in ("FLAT", "COMBINED") or (said != "COMPOSITE" and gpu.card.is_max)
        return flat and gpu.card.tiles > 1

    def _may_open(self, gpu: _Gpu) -> bool:
        render = gpu.card.card.render
        # Recordings leave out the folder that names the render node.
        return not self._root.here if render is None else may_open(self._root, render)

    # Answers of xpu-smi.

    def _list(self) -> None:
        """Read the numbers that xpu-smi gives the cards, once."""
        if not self._is_due("list"):
            return
        text = self._ask(self._smi, "discovery", "discovery", "-j")
        found = xpu_smi.devices(text)
        if text is not None and not found and not all(gpu.integrated for gpu in self._gpus):
            self._troubles["discovery"] = "xpu-smi discovery: its output is not a list of devices"
        by_function = {each.function: each for each in found}
        for gpu in self._gpus:
            gpu.listed = by_function.get(gpu.function)
            if gpu.number is not None:
                words = ("discovery", "-d", str(gpu.number), "-j")
                gpu.total = xpu_smi.memory_total(self._ask(self._smi, "discovery -d", *words))

    def _smi_loads(self, gpu: _Gpu) -> xpu_smi.Load | None:
        """Return xpu-smi's report of a card's load. It is read for all cards at once and
        cached for `_FRESH`."""
        if self._smi.there and self._is_due("load", _FRESH):
            self._list()
            for each in self._gpus:
                each.load = None
                if each.number is not None:
                    text = self._ask(self._smi, "stats", "stats", "-d", str(each.number), "-j")
                    each.load = xpu_smi.load(text, each.total) if text is not None else None
        return gpu.load

    # Facts that change.

    def _read_names(self) -> None:
        if not self._is_due("names"):
            return
        self._list()
        for unit in self._units or ():
            listed = unit.gpu.listed or xpu_smi.Found()
            name = listed.name or names.name(self._root, unit.device.pci_id)
            unit.device = replace(unit.device, name=name, uuid=listed.uuid or "")
        self._host = Host(self._host_name(), self._driver(), None)

    def _driver(self) -> str | None:
        kernel = self._root.text("/proc/sys/kernel/osrelease", 256)
        drivers = sorted({gpu.card.card.driver for gpu in self._gpus})
        return " ".join(filter(None, ("+".join(drivers), kernel))) or None

    def _read_load(self, alone: bool) -> None:
        units = self._units or []
        loads = [self._utilization(unit) for unit in units]
        offered = [load for unit, load in zip(units, loads, strict=True) if unit.device.apart is None]
        if alone and self._root.here and None in offered:
            # A counter yields a rate from its second reading on.
            time.sleep(_SAMPLE)
            loads = [self._utilization(unit) for unit in units]
        for unit, load in zip(units, loads, strict=True):
            total, used = self._memory(unit)
            if load is None and unit.device.apart is None and (of_smi := self._smi_loads(unit.gpu)):
                load = (of_smi.of(unit.tile) or of_smi).utilization
            free = None if unit.device.unified else left_of(total, used)
            unit.device = replace(
                unit.device, memory_total=total, memory_used=used, memory_free=free, utilization=load
            )

    def _utilization(self, unit: _Unit) -> int | None:
        tiles = range(unit.gpu.card.tiles) if unit.tile is None else (unit.tile,)
        found = [unit.gpu.card.utilization(tile, self._ticks()) for tile in tiles]
        known = [load for load in found if load is not None]
        return max(known) if len(known) == len(found) else None

    def _memory(self, unit: _Unit) -> tuple[int | None, int | None]:
        """Return total and used bytes: from the driver, else from xpu-smi.

        An integrated GPU has none, because its memory is the host's.
        """
        if unit.device.apart == "integrated":
            return None, None
        gpu, card = unit.gpu, unit.gpu.card
        sizes: tuple[memory.Sizes, ...] = ()
        if self._root.here and card.card.render is not None:
            sizes = memory.ask(card.card.render, card.card.driver)
        if unit.tile is not None:
            sizes = (sizes[unit.tile],) if len(sizes) == card.tiles else ()
        parts = [part for _, part in sizes]
        used = None if None in parts or not parts else sum(part or 0 for part in parts)
        total = sum(size for size, _ in sizes)
        if used is None:
            of_smi = self._smi_loads(gpu)
            part = of_smi.of(unit.tile) if of_smi else None
            used = part.memory_used if part else None
        if not sizes and gpu.total:
            total = gpu.total if unit.tile is None else gpu.total // card.tiles
        return total or None, used

    def _read_sensors(self) -> None:
        of_card = {id(gpu): self._sensed(gpu) for gpu in self._gpus}
        for unit in self._units or ():
            gpu = unit.gpu
            facts = of_card[id(gpu)]
            if unit.tile is not None:
                # Sensors belong to the whole card.
                facts = {"sm_clock": gpu.card.clock(unit.tile)}
            unit.device = replace(unit.device, **facts)

    def _sensed(self, gpu: _Gpu) -> Facts:
        """Return the readings of a card's sensors, with missing ones from xpu-smi."""
        facts = gpu.card.readings(self._ticks())
        missing = [n for n in _SENSED_BY_SMI if facts.get(n) is None]
        load = self._smi_loads(gpu) if missing and not (gpu.card.asleep or gpu.integrated) else None
        if load is not None:
            facts |= {name: getattr(load, name) for name in missing}
        return facts

    def _read_processes(self) -> None:
        drawn = clients(self._root)
        if self._smi.there and self._is_due("processes", _FRESH):
            self._list()
            self._by_smi = xpu_smi.processes(self._ask(self._smi, "ps", "ps", "-j"))
        for unit in self._units or ():
            found: dict[int, Process] = {}
            elsewhere: set[int] = set()
            for client in drawn:
                if client.function != unit.gpu.function:
                    continue
                size = client.device_memory if unit.tile is None else _of_tile(client.memory, unit.tile)
                works = any(client.engines.values()) or any(client.cycles.values())
                if size or (works and (size is None or unit.tile is None)):
                    found[client.pid] = Process(client.pid, _kind(client.engines, client.cycles), memory=size)
                else:
                    # It has the card open, but uses nothing of this tile.
                    elsewhere.add(client.pid)
            number = unit.gpu.number
            listed = (self._by_smi or {}).get(number, {}) if number is not None else {}
            for pid, amount in listed.items():
                if pid in elsewhere and unit.tile is not None:
                    continue
                # xpu-smi does not report which tile.
                found.setdefault(pid, Process(pid, "compute", memory=amount if unit.tile is None else None))
            unit.device = replace(unit.device, processes=tuple(found[pid] for pid in sorted(found)))

    # Wiring.

    def _read_links(self) -> Facts:
        from gputui.vendors.intel.links import End, matrices

        self._list()
        cards_of = {id(gpu): number for number, gpu in enumerate(self._gpus)}
        ends: list[End] = []
        for unit in self._units or ():
            where = unit.gpu.card.place(unit.device.numa_node)
            ends.append(End(where, unit.gpu.number, unit.tile, cards_of[id(unit.gpu)]))
        several = sum(unit.device.apart is None for unit in self._units or ()) > 1
        wires = None
        if several and any(end.number is not None for end in ends):
            wires = xpu_smi.wires(self._ask(self._smi, "topology", "topology", "-m"))
        one = numa_nodes(self._root) == 1
        return matrices(ends, wires, one)

    def _read_topology(self) -> Topology:
        from gputui.inventory.topology import Topology

        return Topology(tuple(self._near(unit.device.numa_node, unit.gpu.card) for unit in self._units or ()))


def _of_tile(memory: Mapping[str, int], tile: int) -> int | None:
    """Return a process's memory on a tile, by the region's name under xe or under i915."""
    return memory.get(f"vram{tile}", memory.get(f"local{tile}"))


def _kind(engines: Mapping[str, int], cycles: Mapping[str, int]) -> Kind:
    draws = bool(engines.get("render") or cycles.get("rcs"))
    computes = bool(engines.get("compute") or cycles.get("ccs"))
    return "compute+graphics" if draws and computes else "graphics" if draws else "compute"
