"""Bytes that a strategy needs on each device: closed forms.

Sources: the ZeRO paper (Rajbhandari et al. 2020, section 3) for the states that each stage divides; torch's
memory tracker for the peak of a step; FSDP2's parameters as run on eight processes; Korthikanti et al. 2022
for the activations that tensor parallelism divides. The possible peaks:

    at the loss            weights, optimizer, the activations that layers and head keep; gradients where they
                           accumulate
    at recomputation       with checkpointing: weights, optimizer, the inputs of all blocks, the activations
                           of one block; gradients where they accumulate
    at the end of backward weights, optimizer, gradients, the activations of one block; with tied embeddings
                           their two gradients, in 32 bits; with FSDP whole ones of the parameters outside the
                           blocks
    in the step            weights, optimizer, gradients, the optimizer's copies; DeepSpeed's copies of the
                           gradients
"""

from __future__ import annotations

from gputui.inventory.light_dataclasses import frozen, replace
from gputui.planning.model import COMPUTES, Model
from gputui.planning.strategies import Strategy
from gputui.planning.workload import Workload

BUCKET = 500_000_000
"""Elements of DeepSpeed's reduce_bucket_size and allgather_bucket_size."""

MAX_LIVE = 1_000_000_000
"""Parameters that ZeRO-3 keeps gathered (stage3_max_live_parameters)."""


@frozen
class Bytes:
    """Bytes of one device; `total` is the sum of all parts.

    weights, gradients, optimizer
                 whole states, also where a peak comes before they exist; the optimizer's states include its
                 own copy of the weights
    buffers      gathered weights, communication buckets
    activations  the bytes that the peak of the step needs above all other parts: gradients appear as
                 activations are freed
    fixed        context, communicators
    cache        the KV cache of a server
    """

    weights: int
    gradients: int
    optimizer: int
    buffers: int
    activations: int = 0
    fixed: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        states = self.weights + self.gradients + self.optimizer
        return states + self.buffers + self.activations + self.fixed + self.cache


