"""What one transformer block keeps from forward for backward, family by family, in bytes for each token.

The coefficients are those of the tensors that autograd saved in transformers 5.23 with PyTorch's
scaled_dot_product_attention, each storage once, without parameters: two depths were compared, over random
shapes. Dropout counts its mask of one byte, where a family's default has dropout. DeepSeek's are by its
modules. Of tensors in which the width of the heads equals the hidden size, those that tensor parallelism
divides are counted by the heads.
"""

from __future__ import annotations

from gputui.inventory.light_dataclasses import dataclass
from gputui.planning.model import SavedBytes

Saved = tuple[SavedBytes, SavedBytes, SavedBytes]
"""By `model.COMPUTES`."""


@dataclass(frozen=True, slots=True)
class Form:
    """Bytes for each element of what a block is wide.

    hidden      of the hidden size;  attention  of heads × head width;  kv  of key/value heads × head width
    ffn         of the MLP's inner width (with experts: of one expert's, for each expert of a token)
    heads       of the number of heads: the logarithms that flash attention keeps
    scores      of heads, for each position of the sequence: attention that keeps its scores
    """

    hidden: float
    attention: float
    kv: float
    ffn: float
    heads: float = 4.0
    scores: float = 0.0


_LLAMA = (Form(16, 4, 4, 8), Form(26, 4, 4, 8), Form(24, 8, 8, 16))
_BERT = (Form(10, 8, 0, 4), Form(18, 8, 0, 4), Form(18, 16, 0, 8))

FORMS: dict[str, tuple[Form, Form, Form]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "granite": _LLAMA,
    "smollm3": _LLAMA,
    "mixtral": _LLAMA,
    "qwen3": (Form(16, 10, 10, 8, 10), Form(26, 10, 10, 8, 10), Form(24, 16, 16, 16, 10)),
    "qwen2_moe": (Form(18, 4, 4, 8), Form(32, 4, 4, 8), Form(28, 8, 8, 16)),
    "gemma": (Form(20, 4, 4, 8), Form(26, 4, 4, 8), Form(24, 8, 8, 16)),
    "gemma2": (Form(36, 8, 0, 8, 4, 8), Form(42, 8, 0, 8, 4, 8), Form(40, 16, 0, 16, 4, 8)),
    "gemma3_text": (Form(36, 12, 12, 8, 16), Form(42, 12, 12, 8, 16), Form(40, 16, 16, 16, 16)),
    "phi": (Form(6, 4, 4, 10), Form(14, 4, 4, 10), Form(12, 8, 8, 20)),
    "phi normed": (Form(6, 6, 6, 10, 10), Form(14, 6, 6, 10, 10), Form(12, 12, 12, 20, 10)),
    "phi3": (Form(16, 8, 6, 8), Form(20, 8, 6, 8), Form(24, 16, 12, 16)),
    "falcon": (Form(8, 6, 2, 4), Form(12, 6, 2, 4), Form(16, 12, 4, 8)),
    # (Key/value heads that are spread over the queries' heads: kernels that keep no scores do not take them.)
    "falcon multi-query": (
        Form(12, 6, 2, 4, 0.5, 4),
        Form(16, 6, 2, 4, 0.5, 4),
        Form(16, 8, 4, 8, 0.5, 4),
    ),
    "opt": (Form(10, 8, 0, 2), Form(18, 8, 0, 2), Form(18, 16, 0, 4)),
    "gpt2": (Form(10, 8, 0, 10), Form(16.5, 8, 0, 10), Form(18, 16, 0, 20)),
    "gpt_neox": (Form(12, 8, 0, 4), Form(14, 8, 0, 4), Form(24, 16, 0, 8)),
    "gptj": (Form(8, 8, 0, 10, 2, 6), Form(12, 8, 0, 10, 2, 6), Form(8, 16, 0, 20, 3, 4)),
    "bloom": (Form(8, 8, 0, 4, 2, 6), Form(12, 8, 0, 4, 2, 6), Form(16, 16, 0, 8, 2, 4)),
    "olmo": (Form(12, 4, 4, 8), Form(18, 4, 4, 8), Form(16, 8, 8, 16)),
    "olmo2": (Form(20, 12, 12, 8), Form(26, 12, 12, 8), Form(24, 16, 16, 16)),
    "cohere": (Form(14, 4, 4, 8), Form(22, 4, 4, 8), Form(16, 8, 8, 16)),
    "cohere normed": (Form(14, 16, 16, 8, 10), Form(22, 16, 16, 8, 10), Form(16, 20, 20, 16, 10)),
    "bert": _BERT,
    "roberta": _BERT,
    "vit": (Form(8, 8, 0, 4), Form(16, 8, 0, 4), Form(16, 16, 0, 8)),
    # Of a block of the encoder and one of the decoder together; attention keeps scores, masks and products.
    "t5": (Form(55, 42, 0, 10, 0, 27), Form(67, 42, 0, 10, 0, 27), Form(65, 48, 0, 18, 0, 27)),
    "t5 gated": (Form(55, 42, 0, 30, 0, 27), Form(71, 42, 0, 30, 0, 27), Form(65, 48, 0, 58, 0, 27)),
    # The heads' width is that of query and key; latent ranks are counted as key/value width.
    "deepseek": (Form(18, 14, 10, 8), Form(26, 12, 8, 8), Form(24, 24, 16, 16)),
}

_EXPERT_HIDDEN = (4.0, 8.0, 8.0)
_EXPERT_FFN = (8.0, 16.0, 16.0)
"""Bytes for each element of the hidden size and of an expert's width, for each expert that a token goes to.

Grouped matrix products are not on autocast's list: with it, experts compute in 32 bits.
"""


def saved(
    form: str,
    *,
    hidden: int,
    attention: int,
    kv: int,
    ffn: int,
    heads: int,
    experts_per_token: int = 0,
    expert_ffn: int = 0,
) -> Saved:
    """What one block keeps for each token. Widths in elements; `ffn` of the MLP that every token passes."""

    def one(place: int) -> SavedBytes:
        each = FORMS[form][place]
        experts = experts_per_token * expert_ffn * _EXPERT_FFN[place]
        return SavedBytes(
            each.hidden * hidden + experts_per_token * hidden * _EXPERT_HIDDEN[place],
            each.attention * attention + each.kv * kv + each.ffn * ffn + each.heads * heads + experts,
            each.scores * heads,
        )

    return one(0), one(1), one(2)
