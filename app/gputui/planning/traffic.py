"""The bytes that a strategy moves in each step, and the least time that this takes on these links.

For n devices in a ring an all-reduce of G bytes sends 2 (n - 1) / n × G from each, an all-gather or a
reduce-scatter half of that (nccl-tests, doc/PERFORMANCE.md). Latency, overlap with computing and the data
that offloading moves between device and host are not counted: the seconds are those of the wires alone.
"""

from __future__ import annotations

from gputui.inventory.formatting import UNKNOWN
from gputui.inventory.light_dataclasses import dataclass
from gputui.planning.box import Box
from gputui.planning.model import Model
from gputui.planning.strategies import Strategy
from gputui.planning.workload import Workload


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of each device and (optimizer) step. `seconds` is None if a link's bandwidth is unknown.

    bytes   sent by each device
    bubble  the share of a step in which a pipeline's stage waits
    """

    bytes: int
    seconds: float | None
    bubble: float = 0.0

    @property
    def amount(self) -> str:
        """ "24.0 GB": decimal units, as bandwidths have."""
        if not self.bytes:
            return UNKNOWN
        return f"{self.bytes / 1e9:.1f} GB" if self.bytes >= 1e8 else f"{self.bytes / 1e6:.1f} MB"

    @property
    def time(self) -> str:
        """ "1.4 s", "120 ms"; a dash where it is not known, or where nothing is sent."""
        if self.seconds is None or not self.bytes:
            return UNKNOWN
        if self.seconds >= 1:
            return f"{self.seconds:.1f} s"
        return f"{self.seconds * 1000:.0f} ms" if self.seconds >= 0.001 else "<1 ms"


def traffic(model: Model, workload: Workload, strategy: Strategy, box: Box) -> Traffic:
    """The traffic of `strategy` over the links of `box`, whose devices are in the order of the launch."""
    if strategy.devices < 2:
        return Traffic(0, 0.0)
    everyone = box.ring_bandwidth(range(len(box)))
    if strategy.kind == "pp":
        return _pipeline(model, workload, strategy, everyone)
    group = strategy.tensor_parallel
    states = _states(model, workload, strategy) // group
    if group == 1:
        return Traffic(states, _seconds(states, everyone))
    within = _tensor_parallel(model, workload, group)
    inner = [box.ring_bandwidth(range(start, start + group)) for start in range(0, strategy.devices, group)]
    slowest = None if None in inner else min(each for each in inner if each is not None)
    first, second = _seconds(within, slowest), _seconds(states, everyone)
    return Traffic(within + states, None if first is None or second is None else first + second)


def _seconds(amount: int, gigabytes: float | None) -> float | None:
    """The seconds for `amount` bytes at `gigabytes` GB/s; None where that is unknown or 0."""
    if not amount:
        return 0.0
    return None if not gigabytes else amount / (gigabytes * 1e9)


def _states(model: Model, workload: Workload, strategy: Strategy) -> int:
    """The bytes of weights and gradients that each device sends."""
    trained, passes = workload.trained(model), workload.accumulation
    count = strategy.replicas
    computed = workload.computed_bytes
    share = (count - 1) / count
    if strategy.kind == "ddp":
        return round(2 * share * workload.weight_bytes * trained)
    if strategy.kind in ("zero1", "zero2", "zero2-offload"):
        # Gradients are reduced to their owners, once a step with ZeRO-1; weights are gathered from them.
        reductions = 1 if strategy.kind == "zero1" else passes
        return round(share * computed * trained * (reductions + 1))
    gathered = computed * model.parameters
    if strategy.kind in ("zero3", "zero3-offload"):
        return round(share * passes * (2 * gathered + computed * trained))
    gathers = 2 if strategy.reshard else 1
    return round(share * passes * (gathers * gathered + workload.reduced_bytes * trained))


def _tensor_parallel(model: Model, workload: Workload, group: int) -> int:
    """Four all-reduces of a block's hidden states: after attention and MLP, in forward and in backward."""
    one = workload.tokens * model.hidden * workload.computed_bytes
    # With checkpointing, forward runs twice.
    times = 6 if workload.checkpointing else 4
    return round(times * 2 * (group - 1) / group * one * model.blocks * workload.accumulation)


def _pipeline(model: Model, workload: Workload, strategy: Strategy, bandwidth: float | None) -> Traffic:
    amount = 2 * workload.tokens * model.hidden * workload.computed_bytes * workload.accumulation
    stages = strategy.pipeline_parallel
    return Traffic(amount, _seconds(amount, bandwidth), (stages - 1) / (workload.accumulation + stages - 1))