def _up(amount: int, parts: int) -> int:
    """The size of the largest of `parts` parts."""
    return -(-amount // parts)


def needed(model: Model, workload: Workload, strategy: Strategy, fixed: int = 0) -> Bytes:
    """The bytes of the device that needs the most; `fixed` is the part that its process always takes.

    Raises PlanningError for LoRA on a model of unknown widths.
    """
    work = strategy.own(workload)
    found = _needed(model, work, strategy, fixed)
    if workload.precision != "fp32" or workload.weights_only:
        return found
    # A plan for 32 bits leaves room for the copies that autocast keeps, so `--bf16` does not need more.
    mixed = _needed(model, replace(work, precision="autocast"), strategy, fixed)
    return replace(found, activations=found.activations + max(0, mixed.total - found.total))


def _needed(model: Model, workload: Workload, strategy: Strategy, fixed: int) -> Bytes:
    states = _states(model, workload, strategy)
    if workload.weights_only:
        return replace(states, buffers=0)
    return replace(states, activations=_activations(model, workload, strategy, states), fixed=fixed)


def gathered_layer(model: Model, workload: Workload, strategy: Strategy) -> int:
    """The bytes of the largest layer that each device holds whole for a moment, with any number of devices.

    For ZeRO-3 this is a module by itself (DeepSpeed's estimate: weights and gradients), for FSDP a block or
    everything outside the blocks. 0 where no layer is divided.
    """
    if workload.weights_only:
        return 0
    weight = workload.computed_bytes
    if strategy.kind in ("zero3", "zero3-offload"):
        return weight * (model.largest_layer + min(model.largest_layer, workload.trained(model)))
    if strategy.kind != "fsdp2":
        return 0
    unit = max(model.largest_block, model.outside_blocks)
    reduced = 0 if workload.lora else weight + workload.weight_bytes
    return _up(max(weight, reduced) * unit, strategy.tensor_parallel)


def host_needed(model: Model, workload: Workload, strategy: Strategy, nodes: int = 1) -> int:
    """The bytes of each host's memory for all offloaded states, by DeepSpeed's estimate; 0 without offload.

    Weights that LoRA freezes have two bytes, and no optimizer states.
    """
    trained = workload.trained(model)
    if strategy.kind == "zero2-offload":
        return trained * max(4 * strategy.devices, 16) * 3 // 2
    frozen = model.parameters if workload.lora else 0
    return (18 * trained + 2 * frozen) * 3 // (2 * nodes) if strategy.kind == "zero3-offload" else 0


def _states(model: Model, workload: Workload, strategy: Strategy) -> Bytes:
    trained, all_parameters = workload.trained(model), model.parameters
    frozen = all_parameters if workload.lora else 0
    count = strategy.devices
    if strategy.deepspeed:
        return _deepspeed_states(trained, frozen, model, workload, strategy)
    weight = workload.weight_bytes
    weights = weight * trained + workload.computed_bytes * frozen
    gradients, optimizer = weight * trained, workload.optimizer_bytes(weight) * trained
    if strategy.kind == "single":
        return Bytes(weights, gradients, optimizer, 0)
    if strategy.kind == "ddp":
        # All buckets together are as large as the gradients (torch: DistributedDataParallel).
        return Bytes(weights, gradients, optimizer, 0 if workload.bucket_view else gradients)
    if strategy.kind == "dp":
        # GPU 0 adds the gradients of all devices to its own, and has the outputs of all of them.
        return Bytes(weights, gradients, optimizer, gradients + count * workload.logits(model))
    if strategy.kind == "pp":
        return _stage(model, strategy, weights, gradients, optimizer)
    return Bytes(
        _up(weights, strategy.shards),
        _up(gradients, strategy.shards),
        _up(optimizer, strategy.shards),
        _fsdp_buffers(model, workload, strategy),
    )


def largest_stage(model: Model, stages: int) -> int:
    """The parameters of the first stage: its part of the blocks, of the embedding and of the head."""
    outside = model.outside_blocks if model.tied else _up(model.outside_blocks, 2)
    share = _up(model.blocks, stages) * model.largest_block + outside
    return min(model.parameters, max(share, _up(model.parameters, stages)))


def _stage(model: Model, strategy: Strategy, weights: int, gradients: int, optimizer: int) -> Bytes:
    """The first stage of a pipeline; several pipelines divide the optimizer's states (ZeRO-1)."""
    group = strategy.tensor_parallel
    share = largest_stage(model, strategy.pipeline_parallel)

    def part(amount: int) -> int:
        return _up(amount * share, model.parameters * group)

    return Bytes(part(weights), part(gradients), _up(part(optimizer), strategy.replicas), 0)


def _fsdp_buffers(model: Model, workload: Workload, strategy: Strategy) -> int:
    """The buffers of FSDP2: the root and a block, the next block, and a block's gradients during reduction.

    Frozen weights are gathered too, but have no gradients.
    """
    block, root = model.largest_block, model.outside_blocks
    gathered = root + block if strategy.reshard else model.parameters
    with_gradients = block if not workload.lora else _up(workload.trained(model), model.blocks)
    amount = workload.computed_bytes * (gathered + block) + workload.weight_bytes * with_gradients
    return _up(amount, strategy.tensor_parallel)


def _deepspeed_states(
    trained: int, frozen: int, model: Model, workload: Workload, strategy: Strategy
) -> Bytes:
    """ZeRO: weights and gradients in 16 bits, the optimizer with a copy of the weights in 32 bits."""
    count, weight = strategy.devices, workload.computed_bytes
    weights = weight * (trained + frozen)
    gradients = weight * trained
    optimizer = (workload.optimizer_bytes(4) + (0 if weight == 4 else 4)) * trained
    bucket = weight * min(BUCKET, trained)
    # Where states are divided, a layer has whole weights while it is in use, and a whole gradient.
    reduced = weight * min(max(BUCKET, model.largest_layer), trained)
    live = weight * min(max(MAX_LIVE, model.largest_layer), model.parameters)
    if strategy.kind == "zero1":
        return Bytes(weights, gradients, _up(optimizer, count), 2 * bucket)
    if strategy.kind == "zero2":
        return Bytes(weights, _up(gradients, count), _up(optimizer, count), bucket + reduced)
    if strategy.kind == "zero2-offload":
        return Bytes(weights, 0, 0, bucket + reduced)
    if strategy.kind == "zero3-offload":
        return Bytes(0, 0, 0, live + reduced)
    return Bytes(_up(weights, count), _up(gradients, count), _up(optimizer, count), live + reduced)


def _activations(model: Model, workload: Workload, strategy: Strategy, states: Bytes) -> int:
    """The bytes that the highest of the peaks needs above the states."""
    compute = workload.compute
    gradients = states.gradients
    by_torch = strategy.kind in ("single", "dp", "ddp", "pp")
    if not by_torch and compute == "autocast":
        # FSDP2 and DeepSpeed give the blocks weights and inputs of 16 bits.
        compute = "bf16"
    tokens, sequence, group = workload.tokens, workload.sequence, strategy.tensor_parallel
    stages = strategy.pipeline_parallel
    chunks = strategy.interleaved
    form = COMPUTES.index(compute)
    layers = model.saved[form].bytes(tokens, sequence, group)
    live = model.saved_block[form].bytes(tokens, sequence, group)
    if workload.checkpointing:
        layers = model.blocks * tokens * model.hidden * (2 if compute == "bf16" else 4)
    # Each stage holds its part of the layers, for as many batches as are in flight (Megatron's schedules).
    most = stages if chunks == 1 else (chunks + 1) * stages - 1
    under_way = min(most, workload.accumulation * chunks)
    layers = _up(layers, stages * chunks) * under_way
    # While a block is recomputed, its activations are in memory too.
    again = layers + live if workload.checkpointing else 0
    head = tokens * ((16 if model.capped else 12) * model.vocabulary + 8 * model.hidden)
    if strategy.kind == "pp":
        # Megatron divides the head, too.
        head = _up(head, group)
    # Autocast keeps the 16-bit weights until backward no longer needs them.
    casts = 2 * _up(model.parameters, stages * group) if by_torch and workload.compute == "autocast" else 0
    if workload.lora:
        # Frozen weights are in 16 bits already.
        casts = min(casts, 2 * workload.trained(model))
    there = gradients if workload.accumulation > 1 else 0
    at_loss = layers + head + casts + there
    at_recomputation = again + casts + there if again else 0
    # At the end of backward one block is left, and the embedding's two gradients where it is tied.
    whole = 8 * model.vocabulary * model.hidden if model.tied and by_torch and not workload.lora else 0
    if strategy.kind == "pp":
        whole = _up(whole, group)
    if compute == "bf16":
        whole //= 2
    if strategy.kind == "fsdp2" and not workload.lora:
        # Parameters outside the blocks are reduced last, when all gathered weights are freed.
        root = (workload.computed_bytes + workload.weight_bytes) * model.outside_blocks
        whole = _up(root, group) - states.buffers
    at_end = gradients + max(whole, live)
    copies = workload.step_copies * workload.weight_bytes * workload.trained(model) // strategy.shards
    if strategy.deepspeed and not strategy.offloads:
        # Each device copies its part of the gradients to 32 bits.
        copies += _up(4 * workload.trained(model), strategy.devices)
    return max(at_loss, at_recomputation, at_end, gradients + copies) - gradients
