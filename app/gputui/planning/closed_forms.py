"""Closed forms: from a configuration to the exact size of the model, for the families in `FAMILIES`.

They count the model that transformers 5 builds from the configuration: `AutoModelForCausalLM` for decoders,
`AutoModelForSeq2SeqLM` for T5, `AutoModel` for encoders, with its pooler and without a task's head. A missing
field has the default of the family's configuration class, as in transformers.

Most families are a row of facts that `_decoder` reads. Other families have a function of their own
(`Family.form`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.planning.fields import Fields
from gputui.planning.model import (
    Cache,
    Model,
    PlanningError,
    Saved,
    SavedBytes,
    UnknownArchitectureError,
)
from gputui.planning.saved_forms import FORMS, saved

_SIZES = """
             vocabulary hidden layers heads key-value head    ffn positions
llama             32000   4096     32    32         -    -  11008      2048
mistral           32000   4096     32    32         8    -  14336    131072
mixtral           32000   4096     32    32         8    -  14336    131072
qwen2            151936   4096     32    32        32    -  22016     32768
qwen2_moe        151936   2048     24    16        16    -   5632     32768
qwen3            151936   4096     32    32        32  128  22016     32768
qwen3_moe        151936   2048     24    32         4    -   6144     32768
gemma            256000   3072     28    16        16  256  24576      8192
gemma2           256000   2304     26     8         4  256   9216      8192
gemma3_text      262208   2304     26     8         4  256   9216    131072
smollm3          128256   2048     36    16         4    -  11008     32768
granite           32000   4096     32    32         -    -  11008      2048
olmo              50304   4096     32    32         -    -  11008      2048
olmo2             50304   4096     32    32         -    -  11008      2048
cohere           256000   8192     40    64         -    -  22528      8192
cohere2          256000   8192     40    64         -    -  22528      8192
phi               51200   2048     24    32         -    -   8192      2048
phi3              32064   3072     32    32         -    -   8192      4096
deepseek_v2      102400   4096     32    32         -    -  11008      2048
deepseek_v3      129280   7168     61   128       128    -  18432      4096
gpt2              50257    768     12    12         -    -      -      1024
gptj              50400   4096     28    16         -    -      -      2048
gpt_neox          50432   6144     44    64         -    -  24576      2048
bloom            250880     64      2     8         -    -      -         -
opt               50272    768     12    12         -    -   3072      2048
falcon            65024   4544     32    71         -    -      -      2048
bert              30522    768     12    12         -    -   3072       512
roberta           50265    768     12    12         -    -   3072       512
vit                   -    768     12    12         -    -   3072         -
t5                32128    512      6     8         -   64   2048         -
"""
"""The defaults of each family's configuration class. A dash under "key-value" means the number of heads,
under "head" the hidden size divided by the heads, under "ffn" four times the hidden size. Under "positions"
and "vocabulary" it means that the family has none."""

_DEFAULTS = {
    kind: tuple(0 if each == "-" else int(each) for each in numbers)
    for kind, *numbers in map(str.split, _SIZES.strip().splitlines()[1:])
}


@frozen
class Shape:
    """The sizes that the forms of all families need; `kv` and `heads` are numbers of heads.

    Raises PlanningError where no attention can have these.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv: int
    head_dim: int
    ffn: int
    positions: int | None

    def __post_init__(self) -> None:
        if self.heads % self.kv:
            raise PlanningError(f"{self.kv} key/value heads do not divide the {self.heads} heads")

    @property
    def attention(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_values(self) -> int:
        return self.kv * self.head_dim


def _shape(fields: Fields, kind: str) -> Shape:
    """The shape, with a family's defaults. Null key/value heads mean as many as heads."""
    vocab, hidden, layers, heads, kv, head_dim, ffn, positions = _DEFAULTS[kind]
    wide = fields.whole("hidden_size", "n_embd", "n_embed", "d_model", default=hidden)
    of_heads = fields.whole("num_attention_heads", "n_head", "num_heads", default=heads)
    missing = of_heads if not kv or fields.null("num_key_value_heads") else kv
    width = fields.whole("head_dim", "d_kv", default=head_dim)
    if not width and wide % of_heads:
        raise PlanningError(f"{fields.source}: {of_heads} heads do not divide the hidden size {wide}")
    own_ffn = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size")
    return Shape(
        vocab=fields.whole("vocab_size", default=vocab),
        hidden=wide,
        layers=fields.layers("num_hidden_layers", "n_layer", "num_layers", default=layers),
        heads=of_heads,
        kv=fields.whole("num_key_value_heads", default=missing),
        head_dim=width or wide // of_heads,
        ffn=fields.whole(*own_ffn, default=ffn or 4 * wide),
        positions=fields.whole("max_position_embeddings", "n_positions", default=positions)
        if positions
        else None,
    )


class Module(NamedTuple):
    """One module with parameters of its own.

    parameters  of this module alone, without those of modules within it
    adapted     inputs + outputs of a linear layer that LoRA adapts, else 0
    """

    parameters: int
    adapted: int = 0


def _linear(inputs: int, outputs: int, bias: bool = False, adapted: bool = True) -> Module:
    return Module(inputs * outputs + (outputs if bias else 0), inputs + outputs if adapted else 0)


def _embedding(rows: int, width: int) -> Module:
    return Module(rows * width)


def _norm(width: int, bias: bool = False) -> Module:
    """A norm with a weight, and with `bias` the bias of LayerNorm."""
    return Module(width * (2 if bias else 1))


@frozen
class Block:
    """`count` identical transformer blocks.

    saved  the bytes that one block keeps for backward, for each token, by `model.COMPUTES`
    """

    modules: tuple[Module, ...]
    saved: Saved
    count: int = 1

    @property
    def parameters(self) -> int:
        """The parameters of one block."""
        return sum(module.parameters for module in self.modules)


def _model(
    shape: Shape,
    root: Iterable[Module],
    blocks: Iterable[Block],
    head: Module | None = None,
    tied: bool = False,
    **facts: Any,
) -> Model:
    """The model that these modules make; `closed_form` adds its family.

    root   modules outside the blocks: embeddings, the last norm
    head   predicts the vocabulary. Where it is `tied`, its parameters are those of the embedding: it counts
           as a layer, but its parameters do not count twice
    facts  other fields of `Model`
    """
    used = [block for block in blocks if block.count]
    outside = [*root, *([] if head is None else [head])]
    stored = sum(module.parameters for module in outside)
    if tied and head is not None:
        stored -= head.parameters
    within = [(module, block.count) for block in used for module in block.modules]
    return Model(
        name="",
        architecture="",
        parameters=stored + sum(module.parameters * count for module, count in within),
        largest_layer=max(module.parameters for module in (*outside, *(module for module, _ in within))),
        largest_block=max(block.parameters for block in used),
        blocks=sum(block.count for block in used),
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv,
        vocabulary=0 if head is None else shape.vocab,
        tied=tied,
        wrap_class=None,
        adapted=sum(module.adapted * count for module, count in within),
        saved=tuple(
            sum((each.times(block.count) for each, block in zip(one, used, strict=True)), SavedBytes(0, 0))
            for one in zip(*(block.saved for block in used), strict=True)
        ),
        saved_block=tuple(
            max(one, key=lambda saved: saved.bytes(1, 1024))
            for one in zip(*(block.saved for block in used), strict=True)
        ),
        max_positions=shape.positions,
        ffn=shape.ffn,
        **facts,
    )


Said = bool | tuple[str, bool]
"""A yes or no: fixed for the whole family, or read from a field of the configuration, with its default."""

_BIAS: Said = ("attention_bias", False)


@frozen
class Experts:
    """The default experts of a family's layers. The configuration says which layers have them.

    ffn     the inner width of one expert; 0 for the MLP's width
    shared  experts that every token passes
    gated   the inner width of an MLP that every token passes, with a gate of its own
    dense   layers at the beginning that have no experts
    """

    count: int
    per_token: int
    ffn: int = 0
    shared: int = 0
    gated: int = 0
    dense: int = 0


@frozen
class Family:
    """A model type of transformers: its classes, and the parts of a decoder's blocks.

    name, block, counts
                  its classes: `wrap_class` is its transformer block, which FSDP wraps; `counted` is the model
                  that the form counts
    qkv, out      whether the projections into attention, and out of it, have biases
    joined        one projection makes queries, keys and values, and one makes both halves of a gated MLP
    gated, mlp    whether the MLP has a gate, and whether it has biases
    norms, layer_norm
                  the number of norms of a block, and whether norms have biases (LayerNorm)
    head_norms    whether queries and keys are normed: each head, or with `whole_norms` all heads together
    last          the number of norms outside the blocks
    places        whether there is an embedding of positions
    tied          whether the head uses the embedding's weights by default
    latent        whether attention is DeepSeek's multi-head latent attention
    capped        whether logits pass a soft cap
    form          the function that makes the model, where it is not `_decoder`
    """

    name: str
    block: str = "DecoderLayer"
    counts: str = "ForCausalLM"
    qkv: Said = False
    out: Said = False
    joined: bool = False
    gated: bool = True
    mlp: Said = False
    norms: int = 2
    layer_norm: bool = False
    head_norms: Said = False
    whole_norms: bool = False
    last: int = 1
    places: bool = False
    tied: bool = False
    head_bias: bool = False
    latent: bool = False
    capped: bool = False
    experts: Experts | None = None
    form: Callable[[Fields, Family, str], Model] | None = None

    @property
    def wrap_class(self) -> str:
        return self.name + self.block

    @property
    def counted(self) -> str:
        return self.name + self.counts


def closed_form(fields: Fields, name: str) -> Model:
    """The model of a configuration. Raises PlanningError for an unknown family and for wrong fields."""
    kind = fields.text("model_type")
    architecture = fields.architecture
    if fields.has("text_config"):
        raise UnknownArchitectureError(printable(kind or architecture), "with parts other than text")
    if kind not in FAMILIES:
        by_class = {family.counted: known for known, family in FAMILIES.items()}
        if architecture not in by_class:
            raise UnknownArchitectureError(printable(kind or architecture or "a model without model_type"))
        kind = by_class[architecture]
    if fields.yes("add_cross_attention", False):
        raise UnknownArchitectureError(kind, "with cross attention")
    family = FAMILIES[kind]
    model = (family.form or _decoder)(fields, family, kind)
    notices = model.notices
    if architecture and architecture != family.counted:
        notices += (f"counted as {family.counted}; {printable(architecture)} differs by its head",)
    return replace(
        model, name=name, architecture=family.counted, wrap_class=family.wrap_class, notices=notices
    )


def _said(fields: Fields, said: Said) -> bool:
    return said if isinstance(said, bool) else fields.yes(*said)


def _attention(fields: Fields, family: Family, shape: Shape) -> tuple[Module, ...]:
    hidden, wide, kv = shape.hidden, shape.attention, shape.key_values
    qkv, out = _said(fields, family.qkv), _said(fields, family.out)
    into = (wide + 2 * kv,) if family.joined else (wide, kv, kv)
    return *(_linear(hidden, each, qkv) for each in into), _linear(wide, hidden, out)


def _mlp(family: Family, hidden: int, ffn: int, bias: bool) -> tuple[Module, ...]:
    into = (ffn,) if not family.gated else (2 * ffn,) if family.joined else (ffn, ffn)
    return *(_linear(hidden, each, bias) for each in into), _linear(ffn, hidden, bias)


def _kept_by(form: str, shape: Shape, **others: int) -> Saved:
    """The bytes that one block of this shape keeps for backward, for each token; `others`: other widths."""
    widths = {"attention": shape.attention, "kv": shape.key_values, "ffn": shape.ffn, **others}
    return saved(form, hidden=shape.hidden, heads=shape.heads, **widths)


def _decoder(fields: Fields, family: Family, kind: str) -> Model:
    """A decoder with the head of a language model, from its family's row."""
    shape = _shape(fields, kind)
    hidden, normed = shape.hidden, _said(fields, family.head_norms)
    attention, query, kv = _attention(fields, family, shape), shape.attention, shape.key_values
    if family.latent:
        attention, query, kv = _latent_attention(fields, hidden, shape.heads)
    if normed:
        widths = (query, kv) if family.whole_norms else (shape.head_dim, shape.head_dim)
        attention += tuple(_norm(width, family.layer_norm) for width in widths)
    common = *attention, *(_norm(hidden, family.layer_norm),) * family.norms
    mlp_bias = _said(fields, family.mlp)

    def block(count: int, more: Sequence[Module], ffn: int, per_token: int = 0, expert_ffn: int = 0) -> Block:
        dense = _mlp(family, hidden, ffn, mlp_bias) if ffn else ()
        form = f"{kind} normed" if normed and f"{kind} normed" in FORMS else kind
        experts = {"experts_per_token": per_token, "expert_ffn": expert_ffn}
        kept = _kept_by(form, shape, attention=query, kv=kv, ffn=ffn, **experts)
        return Block((*common, *more, *dense), kept, count)

    sparse = 0
    blocks = []
    if family.experts is not None:
        own = family.experts
        count = fields.whole(
            "n_routed_experts", "num_local_experts", "num_experts", default=own.count, least=0
        )
        sparse = _sparse_layers(fields, shape.layers, own.dense) if count else 0
        per_token = fields.whole("num_experts_per_tok", default=own.per_token)
        ffn = fields.whole("moe_intermediate_size", default=own.ffn or shape.ffn)
        shared = ffn * fields.whole("n_shared_experts", default=own.shared, least=0)
        # The router, and all experts of a layer, which are one module in transformers 5; LoRA adapts neither.
        more = [Module(count * hidden), Module(count * 3 * hidden * ffn)]
        if own.gated:
            shared = fields.whole("shared_expert_intermediate_size", default=own.gated)
            more.append(_linear(hidden, 1, adapted=False))
        blocks.append(block(sparse, more, shared, per_token, ffn))
    blocks.append(block(shape.layers - sparse, (), shape.ffn))
    root = [_embedding(shape.vocab, hidden), *[_norm(hidden, family.layer_norm)] * family.last]
    if family.places:
        root.append(_embedding(shape.positions or 0, hidden))
    if _tied(fields, family) and family.head_bias:
        root.append(Module(shape.vocab))
    capped = family.capped or fields.has("final_logit_softcapping")
    return _of_language(fields, family, shape, root, blocks, hidden, capped=capped)


def _tied(fields: Fields, family: Family) -> bool:
    return fields.yes("tie_word_embeddings", family.tied)


def _of_language(
    fields: Fields,
    family: Family,
    shape: Shape,
    root: Iterable[Module],
    blocks: Iterable[Block],
    width: int,
    **facts: Any,
) -> Model:
    """The model with a head, which predicts the vocabulary from vectors of this width."""
    head = _linear(width, shape.vocab, family.head_bias, adapted=False)
    cache = _cache_of(fields, shape, family.latent)
    return _model(shape, root, blocks, head, _tied(fields, family), cache=cache, **facts)


_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
"""The default interval of the layers that keep all tokens, by model type; the others keep a window."""


def _cache_of(fields: Fields, shape: Shape, latent: bool = False) -> Cache | None:
    """The KV cache by the names of fields that nearly all models use; None where they mean something else."""
    try:
        window = fields.whole("sliding_window", default=0, least=0)
        kinds, layers = fields.words("layer_types"), shape.layers
        if kinds:
            layers = kinds.count("full_attention")
        elif window and fields.yes("use_sliding_window", True):
            every = fields.layers(
                "sliding_window_pattern",
                "_sliding_window_pattern",
                default=_PATTERNS.get(fields.text("model_type"), 1),
            )
            layers = shape.layers // every if every > 1 else 0
        sliding = shape.layers - layers
        if kinds:
            sliding = sum("sliding" in each or "chunked" in each for each in kinds)
        heads, width = shape.kv, 2 * shape.head_dim
        if latent or fields.has("kv_lora_rank"):
            heads, width = 1, fields.whole("kv_lora_rank", default=512)
            width += fields.whole("qk_rope_head_dim", default=64)
    except PlanningError:
        return None
    return Cache(layers, sliding, window, heads, width)


def _sparse_layers(fields: Fields, layers: int, dense: int) -> int:
    """The number of layers with experts."""
    begin = fields.whole("first_k_dense_replace", default=dense, least=0)
    without, step = set(fields.numbers("mlp_only_layers")), fields.whole("decoder_sparse_step", default=1)
    return sum(place not in without and (place + 1) % step == 0 for place in range(begin, layers))


def _latent_attention(fields: Fields, hidden: int, heads: int) -> tuple[tuple[Module, ...], int, int]:
    """Multi-head latent attention: queries, and keys with values, pass through low ranks of their own.

    The modules, the width of the heads of all queries, and the sum of the ranks.
    """
    bias = _said(fields, _BIAS)
    q_rank = 0 if fields.null("q_lora_rank") else fields.whole("q_lora_rank", default=1536)
    kv_rank = fields.whole("kv_lora_rank", default=512)
    rope = fields.whole("qk_rope_head_dim", default=64)
    nope = fields.whole("qk_nope_head_dim", default=128)
    value = fields.whole("v_head_dim", default=128)
    width = heads * (nope + rope)
    low_rank = (_linear(hidden, q_rank, bias), _norm(q_rank), _linear(q_rank, width))
    modules = (
        *(low_rank if q_rank else (_linear(hidden, width),)),
        _linear(hidden, kv_rank + rope, bias),
        _norm(kv_rank),
        _linear(kv_rank, heads * (nope + value)),
        _linear(heads * value, hidden, bias),
    )
    return modules, width, q_rank + kv_rank


# Families without a row


def _plain_block(fields: Fields, family: Family, shape: Shape, form: str, norms: int = 2) -> Block:
    """All blocks of a model, with LayerNorms."""
    mlp = _mlp(family, shape.hidden, shape.ffn, _said(fields, family.mlp))
    modules = *_attention(fields, family, shape), *mlp, *(_norm(shape.hidden, True),) * norms
    return Block(modules, _kept_by(form, shape), shape.layers)


def _opt(fields: Fields, family: Family, kind: str) -> Model:
    """OPT: positions begin at 2; the embedding may be narrower than the blocks (`word_embed_proj_dim`)."""
    shape = _shape(fields, kind)
    hidden, weights = shape.hidden, fields.yes("layer_norm_elementwise_affine", True)
    narrow = fields.whole("word_embed_proj_dim", default=hidden)
    root = [_embedding(shape.vocab, narrow), _embedding((shape.positions or 0) + 2, hidden)]
    if narrow != hidden:
        root += _linear(narrow, hidden, adapted=False), _linear(hidden, narrow, adapted=False)
    last = fields.yes("do_layer_norm_before", True) and not fields.yes("_remove_final_layer_norm", False)
    if weights and last:
        root.append(_norm(hidden, True))
    block = _plain_block(fields, family, shape, kind, 2 if weights else 0)
    return _of_language(fields, family, shape, root, [block], narrow)


def _falcon(fields: Fields, family: Family, kind: str) -> Model:
    """Falcon: key/value heads in groups, one for all queries, or one for each head."""
    newer, multi_query = fields.yes("new_decoder_architecture", False), fields.yes("multi_query", True)
    shape = _shape(fields, kind)
    groups = fields.whole("num_kv_heads", default=shape.heads)
    kv = groups if newer else 1 if multi_query else shape.heads
    shape = replace(shape, kv=kv)
    norms = 2
    if fields.yes("parallel_attn", True):
        norms = 2 if fields.whole("num_ln_in_parallel_attn", default=2 if newer else 1) == 2 else 1
    form = "falcon multi-query" if multi_query and not newer else kind
    block = _plain_block(fields, family, shape, form, norms)
    root = _embedding(shape.vocab, shape.hidden), _norm(shape.hidden, True)
    return _of_language(fields, family, shape, root, [block], shape.hidden)


def _bert(fields: Fields, family: Family, kind: str) -> Model:
    shape = _shape(fields, kind)
    hidden = shape.hidden
    root = (
        _embedding(shape.vocab, hidden),
        _embedding(shape.positions or 0, hidden),
        _embedding(fields.whole("type_vocab_size", default=2), hidden),
        _norm(hidden, True),
        _linear(hidden, hidden, True, adapted=False),
    )
    return _model(shape, root, [_plain_block(fields, family, shape, kind)])


def _vit(fields: Fields, family: Family, kind: str) -> Model:
    shape = _shape(fields, kind)
    hidden = shape.hidden
    image, patch = fields.whole("image_size", default=224), fields.whole("patch_size", default=16)
    places = (image // patch) ** 2 + 1
    root = (
        Module(hidden + places * hidden),
        Module(fields.whole("num_channels", default=3) * patch * patch * hidden + hidden),
        _norm(hidden, True),
        _linear(hidden, fields.whole("pooler_output_size", default=hidden), True, adapted=False),
    )
    return _model(shape, root, [_plain_block(fields, family, shape, kind)], sequence=places)


def _t5(fields: Fields, family: Family, kind: str) -> Model:
    """T5: encoder and decoder. transformers 5 ties the embeddings, whatever the configuration says."""
    shape = _shape(fields, kind)
    hidden = shape.hidden
    if fields.text("feed_forward_proj", "relu").startswith("gated"):
        family, kind = replace(family, gated=True), "t5 gated"
    attention = (*_attention(fields, family, shape), _norm(hidden))
    mlp = (*_mlp(family, hidden, shape.ffn, False), _norm(hidden))
    bias = _embedding(fields.whole("relative_attention_num_buckets", default=32), shape.heads)
    kept = _kept_by(kind, shape)
    blocks = []
    for layers, attentions in (
        (shape.layers, 1),
        (fields.layers("num_decoder_layers", default=shape.layers), 2),
    ):
        # The form describes a pair of blocks: the encoder has one of the three attentions, the decoder two.
        share = tuple(each.times(attentions / 3) for each in kept)
        modules = attention * attentions + mlp
        # The first block of each stack has the position biases.
        blocks += [Block((*modules, bias), share), Block(modules, share, layers - 1)]
    root = (_embedding(shape.vocab, hidden), _norm(hidden), _norm(hidden))
    head = _linear(hidden, shape.vocab, adapted=False)
    notices = ("the decoder's sequence is counted as long as the encoder's",)
    return _model(shape, root, blocks, head, tied=True, notices=notices)


def _of_gpt(name: str, block: str = "DecoderLayer", counts: str = "ForCausalLM", **facts: Any) -> Family:
    """A family like GPT: LayerNorm, an MLP of two layers, and biases everywhere unless `facts` differ."""
    usual = {"qkv": True, "out": True, "gated": False, "mlp": True, "layer_norm": True}
    return Family(name, block, counts, **{**usual, **facts})


FAMILIES: dict[str, Family] = {
    "llama": Family("Llama", qkv=_BIAS, out=_BIAS, mlp=("mlp_bias", False)),
    "granite": Family("Granite", qkv=_BIAS, out=_BIAS, mlp=("mlp_bias", False)),
    "smollm3": Family("SmolLM3", qkv=_BIAS, out=_BIAS, mlp=("mlp_bias", False), tied=True),
    "mistral": Family("Mistral"),
    "mixtral": Family("Mixtral", experts=Experts(8, 2)),
    "qwen2": Family("Qwen2", qkv=True),
    "qwen2_moe": Family("Qwen2Moe", qkv=("qkv_bias", True), experts=Experts(60, 4, 1408, gated=5632)),
    "qwen3": Family("Qwen3", qkv=_BIAS, out=_BIAS, head_norms=True),
    "qwen3_moe": Family("Qwen3Moe", qkv=_BIAS, out=_BIAS, head_norms=True, experts=Experts(128, 8, 768)),
    "gemma": Family("Gemma", qkv=_BIAS, out=_BIAS, tied=True),
    "gemma2": Family("Gemma2", qkv=_BIAS, out=_BIAS, norms=4, tied=True, capped=True),
    "gemma3_text": Family("Gemma3", qkv=_BIAS, out=_BIAS, norms=4, head_norms=True, tied=True),
    # OLMo's norms have no weights.
    "olmo": Family("Olmo", qkv=_BIAS, out=_BIAS, norms=0, last=0),
    "olmo2": Family("Olmo2", qkv=_BIAS, out=_BIAS, head_norms=True, whole_norms=True),
    # Attention and MLP run in parallel, under one norm.
    "cohere": Family(
        "Cohere",
        qkv=_BIAS,
        out=_BIAS,
        norms=1,
        head_norms=("use_qk_norm", False),
        whole_norms=True,
        tied=True,
    ),
    "cohere2": Family("Cohere2", qkv=_BIAS, out=_BIAS, norms=1, tied=True),
    "phi3": Family("Phi3", joined=True),
    "deepseek_v2": Family(
        "DeepseekV2", latent=True, mlp=("mlp_bias", False), experts=Experts(64, 6, 1407, shared=2)
    ),
    "deepseek_v3": Family("DeepseekV3", latent=True, experts=Experts(256, 8, 2048, shared=1, dense=3)),
    "gpt2": _of_gpt("GPT2", "Block", "LMHeadModel", joined=True, places=True, tied=True),
    "gptj": _of_gpt("GPTJ", "Block", qkv=False, out=False, norms=1, head_bias=True),
    "gpt_neox": _of_gpt(
        "GPTNeoX", "Layer", qkv=("attention_bias", True), out=("attention_bias", True), joined=True
    ),
    # One of the two norms outside the blocks is the embedding's.
    "bloom": _of_gpt("Bloom", "Block", joined=True, last=2, tied=True),
    "opt": _of_gpt(
        "OPT",
        qkv=("enable_bias", True),
        out=("enable_bias", True),
        mlp=("enable_bias", True),
        tied=True,
        form=_opt,
    ),
    "falcon": _of_gpt(
        "Falcon",
        qkv=("bias", False),
        out=("bias", False),
        mlp=("bias", False),
        joined=True,
        tied=True,
        form=_falcon,
    ),
    "phi": _of_gpt("Phi", norms=1, head_norms=("qk_layernorm", False), head_bias=True),
    "bert": _of_gpt("Bert", "Layer", "Model", form=_bert),
    "roberta": _of_gpt("Roberta", "Layer", "Model", form=_bert),
    "vit": _of_gpt("ViT", "Layer", "Model", qkv=("qkv_bias", True), form=_vit),
    "t5": Family("T5", "Block", "ForConditionalGeneration", gated=False, form=_t5),
}
"""The families by the model type of a configuration."""
