"""Writes a simulated box of Gaudi as the driver's files and an hl-smi that answers for it.

The simulated source uses the same description, so that the reader can be compared with it, field by field.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gputui.inventory.formatting import MIB
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.spec import Box
from gputui.vendors.gaudi.hl_smi import COLUMNS
from gputui.vendors.gaudi.source import DRIVER
from trees import link, put, put_process
from unit.recorded import program

HL_SMI = """\
wanted=$2
for column in $(echo "$wanted" | tr , ' '); do
  case ",%(known)s," in *",$column,"*) ;; *) echo "Error: no such column: $column"; exit 1;; esac
done
case $4 in *noheader*) ;; *) echo "$wanted" | sed 's/,/, /g';; esac
while IFS='|' read -r %(variables)s; do
  line=""
  for column in $(echo "$wanted" | tr , ' '); do
    case $column in
%(cases)s
    esac
    line="$line${line:+, }$v"
  done
  echo "$line"
done <<END
%(rows)s
END
"""


def write(
    root: Path,
    box: Box,
    elapsed: float = 30.0,
    opened: float = 1_700_000_000.0,
    units: bool = True,
    lacks: Collection[str] = (),
    files: bool = True,
) -> Snapshot:
    """Write the files of the box at that moment; return the snapshot that they describe.

    `units`: whether hl-smi writes units. `lacks`: the columns that its version does not know. `files`:
    whether sysfs is there (a container has none).
    """
    snapshot = at(box, elapsed, opened)
    rows = []
    for place, device in enumerate(snapshot.devices):
        function = (device.pci_bus_id or "").removeprefix("0000").lower()
        if files:
            node = device.numa_node or 0
            own = f"sys/devices/pci0000:{node:02x}/{function}"
            put(root, f"sys/devices/system/node/node{node}/cpulist", f"{32 * node}-{32 * node + 31}\n")
            put(root, f"{own}/module_id", f"{device.module}\n")
            put(root, f"{own}/numa_node", f"{device.numa_node}\n")
            put(root, f"{own}/local_cpulist", f"{32 * node}-{32 * node + 31}\n")
            put(root, f"{own}/status", "Operational\n")
            put(root, f"{own}/accel/accel{place}/dev", f"261:{place}\n")
            link(root, f"{DRIVER.lstrip('/')}/{function}", own)
            link(root, f"sys/class/accel/accel{place}", f"{own}/accel/accel{place}")
            link(root, f"{own}/accel/accel{place}/device", own)
        for process in device.processes or ():
            put_process(root, process)
            (root / f"proc/{process.pid}/fd").mkdir(exist_ok=True)
            (root / f"proc/{process.pid}/fd/9").symlink_to(f"/dev/accel/accel{place}")
        facts = {
            "index": (device.index, ""),
            "module_id": (device.module, ""),
            "bus_id": (function, ""),
            "uuid": (device.uuid, ""),
            "name": (device.name, ""),
            "driver_version": (box.driver, ""),
            "memory.total": ((device.memory_total or 0) // MIB, " MiB"),
            "memory.used": ((device.memory_used or 0) // MIB, " MiB"),
            "memory.free": ((device.memory_free or 0) // MIB, " MiB"),
            "utilization.aip": (device.utilization, " %"),
            "temperature.aip": (device.temperature, " C"),
            "power.draw": (device.power, " W"),
            "power.max": (device.power_limit, " W"),
        }
        rows.append({name: f"{value}{unit if units else ''}" for name, (value, unit) in facts.items()})
    names = list(rows[0])
    assert set(COLUMNS) <= set(names)
    text = HL_SMI % {
        "known": ",".join(name for name in names if name not in lacks),
        "variables": " ".join(f"v{number}" for number in range(len(names))),
        "cases": "\n".join(f"      {name}) v=$v{number};;" for number, name in enumerate(names)),
        "rows": "\n".join("|".join(row.values()) for row in rows),
    }
    program(root, "hl-smi", text)
    put(root, "proc/sys/kernel/hostname", f"{box.host}\n")
    return snapshot
