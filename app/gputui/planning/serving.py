"""A model that is served: what its weights leave for the KV cache, and the requests that this holds.

The cache follows vLLM's own rules (vllm/v1/core/kv_cache_utils.py, vllm/v1/kv_cache_interface.py): blocks of
16 tokens; layers that keep all tokens and layers that keep a window are in groups of equal size, which share
the blocks. The peak of a forward pass depends on the version of a server; see `Engine`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from gputui.inventory.formatting import GIB, counted, printable
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.planning.box import Box
from gputui.planning.model import Cache, Model

MOST_TOKENS = 1 << 40


@frozen
class Engine:
    """How a server uses the memory of a device.

    share      the share that it takes by default; 0 where it takes only what it needs
    sequences, batched
               requests, and tokens, of one forward pass by default, which make its peak; `batched` is 0 where
               the peak is outside the share. vLLM takes four times as many on a device of 70 GiB, except for
               the A100 (vllm/engine/arg_utils.py: get_batch_defaults)
    sampler    bytes at the peak of sampling, for each sequence and each word of the vocabulary. vLLM's own
               logs show 40 up to 0.13, and 22 since 0.19
    block      tokens of a block of the cache
    layers     whether it divides layers among devices, not heads
    stages     whether it also puts layers in stages, if an option says so
    context    whether the CUDA context is part of the share
    quantizes  bits of a weight, by the methods with which it quantizes weights that are not quantized yet
    """

    share: float
    sequences: int = 1
    batched: int = 0
    sampler: int = 0
    block: int = 1
    layers: bool = False
    stages: bool = False
    context: bool = True
    quantizes: Mapping[str, int] = field(default_factory=dict)


_VLLM_QUANTIZES = {
    "fp8": 8,
    "bitsandbytes": 4,
    "fp8_per_tensor": 8,
    "fp8_per_block": 8,
    "mxfp8": 8,
    "mxfp4": 4,
}
_TGI_QUANTIZES = {"fp8": 8, "eetq": 8, "bitsandbytes": 8, "bitsandbytes-nf4": 4, "bitsandbytes-fp4": 4}

ENGINES: dict[str, Engine] = {
    "vLLM": Engine(0.92, 256, 2048, 32, 16, stages=True, context=False, quantizes=_VLLM_QUANTIZES),
    "SGLang": Engine(0.88, stages=True, quantizes={"fp8": 8, "bitsandbytes": 4}),
    "Text Generation Inference": Engine(0.95, 128, 4096, quantizes=_TGI_QUANTIZES),
    "llama.cpp": Engine(0, 512, 512, 4, layers=True),
}
"""By the names of the programs."""

_OUTSIDE, _PCIE = GIB // 4, GIB // 10
"""What vLLM counts beside torch's memory on one device, and what NCCL takes in addition over PCIe."""

ITEMS: dict[str, float] = {
    name: bits / 8
    for bits, names in {
        32: "f32",
        16: "auto f16 float16 half bf16 bfloat16",
        8.5: "q8_0",
        8: "fp8 fp8_e4m3 fp8_e5m2 fp8_inc fp8_ds_mla fp8_per_token_head int8_per_token_head",
        6: "q5_1",
        5.5: "q5_0",
        5: "q4_1",
        4.5: "q4_0 iq4_nl nvfp4 nvfp4_4over6 nvfp4_ds_mla fp4_e2m1",
        4: "int4_per_token_head",
    }.items()
    for name in names.split()
}
"""Bytes of an element of the cache by its type (vllm/config/cache.py: CacheDType; SGLang; llama.cpp)."""


@frozen
class Serving:
    """What a command says about the server that it starts. None: not said.

    context       the most tokens of a request; the model's own where it is not said
    share         of each device's memory
    cache_type    the type of the cache's elements
    sequences, batched
                  requests, and tokens, in one forward pass
    quantization  the method of quantized weights
    layers        layers on the devices, the others in the host's memory
    tensor, pipeline
                  devices that share each layer, and stages of layers
    adapters, rank
                  LoRA adapters that are in memory at once, and the rank of each
    element       bytes of a weight that is not quantized, and of what is computed
    """

    engine: str
    context: int | None = None
    share: float | None = None
    cache_type: str = ""
    sequences: int | None = None
    batched: int | None = None
    quantization: str = ""
    layers: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    adapters: int = 0
    rank: int = 16
    element: int = 2

    @property
    def of(self) -> Engine:
        return ENGINES[self.engine]

    @property
    def item(self) -> float:
        """The bytes of an element of the cache."""
        return self.element if self.cache_type in ("", "auto") else ITEMS[self.cache_type]

    @property
    def weight_bits(self) -> int:
        """Bits of a weight that the server itself quantizes when it loads; 0 where it does not."""
        return self.of.quantizes.get(self.quantization, 0)

    def for_devices(self, large: bool) -> Serving:
        """With the defaults of a server that the command leaves open; `large`: devices with vLLM's larger
        ones."""
        times = 4 if large and self.engine == "vLLM" else 1
        return replace(
            self,
            sequences=self.sequences or times * self.of.sequences,
            batched=self.batched or times * self.of.batched,
        )

    @property
    def taken(self) -> float:
        """The share of a device's memory that it takes; 0 where it takes only what it needs."""
        return self.of.share and (self.share or self.of.share)

    def tokens(self, model: Model) -> int:
        """The most tokens of a request."""
        return self.context or model.max_positions or 4096

    def sizes(self, model: Model, count: int) -> list[tuple[int, int]]:
        """The (tensor, pipeline) sizes for at most `count` devices: those of the command, else all that
        divide the heads, alone and with stages over all devices."""
        kv, numbers = max(1, model.kv_heads), range(1, count + 1)

        def divides(tensor: int, stages: int) -> bool:
            if self.of.layers:
                return tensor == 1
            most = count // tensor if self.of.stages or self.of.layers else 1
            usual = stages in (1, most) if self.pipeline is None else stages == self.pipeline
            heads = model.heads % tensor == 0 and 0 in (kv % tensor, tensor % kv)
            return usual and heads and self.tensor in (None, tensor)

        within = ((tensor, stages) for tensor in numbers for stages in numbers if tensor * stages <= count)
        return [sizes for sizes in within if sizes[1] <= max(1, model.layers) and divides(*sizes)]


