"""A box as `nvidia-smi --query-gpu` prints it, where no Python there runs gputui: view only."""

from __future__ import annotations

import math

from gputui.inventory.device import Device
from gputui.inventory.document_reader import MOST_DEVICES
from gputui.inventory.formatting import MIB
from gputui.inventory.snapshot import Host, Snapshot

QUERY = (
    "index,uuid,name,pci.bus_id,memory.total,memory.used,memory.free,"
    "utilization.gpu,temperature.gpu,power.draw,power.limit,driver_version"
)
VIEW_ONLY = (
    "no Python 3.10 or newer there: shown by nvidia-smi, without processes; nothing can be started there"
)


def snapshot_of(lines: list[str], alias: str, now: float) -> Snapshot:
    """Return the box that these lines describe at `now` (seconds since the epoch). Raise ValueError.

    The owners of its processes are not known, so none of its devices counts as free.
    """
    if len(lines) > MOST_DEVICES:
        raise ValueError(f"{len(lines)} devices, at most {MOST_DEVICES} are read")
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    if any(len(row) != QUERY.count(",") + 1 for row in rows):
        raise ValueError("nvidia-smi printed unexpected output")
    devices = tuple(map(_device, rows))
    if len({device.uuid for device in devices}) < len(devices):
        raise ValueError("two devices have the same uuid")
    driver = rows[0][-1] if rows else None
    return Snapshot(Host(alias, driver), now, devices, errors=(VIEW_ONLY,))


def _device(row: list[str]) -> Device:
    index, uuid, name, bus, total, used, free, utilization, temperature, power, limit, _ = row
    if not uuid.startswith("GPU-") or not uuid.isascii() or not uuid.isprintable() or len(uuid) > 80:
        raise ValueError("nvidia-smi printed no UUID")
    return Device(
        index=int(index),
        uuid=uuid,
        name=name,
        pci_bus_id=bus,
        memory_total=_mebibytes(total),
        memory_used=_mebibytes(used),
        memory_free=_mebibytes(free),
        utilization=_whole(utilization),
        temperature=_whole(temperature),
        power=_number(power),
        power_limit=_number(limit),
        processes=None,
    )


def _number(text: str) -> float | None:
    """Return None for "[N/A]", "[Not Supported]"."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and 0 <= found < 1e9 else None


def _whole(text: str) -> int | None:
    found = _number(text)
    return None if found is None else int(found)


def _mebibytes(text: str) -> int | None:
    found = _number(text)
    return None if found is None else int(found * MIB)
