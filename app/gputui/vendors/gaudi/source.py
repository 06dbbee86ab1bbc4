"""Gaudi's devices on a machine: their identity from sysfs, their load from hl-smi.

hl-smi's index is neither PCI order nor the module id that programs are given (`Device.module`). It lists no
processes of other users, and none at all in a container, so the processes are not known. Memory in use beyond
that of an idle device shows that a device is taken, as a device takes one process at a time.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gputui.inventory.device import Among, Device, Facts, Fault
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.link import each_pair
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host
from gputui.sources.source import Want
from gputui.system.pci_tree import FUNCTION, long_bus_id, numa_nodes, pci_class, place
from gputui.system.program import Program
from gputui.system.root import whole
from gputui.vendors.gaudi import hl_smi
from gputui.vendors.gaudi.models import idle_memory
from gputui.vendors.machine_source import MachineSource, left_of

if TYPE_CHECKING:
    from gputui.inventory.topology import Topology

DRIVER = "/sys/bus/pci/drivers/habanalabs"

NO_DEVICES = (
    "no Gaudi: the kernel has none with the driver habanalabs; load it (`sudo modprobe habanalabs`), or start"
    " the container with --runtime=habana"
)

_FRESH = 2.0
"""Seconds for which hl-smi's answer is cached: the call takes about one second."""

_MOST_FDS = 4096
_WORKS = "operational"


