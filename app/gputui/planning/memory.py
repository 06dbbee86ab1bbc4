"""Bytes that a strategy needs on each device: closed forms.

Sources: the ZeRO paper (Rajbhandari et al. 2020, section 3) for what each stage divides; torch's memory
tracker for the peak of a step; FSDP2's parameters as run on eight processes; Korthikanti et al. 2022 for what
tensor parallelism divides. Where the peak falls:

    at the loss            weights, optimizer, what layers and head keep; gradients where they accumulate
    at the end of backward weights, optimizer, gradients, what one block keeps; with tied embeddings their
                           two gradients, in 32 bits
    in the step            weights, optimizer, gradients, the optimizer's copies
"""

from __future__ import annotations

from gputui.inventory.light_dataclasses import dataclass
from gputui.planning.model import Compute, Model
from gputui.planning.strategies import Strategy
from gputui.planning.workload import Workload

BUCKET = 500_000_000
"""Elements of DeepSpeed's reduce_bucket_size and allgather_bucket_size."""

MAX_LIVE = 1_000_000_000
"""Parameters that ZeRO-3 keeps gathered (stage3_max_live_parameters)."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of one device; `total` is the sum of all parts.

    weights, gradients, optimizer
                 whole states, also where a peak is before they are there; the optimizer's with its own copy
                 of the weights
    buffers      gathered weights, communication buckets
    activations  what the peak of the step needs above all other parts: gradients come as activations go
    fixed        context, communicators
    """

    weights: int
    gradients: int
    optimizer: int
    buffers: int
    activations: int
    fixed: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.buffers + self.activations + self.fixed


@dataclass(frozen=True, slots=True)
class _States:
    weights: int
    gradients: int
    optimizer: int
    buffers: int


