"""The bytes that one transformer block keeps from forward for backward, by family, for each token.

The coefficients are those of the tensors that autograd saved in transformers 5.23 with PyTorch's
scaled_dot_product_attention, each storage once, without parameters: two depths were compared, over random
shapes. Where a GPU keeps more than the CPU did, its bytes count (`_MATH`, gelu_new): an H200 with PyTorch
2.11. Where a family's default has dropout, its mask of one byte counts. DeepSeek's coefficients follow its
modules. Where the width of the heads equals the hidden size, tensors that tensor parallelism divides are
counted by the heads.
"""

from __future__ import annotations

from typing import NamedTuple

from gputui.planning.model import Saved, SavedBytes


class Form(NamedTuple):
    """The bytes for each element of each width of a block.

    hidden      the hidden size
    attention   heads × head width
    kv          key/value heads × head width
    ffn         the MLP's inner width (with experts: one expert's, for each expert of a token)
    heads       the number of heads: the logarithms that flash attention keeps
    scores      the number of heads, for each position of the sequence: attention that keeps its scores
    """

    hidden: float
    attention: float
    kv: float
    ffn: float
    heads: float
    scores: float


_TABLE = """
llama/mistral/mixtral/qwen2 |   16  4  4  8   4  0 |   26  4  4  8   4  0 |   24  8  8 16   4  0
granite/smollm3             |   16  4  4  8   4  0 |   26  4  4  8   4  0 |   24  8  8 16   4  0
qwen3/qwen3_moe             |   16 10 10  8  10  0 |   26 10 10  8  10  0 |   24 16 16 16  10  0
qwen2_moe                   |   18  4  4  8   4  0 |   32  4  4  8   4  0 |   28  8  8 16   4  0
gemma                       |   20  4  4  8   4  0 |   26  4  4  8   4  0 |   24  8  8 16   4  0
gemma2                      |   36  8  0  8   4  8 |   42  8  0  8   4  8 |   40 16  0 16   4  8
gemma3_text                 |   36 12 12  8  16  0 |   42 12 12  8  16  0 |   40 16 16 16  16  0
phi                         |    6  4  4 10   4  0 |   14  4  4 16   4  0 |   12  8  8 20   4  0
phi normed                  |    6  6  6 10  10  0 |   14  6  6 16  10  0 |   12 12 12 20  10  0
phi3                        |   16  8  6  8   4  0 |   20  8  6  8   4  0 |   24 16 12 16   4  0
falcon                      |    8  6  2  4   4  0 |   12  6  2  4   4  0 |   16 12  4  8   4  0
falcon multi-query          |   12  6  2  4 0.5  4 |   16  6  2  4 0.5  4 |   16  8  4  8 0.5  4
opt                         |   10  8  0  2   4  0 |   18  8  0  2   4  0 |   18 16  0  4   4  0
gpt2                        |   10  8  0 10   4  0 | 16.5  8  0 16   4  0 |   18 16  0 20   4  0
gpt_neox                    |   12  8  0  4   4  0 |   14  8  0  4   4  0 |   24 16  0  8   4  0
gptj                        |    8  8  0 10   2  6 |   12  8  0 16   2  6 |    8 16  0 20   3  4
bloom                       |    8  8  0  4   2  6 |   12  8  0  4   2  6 |   16 16  0  8   2  4
olmo                        |   12  4  4  8   4  0 |   18  4  4  8   4  0 |   16  8  8 16   4  0
olmo2                       |   20 12 12  8   4  0 |   26 12 12  8   4  0 |   24 16 16 16   4  0
cohere/cohere2              |   14  4  4  8   4  0 |   22  4  4  8   4  0 |   16  8  8 16   4  0
cohere normed               |   14 16 16  8  10  0 |   22 16 16  8  10  0 |   16 20 20 16  10  0
bert/roberta                |   10  8  0  4   4  0 |   18  8  0  4   4  0 |   18 16  0  8   4  0
vit                         |    8  8  0  4   4  0 |   16  8  0  4   4  0 |   16 16  0  8   4  0
t5                          |   55 57  0 10   0  0 |   67 57  0 10   0  0 |   65 114 0 18   0  0
t5 gated                    |   55 57  0 30   0  0 |   71 57  0 46   0  0 |   65 114 0 58   0  0
deepseek_v2/deepseek_v3     |   18 14 10  8   4  0 |   26 12  8  8   4  0 |   24 24 16 16   4  0
"""
"""The fields of `Form` by model type, for each of `model.COMPUTES`: bf16 | autocast | fp32.

falcon multi-query  key/value heads are expanded to the queries' heads, which kernels that keep no scores do
                    not accept
t5                  one block of the encoder and one of the decoder together, on a GPU: unlike a CPU's, its
                    kernels take the bias of positions and keep no scores
deepseek            the heads' width is that of query and key; latent ranks count as key/value width
gelu_new            (gpt2, gptj, phi, gated t5) autocast computes its power of three in 32 bits on a GPU
"""

FORMS = {
    kind: tuple(Form(*map(float, group.split())) for group in groups)
    for kinds, *groups in (line.split("|") for line in _TABLE.strip().splitlines())
    for kind in kinds.strip().split("/")
}

_MATH = Form(0, 8, -8, 0, -3, 4)
"""What fp32 with fewer key/value heads than heads adds: no fused kernel of a GPU takes both, so attention
keeps its scores and the expanded keys and values."""
_EXPANDING = ("falcon", "falcon multi-query", "deepseek_v2", "deepseek_v3")
"""Families that expand keys and values themselves, before attention."""

_EXPERT_HIDDEN = (4.0, 8.0, 8.0)
_EXPERT_FFN = (8.0, 16.0, 16.0)
"""The bytes for each element of the hidden size and of an expert's width, for each expert of a token.

Grouped matrix products are not on autocast's list, so experts compute in 32 bits with autocast.
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
    """The bytes that one block keeps for each token.

    Widths are in elements; `ffn` is the width of the MLP that every token passes.
    """
    bf16, autocast, fp32 = FORMS[form]
    if kv < attention and not fp32.scores and form not in _EXPANDING:
        fp32 = Form(*map(sum, zip(fp32, _MATH, strict=True)))
    return tuple(
        SavedBytes(
            each.hidden * hidden + experts_per_token * hidden * of_hidden,
            each.attention * attention
            + each.kv * kv
            + each.ffn * ffn
            + each.heads * heads
            + experts_per_token * expert_ffn * of_ffn,
            each.scores * heads,
        )
        for each, of_hidden, of_ffn in zip((bf16, autocast, fp32), _EXPERT_HIDDEN, _EXPERT_FFN, strict=True)
    )