class GaudiSource(MachineSource):
    """Gaudi's devices."""

    def _forget(self) -> None:
        super()._forget()
        self._smi = Program(self._root, "hl-smi", self._deadline)
        self._columns = hl_smi.QUESTIONS[0]
        self._rows: tuple[hl_smi.Row, ...] = ()
        self._functions: tuple[str, ...] = ()
        self._devices: tuple[Device, ...] | None = None

    def open(self) -> None:
        if self._devices is not None:
            return
        names = (name.lower() for name in self._root.names(DRIVER))
        self._functions = tuple(sorted(name for name in names if FUNCTION.fullmatch(name)))
        if not self._functions:
            self._read_rows()
        if not self._functions and not self._rows:
            raise self._nothing_found(NO_DEVICES, *self._troubles.values())
        self._devices = ()

    def _read(self, want: Want, among: Among) -> tuple[Device, ...]:
        refreshed = want & (Want.LOAD | Want.VERDICT | Want.SENSORS | Want.NAMES | Want.SPEED)
        if refreshed or not self._devices:
            self._read_rows()
            version = next((row["driver_version"] for row in self._rows if "driver_version" in row), None)
            version = version or self._root.text("/sys/module/habanalabs/version", 256) or None
            self._host = Host(self._host_name(), version)
            before = {device.key: device for device in self._devices or ()}
            self._devices = tuple(
                replace(device, processes=before[device.key].processes) if device.key in before else device
                for device in self._found()
            )
        if want & (Want.PROCESSES | Want.CHANGED_PROCESSES | Want.VERDICT):
            self._read_processes()
        return self._devices or ()

    def _read_topology(self) -> Topology:
        from gputui.inventory.topology import Topology

        devices = self._devices or ()
        return Topology(tuple(self._near(device.numa_node, None, _folder(device)) for device in devices))

    def _read_links(self) -> Facts:
        """Return the PCIe class of every pair, by their places on the bus.

        The devices of one machine are all joined by links whose pairs hl-smi does not print.
        """
        devices = self._devices or ()
        one = numa_nodes(self._root) == 1
        reals = (self._root.real(_folder(device)) for device in devices)
        places = [place(r, d.numa_node) if r else None for r, d in zip(reals, devices, strict=True)]

        def word(i: int, j: int) -> str | None:
            here, there = places[i], places[j]
            return pci_class(here, there, one) if here and there else None

        count = len(devices)
        return {"links": each_pair(count, lambda i, j: None), "pcie": each_pair(count, word)}

    def _read_rows(self) -> None:
        """Read hl-smi's answer at most every `_FRESH` seconds; request fewer columns from a
        version that lacks some."""
        if not self._smi.there or not self._is_due("rows", _FRESH):
            return
        self._rows = ()
        for columns in dict.fromkeys((self._columns, *hl_smi.QUESTIONS)):
            text = self._smi.ask("-Q", ",".join(columns), "-f", "csv")
            found = hl_smi.rows(text, columns)
            if found is not None:
                self._rows, self._columns, self._troubles = found, columns, {}
                return
            self._troubles["hl-smi"] = self._smi.trouble or "hl-smi: its output is not a table of devices"
            if text is None and self._smi.silent:
                return

    # Discovery.

    def _found(self) -> list[Device]:
        by_function = {(row.get("bus_id") or "").lower(): row for row in self._rows}
        devices: list[Device] = []
        used: set[int] = set()
        left = [row for row in self._rows if (row.get("bus_id") or "").lower() not in self._functions]
        for function in self._functions:
            row = by_function.get(function)
            if row is None and left and not any("bus_id" in each for each in left):
                # A version that prints no bus id does not tell which row belongs to which device.
                continue
            devices.append(self._device(row or {}, function, used))
        devices += [self._device(row, (row.get("bus_id") or "").lower(), used) for row in left]
        return sorted(devices, key=lambda device: device.index)

    def _device(self, row: hl_smi.Row, function: str, used: set[int]) -> Device:
        known = bool(FUNCTION.fullmatch(function))
        # A folder that does not exist holds no facts.
        folder = f"{DRIVER}/{function if known and function in self._functions else 'none'}"
        accel = self._accel(folder)
        index = hl_smi.whole(row.get("index"))
        if index is None or index in used:
            index = accel if accel is not None else len(used)
        while index in used:
            index += 1
        used.add(index)
        module = hl_smi.whole(row.get("module_id"))
        if module is None:
            module = self._number(f"{folder}/module_id", 64)
        total, in_use = hl_smi.size(row.get("memory.total")), hl_smi.size(row.get("memory.used"))
        name, uuid = row.get("name"), row.get("uuid", "")
        has_uuid = re.fullmatch(r"[0-9A-Za-z]{1,16}-[0-9A-Za-z-]{1,120}", uuid) is not None
        heat, limit = hl_smi.amount(row.get("temperature.aip")), hl_smi.amount(row.get("power.max"))
        return Device(
            index=index,
            uuid=uuid if has_uuid else "",
            uuid_usable=has_uuid or not known,
            name=name or "Gaudi",
            vendor="gaudi",
            pci_bus_id=long_bus_id(function) if known else None,
            render=None if accel is None else f"accel{accel}",
            module=module,
            memory_total=total,
            memory_used=in_use,
            memory_free=left_of(total, in_use),
            memory_idle=idle_memory(name),
            unified=False,
            utilization=hl_smi.percent(row.get("utilization.aip")),
            temperature=None if heat is None or not -50 < heat < 300 else round(heat),
            power=hl_smi.amount(row.get("power.draw")),
            power_limit=limit or None,
            numa_node=self._number(f"{folder}/numa_node", 1024),
            fault=self._fault(folder),
        )

    def _number(self, path: str, most: int) -> int | None:
        found = self._root.number(path)
        return found if found is not None and 0 <= found < most else None

    def _accel(self, folder: str) -> int | None:
        names = self._root.names(f"{folder}/accel")
        numbers = sorted(n for name in names if (n := whole(name.removeprefix("accel"))) is not None)
        return numbers[0] if numbers and 0 <= numbers[0] < 1024 else None

    def _fault(self, folder: str) -> Fault | None:
        """Return why the driver reports that it does not work (sysfs-driver-habanalabs, "status")."""
        status = self._root.text(f"{folder}/status", 64) or _WORKS
        if status.lower() == _WORKS:
            return None
        needs = "reset" in status.lower() or "malfunction" in status.lower()
        return Fault("reset" if needs else "error", status[:64])

    # Processes.

    def _read_processes(self) -> None:
        """Read the processes that have a device open, among those that we may inspect.

        None where none is visible, as other users' processes may still be there.
        """
        holders: dict[str, set[int]] = {}
        if any(device.render for device in self._devices or ()):
            for pid in self._root.names("/proc"):
                if not pid.isdigit():
                    continue
                for number in self._root.names(f"/proc/{pid}/fd")[:_MOST_FDS]:
                    to = self._root.link(f"/proc/{pid}/fd/{number}") or ""
                    if to.startswith("/dev/accel/accel") and int(pid) != os.getpid():
                        holders.setdefault(to.rpartition("/")[2], set()).add(int(pid))
        self._devices = tuple(
            replace(
                device,
                processes=tuple(Process(pid, "compute") for pid in sorted(holders[device.render]))
                if device.render in holders
                else None,
            )
            for device in self._devices or ()
        )


def _folder(device: Device) -> str:
    """Return its folder in sysfs."""
    return f"{DRIVER}/{(device.pci_bus_id or 'none').removeprefix('0000').lower()}"
