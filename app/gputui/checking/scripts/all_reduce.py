"""One rank of an all-reduce, over all devices or (gloo) over processors: started by bandwidth.py.

    python all_reduce.py FOLDER all_reduce-RANK SPEC

The ranks meet through a file in FOLDER, so that no port can be taken. The time of a size is the slowest
rank's median. What comes out is compared with what the sum must be, before and after.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

_HERE = Path(__file__).resolve().parent
_KIB, _MIB = 1024, 1024 * 1024
_ON_HOST = "gloo"
"""The backend that reduces on processors; every other one is a vendor's own."""

_SIZES = (16 * _KIB, _MIB, 16 * _MIB, 256 * _MIB)
_SIZES_ON_HOST = _SIZES[:-1]
_WARM_UPS, _QUEUED, _TIMES = 3, 10, 5
_TENSORS = 4
"""How many of a size are there at once: what is reduced, the pattern, and two while it is compared."""

_PERIOD = 97


def main() -> None:
    folder, role, spec = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    if Path("/sys/class/net/lo").exists():
        # Else gloo looks up the host's own name, which many machines cannot.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        _join(folder, int(role.partition("-")[2]), spec)
    except BaseException as error:
        (folder / (role + ".error")).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        raise


def _join(folder: Path, rank: int, spec: dict[str, Any]) -> None:
    torch = importlib.import_module("torch")
    group = importlib.import_module("torch.distributed")
    backend, ranks = spec["backend"], spec["ranks"]
    device = "cpu"
    if backend != _ON_HOST:
        device = spec["device_type"] + ":" + str(spec["devices"][rank])
        getattr(torch, spec["device_type"]).set_device(device)
    torch.set_num_threads(1)
    group.init_process_group(
        backend,
        init_method="file://" + str(folder / "meeting"),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=spec["left"]),
    )
    reduced: dict[str, Any] = {"backend": backend, "ranks": ranks, "points": [], "verified": True}
    for size in _SIZES_ON_HOST if backend == _ON_HOST else _SIZES:
        if _TENSORS * size > spec["max_memory"]:
            break
        seconds, verified = _reduce(torch, group, size // 4, device, rank, ranks)
        reduced["points"].append([size, seconds])
        reduced["verified"] = reduced["verified"] and verified
        if rank == 0:
            part = folder / "all_reduce.part"
            part.write_text(json.dumps(reduced), encoding="utf-8")
            part.replace(folder / "all_reduce.json")
    group.destroy_process_group()


def _reduce(torch: Any, group: Any, count: int, device: str, rank: int, ranks: int) -> tuple[float, bool]:
    """Seconds of one all-reduce of `count` 32-bit numbers, and whether its sums are right on every rank."""
    pattern = torch.arange(_PERIOD, dtype=torch.float32, device=device).repeat(count // _PERIOD + 1)[:count]
    numbers = pattern * (rank + 1)
    group.all_reduce(numbers)
    right = bool(torch.equal(numbers, pattern * (ranks * (ranks + 1) // 2)))
    # Zeros stay zeros however often they are summed.
    numbers.zero_()
    clock = (
        _on_the_device(getattr(torch, device.partition(":")[0]), device) if device != "cpu" else _on_the_host
    )
    found = []
    for place in range(_WARM_UPS + _TIMES):
        queued = 1 if place < _WARM_UPS else _QUEUED
        group.barrier()
        seconds = clock(lambda: [group.all_reduce(numbers) for _ in range(queued)])  # noqa: B023
        if place >= _WARM_UPS:
            found.append(seconds / _QUEUED)
    numbers.copy_(pattern).mul_(rank + 1)
    group.all_reduce(numbers)
    right = right and bool(torch.equal(numbers, pattern * (ranks * (ranks + 1) // 2)))
    worst = torch.tensor([median(found), 0.0 if right else 1.0], dtype=torch.float64, device=device)
    group.all_reduce(worst, group.ReduceOp.MAX)
    return float(worst[0]), float(worst[1]) == 0.0


def _on_the_host(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _on_the_device(runtime: Any, device: str) -> Callable[[Callable[[], object]], float]:
    def clock(work: Callable[[], object]) -> float:
        start, end = (runtime.Event(enable_timing=True) for _ in range(2))
        runtime.synchronize(device)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000

    return clock


if __name__ == "__main__":
    main()
