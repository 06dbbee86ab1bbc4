"""Bytes on a device, compared with torch's memory tracker, the ZeRO paper and DeepSpeed's own estimators."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from gputui.inventory.formatting import GIB
from gputui.planning.closed_forms import FAMILIES
from gputui.planning.estimators import estimates
from gputui.planning.memory import host_needed, needed
from gputui.planning.model import Model, PlanningError
from gputui.planning.reading import of_parameters
from gputui.planning.strategies import Kind, Strategy
from gputui.planning.workload import Precision, Workload
from table_tests import each_row
from unit.planning_configurations import small
from unit.planning_models import GPT2, LLAMA2_7B, LLAMA3_8B, LLAMA32_1B, SMOLLM2, llama_like, model

SINGLE = Strategy("single", 1)

TRACKED = [
    # A model, its workload, and the peak in GiB that torch's memory tracker finds.
    (LLAMA2_7B, Workload(1, 4096, "bf16"), 62.01),
    (LLAMA2_7B, Workload(1, 4096, "bf16", checkpointing=True), 50.69),
    (SMOLLM2, Workload(4, 2048, "autocast"), 13.25),
    # (On an H200, which computes gelu_new in 32 bits there; the tracker has the lists of a CPU.)
    (GPT2, Workload(8, 1024, "autocast"), 12.68),
    (LLAMA32_1B, Workload(1, 2048, "autocast", checkpointing=True), 20.37),
    (LLAMA32_1B, Workload(1, 2048, "bf16", checkpointing=True), 10.19),
]


@each_row(("model", "workload", "peak"), TRACKED)
def test_the_peak_is_that_of_torchs_memory_tracker_within_a_tenth(
    model: Model, workload: Workload, peak: float
) -> None:
    assert needed(model, workload, SINGLE).total / GIB == pytest.approx(peak, rel=0.1)


_OF_WIDTH_512: dict[str, Any] = {
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1536,
    "vocab_size": 1024,
    "max_position_embeddings": 2048,
}
_UNGROUPED = {**_OF_WIDTH_512, "num_key_value_heads": 8}
_T5: dict[str, Any] = {"d_model": 512, "d_kv": 64, "d_ff": 1536, "num_heads": 8, "vocab_size": 1000}
_BY_GPT: dict[str, Any] = {
    "n_embd": 512,
    "n_head": 8,
    "n_inner": 1536,
    "vocab_size": 1024,
    "n_positions": 2048,
}


@each_row(
    ("kind", "fields", "bf16", "autocast", "fp32"),
    [
        ("llama", _OF_WIDTH_512, 23336, 29480, 77832),
        ("qwen3", {**_OF_WIDTH_512, "head_dim": 64}, 27992, 34264, 84024),
        ("gemma", {**_OF_WIDTH_512, "head_dim": 64}, 25642, 29354, 77834),
        ("phi3", _OF_WIDTH_512, 25896, 29480, 77832),
        ("olmo2", _OF_WIDTH_512, 31536, 35632, 83984),
        ("cohere", _OF_WIDTH_512, 22310, 27428, 73732),
        ("phi", _UNGROUPED, 22568, 36392, 43048),
        ("opt", {**_UNGROUPED, "ffn_dim": 1536, "word_embed_proj_dim": 512}, 12336, 16816, 23600),
        ("bert", _UNGROUPED, 15408, 19888, 29744),
        ("gpt2", _BY_GPT, 24368, 36528, 48176),
        ("gptj", {**_BY_GPT, "rotary_dim": 32}, 72840, 84744, 76040),
        ("bloom", {"hidden_size": 512, "n_head": 8, "vocab_size": 1024}, 65296, 67856, 65552),
        ("llama", {**_OF_WIDTH_512, "num_key_value_heads": 1}, 22816, 28700, 77784),
        ("t5", _T5, 73716, 80884, 120084),
        ("t5", {**_T5, "feed_forward_proj": "gated-gelu"}, 104180, 137740, 181460),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_block_keeps_for_each_token_what_it_kept_on_an_h200(
    kind: str, fields: dict[str, Any], bf16: int, autocast: int, fp32: int
) -> None:
    """By torch.cuda.memory_allocated (PyTorch 2.11, transformers 5.17 and 5.23) of two sequences of 1024
    tokens; with autocast, without the copies of the weights."""
    depth = {"gpt2": "n_layer", "gptj": "n_layer", "bloom": "n_layer", "t5": "num_layers"}.get(
        kind, "num_hidden_layers"
    )
    made = [model(kind, **fields, **{depth: number}) for number in (2, 3)]
    two, three = ([saved.bytes(2048, 1024) / 2048 for saved in each.saved] for each in made)
    kept = [more - less for less, more in zip(two, three, strict=True)]
    assert kept == pytest.approx([bf16, autocast, fp32], rel=0.07)


@each_row(("kind", "gigabytes"), [("ddp", 120.0), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.88)])
def test_the_states_are_those_of_the_zero_papers_first_table(kind: Kind, gigabytes: float) -> None:
    whole = Workload(precision="autocast", weights_only=True)
    found = needed(of_parameters(7_500_000_000), whole, Strategy(kind, 64)).total / 1e9
    assert found == pytest.approx(gigabytes, abs=0.05)


@each_row(
    ("precision", "optimizer", "each"),
    [
        ("fp32", "adamw", 16),
        ("autocast", "adamw", 16),
        ("bf16", "adamw", 8),
        ("fp32", "adamw8bit", 10),
        ("fp32", "sgd-momentum", 12),
        ("fp32", "sgd", 8),
        ("bf16", "sgd", 4),
    ],
)
def test_bytes_of_a_parameter_by_precision_and_optimizer(
    precision: Precision, optimizer: str, each: int
) -> None:
    workload = Workload(precision=precision, optimizer=optimizer, weights_only=True)
    assert needed(GPT2, workload, SINGLE).total == each * GPT2.parameters


def test_lora_trains_its_adapters_alone() -> None:
    # Rank × Σ (inputs + outputs) of q, k, v, o, gate, up, down of 32 blocks.
    a_rank = 32 * (4 * 2 * 4096 + 3 * (4096 + 11008))
    found = needed(LLAMA2_7B, Workload(lora=16, precision="autocast", weights_only=True), SINGLE)
    assert found.gradients == 4 * 16 * a_rank
    assert found.total == 2 * LLAMA2_7B.parameters + 16 * 16 * a_rank


def test_ddp_has_its_gradients_twice() -> None:
    workload = Workload(precision="autocast")
    found = needed(GPT2, workload, Strategy("ddp", 2))
    assert found.buffers == found.gradients == 4 * GPT2.parameters


def test_gradients_that_are_views_of_ddps_buckets_are_there_once() -> None:
    """torch's DistributedDataParallel: "the saved memory size will be equal to the total gradients size"."""
    copies, views = (
        needed(GPT2, Workload(precision="autocast", bucket_view=view), Strategy("ddp", 2))
        for view in (False, True)
    )
    assert copies.total - views.total == copies.gradients and views.buffers == 0
    others = [needed(GPT2, Workload(bucket_view=view), Strategy("fsdp2", 2)).total for view in (False, True)]
    assert others[0] == others[1]


