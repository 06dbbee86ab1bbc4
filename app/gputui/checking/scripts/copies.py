"""Measures copies from each device to each other one: started by bandwidth.py, in the user's interpreter.

    python copies.py FOLDER ROLE SPEC

Ten queued copies between two events on the source's stream, the median of five such, after three warm-ups,
into memory that was allocated before. What has arrived is compared byte by byte.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

_HERE = Path(__file__).resolve().parent
_MIB = 1024 * 1024
_SIZES = (16 * 1024, _MIB, 16 * _MIB, 256 * _MIB)
_WARM_UPS, _QUEUED, _TIMES = 3, 10, 5
_CHUNK = 16 * _MIB
_SHARE = 0.6
"""As bandwidth.py's: so much of the time."""


def main() -> None:
    folder, role, spec = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    try:
        _measure(Path(folder), spec, time.monotonic() + spec["seconds"] * _SHARE)
    except BaseException as error:
        Path(folder, role + ".error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        raise


def _measure(folder: Path, spec: dict[str, Any], deadline: float) -> None:
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
            # After each pair: what has been measured counts, however it ends.
            part = folder / "copies.part"
            part.write_text(json.dumps(copied), encoding="utf-8")
            part.replace(folder / "copies.json")


def _copy(runtime: Any, source: Any, target: Any, size: int) -> float:
    """Seconds of one copy of `size` bytes."""
    one, other = source[:size], target[:size]
    other.zero_()
    with runtime.device(source.device):
        for _ in range(_WARM_UPS):
            other.copy_(one, non_blocking=True)
        found = []
        for _ in range(_TIMES):
            start, end = (runtime.Event(enable_timing=True) for _ in range(2))
            runtime.synchronize(target.device)
            runtime.synchronize(source.device)
            start.record()
            for _ in range(_QUEUED):
                other.copy_(one, non_blocking=True)
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1000 / _QUEUED)
    return float(median(found))


def _arrived(torch: Any, runtime: Any, source: Any, target: Any) -> bool:
    """Whether the largest copy is what was sent; through the host, in parts, as memory is limited."""
    runtime.synchronize(target.device)
    return all(
        torch.equal(source[at : at + _CHUNK].cpu(), target[at : at + _CHUNK].cpu())
        for at in range(0, len(source), _CHUNK)
    )


if __name__ == "__main__":
    main()
