"""The bytes that a strategy moves in each step, and the least time that this takes on these links.

For n devices in a ring an all-reduce of G bytes sends 2 (n - 1) / n × G from each, an all-gather or a
reduce-scatter half of that (nccl-tests, doc/PERFORMANCE.md). Latency, overlap with computing and the data
that offloading moves between device and host are not counted: the seconds are those of the wires alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from gputui.inventory.formatting import UNKNOWN
from gputui.inventory.light_dataclasses import frozen
from gputui.planning.box import Box
from gputui.planning.memory import largest_stage
from gputui.planning.model import Model
from gputui.planning.strategies import Strategy
from gputui.planning.workload import Workload


@frozen
class Exchange:
    """One kind of data that devices exchange in a step: `bytes` sent by each device."""

    what: str
    bytes: int
    seconds: float | None


@frozen
class Traffic:
    """The traffic of each device and (optimizer) step. `seconds` is None if a link's bandwidth is unknown.

    bytes   sent by each device; for DataParallel, through GPU 0
    bubble  the share of a step in which a pipeline's stage waits
    """

    exchanges: tuple[Exchange, ...] = ()
    bubble: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.exchanges)

    @property
    def seconds(self) -> float | None:
        times = [each.seconds for each in self.exchanges]
        return None if None in times else sum(time for time in times if time)

    @property
    def amount(self) -> str:
        """ "24.0 GB": decimal units, as bandwidths have."""
        return _amount(self.bytes)

    @property
    def time(self) -> str:
        """ "1.4 s", "120 ms"; a dash where it is not known, or where nothing is sent."""
        if self.seconds is None or not self.bytes:
            return UNKNOWN
        if self.seconds >= 1:
            return f"{self.seconds:.1f} s"
        return f"{self.seconds * 1000:.0f} ms" if self.seconds >= 0.001 else "<1 ms"

    @property
    def words(self) -> str:
        """The exchanges in words: "weights 498.0 MB, gradients 498.0 MB"."""
        return ", ".join(f"{each.what} {_amount(each.bytes)}" for each in self.exchanges)


def _amount(number: int) -> str:
    if number < 1000:
        return f"{number} B" if number else UNKNOWN
    if number < 1e5:
        return f"{number / 1e3:.1f} KB"
    return f"{number / 1e9:.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def traffic(model: Model, workload: Workload, strategy: Strategy, box: Box) -> Traffic:
    """The traffic of `strategy` over the links of `box`, whose devices are in the order of the launch.

    Ranks are those of Megatron and accelerate: devices of a tensor-parallel group, or of a sequence, are
    consecutive, and so are those of a stage.
    """
    if strategy.devices < 2:
        return Traffic()
    work, count, group = strategy.own(workload), strategy.devices, strategy.tensor_parallel
    shared = strategy.context_parallel
    moved: list[tuple[str, int, list[range]]] = []
    if group > 1:
        moved.append(("layers", _layers(model, work, strategy), _consecutive(count, group)))
    if shared > 1:
        moved.append(("attention", _attention(model, work, strategy), _consecutive(count, shared)))
    if strategy.kind == "pp":
        moved += _pipeline(model, work, strategy)
    elif strategy.kind == "dp":
        moved += [(what, amount, [range(count)]) for what, amount in _data_parallel(model, work, count)]
    else:
        shards = strategy.shards
        replicas = _consecutive(count, shards)
        if group > 1:
            replicas = [range(start, count, group) for start in range(group)]
        states = _states(model, work, strategy, shards // group)
        moved += [(what, round(amount / group), replicas) for what, amount in states]
        if shards < count:
            part = work.weight_bytes * work.trained(model) * work.accumulation / shards
            copies = [range(start, count, shards) for start in range(shards)]
            moved.append(("copies", round(_all_reduce(strategy.replicate) * part), copies))
    exchanges = [
        Exchange(what, amount, _seconds(amount, box.slowest(groups))) for what, amount, groups in moved
    ]
    stages, chunks = strategy.pipeline_parallel, work.accumulation * strategy.interleaved
    return Traffic(tuple(exchanges), (stages - 1) / (chunks + stages - 1))


def _consecutive(count: int, size: int) -> list[range]:
    return [range(start, start + size) for start in range(0, count, size)]


def _all_reduce(count: int) -> float:
    """What each of `count` devices sends, as a multiple of what each has."""
    return 2 * (count - 1) / count


def _seconds(amount: int, gigabytes: float | None) -> float | None:
    """The seconds for `amount` bytes at `gigabytes` GB/s; None where that is unknown or 0."""
    if not amount:
        return 0.0
    return None if not gigabytes else amount / (gigabytes * 1e9)


def _states(model: Model, workload: Workload, strategy: Strategy, count: int) -> Iterator[tuple[str, float]]:
    """The bytes of gradients and weights that each of `count` devices sends."""
    trained, passes = workload.trained(model), workload.accumulation
    computed, share = workload.computed_bytes, (count - 1) / count
    if strategy.kind == "ddp":
        yield "gradients", _all_reduce(count) * workload.weight_bytes * trained
    elif strategy.kind in ("zero1", "zero2", "zero2-offload"):
        # Gradients are reduced to their owners, once a step with ZeRO-1; weights are gathered from them.
        yield "gradients", share * computed * trained * (1 if strategy.kind == "zero1" else passes)
        yield "weights", share * computed * trained
    else:
        zero = strategy.deepspeed
        gathers = 2 if zero or strategy.reshard else 1
        yield "weights", share * passes * gathers * computed * model.parameters
        yield "gradients", share * passes * (computed if zero else workload.weight_bytes) * trained


def _data_parallel(model: Model, workload: Workload, count: int) -> Iterator[tuple[str, int]]:
    """The five exchanges of torch's DataParallel in each pass, through GPU 0 (ids, mask and labels are the
    inputs, logits the outputs, a number for each device the loss)."""
    passes, others = workload.accumulation, workload.accumulation * (count - 1)
    yield "inputs", others * 3 * 8 * workload.tokens
    yield "weights", passes * workload.weight_bytes * model.parameters
    yield "outputs", others * workload.logits(model)
    yield "losses", others * 4
    yield "gradients", passes * workload.weight_bytes * workload.trained(model)


def _layers(model: Model, workload: Workload, strategy: Strategy) -> int:
    """Four all-reduces of a block's hidden states: after attention and MLP, in forward and in backward."""
    one = workload.tokens * model.hidden * workload.computed_bytes
    group = strategy.tensor_parallel
    # With checkpointing, forward runs twice.
    times = 6 if workload.checkpointing else 4
    blocks = model.blocks / strategy.pipeline_parallel
    return round(times * _all_reduce(group) * one * blocks * workload.accumulation)