def _up(amount: int, parts: int) -> int:
    """The largest of so many parts."""
    return -(-amount // parts)


def needed(model: Model, workload: Workload, strategy: Strategy, fixed: int = 0) -> Bytes:
    """Bytes of the device that needs most; `fixed` is what its process takes of it anyway.

    Raises PlanningError: LoRA on a model of unknown widths.
    """
    states = _states(model, workload, strategy)
    if workload.weights_only:
        return Bytes(states.weights, states.gradients, states.optimizer, 0, 0, 0)
    return Bytes(
        states.weights,
        states.gradients,
        states.optimizer,
        states.buffers,
        _activations(model, workload, strategy, states.gradients),
        fixed,
    )


def host_needed(model: Model, workload: Workload, strategy: Strategy) -> int:
    """Bytes of host memory for what all devices offload: DeepSpeed's estimate; 0 without offload.

    Weights that LoRA leaves as they are have two bytes, and no optimizer.
    """
    trained = workload.trained(model)
    if strategy.kind == "zero2-offload":
        return trained * max(4 * strategy.devices, 16) * 3 // 2
    frozen = model.parameters if workload.lora else 0
    return (18 * trained + 2 * frozen) * 3 // 2 if strategy.kind == "zero3-offload" else 0


def _states(model: Model, workload: Workload, strategy: Strategy) -> _States:
    trained, all_parameters = workload.trained(model), model.parameters
    frozen = all_parameters if workload.lora else 0
    count = strategy.devices
    if strategy.deepspeed:
        return _deepspeed_states(trained, frozen, model, workload, strategy)
    weight = workload.weight_bytes
    weights = weight * trained + workload.frozen_bytes * frozen
    gradients, optimizer = weight * trained, workload.optimizer_bytes(weight) * trained
    if strategy.kind == "single":
        return _States(weights, gradients, optimizer, 0)
    if strategy.kind == "ddp":
        # Buckets beside the gradients: gradient_as_bucket_view is off unless it is asked for.
        return _States(weights, gradients, optimizer, gradients)
    if strategy.kind == "pp":
        return _stage(model, strategy, weights, gradients, optimizer)
    return _States(
        _up(weights, count),
        _up(gradients, count),
        _up(optimizer, count),
        _fsdp_buffers(model, workload, strategy),
    )


def _stage(model: Model, strategy: Strategy, weights: int, gradients: int, optimizer: int) -> _States:
    """The first stage of a pipeline: its share of the blocks, and the embedding, or the head."""
    stages = strategy.pipeline_parallel
    outside = model.outside_blocks if model.tied else _up(model.outside_blocks, 2)
    share = _up(model.blocks, stages) * model.largest_block + outside
    share = min(model.parameters, max(share, _up(model.parameters, stages)))

    def part(amount: int) -> int:
        return _up(amount * share, model.parameters)

    return _States(part(weights), part(gradients), part(optimizer), 0)


def _fsdp_buffers(model: Model, workload: Workload, strategy: Strategy) -> int:
    """What FSDP2 gathers: the root and a block, the next block, and a block's gradients as they are reduced.

    Frozen weights are gathered, too, but have no gradients.
    """
    computed = 4 if workload.precision == "fp32" else 2
    reduced = 2 if workload.precision == "bf16" else 4
    block, root = model.largest_block, model.outside_blocks
    gathered = root + block if strategy.reshard else model.parameters
    with_gradients = block if not workload.lora else _up(workload.trained(model), model.blocks)
    amount = computed * (gathered + block) + reduced * with_gradients
    return _up(amount, strategy.tensor_parallel)


def _deepspeed_states(
    trained: int, frozen: int, model: Model, workload: Workload, strategy: Strategy
) -> _States:
    """ZeRO: weights and gradients in 16 bits, the optimizer with a copy of the weights in 32 bits."""
    count, single = strategy.devices, workload.precision == "fp32"
    weight = 4 if single else 2
    weights = weight * trained + weight * frozen
    gradients = weight * trained
    optimizer = (workload.optimizer_bytes(4) + (0 if single else 4)) * trained
    bucket = weight * min(BUCKET, trained)
    # Gradients are copied to 32 bits for the step, each device its part.
    copied = 0 if single else _up(4 * trained, count)
    if strategy.kind == "zero1":
        return _States(weights, gradients, _up(optimizer, count), 2 * bucket + copied)
    if strategy.kind == "zero2":
        return _States(weights, _up(gradients, count), _up(optimizer, count), 2 * bucket + copied)
    if strategy.kind == "zero2-offload":
        return _States(weights, 0, 0, 2 * bucket)
    live = weight * min(MAX_LIVE, model.parameters)
    if strategy.kind == "zero3-offload":
        # (DeepSpeed's estimate is four bytes for each parameter of the largest layer.)
        return _States(4 * model.largest_layer, 0, 0, live + bucket)
    return _States(_up(weights, count), _up(gradients, count), _up(optimizer, count), live + bucket + copied)


def _activations(model: Model, workload: Workload, strategy: Strategy, gradients: int) -> int:
    """What the highest of the three peaks needs above the states."""
    compute: Compute = workload.compute
    by_torch = strategy.kind in ("single", "ddp", "pp")
    if not by_torch and compute == "autocast":
        # FSDP2 and DeepSpeed hand the blocks weights and inputs of 16 bits.
        compute = "bf16"
    tokens, sequence, group = workload.tokens, workload.sequence, strategy.tensor_parallel
    stages = strategy.pipeline_parallel
    kept = model.saved_by(compute).bytes(tokens, sequence, group)
    live = model.saved_by_block(compute).bytes(tokens, sequence, group)
    if workload.checkpointing:
        between = model.blocks * tokens * model.hidden * (2 if compute == "bf16" else 4)
        # While a block is computed again, what it keeps is there as well.
        layers, again = between, between + live
    else:
        layers, again = kept, 0
    # Each stage has its part of the layers, of as many batches as are under way.
    under_way = min(stages, workload.accumulation)
    layers = _up(layers, stages) * under_way
    head = tokens * ((16 if model.capped else 12) * model.vocabulary + 8 * model.hidden)
    # Autocast keeps the weights in 16 bits until backward is done with them.
    casts = 2 * _up(model.parameters, stages) if by_torch and workload.compute == "autocast" else 0
    if workload.lora:
        # Those that are frozen are in 16 bits already.
        casts = min(casts, 2 * workload.trained(model))
    there = gradients if workload.accumulation > 1 else 0
    at_loss = layers + head + casts + there
    at_recomputation = again + casts + there if again else 0
    # At the end of backward one block is left, and the embedding's two gradients where it is tied.
    tied = 8 * model.vocabulary * model.hidden if model.tied and by_torch and not workload.lora else 0
    if compute == "bf16":
        tied //= 2
    at_end = gradients + max(tied, live)
    in_step = (
        gradients + workload.step_copies * workload.weight_bytes * workload.trained(model) // strategy.devices
    )
    return max(at_loss, at_recomputation, at_end, in_step) - gradients
