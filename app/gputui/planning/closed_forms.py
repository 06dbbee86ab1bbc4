"""Closed forms: from a configuration to the modules of the model, exact for the families in `FAMILIES`.

They count what transformers 5 makes of the configuration: `AutoModelForCausalLM` for decoders,
`AutoModelForSeq2SeqLM` for T5, `AutoModel` for encoders, with its pooler and without a task's head. A field
that is missing has the default of the family's configuration class, as there.
"""

from __future__ import annotations

from collections.abc import Callable

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.planning.fields import Fields
from gputui.planning.model import Model, PlanningError, UnknownArchitectureError
from gputui.planning.modules import Block, Module, Modules, embedding, linear, norm
from gputui.planning.saved_forms import Saved, saved


@dataclass(frozen=True, slots=True)
class Shape:
    """What the forms of all families need. None of `kv`: as many as heads; of `head_dim`: hidden / heads."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv: int
    head_dim: int
    ffn: int
    positions: int | None

    @property
    def attention(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_values(self) -> int:
        return self.kv * self.head_dim


@dataclass(frozen=True, slots=True)
class Closed:
    """What a family's form gives."""

    shape: Shape
    modules: Modules
    tied: bool
    head: bool = True
    capped: bool = False
    experts: int = 0
    experts_per_token: int = 0
    sequence: int | None = None
    notices: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Family:
    """A model type of transformers. `wrap_class` is its transformer block, `counted` the class whose modules
    the form counts."""

    form: Callable[[Fields], Closed]
    wrap_class: str
    counted: str


def closed_form(fields: Fields, name: str) -> Model:
    """The model of a configuration. Raises PlanningError: no such family, wrong fields."""
    kind = fields.text("model_type")
    architecture = fields.first_text("architectures")
    if fields.has("text_config"):
        raise UnknownArchitectureError(printable(kind or architecture), "with parts beside its text")
    family = FAMILIES.get(kind) or FAMILIES.get(_BY_CLASS.get(architecture, ""))
    if family is None:
        raise UnknownArchitectureError(printable(kind or architecture or "a model without model_type"))
    kind = kind if kind in FAMILIES else _BY_CLASS[architecture]
    closed = family.form(fields)
    shape, modules = closed.shape, closed.modules
    notices = closed.notices
    if architecture and architecture != family.counted:
        notices += (f"counted as {family.counted}; {printable(architecture)} differs by its head",)
    if fields.has("quantization_config"):
        notices += ("the stored weights are quantized; counted as trained in the chosen precision",)
    return Model(
        name=name,
        architecture=family.counted,
        parameters=modules.parameters,
        largest_layer=modules.largest_layer,
        largest_block=modules.largest_block,
        blocks=sum(block.count for block in modules.blocks),
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv,
        head_dim=shape.head_dim,
        ffn=shape.ffn,
        vocabulary=shape.vocab if closed.head else 0,
        tied=closed.tied,
        family=kind,
        wrap_class=family.wrap_class,
        adapted=modules.adapted,
        saved=modules.saved,
        saved_block=modules.saved_block,
        capped=closed.capped,
        experts=closed.experts,
        experts_per_token=closed.experts_per_token,
        max_positions=shape.positions,
        sequence=closed.sequence,
        notices=notices,
    )


def _shape(
    fields: Fields,
    *,
    vocab: int,
    hidden: int,
    layers: int,
    heads: int,
    positions: int,
    ffn: int | None = None,
    kv: int | None = None,
    head_dim: int | None = None,
) -> Shape:
    """The shape, with a family's defaults. None of `ffn` is four times the hidden size, of `kv` as many as
    heads, of `head_dim` the hidden size divided by the heads. A null for key/value heads is as many as heads.
    """
    wide = fields.whole("hidden_size", "n_embd", "n_embed", "d_model", default=hidden)
    of_heads = fields.whole("num_attention_heads", "n_head", "num_heads", default=heads)
    missing = of_heads if kv is None or fields.null("num_key_value_heads") else kv
    width = fields.whole("head_dim", "d_kv", default=head_dim or 0, least=1)
    if not width and wide % of_heads:
        raise PlanningError(f"{fields.source}: {of_heads} heads do not divide the hidden size {wide}")
    return Shape(
        vocab=fields.whole("vocab_size", default=vocab),
        hidden=wide,
        layers=fields.layers("num_hidden_layers", "n_layer", "num_layers", default=layers),
        heads=of_heads,
        kv=fields.whole("num_key_value_heads", default=missing),
        head_dim=width or wide // of_heads,
        ffn=fields.whole("intermediate_size", "n_inner", "ffn_dim", "d_ff", default=ffn or 4 * wide),
        positions=fields.whole("max_position_embeddings", "n_positions", default=positions),
    )