def _attention(model: Model, workload: Workload, strategy: Strategy) -> int:
    """What attention exchanges in a group that shares a sequence.

    cp gathers keys and values in forward and again in backward, and reduces their gradients; sp changes from
    parts of a sequence to parts of the heads and back, for queries, keys, values and outputs.
    """
    size = strategy.context_parallel
    keys = 2 * model.hidden * model.kv_heads / max(1, model.heads)
    if strategy.deepspeed:
        width, times = (2 * model.hidden + keys) / size, 3 if workload.checkpointing else 2
    else:
        width, times = keys, 4 if workload.checkpointing else 3
    sent = (size - 1) * width * workload.tokens * workload.computed_bytes
    return round(times * sent * model.blocks * workload.accumulation)


def _pipeline(model: Model, workload: Workload, strategy: Strategy) -> Iterator[tuple[str, int, list[range]]]:
    """What a stage in the middle sends forward and back, the gradients of pipelines, and those of embeddings
    that the first and the last stage share."""
    stages, group, times = strategy.pipeline_parallel, strategy.tensor_parallel, strategy.interleaved
    each = strategy.devices // stages
    one = workload.tokens * model.hidden * workload.computed_bytes * workload.accumulation
    ways = 1 if stages == 2 and times == 1 else 2
    steps = [range(place, place + each + 1, each) for place in range(strategy.devices - each)]
    yield "stages", -(-ways * times * one // group), steps
    if strategy.replicas > 1:
        # All stages add their gradients at once: the largest is the last to end.
        share = _all_reduce(strategy.replicas) * largest_stage(model, stages) / (model.parameters * group)
        members = [
            range(start + place, start + each, group)
            for start in range(0, strategy.devices, each)
            for place in range(group)
        ]
        yield "gradients", round(share * workload.weight_bytes * workload.trained(model)), members
    if model.tied and not workload.lora:
        ends = strategy.devices - each
        pairs = [range(place, place + ends + 1, ends) for place in range(each)]
        yield "embeddings", -(-workload.weight_bytes * model.vocabulary * model.hidden // group), pairs
