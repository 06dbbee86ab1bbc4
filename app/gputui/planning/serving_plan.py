"""The plan of a server: how its model can be divided, and the requests that fit; the fewest devices first."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.formatting import GIB, printable, size
from gputui.inventory.light_dataclasses import replace
from gputui.planning.box import Box
from gputui.planning.memory import Bytes
from gputui.planning.model import Cache, Model, PlanningError
from gputui.planning.plan import Plan, Row, plan
from gputui.planning.serving import Held, Serving, activations, held, outside_torch, weights
from gputui.planning.strategies import Strategy
from gputui.planning.traffic import Exchange, Traffic
from gputui.planning.workload import Workload

_LARGE = 70 * GIB
"""The memory from which vLLM's defaults for a device are larger, except on the A100."""


def plan_for(model: Model, work: Workload | Serving, box: Box, grouping: Grouping = ALL_REDUCE) -> Plan:
    """The plan of a training or of a server. Raises PlanningError."""
    return serving_plan(model, work, box) if isinstance(work, Serving) else plan(model, work, box, grouping)


def serving_plan(model: Model, serving: Serving, box: Box) -> Plan:
    """All ways to divide the model among these devices. Raises PlanningError where there is none."""
    cache = model.cache
    if cache is None:
        raise PlanningError("the model does not generate text, or its KV cache is not known")
    if serving.layers is not None and serving.layers >= 0:
        # llama.cpp keeps the cache of a layer where the layer is.
        cache = replace(cache, layers=min(cache.layers, serving.layers))
    known = serving.for_devices(box.memory_total >= _LARGE and not box.a100)
    rows = [_row(model, known, cache, box, *sizes) for sizes in serving.sizes(model, len(box))]
    if not rows:
        tensor, stages = serving.tensor or 1, serving.pipeline or 1
        if tensor * stages > len(box):
            raise PlanningError(
                f"the command starts the server on {tensor * stages} GPUs, and there are {len(box)}"
            )
        if stages > model.layers:
            raise PlanningError(
                f"pipeline parallel {stages} needs as many layers, and there are {model.layers}"
            )
        raise PlanningError(
            f"tensor parallel {tensor} cannot divide {model.heads} heads, {model.kv_heads} of keys and values"
        )

    def rank(row: Row) -> tuple[bool, int, int, int]:
        lacks = 0 if row.fits else -(row.margin or 0)
        return not row.fits, lacks, row.strategy.devices, row.strategy.pipeline_parallel

    found = Plan(model, serving, box, tuple(sorted(rows, key=rank)), ())
    return found.having(_notices(model, serving))


def _row(model: Model, serving: Serving, cache: Cache, box: Box, tensor: int, stages: int) -> Row:
    strategy = Strategy("serve", tensor * stages, tensor, stages)
    free, total = box.memory_free_min or 0, box.memory_total
    budget = int(serving.taken * total) or free
    needs = weights(model, serving, tensor, stages)
    peak = activations(model, serving, tensor)
    fixed = outside_torch(serving, box, strategy.devices)
    left = budget - needs - peak - fixed
    holds = held(serving, cache, serving.tokens(model), max(0, left), tensor, stages)
    kept = max(left if serving.taken else 0, holds.request_bytes)
    margin = min(left - holds.request_bytes, free - budget if free < budget else left)
    known = box.memory_free_min is not None
    outcome, change = "free memory is not known", ""
    if known:
        outcome, change = _outcome(holds, left, free, budget, total)
    return Row(
        strategy,
        Bytes(needs, 0, 0, 0, peak, fixed, kept),
        margin >= 0 if known else None,
        margin if known else None,
        Traffic((Exchange("layers", 0, None),)),
        _what(strategy),
        f"{outcome}: would fit with {change}" if change else outcome,
        serving=holds,
        change=change,
    )


def _what(strategy: Strategy) -> str:
    if strategy.devices == 1:
        return "the whole model is on one device"
    return f"tensor parallel {strategy.tensor_parallel}, pipeline parallel {strategy.pipeline_parallel}"


def _outcome(holds: Held, left: int, free: int, budget: int, total: int) -> tuple[str, str]:
    """What the cache holds, or what lacks; and the change that makes it fit, "" where there is none."""
    if free < budget:
        share = 100 * free // total / 100
        enough = left - budget + int(share * total) >= holds.request_bytes
        change = f"a share of {share:.2f}" if enough else ""
        return f"{size(budget)} must be free, and {size(free)} are", change
    if holds.requests >= 1:
        many = (
            f"{holds.requests:.1f} requests of {holds.context:,} tokens at once, or one of {holds.longest:,}"
        )
        return f"{holds.tokens:,} tokens fit: {many}", ""
    if not holds.longest:
        if left < 0:
            return f"the weights do not fit: {size(-left)} too much", ""
        return "the weights leave no room for a KV cache", ""
    needs = f"a request of {holds.context:,} tokens needs {size(holds.request_bytes)} of KV cache"
    return f"{needs}, and {size(left)} are left", f"at most {holds.longest:,} tokens"


def _notices(model: Model, serving: Serving) -> Iterator[str]:
    yield from model.notices
    if serving.engine == "vLLM":
        yield (
            "the peak of a forward pass, with sampling, is estimated: it depends on vLLM's version; CUDA"
            " graphs, which versions up to 0.20 keep outside the share, are not counted"
        )
    yield from unquantized(model, serving)
    if model.max_positions and serving.tokens(model) > model.max_positions:
        yield f"the context is longer than the model's {model.max_positions} positions"
    if model.cache is not None and model.cache.layers + model.cache.sliding < model.layers:
        yield "layers without a KV cache (linear attention, Mamba) keep a state, which is not counted"


def unquantized(model: Model, serving: Serving) -> Iterator[str]:
    """Yield the note that the method of the command is for weights that are quantized already, and these are
    not."""
    if serving.quantization and not (model.bits or serving.weight_bits):
        method, able = printable(serving.quantization[:40]), ", ".join(serving.of.quantizes)
        yield (
            f"{method} is not counted: the model does not say that its weights are quantized, and"
            f" {serving.engine} itself quantizes with {able} only"
        )