@frozen
class Held:
    """What the cache holds.

    token_bytes    of a device, for each token in the layers that keep all tokens
    request_bytes  of a device, for a request of `context` tokens
    tokens         the tokens of all requests at once (vLLM's "GPU KV cache size")
    requests       requests of `context` tokens at once (vLLM's "Maximum concurrency")
    longest        the longest context of a single request
    """

    context: int
    token_bytes: int
    request_bytes: int
    tokens: int
    requests: float
    longest: int


def held(serving: Serving, cache: Cache, context: int, available: int, tensor: int, stages: int) -> Held:
    """What `available` bytes of the device with the most layers hold."""
    engine, block = serving.of, serving.of.block
    full, sliding = (-(-layers // stages) for layers in (cache.layers, cache.sliding))
    of_layer = -(-cache.heads // tensor) * cache.width * serving.item
    both = sorted(layers for layers in (full, sliding) if layers) or [1]
    # vLLM pads the smaller kind where the larger has less than a quarter more layers.
    unit = 1 if block == 1 else both[-1] if both[-1] < 1.25 * both[0] else both[0]
    page = block * of_layer * unit
    groups, windows = -(-full // unit), -(-sliding // unit)

    def blocks(tokens: int) -> int:
        seen = min(cache.window - 1 + (serving.batched or engine.batched), tokens)
        kept = -(-seen // block) + (block > 1) if windows else 0
        return groups * -(-tokens // block) + windows * kept

    pool, needed = max(0, int(available // page)), max(1, blocks(context))
    longest = bisect_right(range(1, MOST_TOKENS), pool, key=blocks) if groups else 0
    return Held(
        context=context,
        token_bytes=int(of_layer * full),
        request_bytes=int(needed * page),
        tokens=int(pool / needed * context),
        requests=pool / needed,
        longest=longest // block * block if groups else context if needed <= pool else 0,
    )


def weights(model: Model, serving: Serving, tensor: int, stages: int) -> int:
    """The bytes of weights on the device with the most: its part of the blocks, and embedding or head; and of
    LoRA adapters, for which vLLM reserves room for each linear layer and for the head (vllm/lora/layers)."""
    embedding = serving.element * model.vocabulary * model.hidden
    outside = embedding * (1 if model.tied else 2)
    bits = model.bits or serving.weight_bits
    inside = max(0, serving.element * model.parameters - outside)
    blocks = inside * bits / (8 * serving.element) if bits else inside
    if model.stored and model.bits:
        outside = min(outside, model.stored // 2)
        blocks = model.stored - outside
    layers = max(1, model.layers)
    on_device = layers if serving.layers is None or serving.layers < 0 else min(layers, serving.layers)
    part = blocks * -(-on_device // stages) / layers
    # llama.cpp counts what is outside the blocks as one more layer, the last one that leaves the host.
    head = outside if on_device == layers else 0
    # Of a layer that tensor parallelism divides by columns, A is whole on each device; by rows, B.
    whole = min(model.adapted, 7 * layers * model.hidden)
    each = (whole + (model.adapted - whole) / tensor) / stages + model.vocabulary + model.hidden
    adapters = serving.element * serving.adapters * serving.rank * each
    return int((part + (head if stages == 1 else head / 2)) / tensor + adapters)


def activations(model: Model, serving: Serving, tensor: int) -> int:
    """The bytes of the highest peak of a forward pass: of its tokens, or of sampling."""
    engine = serving.of
    batched = (serving.batched or 0) if engine.batched else 0
    forward = serving.element * batched * 3 * (-(-model.ffn // tensor) + model.hidden)
    return max(forward, engine.sampler * min(serving.sequences or 1, batched) * model.vocabulary)


def outside_torch(serving: Serving, box: Box, devices: int) -> int:
    """The bytes that a process takes besides: its context, and NCCL's buffers."""
    fixed = box.fixed(devices)
    if serving.of.context:
        return fixed
    nccl = fixed - box.context
    return _OUTSIDE + (nccl if box.all_direct else min(nccl, _PCIE))


def served(serving: Serving) -> str:
    """What a command says about its server, on one line."""
    parts = (
        (serving.taken, f"{serving.taken:.0%} of each device"),
        (serving.context, f"context {serving.context}"),
        (serving.cache_type, f"cache {printable(serving.cache_type[:20])}"),
        (serving.adapters, f"{counted(serving.adapters, 'LoRA adapter')} with rank {serving.rank}"),
        (serving.weight_bits, f"weights in {serving.weight_bits} bits"),
        (serving.element == 4, "float32"),
        (serving.layers is not None, f"{serving.layers} layers on devices"),
    )
    return "  ".join((serving.engine, *(text for said, text in parts if said)))