def _attention(shape: Shape, qkv_bias: bool = False, out_bias: bool = False) -> tuple[Module, ...]:
    hidden, wide, kv = shape.hidden, shape.attention, shape.key_values
    return (
        linear(hidden, wide, qkv_bias),
        linear(hidden, kv, qkv_bias),
        linear(hidden, kv, qkv_bias),
        linear(wide, hidden, out_bias),
    )


def _gated(hidden: int, ffn: int, bias: bool = False) -> tuple[Module, ...]:
    """Projections of gate and up, and down."""
    return linear(hidden, ffn, bias), linear(hidden, ffn, bias), linear(ffn, hidden, bias)


def _plain(hidden: int, ffn: int, bias: bool = True) -> tuple[Module, ...]:
    return linear(hidden, ffn, bias), linear(ffn, hidden, bias)


def _experts(count: int, hidden: int, ffn: int) -> tuple[Module, ...]:
    """The router, and all experts of a layer: one module in transformers 5, which LoRA does not adapt."""
    return Module(count * hidden), Module(count * 3 * hidden * ffn)


def _saved(form: str, shape: Shape, ffn: int | None = None, per_token: int = 0, expert_ffn: int = 0) -> Saved:
    return saved(
        form,
        hidden=shape.hidden,
        attention=shape.attention,
        kv=shape.key_values,
        ffn=shape.ffn if ffn is None else ffn,
        heads=shape.heads,
        experts_per_token=per_token,
        expert_ffn=expert_ffn,
    )


def _alike(form: str, shape: Shape, *modules: Module) -> tuple[Block, ...]:
    """Blocks of which all are alike."""
    return (Block(modules, _saved(form, shape), shape.layers),)


def _decoder(
    fields: Fields,
    shape: Shape,
    blocks: tuple[Block, ...],
    *outside: Module,
    tied: bool,
    head_bias: bool = False,
    capped: bool = False,
    experts: int = 0,
    experts_per_token: int = 0,
) -> Closed:
    """A decoder with the head of a language model; `tied` is the family's default, `outside` what stands
    beside embedding, blocks and head.
    """
    head = linear(shape.hidden, shape.vocab, head_bias, adapted=False)
    root = (embedding(shape.vocab, shape.hidden), *outside)
    tied = fields.yes("tie_word_embeddings", tied)
    own_bias = (Module(shape.vocab),) if head_bias else ()
    modules = Modules((*root, *own_bias), blocks, (head,)) if tied else Modules((*root, head), blocks)
    return Closed(shape, modules, tied, True, capped, experts, experts_per_token)


# Families of Llama's kind


def _llama(fields: Fields) -> Closed:
    shape = _shape(
        fields, vocab=32000, hidden=4096, layers=32, heads=32, ffn=11008, positions=2048
    )  # also Granite, whose defaults are the same
    bias = fields.yes("attention_bias", False)
    hidden = shape.hidden
    mlp = _gated(hidden, shape.ffn, fields.yes("mlp_bias", False))
    blocks = _alike("llama", shape, *_attention(shape, bias, bias), *mlp, norm(hidden), norm(hidden))
    return _decoder(fields, shape, blocks, norm(hidden), tied=False)


def _mistral(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=32000, hidden=4096, layers=32, heads=32, kv=8, ffn=14336, positions=131072)
    hidden = shape.hidden
    modules = (*_attention(shape), *_gated(hidden, shape.ffn), norm(hidden), norm(hidden))
    return _decoder(fields, shape, _alike("mistral", shape, *modules), norm(hidden), tied=False)


def _mixtral(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=32000, hidden=4096, layers=32, heads=32, kv=8, ffn=14336, positions=131072)
    hidden = shape.hidden
    experts = fields.whole("num_local_experts", "num_experts", default=8)
    per_token = fields.whole("num_experts_per_tok", default=2)
    modules = (*_attention(shape), *_experts(experts, hidden, shape.ffn), norm(hidden), norm(hidden))
    blocks = (Block(modules, _saved("mixtral", shape, 0, per_token, shape.ffn), shape.layers),)
    return _decoder(
        fields, shape, blocks, norm(hidden), tied=False, experts=experts, experts_per_token=per_token
    )


