"""Devices, processes and boxes with all facts known and good, unless a test says otherwise."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.inventory.device import Device
from gputui.inventory.document import to_document
from gputui.inventory.link import LinkMatrix
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host, Snapshot

GIB = 1024**3
MIB = 1024**2
NOW = 1_700_000_000.0
"""The time of every snapshot of the tests, in seconds since the epoch."""


def gpu(index: int = 0, **facts: Any) -> Device:
    """An idle GPU with 80 GiB."""
    known: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"00000000:{index + 16:02X}:00.0",
        "mig": False,
        "memory_total": 80 * GIB,
        "memory_used": 0,
        "memory_free": 80 * GIB,
        "utilization": 0,
        "memory_utilization": 0,
        "temperature": 31,
        "power": 68.0,
        "power_limit": 700.0,
        "sm_clock": 345,
        "compute_capability": "9.0",
        "numa_node": 0,
        "processes": (),
    }
    return Device(**{**known, **facts})


def instance(parent: Device, index: int = 0, **facts: Any) -> Device:
    """An idle MIG instance of `parent`; the driver reports no utilization, temperature, power or clock."""
    known: dict[str, Any] = {
        "index": index,
        "uuid": f"MIG-{parent.index:08x}-aaaa-bbbb-cccc-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "pci_bus_id": parent.pci_bus_id,
        "parent": parent.uuid,
        "memory_total": 10 * GIB,
        "memory_used": 0,
        "memory_free": 10 * GIB,
        "compute_capability": "9.0",
        "numa_node": 0,
        "processes": (),
    }
    return Device(**{**known, **facts})


def job(pid: int = 4242, **facts: Any) -> Process:
    """A training process that mira started an hour ago."""
    known: dict[str, Any] = {
        "pid": pid,
        "kind": "compute",
        "user": "mira",
        "memory": 20 * GIB,
        "command": "python train.py",
        "started": NOW - 3600,
    }
    return Process(**{**known, **facts})


def busy(device: Device, *processes: Process) -> Device:
    """`device` with somebody's job on it, or with these processes."""
    return replace(
        device,
        memory_used=20 * GIB,
        memory_free=60 * GIB,
        utilization=97,
        processes=processes or (job(),),
    )


def box(
    *devices: Device, links: LinkMatrix = (), time: float = NOW, errors: tuple[str, ...] = ()
) -> Snapshot:
    """A box with these devices."""
    return Snapshot(Host("testbox", "550.54.15", "12.4"), time, devices, links, errors)


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The output of `ls --json` for a snapshot, before it becomes text."""
    judged = verdicts(snapshot)
    return to_document(snapshot, for_document(judged, snapshot.time))


def recording(folder: Path, snapshot: Snapshot, name: str = "box.json") -> str:
    """Write a file as `gputui record` does, and return its path for `--from`."""
    file = folder / name
    file.write_text(json.dumps(document(snapshot)))
    return str(file)


def make_homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up a container whose user is not known to the system: no HOME, and no entry for the uid."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
