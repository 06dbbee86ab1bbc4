"""How CUDA numbers GPUs of several models, where CUDA_DEVICE_ORDER does not select the bus order.

"The available devices are enumerated from fastest to slowest using a simple heuristic (default)": CUDA
Programming Guide, "CUDA Environment Variables". Older guides promise only that the fastest one is device 0.
The heuristic is not published, so gputui does not imitate it: it asks the driver itself. Without an answer, a
number is known only where every heuristic that means "fastest" gives it to the same GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB
from gputui.system.environment import Environ
from gputui.vendors.driver_process import NoAnswerError, ask_driver

_SECONDS = 10.0
"""The time limit for the driver to start in a process that only counts devices.

Without the persistence daemon, it first initializes each idle GPU, which takes a second or two.
"""

_CLEARLY = 1.25
"""The ratio of cores times clock from which a GPU counts as clearly faster than another."""

_PROBE = Path(__file__).parent / "driver_probe.py"


def driver_order(environ: Environ = os.environ, seconds: float = _SECONDS) -> tuple[str, ...]:
    """Return the UUIDs of all GPUs (in lower case, without "GPU-") as the driver numbers them, the fastest
    first.

    () where there is no driver, or no answer. CUDA starts in a child process, never in gputui's own, and no
    context is created on a device.
    """
    asking = {**environ, "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    asking.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        devices = ask_driver(_PROBE, asking, seconds).devices
    except NoAnswerError:
        return ()
    found = tuple(device.uuid for device in devices if device.uuid is not None)
    return found if len(set(found)) == len(devices) else ()


def known_places(gpus: Sequence[Device]) -> tuple[Device | None, ...]:
    """Return GPUs of several models in CUDA's order; None at each place whose GPU is not known.

    A place is known from the driver (`Device.ordinal`), or where a GPU is clearly faster or slower than each
    other GPU.
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
    """Return whether `one` is faster in every respect. A GPU with unknown facts is neither
    faster nor slower."""
    facts, others = _facts(one), _facts(other)
    if facts is None or others is None:
        return False
    *ranks, speed = facts
    *other_ranks, other_speed = others
    return speed >= _CLEARLY * other_speed and all(a >= b for a, b in zip(ranks, other_ranks, strict=True))


def _facts(gpu: Device) -> tuple[Any, ...] | None:
    """Return compute capability, cores, GiB of memory, and cores times clock; None if one is unknown."""
    facts = gpu.capability, gpu.cores, gpu.max_sm_clock, gpu.memory_total
    if None in facts or not all(facts):
        return None
    capability, cores, clock, memory = facts
    assert cores is not None and clock is not None and memory is not None
    return capability, cores, round(memory / GIB), cores * clock