def _qwen2(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=151936, hidden=4096, layers=32, heads=32, kv=32, ffn=22016, positions=32768)
    hidden = shape.hidden
    modules = (*_attention(shape, True), *_gated(hidden, shape.ffn), norm(hidden), norm(hidden))
    return _decoder(fields, shape, _alike("qwen2", shape, *modules), norm(hidden), tied=False)


def _qwen3(fields: Fields) -> Closed:
    shape = _shape(
        fields,
        vocab=151936,
        hidden=4096,
        layers=32,
        heads=32,
        kv=32,
        head_dim=128,
        ffn=22016,
        positions=32768,
    )
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    of_heads = (norm(shape.head_dim), norm(shape.head_dim))
    modules = (
        *_attention(shape, bias, bias),
        *of_heads,
        *_gated(hidden, shape.ffn),
        norm(hidden),
        norm(hidden),
    )
    return _decoder(fields, shape, _alike("qwen3", shape, *modules), norm(hidden), tied=False)


def _sparse_layers(fields: Fields, layers: int, experts: int) -> int:
    """How many layers of Qwen's have experts."""
    dense, step = set(fields.numbers("mlp_only_layers")), fields.whole("decoder_sparse_step", default=1)
    return sum(place not in dense and (place + 1) % step == 0 for place in range(layers)) if experts else 0


def _with_and_without(
    form: str,
    shape: Shape,
    common: tuple[Module, ...],
    dense: tuple[Module, ...],
    sparse: tuple[Module, ...],
    number_sparse: int,
    per_token: int,
    expert_ffn: int,
    shared_ffn: int,
) -> tuple[Block, ...]:
    """Blocks with experts and, where there are any, blocks without."""
    blocks = (
        Block(
            (*common, *sparse),
            _saved(form, shape, shared_ffn, per_token, expert_ffn),
            number_sparse,
        ),
        Block((*common, *dense), _saved(form, shape), shape.layers - number_sparse),
    )
    return tuple(block for block in blocks if block.count)


def _qwen2_moe(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=151936, hidden=2048, layers=24, heads=16, kv=16, ffn=5632, positions=32768)
    hidden = shape.hidden
    experts = fields.whole("num_experts", "num_local_experts", default=60, least=0)
    per_token = fields.whole("num_experts_per_tok", default=4)
    ffn = fields.whole("moe_intermediate_size", default=1408)
    shared = fields.whole("shared_expert_intermediate_size", default=5632)
    common = (*_attention(shape, fields.yes("qkv_bias", True)), norm(hidden), norm(hidden))
    sparse = (*_experts(experts, hidden, ffn), *_gated(hidden, shared), linear(hidden, 1, adapted=False))
    number = _sparse_layers(fields, shape.layers, experts)
    dense = _gated(hidden, shape.ffn)
    blocks = _with_and_without("qwen2_moe", shape, common, dense, sparse, number, per_token, ffn, shared)
    return _decoder(
        fields, shape, blocks, norm(hidden), tied=False, experts=experts, experts_per_token=per_token
    )


def _qwen3_moe(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=151936, hidden=2048, layers=24, heads=32, kv=4, ffn=6144, positions=32768)
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    experts = fields.whole("num_experts", "num_local_experts", default=128, least=0)
    per_token = fields.whole("num_experts_per_tok", default=8)
    ffn = fields.whole("moe_intermediate_size", default=768)
    of_heads = (norm(shape.head_dim), norm(shape.head_dim))
    common = (*_attention(shape, bias, bias), *of_heads, norm(hidden), norm(hidden))
    number = _sparse_layers(fields, shape.layers, experts)
    dense, sparse = _gated(hidden, shape.ffn), _experts(experts, hidden, ffn)
    blocks = _with_and_without("qwen3", shape, common, dense, sparse, number, per_token, ffn, 0)
    return _decoder(
        fields, shape, blocks, norm(hidden), tied=False, experts=experts, experts_per_token=per_token
    )


