"""Measures the transfers between an interpreter's devices: copies between them, and then an all-reduce.

    python bandwidth.py FOLDER SPEC [ROLE]

SPEC is JSON: {"backend" of torch.distributed, "device_type" of torch, "devices": [their numbers in torch…],
"ranks", "max_memory", "seconds"}. The answers are FOLDER/copies.json and FOLDER/all_reduce.json; errors are
in FOLDER/ROLE.error. Without a ROLE, this process imports no torch, and starts each part in processes of its
own, so that the memory of one part is released before the next begins: "copies", and "all_reduce-RANK" for
each rank.

A time is the median of five, each of ten queued operations between two events, after three warm-ups, in
memory that was allocated before. The received data is compared with the sent data.

This file must run on Python 3.8 and newer. probe.py explains how it imports torch.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

_HERE = Path(__file__).resolve().parent
_COPYING = 0.6
"""The share of the time that copies may take; there are n × (n - 1) of them, and one all-reduce."""

_KIB, _MIB = 1024, 1024 * 1024
_SIZES = (16 * _KIB, _MIB, 16 * _MIB, 256 * _MIB)
_ON_HOST = "gloo"
"""The backend that reduces on processors, without the largest size; every other backend is a vendor's."""

_WARM_UPS, _QUEUED, _TIMES = 3, 10, 5
_CHUNK = 16 * _MIB
_TENSORS = 4
"""The number of tensors of one size that exist at once in an all-reduce: the reduced one, the pattern, and
two for the comparison."""

_PERIOD = 97


def main() -> None:
    folder, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
    if len(sys.argv) > 3:
        _play(folder, spec, sys.argv[3])
        return
    signal.alarm(int(spec["seconds"]) + 5)
    deadline = time.monotonic() + spec["seconds"]
    if len(spec["devices"]) > 1:
        # The copies stop by themselves in time; this is for a copy that never ends.
        _run(folder, spec, ["copies"], min(deadline, time.monotonic() + spec["seconds"] * _COPYING + 5))
    if spec["ranks"] > 1:
        spec["left"] = max(1.0, deadline - time.monotonic())
        _run(folder, spec, [f"all_reduce-{rank}" for rank in range(spec["ranks"])], deadline)


def _run(folder: Path, spec: dict[str, Any], roles: list[str], deadline: float) -> None:
    """Run one process per role, until all have ended, one has failed, or the time limit is reached."""
    children = {role: _start(folder, spec, role) for role in roles}
    failed = ""
    while not failed and any(child.poll() is None for child in children.values()):
        if time.monotonic() > deadline:
            _tell(folder, roles[0], "the time limit was reached")
            break
        time.sleep(0.02)
        failed = next((role for role, child in children.items() if child.poll()), "")
    if failed:
        status = children[failed].returncode
        _tell(folder, failed, f"ended with {status}" if status > 0 else f"ended by signal {-status}")
    for child in children.values():
        if child.poll() is None:
            child.kill()
        child.wait()