def test_fsdp_gathers_the_root_and_one_block_or_all() -> None:
    workload = Workload(1, 4096, "autocast")
    found = needed(LLAMA2_7B, workload, Strategy("fsdp2", 8))
    states = found.weights + found.gradients + found.optimizer
    assert (states + found.buffers) / GIB == pytest.approx(14.5, abs=0.1)
    kept = needed(LLAMA2_7B, workload, Strategy("fsdp2", 8, reshard=False))
    assert kept.buffers - found.buffers == pytest.approx(2 * LLAMA2_7B.parameters * 31 / 32, rel=0.1)


def test_tensor_parallelism_divides_what_heads_and_mlp_keep_but_not_the_residual_stream() -> None:
    workload = Workload(1, 4096, "bf16", accumulation=2)
    kept = [
        needed(LLAMA2_7B, workload, Strategy("fsdp2", 8, tensor_parallel=size)).activations
        for size in (1, 2, 4, 8)
    ]
    assert kept == sorted(kept, reverse=True) and kept[3] > kept[0] / 4


def test_each_expert_of_a_token_keeps_its_input_and_its_inner_width() -> None:
    def kept(per_token: int) -> Model:
        return llama_like(
            "mixtral", *(512, 2, 8, 8, 1024, 32000), num_local_experts=8, num_experts_per_tok=per_token
        )

    one, two, three = (kept(count).saved_block for count in (1, 2, 3))
    # Bytes for each element, in bf16, with autocast and in fp32: the input, and the inner width.
    for place, (of_hidden, of_ffn) in enumerate(((4, 8), (8, 16), (8, 16))):
        for less, more in ((one, two), (two, three)):
            assert more[place].replicated - less[place].replicated == of_hidden * 512
            assert more[place].sharded - less[place].sharded == of_ffn * 1024


