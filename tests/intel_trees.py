"""Writes Intel's part of a simulated box as the files that xe or i915 would show, and as xpu-smi's answers.

The simulated source uses the same description, so that the reader can be compared with it, field by field.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from gputui.inventory.device import Device
from gputui.inventory.formatting import MIB
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.spec import Box
from trees import link, put, put_process
from unit.recorded import program

Driver = Literal["xe", "i915"]
Version = Literal[1, 2]
CPUS_OF_A_NODE = 32


def write(
    root: Path,
    box: Box,
    elapsed: float = 30.0,
    opened: float = 1_700_000_000.0,
    driver: Driver = "xe",
    version: Version | None = 1,
    counted: float = 0.0,
) -> Snapshot:
    """Write the files of the box's Intel GPUs at that moment; return the snapshot that they describe.

    `version`: that of xpu-smi, None where it is not installed. The counters of energy and of idle time have
    their values after `counted` seconds of this moment: two readings make a rate.
    """
    snapshot = at(box, elapsed, opened)
    places = [place for place, device in enumerate(snapshot.devices) if device.vendor == "intel"]
    cards: dict[str, list[Device]] = {}
    for place in places:
        cards.setdefault(snapshot.devices[place].pci_bus_id or "", []).append(snapshot.devices[place])
    nodes = {device.numa_node or 0 for device in snapshot.devices}
    for node in nodes | {0}:
        put(root, f"sys/devices/system/node/node{node}/cpulist", _cpus(node))
    names = "".join(
        f"\t{pci_id[5:]}  {name}\n"
        for pci_id, name in {(d.pci_id or "8086:0", d.name) for ds in cards.values() for d in ds}
    )
    put(root, "usr/share/misc/pci.ids", f"8086  Intel Corporation\n{names}")
    put(root, "proc/sys/kernel/hostname", f"{box.host}\n")
    put(root, "proc/sys/kernel/osrelease", "6.14\n")
    for number, tiles in enumerate(cards.values()):
        _card(root, number, tiles, driver, counted)
    for place in places:
        device = snapshot.devices[place]
        for process in device.processes or ():
            put_process(root, process)
            put(
                root,
                f"proc/{process.pid}/fdinfo/7",
                _fdinfo(device, process.memory or 0, driver, process.pid),
            )
    if version is not None:
        _smi(root, snapshot, list(cards.values()), version)
    return snapshot


def function(device: Device) -> str:
    """ "0000:4d:00.0" """
    return (device.pci_bus_id or "").removeprefix("0000").lower()


def _cpus(node: int) -> str:
    return f"{node * CPUS_OF_A_NODE}-{(node + 1) * CPUS_OF_A_NODE - 1}\n"


def _card(root: Path, number: int, tiles: Sequence[Device], driver: Driver, counted: float) -> None:
    """Write a card behind a port of its own; a discrete card of the Arc family has a bridge."""
    first = tiles[0]
    bus = function(first)
    port = f"sys/devices/pci0000:{bus[5:7]}/0000:{bus[5:7]}:01.0"
    if first.apart == "integrated":
        own = f"sys/devices/pci0000:00/{bus}"
    elif first.partition is None:
        bridge = f"{port}/0000:f0:{number:02x}.0"
        for name, text in {
            "vendor": "0x8086",
            "device": "0x4fa0",
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": "16",
        }.items():
            put(root, f"{bridge}/{name}", f"{text}\n")
        own = f"{bridge}/{bus}"
    else:
        own = f"{port}/{bus}"
    pci_id = (first.pci_id or "8086:0").upper()
    files = {
        "uevent": f"DRIVER={driver}\nPCI_CLASS=38000\nPCI_ID={pci_id}\nPCI_SLOT_NAME={bus}",
        "revision": "0x2f",
        "numa_node": str(-1 if first.numa_node is None else first.numa_node),
        "local_cpulist": _cpus(first.numa_node or 0).strip(),
        "power/runtime_status": "active",
        # An endpoint on the card reports this, whatever the slot is.
        "current_link_speed": "2.5 GT/s PCIe",
        "current_link_width": "1",
    }
    for tile, device in enumerate(tiles):
        idle = 5_000_000 + round((100 - (device.utilization or 0)) * 10 * counted)
        clock, most = str(device.sm_clock), str(device.max_sm_clock)
        if driver == "xe":
            gt = f"tile{tile}/gt{tile}"
            files |= {f"{gt}/freq0/act_freq": clock, f"{gt}/freq0/rp0_freq": most}
            files[f"{gt}/gtidle/idle_residency_ms"] = str(idle)
        else:
            gt = f"drm/card{number}/gt/gt{tile}"
            files |= {f"{gt}/rps_act_freq_mhz": clock, f"{gt}/rps_RP0_freq_mhz": most}
            files[f"{gt}/rc6_residency_ms"] = str(idle)
            if tile == 0:
                files[f"drm/card{number}/gt_act_freq_mhz"] = clock
                files[f"drm/card{number}/gt_RP0_freq_mhz"] = most
    if first.power is not None:
        energy = str((1 << 40) + round(first.power * 1e6 * counted))
        limit, heat = str(round((first.power_limit or 0) * 1e6)), str(1000 * (first.temperature or 0))
        if driver == "xe":
            # The card's own counter is 0 on some kernels.
            files |= {
                f"hwmon/hwmon3/{n}": t for n, t in {"energy1_label": "card", "energy1_input": "0"}.items()
            }
            files |= {
                f"hwmon/hwmon3/{n}": t for n, t in {"energy2_label": "pkg", "energy2_input": energy}.items()
            }
            files |= {"hwmon/hwmon3/power1_label": "card", "hwmon/hwmon3/power1_cap": limit}
            files |= {"hwmon/hwmon3/power1_crit": "380000000"}
            files |= {"hwmon/hwmon3/temp2_label": "pkg", "hwmon/hwmon3/temp2_input": heat}
            files |= {"hwmon/hwmon3/temp3_label": "vram", "hwmon/hwmon3/temp3_input": "99000"}
        else:
            files |= {"hwmon/hwmon3/energy1_input": energy, "hwmon/hwmon3/power1_max": limit}
            files |= {"hwmon/hwmon3/temp1_input": heat}
    put(root, f"{own}/drm/{first.render}/dev", "226:128\n")
    put(root, f"{own}/drm/card{number}/dev", f"226:{number}\n")
    for name, text in files.items():
        put(root, f"{own}/{name}", f"{text}\n")
    # As in the kernel: the card's folder is below the device's, and links back to it.
    link(root, f"{own}/drm/card{number}/device", own)
    link(root, f"{own}/drm/{first.render}/device", own)
    link(root, f"sys/class/drm/card{number}", f"{own}/drm/card{number}")
    link(root, f"sys/class/drm/{first.render}", f"{own}/drm/{first.render}")


def _fdinfo(device: Device, memory: int, driver: Driver, client: int) -> str:
    tile = device.partition or 0
    lines = [f"drm-driver:\t{driver}", f"drm-pdev:\t{function(device)}", f"drm-client-id:\t{client}"]
    region = "vram" if driver == "xe" else "local"
    for each in range(2 if device.partition is not None else 1):
        size = f"{memory // 1024} KiB" if each == tile else "0"
        lines += [f"drm-total-{region}{each}:\t{size}", f"drm-resident-{region}{each}:\t{size}"]
    if driver == "xe":
        lines += ["drm-engine-capacity-ccs:\t4", "drm-cycles-ccs:\t9000", "drm-total-cycles-ccs:\t90000"]
    else:
        lines += ["drm-engine-compute:\t9000 ns"]
    return "\n".join(["pos:\t0", *lines, ""])


def _smi(root: Path, snapshot: Snapshot, cards: Sequence[Sequence[Device]], version: Version) -> None:
    """A program that answers each query, in the forms of that version."""
    answers: dict[str, str] = {}
    discrete = [card for card in cards if card[0].apart is None]
    listed = []
    for number, card in enumerate(discrete):
        first = card[0]
        identity = {
            "device_id": number,
            "device_name": first.name,
            "pci_bdf_address": function(first),
            "pci_device_id": f"0x{(first.pci_id or '8086:0')[5:].lstrip('0')}",
            "uuid": uuid(first),
        }
        listed.append(identity)
        total = sum(device.memory_total or 0 for device in card)
        facts = {"memory_physical_size_byte": total, "number_of_tiles": len(card)}
        texts = facts if version == 2 else {name: str(value) for name, value in facts.items()}
        answers[f"discovery -d {number} -j"] = json.dumps({**identity, **texts})
        stats = _stats_1(card) if version == 1 else _stats_2(number, card)
        answers[f"stats -d {number} -j"] = json.dumps(stats)
    answers["discovery -j"] = json.dumps({"device_list": listed})
    own = {"process_id": 5, "process_name": "xpu-smi", "device_id": 0, "mem_size": 1966}
    answers["ps -j"] = json.dumps(
        {
            "device_util_by_proc_list": [
                own,
                *(
                    {
                        "process_id": process.pid,
                        "process_name": (process.command or "").split(" ")[0],
                        "device_id": number,
                        "mem_size": (process.memory or 0) // 1024,
                    }
                    for number, card in enumerate(discrete)
                    for device in card
                    for process in device.processes or ()
                ),
            ]
        }
    )
    answers["topology -m"] = _matrix(snapshot, discrete, version)
    cases = "\n".join(f"{shlex.quote(words)}) echo {shlex.quote(text)};;" for words, text in answers.items())
    program(
        root,
        "xpu-smi",
        f'case "$*" in\n{cases}\n*) echo "{{\\"error\\": \\"no such command\\"}}"; exit 1;;\nesac',
    )


def uuid(device: Device) -> str:
    """A UUID as xpu-smi makes it: from the slot, the revision and the model."""
    return f"00000000-0000-00{function(device)[5:7]}-0000-002f{(device.pci_id or ':0000')[5:]}8086"


def _stats_1(card: Sequence[Device]) -> dict[str, Any]:
    def rows(device: Device) -> list[dict[str, Any]]:
        facts = {
            "GPU_UTILIZATION": device.utilization,
            "MEMORY_USED": (device.memory_used or 0) / MIB,
            "POWER": device.power,
            "GPU_FREQUENCY": device.sm_clock,
            "GPU_CORE_TEMPERATURE": device.temperature,
        }
        return [{"metrics_type": f"XPUM_STATS_{n}", "value": v} for n, v in facts.items() if v is not None]

    if len(card) == 1:
        return {"device_level": rows(card[0])}
    return {
        "device_level": [],
        "tile_level": [{"tile_id": n, "data_list": rows(d)} for n, d in enumerate(card)],
    }


def _stats_2(number: int, card: Sequence[Device]) -> dict[str, Any]:
    def each(fact: str, summed_up: bool = True) -> dict[str, Any]:
        found = {f"tile_{n}": getattr(d, fact) for n, d in enumerate(card) if getattr(d, fact) is not None}
        return {n: {"avg": v, "min": v, "max": v, "current": v} if summed_up else v for n, v in found.items()}

    used = {n: {"avg": 0, "current": row["current"] / MIB} for n, row in each("memory_used").items()}
    return {
        "device_index": number,
        "pci_bdf": function(card[0]),
        "device_type": "discrete",
        "power": {"gpu_power_w": each("power")},
        "frequency": {"gpu_frequency_mhz": each("sm_clock")},
        "temperature": {"gpu_core_celsius": each("temperature")},
        "memory": {"used_mib": used},
        "utilization": {"gpu_percent": each("utilization", summed_up=False)},
    }


def _matrix(snapshot: Snapshot, cards: Sequence[Sequence[Device]], version: Version) -> str:
    ends = [(number, tile, device) for number, card in enumerate(cards) for tile, device in enumerate(card)]
    labels = [f"GPU {number}/{tile}" for number, tile, _ in ends]
    places = [snapshot.devices.index(device) for _, _, device in ends]
    rows = []
    for label, place in zip(labels, places, strict=True):
        words = (snapshot.links[place][other] or "SYS" for other in places)
        rows.append([label, *("S" if word == "X" else word for word in words), "0-31"])
    table = [["", *labels, "CPU Affinity"], *rows]
    if version == 1:
        return "\n".join("|".join(cell.ljust(8) for cell in row) for row in table)
    return "\n".join(f"| {' | '.join(cell.ljust(8) for cell in row)} |" for row in table)
