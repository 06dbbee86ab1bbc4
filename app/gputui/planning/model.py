"""A model as the planner sees it: its parameters, its shape, and the activations that its layers keep.

Bytes and parameters are exact where `counted` says so; see `closed_forms.py` and `reading.py`.
"""

from __future__ import annotations

from typing import Literal

from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen

Compute = Literal["bf16", "autocast", "fp32"]
"""How a layer computes: all in 16 bits, in 16 bits with weights of 32 (torch.autocast), or all in 32 bits."""

COMPUTES: tuple[Compute, ...] = ("bf16", "autocast", "fp32")


class PlanningError(GputuiError, ValueError):
    """A model or a workload cannot be planned for. The message is one line that says what to give."""

    code, status = "wrong_call", 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class UnknownArchitectureError(PlanningError):
    """There is no closed form for an architecture, but its own code can count it; `architecture` names it."""

    def __init__(self, architecture: str, why: str = "") -> None:
        detail = f" {why}" if why else ""
        super().__init__(
            f"{architecture!r}{detail} has no closed form here; give its size (8B) as the model, or its"
            " safetensors files (for a server, their index is enough: model.safetensors.index.json)"
        )
        self.architecture = architecture


@frozen
class SavedBytes:
    """The bytes for each token that the layers of a model keep from forward for backward.

    replicated    those that each device of a tensor-parallel group holds whole: residual stream and norms
    sharded       those that the group divides: heads and the width of the MLP
    per_position  for each token and each position of the sequence: attention scores, where they are kept
    """

    replicated: float
    sharded: float
    per_position: float = 0.0

    def bytes(self, tokens: int, sequence: int, tensor_parallel: int = 1) -> int:
        """The bytes on one device for `tokens` tokens in sequences of length `sequence`."""
        divided = (self.sharded + self.per_position * sequence) / tensor_parallel
        return round(tokens * (self.replicated + divided))

    def __add__(self, other: SavedBytes) -> SavedBytes:
        return SavedBytes(
            self.replicated + other.replicated,
            self.sharded + other.sharded,
            self.per_position + other.per_position,
        )

    def times(self, count: float) -> SavedBytes:
        return SavedBytes(self.replicated * count, self.sharded * count, self.per_position * count)


@frozen
class Cache:
    """The shape of the KV cache of a decoder.

    layers   layers that keep all tokens of a request
    sliding  layers that keep a window of at most `window` tokens
    heads    key/value heads of a layer, which tensor parallelism divides; 1 where each device keeps them all
    width    elements that a head keeps for a token, of keys and values together
    """

    layers: int
    sliding: int
    window: int
    heads: int
    width: int


Saved = tuple[SavedBytes, ...]
"""The values for each of `COMPUTES`."""


@frozen
class Model:
    """One model. Sizes are numbers of parameters; widths are numbers of elements.

    architecture      the class of transformers that was counted ("LlamaForCausalLM"), "" where it is unknown
    parameters        all parameters, tied ones once
    largest_layer     parameters of the largest module by itself (DeepSpeed's meaning): often the embedding
    largest_block     parameters of the largest transformer block, which FSDP gathers as one
    blocks            the number of transformer blocks, of encoder and decoder together
    hidden, layers, heads, kv_heads, vocabulary
                      the shape; layers of one stack. `vocabulary` is the size of the head's output: 0 without
                      a head
    capped            whether logits pass a soft cap, which keeps them once more
    tied              whether the head uses the embedding's weights
    wrap_class        the class of the transformer block, which FSDP wraps ("LlamaDecoderLayer")
    max_positions     the longest sequence that the model was made for
    ffn               the inner width of an MLP, of all experts of a token together
    sequence          the length of its sequences where its inputs decide it (the patches of an image)
    adapted           Σ (inputs + outputs) of the linear layers that LoRA adapts: parameters for each rank
    saved, saved_block
                      the bytes that all layers, and the block with the most, keep for backward, by `COMPUTES`
    counted           how the parameters were counted: "closed form", "safetensors", "given", "transformers"
    notices           remarks on the count for the reader, each a sentence
    cache             what a request keeps while it is served; None where the model does not generate text
    bits              bits of a weight within the blocks, with its scales, where they are quantized; else 0
    stored            bytes of the weights' files where they are known; else 0
    """

    name: str
    architecture: str
    parameters: int
    largest_layer: int
    largest_block: int
    blocks: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    wrap_class: str | None
    adapted: int
    saved: Saved
    saved_block: Saved
    counted: str = "closed form"
    capped: bool = False
    max_positions: int | None = None
    sequence: int | None = None
    notices: tuple[str, ...] = ()
    ffn: int = 0
    cache: Cache | None = None
    bits: float = 0
    stored: int = 0

    @property
    def facts(self) -> str:
        """ "LlamaForCausalLM  8,030,261,248 parameters", and how they were counted, where not by its form.

        A number that was given is the model's name already.
        """
        if self.counted == "given":
            return "parameters (given)"
        counted = "" if self.counted == "closed form" else f" ({self.counted})"
        parts = printable(self.architecture), f"{self.parameters:,} parameters{counted}"
        return "  ".join(filter(None, parts))

    @property
    def outside_blocks(self) -> int:
        """The parameters outside the transformer blocks, with all blocks counted as large as the largest.

        A layer that is larger than a block is outside the blocks.
        """
        layer = self.largest_layer if self.largest_layer > self.largest_block else 0
        return max(layer, self.parameters - self.blocks * self.largest_block)
