"""DeepSpeed's own estimates of the memory that ZeRO needs, exact to the byte.

They are those of `estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs` of
DeepSpeed 0.19.8, with zero_init and a buffer factor of 1.5. They count no activations.
"""

from __future__ import annotations

from typing import Literal

from gputui.inventory.light_dataclasses import frozen

Offload = Literal["none", "optimizer", "all"]

_FACTOR = 1.5


@frozen
class Estimate:
    """Bytes of each device, and of each host. `offload`: the states that are in host memory."""

    stage: int
    offload: Offload
    gpu: int
    cpu: int


def estimates(parameters: int, largest_layer: int, devices: int, hosts: int = 1) -> tuple[Estimate, ...]:
    """All of DeepSpeed's estimates for `devices` on each of `hosts`.

    The products are made in floating point, in DeepSpeed's order, so that they equal its numbers.
    """
    count, part, layer = devices * hosts, 1 / hosts, 4 * largest_layer
    return (
        Estimate(
            2,
            "none",
            2 * parameters + int(18 * parameters / count),
            int(parameters * 4 * devices * _FACTOR),
        ),
        Estimate(2, "optimizer", 2 * parameters, int(parameters * max(4 * count, 16) * _FACTOR)),
        Estimate(3, "none", layer + int(18 * parameters / count), int(largest_layer * 4 * devices * _FACTOR)),
        Estimate(3, "optimizer", layer + int(2 * parameters / count), int(parameters * 16 * part * _FACTOR)),
        Estimate(3, "all", layer, int(parameters * 18 * part * _FACTOR)),
    )