def _gemma(fields: Fields) -> Closed:
    shape = _shape(
        fields,
        vocab=256000,
        hidden=3072,
        layers=28,
        heads=16,
        kv=16,
        head_dim=256,
        ffn=24576,
        positions=8192,
    )
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    modules = (*_attention(shape, bias, bias), *_gated(hidden, shape.ffn), norm(hidden), norm(hidden))
    return _decoder(fields, shape, _alike("gemma", shape, *modules), norm(hidden), tied=True)


def _gemma2(fields: Fields, version: int = 2) -> Closed:
    shape = _shape(
        fields,
        vocab=262208 if version == 3 else 256000,
        hidden=2304,
        layers=26,
        heads=8,
        kv=4,
        head_dim=256,
        ffn=9216,
        positions=131072 if version == 3 else 8192,
    )
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    of_heads = (norm(shape.head_dim), norm(shape.head_dim)) if version == 3 else ()
    norms = (norm(hidden),) * 4
    modules = (*_attention(shape, bias, bias), *of_heads, *_gated(hidden, shape.ffn), *norms)
    form = "gemma3_text" if version == 3 else "gemma2"
    capped = version == 2 or fields.has("final_logit_softcapping")
    return _decoder(fields, shape, _alike(form, shape, *modules), norm(hidden), tied=True, capped=capped)


def _gemma3(fields: Fields) -> Closed:
    return _gemma2(fields, 3)


def _smollm3(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=128256, hidden=2048, layers=36, heads=16, kv=4, ffn=11008, positions=32768)
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    mlp = _gated(hidden, shape.ffn, fields.yes("mlp_bias", False))
    modules = (*_attention(shape, bias, bias), *mlp, norm(hidden), norm(hidden))
    return _decoder(fields, shape, _alike("smollm3", shape, *modules), norm(hidden), tied=True)


def _olmo(fields: Fields) -> Closed:
    """OLMo's norms have no weights."""
    shape = _shape(fields, vocab=50304, hidden=4096, layers=32, heads=32, ffn=11008, positions=2048)
    bias = fields.yes("attention_bias", False)
    modules = (*_attention(shape, bias, bias), *_gated(shape.hidden, shape.ffn))
    return _decoder(fields, shape, _alike("olmo", shape, *modules), tied=False)


def _olmo2(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=50304, hidden=4096, layers=32, heads=32, ffn=11008, positions=2048)
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    norms = (norm(shape.attention), norm(shape.key_values), norm(hidden), norm(hidden))
    modules = (*_attention(shape, bias, bias), *_gated(hidden, shape.ffn), *norms)
    return _decoder(fields, shape, _alike("olmo2", shape, *modules), norm(hidden), tied=False)


def _cohere(fields: Fields) -> Closed:
    """Attention and MLP side by side, under one norm."""
    shape = _shape(fields, vocab=256000, hidden=8192, layers=40, heads=64, ffn=22528, positions=8192)
    hidden, bias = shape.hidden, fields.yes("attention_bias", False)
    modules = (*_attention(shape, bias, bias), *_gated(hidden, shape.ffn), norm(hidden))
    normed = fields.text("model_type") == "cohere" and fields.yes("use_qk_norm", False)
    if normed:
        modules = (*modules, norm(shape.attention), norm(shape.key_values))
    form = "cohere normed" if normed else "cohere"
    return _decoder(fields, shape, _alike(form, shape, *modules), norm(hidden), tied=True)


def _phi3(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=32064, hidden=3072, layers=32, heads=32, ffn=8192, positions=4096)
    hidden = shape.hidden
    modules = (
        linear(hidden, shape.attention + 2 * shape.key_values),
        linear(shape.attention, hidden),
        linear(hidden, 2 * shape.ffn),
        linear(shape.ffn, hidden),
        norm(hidden),
        norm(hidden),
    )
    return _decoder(fields, shape, _alike("phi3", shape, *modules), norm(hidden), tied=False)


