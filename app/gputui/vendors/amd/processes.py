"""The programs on AMD's GPUs: all users' compute jobs from amdkfd, and graphics of our own processes from
fdinfo.

The kernel has a folder for each process that computes, with a file for each GPU id that holds the bytes in
use there (kfd_process.c). Such a file exists for every GPU of the machine: a process counts as on a GPU if it
has memory or a queue there. Vulkan and graphics never appear in that list; they appear in /proc/PID/fdinfo of
the processes that we may inspect.
"""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.process import Process
from gputui.system.drm import Client
from gputui.system.root import Root, whole
from gputui.vendors.amd.kfd import PROCESSES

_MOST_PROCESSES = 65_536
_MOST_QUEUES = 4096


def computing(root: Root) -> dict[int, dict[int, int | None]] | None:
    """Return, by GPU id, each process's bytes there (None: not reported); None where the
    kernel has no list."""
    if not root.has(PROCESSES):
        return None
    found: dict[int, dict[int, int | None]] = {}
    for name in root.names(PROCESSES)[:_MOST_PROCESSES]:
        pid = whole(name)
        if pid is None or pid <= 0:
            continue
        folder = f"{PROCESSES}/{name}"
        for entry in root.names(folder):
            gpu = whole(entry.removeprefix("vram_")) if entry.startswith("vram_") else None
            amount = None if gpu is None else root.number(f"{folder}/{entry}")
            if gpu is not None and amount is not None and amount > 0:
                found.setdefault(gpu, {})[pid] = amount
        for queue in root.names(f"{folder}/queues")[:_MOST_QUEUES]:
            gpu = root.number(f"{folder}/queues/{queue}/gpuid") if queue.isdigit() else None
            if gpu is not None:
                found.setdefault(gpu, {}).setdefault(pid, 0 if root.has(f"{folder}/vram_{gpu}") else None)
    return found


def on_device(
    compute: dict[int, int | None] | None, drawn: Iterable[Client], function: str | None
) -> tuple[Process, ...] | None:
    """Return the processes of one GPU: from amdkfd's list, and the clients of its PCI
    function; None: unknown."""
    if compute is None:
        return None
    found = {pid: Process(pid, "compute", memory=amount) for pid, amount in compute.items()}
    for client in drawn:
        if client.function != function or not (any(client.memory.values()) or any(client.engines.values())):
            continue
        mine = client.memory.get("vram")
        draws = bool(client.engines.get("gfx")) or not client.engines.get("compute")
        known = found.get(client.pid)
        if known is None:
            found[client.pid] = Process(client.pid, "graphics" if draws else "compute", memory=mine)
        elif client.engines.get("gfx"):
            memory = max(known.memory or 0, mine or 0) if known.memory is not None else mine
            found[client.pid] = Process(client.pid, "compute+graphics", memory=memory)
    return tuple(found[pid] for pid in sorted(found))