def test_gradients_that_accumulate_are_there_at_the_loss() -> None:
    once, more = (
        needed(LLAMA2_7B, Workload(1, 4096, "bf16", accumulation=count), SINGLE).total for count in (1, 2)
    )
    assert more - once == 2 * LLAMA2_7B.parameters


def test_a_stage_keeps_what_all_batches_keep_that_are_under_way() -> None:
    """A pipeline of four stages holds four batches: the first stage keeps the tensors of all four. It makes
    four passes for each one of data-parallel devices, so there are always as many."""

    def kept(accumulation: int, parts: int = 1) -> float:
        workload = Workload(1, 8192, "bf16", accumulation=accumulation)
        strategy = Strategy("pp", 4, pipeline_parallel=4, interleaved=parts)
        return needed(LLAMA3_8B, workload, strategy).total / GIB

    assert kept(8) == pytest.approx(77.9, abs=0.5)
    assert kept(16) == kept(8) == kept(1)
    # An interleaved stage starts more batches before the first one comes back: 11 of 8 parts (Megatron).
    assert kept(8, 2) > kept(8) * 1.2


# The tensors that autograd keeps

NEARLY = 0.3
"""Tolerance: a CPU keeps dropout masks as numbers, and other intermediate values in attention."""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_a_block_of_every_family_keeps_what_autograd_keeps_of_it() -> None:
    """The difference of two depths, in a process of its own; small shapes, no dropout within attention."""
    asked, ours = [], []
    for kind in FAMILIES:
        fields = small(kind, random.Random(kind))
        depth = next(name for name in ("num_hidden_layers", "n_layer", "num_layers") if name in fields)
        for name in (
            "mlp_only_layers",
            "decoder_sparse_step",
            "first_k_dense_replace",
            "word_embed_proj_dim",
        ):
            fields.pop(name, None)
        fields |= _OF_KIND.get(kind, {})
        if "hidden_size" in fields and kind == "opt":
            fields["word_embed_proj_dim"] = fields["hidden_size"]
        if "max_position_embeddings" in fields:
            fields["max_position_embeddings"] = 128
        two = [{**fields, depth: number} for number in (2, 3)]
        if kind == "t5":
            two = [{**each, "num_decoder_layers": each[depth]} for each in two]
        made = [model(kind, **each) for each in two]
        length = made[0].sequence or _LENGTH
        kept = [each.saved[0].bytes(1, length) for each in made]
        asked.append([kind, length, two])
        ours.append(kept[1] - kept[0])
    done = subprocess.run(
        [sys.executable, "-c", _KEPT], input=json.dumps(asked), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    ratios = {kind: one / other for kind, one, other in zip(FAMILIES, ours, told, strict=True)}
    assert not {kind: ratio for kind, ratio in ratios.items() if not 1 - NEARLY < ratio < 1 + NEARLY}


_LENGTH = 32
_OF_KIND: dict[str, dict[str, Any]] = {
    "bert": {"attention_probs_dropout_prob": 0.0},
    "roberta": {"attention_probs_dropout_prob": 0.0},
    "gpt2": {"attn_pdrop": 0.0},
    "t5": {"decoder_start_token_id": 0},
    "deepseek_v2": {"first_k_dense_replace": 0},
    "deepseek_v3": {"first_k_dense_replace": 0},
    "qwen2_moe": {"num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts_per_tok": 2},
}

_KEPT = """
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers; torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
auto = {"bert": "AutoModel", "roberta": "AutoModel", "vit": "AutoModel", "t5": "AutoModelForSeq2SeqLM"}
def kept(kind, length, fields):
    config = transformers.AutoConfig.for_model(kind, **fields)
    made = getattr(transformers, auto.get(kind, "AutoModelForCausalLM"))
    model = made.from_config(config).to(torch.bfloat16).train()
    own = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
    found = {}
    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor
    words = torch.randint(3, 90, (2, length))
    given = {"input_ids": words}
    if kind == "vit":
        side = config.image_size
        given = {"pixel_values": torch.randn(2, config.num_channels, side, side, dtype=torch.bfloat16)}
    elif kind == "t5":
        given["labels"] = words
    elif kind not in auto:
        given["use_cache"] = False
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(**given)
    return sum(size for size, _ in found.values()) / words.numel()
found = []
for kind, length, two in json.load(sys.stdin):
    fewer, more = (kept(kind, length, fields) for fields in two)
    found.append(more - fewer)
print(json.dumps(found))
"""

# DeepSpeed

REFERENCE = [
    # Model, devices, {(stage, offload): (host, device)}
    (
        LLAMA2_7B,
        2,
        {
            (2, "none"): (80_860_987_392, 74_122_571_776),
            (2, "optimizer"): (161_721_974_784, 13_476_831_232),
            (3, "none"): (1_572_864_000, 61_170_028_544),
            (3, "all"): (181_937_221_632, 524_288_000),
        },
    ),
    (
        LLAMA2_7B,
        4,
        {(2, "none"): (161_721_974_784, 43_799_701_504), (3, "none"): (3_145_728_000, 30_847_158_272)},
    ),
    (
        LLAMA2_7B,
        8,
        {(2, "none"): (323_443_949_568, 28_638_266_368), (3, "none"): (6_291_456_000, 15_685_723_136)},
    ),
    (
        LLAMA3_8B,
        8,
        {(2, "none"): (385_452_539_904, 34_128_610_304), (3, "none"): (25_216_155_648, 20_169_434_112)},
    ),
    (
        GPT2,
        2,
        {(2, "none"): (1_493_277_696, 1_368_837_888), (3, "none"): (463_168_512, 1_274_347_776)},
    ),
]


@each_row(("model", "devices", "expected"), REFERENCE)
def test_the_estimates_are_deepspeeds_to_the_byte(
    model: Model, devices: int, expected: dict[tuple[int, str], tuple[int, int]]
) -> None:
    found = {
        (each.stage, each.offload): (each.cpu, each.gpu)
        for each in estimates(model.parameters, model.largest_layer, devices)
    }
    assert {key: found[key] for key in expected} == expected


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_the_estimates_are_those_of_the_installed_deepspeed() -> None:
    asked = [
        (number, layer, devices, hosts)
        for number, layer in (
            (LLAMA2_7B.parameters, LLAMA2_7B.largest_layer),
            (70_553_706_497, 1_050_673_153),
        )
        for devices in (1, 2, 3, 8)
        for hosts in (1, 2, 3)
    ]
    done = subprocess.run(
        [sys.executable, "-c", _ESTIMATES],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == [[[each.cpu, each.gpu] for each in estimates(*call)] for call in asked]


_ESTIMATES = """
import json, sys
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as third
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as second
found = []
for number, layer, devices, hosts in json.load(sys.stdin):
    two = [second(number, devices, hosts, offload) for offload in (False, True)]
    ways = ((False, False), (True, False), (True, True))
    three = [third(number, layer, devices, hosts, *offload) for offload in ways]
    found.append([each[:2] for each in (*two, *three)])
print(json.dumps(found))
"""


def test_what_offload_needs_of_the_host_is_deepspeeds_estimate() -> None:
    found = {each.offload: each for each in estimates(LLAMA2_7B.parameters, LLAMA2_7B.largest_layer, 8)}
    whole, part = Workload(), Workload(lora=8)
    assert host_needed(LLAMA2_7B, whole, Strategy("zero3-offload", 8)) == found["all"].cpu
    assert host_needed(LLAMA2_7B, part, Strategy("zero3-offload", 8)) < found["all"].cpu / 4
    assert host_needed(LLAMA2_7B, whole, Strategy("ddp", 8)) == 0


@each_row(
    "wrong",
    [
        {"batch": 0},
        {"sequence": -1},
        {"lora": -1},
        {"precision": "int4"},
        {"optimizer": "magic"},
        {"batch": 1 << 30},
    ],
)
def test_a_workload_that_is_none_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanningError):
        Workload(**wrong)  # type: ignore[arg-type]