def _deepseek(fields: Fields, version: int) -> Closed:
    """Multi-head latent attention: queries, and keys with values, pass through ranks of their own."""
    third = version == 3
    shape = _shape(
        fields,
        vocab=129280 if third else 102400,
        hidden=7168 if third else 4096,
        layers=61 if third else 32,
        heads=128 if third else 32,
        kv=128 if third else None,
        ffn=18432 if third else 11008,
        positions=4096 if third else 2048,
    )
    hidden, heads = shape.hidden, shape.heads
    modules, head, rank = _latent_attention(fields, hidden, heads)
    common = (*modules, norm(hidden), norm(hidden))
    experts = fields.whole("n_routed_experts", "num_experts", default=256 if third else 64)
    per_token = fields.whole("num_experts_per_tok", default=8 if third else 6)
    ffn = fields.whole("moe_intermediate_size", default=2048 if third else 1407)
    shared = ffn * fields.whole("n_shared_experts", default=1 if third else 2, least=0)
    dense_bias = not third and fields.yes("mlp_bias", False)
    dense_layers = fields.whole("first_k_dense_replace", default=3 if third else 0, least=0)
    sparse = _experts(experts, hidden, ffn)
    if shared:
        sparse = (*sparse, *_gated(hidden, shared, dense_bias))
    latent = Shape(shape.vocab, hidden, shape.layers, heads, 1, head, shape.ffn, shape.positions)
    ranks = Shape(shape.vocab, hidden, shape.layers, heads, rank, 1, shape.ffn, shape.positions)
    number = max(0, shape.layers - dense_layers)

    def kept(mlp: int, each: int) -> Saved:
        return saved(
            "deepseek",
            hidden=hidden,
            attention=latent.attention,
            kv=ranks.key_values,
            ffn=mlp,
            heads=heads,
            experts_per_token=each,
            expert_ffn=ffn,
        )

    blocks = tuple(
        block
        for block in (
            Block((*common, *sparse), kept(shared, per_token), number),
            Block(
                (*common, *_gated(hidden, shape.ffn, dense_bias)), kept(shape.ffn, 0), shape.layers - number
            ),
        )
        if block.count
    )
    return _decoder(
        fields, shape, blocks, norm(hidden), tied=False, experts=experts, experts_per_token=per_token
    )


def _latent_attention(fields: Fields, hidden: int, heads: int) -> tuple[tuple[Module, ...], int, int]:
    """The modules of multi-head latent attention, the width of a query's head, and the sum of the ranks."""
    bias = fields.yes("attention_bias", False)
    q_rank = None if fields.null("q_lora_rank") else fields.whole("q_lora_rank", default=1536)
    kv_rank = fields.whole("kv_lora_rank", default=512)
    rope = fields.whole("qk_rope_head_dim", default=64)
    nope = fields.whole("qk_nope_head_dim", default=128)
    value = fields.whole("v_head_dim", default=128)
    width = heads * (nope + rope)
    query = (
        (linear(hidden, width),)
        if q_rank is None
        else (linear(hidden, q_rank, bias), norm(q_rank), linear(q_rank, width))
    )
    modules = (
        *query,
        linear(hidden, kv_rank + rope, bias),
        norm(kv_rank),
        linear(kv_rank, heads * (nope + value)),
        linear(heads * value, hidden, bias),
    )
    return modules, nope + rope, (q_rank or 0) + kv_rank


def _deepseek_v2(fields: Fields) -> Closed:
    return _deepseek(fields, 2)


def _deepseek_v3(fields: Fields) -> Closed:
    return _deepseek(fields, 3)


# Families of GPT's kind: LayerNorm with biases, an MLP of two layers


def _gpt2(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=50257, hidden=768, layers=12, heads=12, positions=1024)
    if fields.yes("add_cross_attention", False):
        raise UnknownArchitectureError("gpt2", "with cross attention")
    hidden = shape.hidden
    modules = (
        linear(hidden, 3 * hidden, True),
        linear(hidden, hidden, True),
        *_plain(hidden, shape.ffn),
        norm(hidden, True),
        norm(hidden, True),
    )
    places = embedding(shape.positions or 0, hidden)
    return _decoder(fields, shape, _alike("gpt2", shape, *modules), places, norm(hidden, True), tied=True)


def _gptj(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=50400, hidden=4096, layers=28, heads=16, positions=2048)
    hidden = shape.hidden
    modules = (*_attention(shape), *_plain(hidden, shape.ffn), norm(hidden, True))
    return _decoder(
        fields,
        shape,
        _alike("gptj", shape, *modules),
        norm(hidden, True),
        tied=False,
        head_bias=True,
    )