def _start(folder: Path, spec: dict[str, Any], role: str) -> subprocess.Popen[bytes]:
    # The interpreter's own options are passed on: they decide what can be imported.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    words = [sys.executable, *flags, __file__, str(folder), json.dumps(spec), role]
    return subprocess.Popen(words, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """On Linux, end with the parent: a worker whose parent is killed must not keep using a device."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):
        return


def _tell(folder: Path, role: str, trouble: str) -> None:
    """Record the reason for a failure, unless the process itself has recorded one."""
    path = folder / (role + ".error")
    if not path.exists():
        path.write_text(trouble, encoding="utf-8")


def _play(folder: Path, spec: dict[str, Any], role: str) -> None:
    """Run as one of the processes that measure."""
    # Files beside this one must not be imported in place of the user's modules.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    if Path("/sys/class/net/lo").exists():
        # Otherwise gloo looks up the host's own name, which fails on many machines.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        if role == "copies":
            _copies(folder, spec, time.monotonic() + spec["seconds"] * _COPYING)
        else:
            _join(folder, int(role.partition("-")[2]), spec)
    except BaseException as error:
        (folder / (role + ".error")).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        raise


def _answer(folder: Path, name: str, found: object) -> None:
    """Write the results after each step: they count, however the process ends."""
    part = folder / (name + ".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(folder / (name + ".json"))


def _seconds(clock: Callable[[Callable[[], object]], float], work: Callable[[], object]) -> float:
    """Return the seconds of one operation, from a clock around many."""

    def times(count: int) -> float:
        return clock(lambda: [work() for _ in range(count)])

    for _ in range(_WARM_UPS):
        times(1)
    return float(median(times(_QUEUED) / _QUEUED for _ in range(_TIMES)))


def _on_the_host(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _on_the_devices(runtime: Any, *devices: Any) -> Callable[[Callable[[], object]], float]:
    """A clock with events of the last of the devices, which are all idle when it begins."""

    def clock(work: Callable[[], object]) -> float:
        start, end = (runtime.Event(enable_timing=True) for _ in range(2))
        for device in devices:
            runtime.synchronize(device)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000

    return clock


# Copies between each pair of devices


def _copies(folder: Path, spec: dict[str, Any], deadline: float) -> None:
    torch = importlib.import_module("torch")
    kind = spec["device_type"]
    runtime = getattr(torch, kind)
    # A buffer to send from and one to receive into, on each device.
    sizes = [size for size in _SIZES if 2 * size <= spec["max_memory"]]
    devices, copied = spec["devices"], []
    if not sizes:
        raise ValueError(f"{spec['max_memory']} bytes are too few to measure anything")
    pattern = torch.arange(251, dtype=torch.uint8).repeat(sizes[-1] // 251 + 1)[: sizes[-1]]
    out = {n: torch.roll(pattern, n).to(f"{kind}:{n}") for n in devices}
    into = {n: torch.zeros(sizes[-1], dtype=torch.uint8, device=f"{kind}:{n}") for n in devices}
    for source in devices:
        for target in devices:
            if source == target:
                continue
            if time.monotonic() > deadline:
                raise TimeoutError("timed out before every pair was measured")
            copied.append(
                {
                    "source": source,
                    "target": target,
                    "peer": bool(runtime.can_device_access_peer(target, source)),
                    "points": [[size, _copy(runtime, out[source], into[target], size)] for size in sizes],
                    "verified": _arrived(torch, runtime, out[source], into[target]),
                }
            )
            _answer(folder, "copies", copied)


def _copy(runtime: Any, source: Any, target: Any, size: int) -> float:
    """Return the seconds of one copy of `size` bytes, queued on the source's stream."""
    one, other = source[:size], target[:size]
    other.zero_()
    with runtime.device(source.device):
        clock = _on_the_devices(runtime, target.device, source.device)
        return _seconds(clock, lambda: other.copy_(one, non_blocking=True))


def _arrived(torch: Any, runtime: Any, source: Any, target: Any) -> bool:
    """Whether the largest copy equals the sent data; compared on the host, in parts, because memory is
    limited."""
    runtime.synchronize(target.device)
    return all(
        torch.equal(source[at : at + _CHUNK].cpu(), target[at : at + _CHUNK].cpu())
        for at in range(0, len(source), _CHUNK)
    )


# An all-reduce over all devices, or over processors (gloo)


def _join(folder: Path, rank: int, spec: dict[str, Any]) -> None:
    """Run one rank. The ranks meet through a file in FOLDER, so no port is needed."""
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
    for size in _SIZES[:-1] if backend == _ON_HOST else _SIZES:
        if _TENSORS * size > spec["max_memory"]:
            break
        seconds, verified = _reduce(torch, group, size // 4, device, rank, ranks)
        reduced["points"].append([size, seconds])
        reduced["verified"] = reduced["verified"] and verified
        if rank == 0:
            _answer(folder, "all_reduce", reduced)
    group.destroy_process_group()


def _reduce(torch: Any, group: Any, count: int, device: str, rank: int, ranks: int) -> tuple[float, bool]:
    """Return the seconds of one all-reduce of `count` 32-bit numbers on the slowest rank, and whether its
    sums are right on every rank, before and after."""
    pattern = torch.arange(_PERIOD, dtype=torch.float32, device=device).repeat(count // _PERIOD + 1)[:count]
    numbers = torch.empty_like(pattern)

    def right() -> bool:
        numbers.copy_(pattern).mul_(rank + 1)
        group.all_reduce(numbers)
        return bool(torch.equal(numbers, pattern * (ranks * (ranks + 1) // 2)))

    clock: Callable[[Callable[[], object]], float] = _on_the_host
    if device != "cpu":
        clock = _on_the_devices(getattr(torch, device.partition(":")[0]), device)

    def together(work: Callable[[], object]) -> float:
        group.barrier()
        return clock(work)

    before = right()
    # Zeros stay zeros however often they are summed.
    numbers.zero_()
    seconds = _seconds(together, lambda: group.all_reduce(numbers))
    verified = right() and before
    worst = torch.tensor([seconds, 0.0 if verified else 1.0], dtype=torch.float64, device=device)
    group.all_reduce(worst, group.ReduceOp.MAX)
    return float(worst[0]), float(worst[1]) == 0.0


if __name__ == "__main__":
    main()
