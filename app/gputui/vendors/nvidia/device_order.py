"""How CUDA numbers GPUs that are not all alike, where CUDA_DEVICE_ORDER does not say by bus id.

"The available devices are enumerated from fastest to slowest using a simple heuristic (default)": CUDA
Programming Guide, "CUDA Environment Variables". Older guides promise only that the fastest one is device 0.
The heuristic is not published, and is not imitated here: the driver itself is asked. Without an answer, a
number is known only where every heuristic that means "fastest" gives it to the same GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB

_SECONDS = 10.0
"""How long the driver may take to start in a process that only counts devices: without the persistence daemon
it first initializes each idle GPU, which takes a second or two."""

_CLEARLY = 1.25
"""The ratio of cores times clock from which on one GPU is clearly faster than another."""

_PROBE = (
    "import json, runpy, sys; json.dump(runpy.run_path(sys.argv[1])['driver']()['devices'], sys.stdout)",
    str(Path(__file__).parent / "driver_probe.py"),
)


def driver_order(environ: Mapping[str, str] = os.environ, seconds: float = _SECONDS) -> tuple[str, ...]:
    """The UUIDs of all GPUs (in lower case, without "GPU-") as the driver numbers them, the fastest first.

    () where there is no driver, or no answer. CUDA starts in a child process, never in ours, and no context
    is made on a device.
    """
    if not sys.executable:
        return ()
    asking = {**environ, "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    asking.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        child = subprocess.Popen(
            # (Isolated: no file in the working directory, and nobody's sitecustomize, is loaded.)
            [sys.executable, "-I", "-S", "-c", *_PROBE],
            env=asking,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ()
    with child.stdout or contextlib.nullcontext():
        try:
            answer, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # One that hangs in the kernel is not waited for.
                child.wait(1.0)
            return ()
    return _uuids(answer)


def _uuids(answer: bytes) -> tuple[str, ...]:
    """What a child answered; () for anything but distinct UUIDs."""
    try:
        found: Any = [device["uuid"] for device in json.loads(answer)]
    except (ValueError, TypeError, KeyError):
        return ()
    good = all(isinstance(uuid, str) for uuid in found) and len(set(found)) == len(found)
    return tuple(found) if good else ()


def known_places(gpus: Sequence[Device]) -> tuple[Device | None, ...]:
    """GPUs of several models in CUDA's order; None at each place whose GPU is not known.

    The driver has been asked (`Device.ordinal`), or a GPU is clearly faster or slower than each other one.
    """
    numbered = {gpu.ordinal: gpu for gpu in gpus if gpu.ordinal is not None}
    if numbered:
        return tuple(numbered.get(place) for place in range(len(gpus)))
    places: list[Device | None] = [None] * len(gpus)
    for gpu in gpus:
        faster = sum(_clearly_faster(other, gpu) for other in gpus)
        slower = sum(_clearly_faster(gpu, other) for other in gpus)
        if faster + slower == len(gpus) - 1:
            places[faster] = gpu
    return tuple(places)


def _clearly_faster(one: Device, other: Device) -> bool:
    """Whether one GPU is the faster one in every respect. An unknown one is neither faster nor slower."""
    facts, others = _facts(one), _facts(other)
    if facts is None or others is None:
        return False
    *ranks, speed = facts
    *other_ranks, other_speed = others
    return speed >= _CLEARLY * other_speed and all(a >= b for a, b in zip(ranks, other_ranks, strict=True))


def _facts(gpu: Device) -> tuple[Any, ...] | None:
    """Compute capability, cores, GiB of memory, and cores times clock; None where one is not known."""
    facts = gpu.capability, gpu.cores, gpu.max_sm_clock, gpu.memory_total
    if None in facts or not all(facts):
        return None
    capability, cores, clock, memory = facts
    assert cores is not None and clock is not None and memory is not None
    return capability, cores, round(memory / GIB), cores * clock