def _gpt_neox(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=50432, hidden=6144, layers=44, heads=64, ffn=24576, positions=2048)
    hidden, bias = shape.hidden, fields.yes("attention_bias", True)
    modules = (
        linear(hidden, 3 * hidden, bias),
        linear(hidden, hidden, bias),
        *_plain(hidden, shape.ffn),
        norm(hidden, True),
        norm(hidden, True),
    )
    return _decoder(fields, shape, _alike("gpt_neox", shape, *modules), norm(hidden, True), tied=False)


def _bloom(fields: Fields) -> Closed:
    hidden = fields.whole("hidden_size", "n_embed", default=64)
    shape = Shape(
        vocab=fields.whole("vocab_size", default=250880),
        hidden=hidden,
        layers=fields.layers("n_layer", "num_hidden_layers", default=2),
        heads=fields.whole("n_head", "num_attention_heads", default=8),
        kv=fields.whole("n_head", "num_attention_heads", default=8),
        head_dim=max(1, hidden // fields.whole("n_head", "num_attention_heads", default=8)),
        ffn=4 * hidden,
        positions=None,
    )
    modules = (
        linear(hidden, 3 * hidden, True),
        linear(hidden, hidden, True),
        *_plain(hidden, shape.ffn),
        norm(hidden, True),
        norm(hidden, True),
    )
    return _decoder(
        fields,
        shape,
        _alike("bloom", shape, *modules),
        norm(hidden, True),
        norm(hidden, True),
        tied=True,
    )


def _opt(fields: Fields) -> Closed:
    """Positions begin at 2; the embedding may be narrower than the blocks (`word_embed_proj_dim`)."""
    shape = _shape(fields, vocab=50272, hidden=768, layers=12, heads=12, ffn=3072, positions=2048)
    hidden, bias = shape.hidden, fields.yes("enable_bias", True)
    weights = fields.yes("layer_norm_elementwise_affine", True)
    norms = (norm(hidden, True),) if weights else ()
    modules = (*_attention(shape, bias, bias), *_plain(hidden, shape.ffn, bias), *norms, *norms)
    narrow = fields.whole("word_embed_proj_dim", default=hidden)
    last = fields.yes("do_layer_norm_before", True) and not fields.yes("_remove_final_layer_norm", False)
    around = (linear(narrow, hidden, adapted=False), linear(hidden, narrow, adapted=False))
    root = (
        embedding(shape.vocab, narrow),
        embedding((shape.positions or 0) + 2, hidden),
        *(around if narrow != hidden else ()),
        *(norms if last else ()),
    )
    head = linear(narrow, shape.vocab, adapted=False)
    tied = fields.yes("tie_word_embeddings", True)
    blocks = _alike("opt", shape, *modules)
    modules_of_all = Modules(root, blocks, (head,)) if tied else Modules((*root, head), blocks)
    return Closed(shape, modules_of_all, tied)


def _phi(fields: Fields) -> Closed:
    shape = _shape(fields, vocab=51200, hidden=2048, layers=24, heads=32, ffn=8192, positions=2048)
    hidden, of_head = shape.hidden, shape.hidden // shape.heads
    normed = fields.yes("qk_layernorm", False)
    norms = (norm(of_head, True),) * 2 if normed else ()
    modules = (
        *_attention(shape, True, True),
        *norms,
        *_plain(hidden, shape.ffn),
        norm(hidden, True),
    )
    blocks = _alike("phi normed" if normed else "phi", shape, *modules)
    return _decoder(fields, shape, blocks, norm(hidden, True), tied=False, head_bias=True)


def _falcon(fields: Fields) -> Closed:
    hidden = fields.whole("hidden_size", "n_embed", default=4544)
    heads = fields.whole("num_attention_heads", default=71)
    if hidden % heads:
        raise PlanningError(f"{fields.source}: {heads} heads do not divide the hidden size {hidden}")
    newer, multi_query = fields.yes("new_decoder_architecture", False), fields.yes("multi_query", True)
    parallel, bias = fields.yes("parallel_attn", True), fields.yes("bias", False)
    groups = fields.whole("num_kv_heads", default=heads)
    shape = Shape(
        vocab=fields.whole("vocab_size", default=65024),
        hidden=hidden,
        layers=fields.layers("num_hidden_layers", default=32),
        heads=heads,
        kv=groups if newer else 1 if multi_query else heads,
        head_dim=hidden // heads,
        ffn=fields.whole("ffn_hidden_size", default=4 * hidden),
        positions=fields.whole("max_position_embeddings", default=2048),
    )
    norms = fields.whole("num_ln_in_parallel_attn", default=2 if newer else 1) if parallel else 2
    modules = (
        linear(hidden, hidden + 2 * shape.key_values, bias),
        linear(hidden, hidden, bias),
        *_plain(hidden, shape.ffn, bias),
        *((norm(hidden, True),) * (2 if norms == 2 else 1)),
    )
    form = "falcon multi-query" if multi_query and not newer else "falcon"
    return _decoder(fields, shape, _alike(form, shape, *modules), norm(hidden, True), tied=True)


# Encoders, and T5


def _bert(fields: Fields, vocab: int = 30522) -> Closed:
    shape = _shape(fields, vocab=vocab, hidden=768, layers=12, heads=12, ffn=3072, positions=512)
    if fields.yes("add_cross_attention", False):
        raise UnknownArchitectureError(printable(fields.text("model_type")), "with cross attention")
    hidden = shape.hidden
    modules = (
        *_attention(shape, True, True),
        *_plain(hidden, shape.ffn),
        norm(hidden, True),
        norm(hidden, True),
    )
    root = (
        embedding(shape.vocab, hidden),
        embedding(shape.positions or 0, hidden),
        embedding(fields.whole("type_vocab_size", default=2), hidden),
        norm(hidden, True),
        linear(hidden, hidden, True, adapted=False),
    )
    return Closed(shape, Modules(root, _alike("bert", shape, *modules)), tied=False, head=False)


def _roberta(fields: Fields) -> Closed:
    return _bert(fields, 50265)


def _vit(fields: Fields) -> Closed:
    hidden = fields.whole("hidden_size", default=768)
    heads = fields.whole("num_attention_heads", default=12)
    image, patch = fields.whole("image_size", default=224), fields.whole("patch_size", default=16)
    if hidden % heads:
        raise PlanningError(f"{fields.source}: {heads} heads do not divide the hidden size {hidden}")
    shape = Shape(
        vocab=0,
        hidden=hidden,
        layers=fields.layers("num_hidden_layers", default=12),
        heads=heads,
        kv=heads,
        head_dim=hidden // heads,
        ffn=fields.whole("intermediate_size", default=3072),
        positions=None,
    )
    places = (image // patch) ** 2 + 1
    modules = (
        *_attention(shape, fields.yes("qkv_bias", True), True),
        *_plain(hidden, shape.ffn),
        norm(hidden, True),
        norm(hidden, True),
    )
    root = (
        Module(hidden + places * hidden),
        Module(fields.whole("num_channels", default=3) * patch * patch * hidden + hidden),
        norm(hidden, True),
        linear(hidden, fields.whole("pooler_output_size", default=hidden), True, adapted=False),
    )
    return Closed(
        shape, Modules(root, _alike("vit", shape, *modules)), tied=False, head=False, sequence=places
    )


def _t5(fields: Fields, vocab: int = 32128) -> Closed:
    """Encoder and decoder; transformers 5 ties the embeddings whatever the configuration says."""
    shape = Shape(
        vocab=fields.whole("vocab_size", default=vocab),
        hidden=fields.whole("d_model", "hidden_size", default=512),
        layers=fields.layers("num_layers", "num_hidden_layers", default=6),
        heads=fields.whole("num_heads", "num_attention_heads", default=8),
        kv=fields.whole("num_heads", "num_attention_heads", default=8),
        head_dim=fields.whole("d_kv", "head_dim", default=64),
        ffn=fields.whole("d_ff", default=2048),
        positions=None,
    )
    hidden = shape.hidden
    gated = fields.text("feed_forward_proj", "relu").startswith("gated")
    attention = (*_attention(shape), norm(hidden))
    mlp = _gated(hidden, shape.ffn) if gated else _plain(hidden, shape.ffn, False)
    buckets = fields.whole("relative_attention_num_buckets", default=32)
    bias = embedding(buckets, shape.heads)
    decoder_layers = fields.layers("num_decoder_layers", default=shape.layers)
    kept = _saved("t5 gated" if gated else "t5", shape)
    # The form is of a pair; an encoder's block has one attention of the three, and a decoder's two.
    third = tuple(each.divided(3) for each in kept)
    of_encoder = (third[0], third[1], third[2])
    two = tuple(each.times(2) for each in third)
    of_decoder = (two[0], two[1], two[2])
    encoder, decoder = (*attention, *mlp, norm(hidden)), (*attention, *attention, *mlp, norm(hidden))
    # The first block of each stack has the biases of the positions.
    stacks = (
        Block((*encoder, bias), of_encoder),
        Block(encoder, of_encoder, shape.layers - 1),
        Block((*decoder, bias), of_decoder),
        Block(decoder, of_decoder, decoder_layers - 1),
    )
    blocks = tuple(block for block in stacks if block.count)
    root = (embedding(shape.vocab, hidden), norm(hidden), norm(hidden))
    head = (linear(hidden, shape.vocab, adapted=False),)
    return Closed(
        shape,
        Modules(root, blocks, head),
        tied=True,
        notices=("the decoder's sequence is counted as long as the encoder's",),
    )


FAMILIES: dict[str, Family] = {
    "llama": Family(_llama, "LlamaDecoderLayer", "LlamaForCausalLM"),
    "mistral": Family(_mistral, "MistralDecoderLayer", "MistralForCausalLM"),
    "mixtral": Family(_mixtral, "MixtralDecoderLayer", "MixtralForCausalLM"),
    "qwen2": Family(_qwen2, "Qwen2DecoderLayer", "Qwen2ForCausalLM"),
    "qwen2_moe": Family(_qwen2_moe, "Qwen2MoeDecoderLayer", "Qwen2MoeForCausalLM"),
    "qwen3": Family(_qwen3, "Qwen3DecoderLayer", "Qwen3ForCausalLM"),
    "qwen3_moe": Family(_qwen3_moe, "Qwen3MoeDecoderLayer", "Qwen3MoeForCausalLM"),
    "gemma": Family(_gemma, "GemmaDecoderLayer", "GemmaForCausalLM"),
    "gemma2": Family(_gemma2, "Gemma2DecoderLayer", "Gemma2ForCausalLM"),
    "gemma3_text": Family(_gemma3, "Gemma3DecoderLayer", "Gemma3ForCausalLM"),
    "smollm3": Family(_smollm3, "SmolLM3DecoderLayer", "SmolLM3ForCausalLM"),
    "granite": Family(_llama, "GraniteDecoderLayer", "GraniteForCausalLM"),
    "olmo": Family(_olmo, "OlmoDecoderLayer", "OlmoForCausalLM"),
    "olmo2": Family(_olmo2, "Olmo2DecoderLayer", "Olmo2ForCausalLM"),
    "cohere": Family(_cohere, "CohereDecoderLayer", "CohereForCausalLM"),
    "cohere2": Family(_cohere, "Cohere2DecoderLayer", "Cohere2ForCausalLM"),
    "phi": Family(_phi, "PhiDecoderLayer", "PhiForCausalLM"),
    "phi3": Family(_phi3, "Phi3DecoderLayer", "Phi3ForCausalLM"),
    "deepseek_v2": Family(_deepseek_v2, "DeepseekV2DecoderLayer", "DeepseekV2ForCausalLM"),
    "deepseek_v3": Family(_deepseek_v3, "DeepseekV3DecoderLayer", "DeepseekV3ForCausalLM"),
    "gpt2": Family(_gpt2, "GPT2Block", "GPT2LMHeadModel"),
    "gptj": Family(_gptj, "GPTJBlock", "GPTJForCausalLM"),
    "gpt_neox": Family(_gpt_neox, "GPTNeoXLayer", "GPTNeoXForCausalLM"),
    "bloom": Family(_bloom, "BloomBlock", "BloomForCausalLM"),
    "opt": Family(_opt, "OPTDecoderLayer", "OPTForCausalLM"),
    "falcon": Family(_falcon, "FalconDecoderLayer", "FalconForCausalLM"),
    "bert": Family(_bert, "BertLayer", "BertModel"),
    "roberta": Family(_roberta, "RobertaLayer", "RobertaModel"),
    "vit": Family(_vit, "ViTLayer", "ViTModel"),
    "t5": Family(_t5, "T5Block", "T5ForConditionalGeneration"),
}
"""By the model type of a configuration."""

_BY_CLASS = {family.counted: kind for kind, family in FAMILIES.items()}
"""For configurations without a model type."""
