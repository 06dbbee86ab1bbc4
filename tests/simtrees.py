"""Writes a simulated box of AMD as the files that its kernel would show, which `--root` reads.

The simulated source uses the same description, so that the reader can be compared with it, field by field.
"""

from __future__ import annotations

import struct
from pathlib import Path

from gputui.inventory.formatting import MIB
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.spec import Box
from trees import BOOTED, put_process
from trees import link as _link
from trees import put as _put

CPUS = 2


def write(root: Path, box: Box, elapsed: float = 30.0, opened: float = 1_700_000_000.0) -> Snapshot:
    """Write the files of the box at that moment below `root`; return the snapshot that they describe."""
    snapshot = at(box, elapsed, opened)
    told = detailed(snapshot, box, elapsed)
    for cpu in range(CPUS):
        _put(root, f"sys/class/kfd/kfd/topology/nodes/{cpu}/properties", "cpu_cores_count 32\nsimd_count 0\n")
        _put(root, f"sys/class/kfd/kfd/topology/nodes/{cpu}/gpu_id", "0\n")
        _put(root, f"sys/devices/system/node/node{cpu}/cpulist", f"{cpu * 32}-{cpu * 32 + 31}\n")
    (root / "sys/class/kfd/kfd/proc").mkdir(parents=True)
    for place, device in enumerate(snapshot.devices):
        gpu = box.gpus[place]
        bus = int(gpu.bus[:2], 16)
        node = f"sys/class/kfd/kfd/topology/nodes/{CPUS + place}"
        facts = {
            "cpu_cores_count": 0,
            "simd_count": (gpu.cores or 0) // 16,
            "simd_per_cu": 4,
            "io_links_count": len(box.gpus),
            "p2p_links_count": 0,
            "gfx_target_version": 90402,
            "vendor_id": 0x1002,
            "device_id": int((gpu.pci_id or ":0").partition(":")[2], 16),
            "location_id": bus << 8 | (gpu.partition or 0),
            "domain": 0,
            "drm_render_minor": gpu.render or 0,
            "unique_id": int(device.uuid.removeprefix("GPU-"), 16),
            "max_engine_clk_fcompute": gpu.clock,
        }
        _put(root, f"{node}/properties", "".join(f"{key} {value}\n" for key, value in facts.items()))
        _put(root, f"{node}/gpu_id", f"{_gpu_id(place)}\n")
        _put(root, f"{node}/name", "ip discovery\n")
        bank = f"heap_type 1\nsize_in_bytes {gpu.memory * MIB}\nflags 0\n"
        _put(root, f"{node}/mem_banks/0/properties", bank)
        if gpu.partition is not None:
            _put(root, f"{node}/mem_banks/0/used_memory", f"{device.memory_used}\n")
        _links(root, node, box, place)
        _card(root, box, told, place)
        for process in device.processes or ():
            folder = f"sys/class/kfd/kfd/proc/{process.pid}"
            _put(root, f"{folder}/vram_{_gpu_id(place)}", f"{process.memory}\n")
            _put(root, f"{folder}/queues/0/gpuid", f"{_gpu_id(place)}\n")
            put_process(root, process)
    _put(root, "proc/stat", f"cpu  1 0 1 8 0 0 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0 0 0\nbtime {BOOTED}\n")
    _put(root, "proc/sys/kernel/hostname", f"{box.host}\n")
    _put(root, "sys/module/amdgpu/version", f"{box.driver}\n")
    _put(root, "usr/share/libdrm/amdgpu.ids", "# ids\n1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n")
    return snapshot


def _gpu_id(place: int) -> int:
    return 20_000 + 7 * place


def _links(root: Path, node: str, box: Box, place: int) -> None:
    def link(number: int, to: int, kind: int, weight: int, bandwidth: int) -> None:
        text = f"type {kind}\nnode_from {CPUS + place}\nnode_to {to}\nweight {weight}\n"
        text += f"max_bandwidth {bandwidth}\n"
        _put(root, f"{node}/io_links/{number}/properties", text)

    link(0, box.gpus[place].numa or 0, 2, 20, 64_000)
    for other in range(len(box.gpus)):
        if other != place:
            link(other + 1, CPUS + other, 11, box.weights[place][other] or 0, 0)


def _card(root: Path, box: Box, snapshot: Snapshot, place: int) -> None:
    """Write a render node; a partition other than the first is a platform device without other facts."""
    gpu, device = box.gpus[place], snapshot.devices[place]
    told = device.telemetry or Telemetry()
    if gpu.partition:
        own = f"sys/devices/platform/amdgpu_xcp_{place}"
        _put(root, f"{own}/uevent", "DRIVER=amdgpu_xcp\nMODALIAS=platform:amdgpu_xcp\n")
    else:
        node = gpu.numa or 0
        root_port, function = f"0000:{place + 1:02x}:01.1", f"0000:{gpu.bus.lower()}"
        own = f"sys/devices/pci0000:{place * 8:02x}/{root_port}/{function}"
        facts = f"DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_ID=1002:74A1\nPCI_SLOT_NAME={function}\n"
        for name, text in {
            "uevent": facts,
            "revision": "0x00",
            "numa_node": str(node),
            "local_cpulist": f"{node * 32}-{node * 32 + 31}",
            "power/runtime_status": "active",
            "current_compute_partition": "SPX" if gpu.partition is None else "CPX",
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": "16",
            "current_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16",
            "mem_info_vram_total": str(gpu.memory * MIB),
            "mem_info_vram_used": str(device.memory_used),
            "gpu_busy_percent": str(device.utilization),
            "mem_busy_percent": str(device.memory_utilization),
            "pp_dpm_sclk": f"0: 132Mhz\n1: {device.sm_clock}Mhz *\n",
            "pp_dpm_mclk": "0: 1300Mhz *\n",
            "hwmon/hwmon3/temp2_label": "junction",
            "hwmon/hwmon3/temp2_input": str(1000 * (device.temperature or 0)),
            "hwmon/hwmon3/temp2_crit": "92000",
            "ras/umc_err_count": f"ue: {told.ecc_uncorrected}\nce: {told.ecc_corrected}",
            "ras/gpu_vram_bad_pages": "0x00000042 : 0x00001000 : R\n" * (told.retired_pages or 0),
            "hwmon/hwmon3/temp3_label": "mem",
            "hwmon/hwmon3/temp3_input": str(1000 * (device.temperature or 0) + 8000),
            "hwmon/hwmon3/power1_input": str(round(1e6 * (device.power or 0))),
            "hwmon/hwmon3/power1_cap": str(round(1e6 * (device.power_limit or 0))),
        }.items():
            _put(root, f"{own}/{name}", f"{text}\n")
        (root / own / "gpu_metrics").write_bytes(_metrics(told.energy or 0.0))
    _link(root, f"sys/class/drm/renderD{gpu.render}/device", own)
    if not gpu.partition:
        _link(root, f"sys/class/drm/card{place}/device", own)


def _metrics(energy: float) -> bytes:
    """Version 1.5 of the power firmware's table; unknown values are all ones."""
    table = bytearray(b"\xff" * 256)
    struct.pack_into("<HBB", table, 0, len(table), 1, 5)
    struct.pack_into("<Q", table, 88, round(energy * (1 << 16)))
    return bytes(table)
