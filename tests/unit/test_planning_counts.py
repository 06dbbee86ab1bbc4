"""Parameters of published models, exactly, and of every family as transformers itself creates them."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputui.planning.closed_forms import FAMILIES, closed_form
from gputui.planning.fields import Fields
from gputui.planning.model import Model, PlanningError, UnknownArchitectureError
from table_tests import each_row
from unit.planning_configurations import small
from unit.planning_models import (
    GPT2,
    LLAMA2_7B,
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA32_1B,
    SMOLLM2,
    llama_like,
    model,
)

PUBLISHED = [
    ("gpt2", GPT2, 124_439_808),
    ("gpt2-xl", model("gpt2", n_embd=1600, n_layer=48, n_head=25), 1_557_611_200),
    ("bert-base-cased", model("bert", vocab_size=28996), 108_310_272),
    (
        "opt-1.3b",
        model("opt", hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192),
        1_315_758_080,
    ),
    ("gpt-neox-20b", model("gpt_neox", vocab_size=50432), 20_554_567_680),
    ("SmolLM2-135M", SMOLLM2, 134_515_008),
    ("TinyLlama", llama_like("llama", 2048, 22, 32, 4, 5632, 32000), 1_100_048_384),
    ("Llama-2-7b", LLAMA2_7B, 6_738_415_616),
    ("Llama-2-13b", llama_like("llama", 5120, 40, 40, 40, 13824, 32000), 13_015_864_320),
    ("Llama-2-70b", llama_like("llama", 8192, 80, 64, 8, 28672, 32000), 68_976_648_192),
    ("Llama-3-8B", LLAMA3_8B, 8_030_261_248),
    ("Llama-3-70B", LLAMA3_70B, 70_553_706_496),
    ("Llama-3.2-1B", LLAMA32_1B, 1_235_814_400),
    ("Mistral-7B", llama_like("mistral", 4096, 32, 32, 8, 14336, 32000), 7_241_732_096),
    (
        "Mixtral-8x7B",
        llama_like("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8),
        46_702_792_704,
    ),
    ("Qwen2.5-0.5B", llama_like("qwen2", 896, 24, 14, 2, 4864, 151936, True), 494_032_768),
    ("Qwen2.5-7B", llama_like("qwen2", 3584, 28, 28, 4, 18944, 152064), 7_615_616_512),
    ("Qwen3-8B", llama_like("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8_190_735_360),
    (
        "Qwen3-30B-A3B",
        llama_like(
            "qwen3_moe",
            *(2048, 48, 32, 4, 6144, 151936),
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
        ),
        30_532_122_624,
    ),
]


@each_row(("known", "parameters"), [each[1:] for each in PUBLISHED], ids=[each[0] for each in PUBLISHED])
def test_a_published_model_has_its_published_parameters(known: Model, parameters: int) -> None:
    assert known.parameters == parameters


def test_the_largest_layer_is_the_embedding_of_a_language_model() -> None:
    assert (LLAMA2_7B.largest_layer, LLAMA3_8B.largest_layer) == (131_072_000, 525_336_576)
    assert GPT2.largest_layer == 38_597_376


def test_a_configuration_that_does_not_say_whether_embeddings_are_tied_is_tied_as_its_family() -> None:
    def tied(kind: str, **fields: Any) -> bool:
        return model(kind, **fields).tied

    assert tied("gemma") and tied("gpt2") and not tied("llama")
    assert tied("t5", tie_word_embeddings=False)


def test_norms_of_queries_and_keys_have_a_weight_and_those_of_phi_a_bias_too() -> None:
    shape = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3}

    def more(kind: str, field: str) -> int:
        plain, normed = (model(kind, **shape, **{field: value}) for value in (False, True))
        return normed.parameters - plain.parameters

    # Each head of phi is normed alike: the weight and the bias of a width of 16, of queries and of keys.
    assert more("phi", "qk_layernorm") == 3 * 2 * 2 * 16
    # Of cohere each head has weights of its own: 64 for the queries, 32 for the keys.
    assert more("cohere", "use_qk_norm") == 3 * (64 + 32)


def test_a_family_that_is_known_by_its_class_alone_is_counted_alike() -> None:
    fields = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "use_qk_norm": True}
    by_class = {**fields, "architectures": ["CohereForCausalLM"]}
    named = model("cohere", **fields)
    unnamed = closed_form(Fields(by_class, "config.json"), "unnamed")
    assert (unnamed.parameters, unnamed.saved) == (named.parameters, named.saved)


def test_what_is_counted_of_another_head_is_said() -> None:
    other = model("bert", architectures=["BertForSequenceClassification"])
    assert other.architecture == "BertModel" and other.notices
    assert not model("bert", architectures=["BertModel"]).notices


def test_an_architecture_without_a_closed_form_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownArchitectureError) as refused:
        model("mamba")
    assert refused.value.architecture == "mamba" and "8B" in str(refused.value)


@each_row(
    ("kind", "fields"),
    [
        ("gemma3", {"text_config": {"hidden_size": 64}, "vision_config": {}}),
        ("llama", {"text_config": {"hidden_size": 64}}),
        ("gpt2", {"add_cross_attention": True}),
        ("bert", {"add_cross_attention": True}),
    ],
)
def test_a_model_with_parts_that_no_form_counts_is_left_to_its_own_code(
    kind: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(UnknownArchitectureError):
        model(kind, **fields)


@each_row(
    "fields",
    [
        {"hidden_size": -4096},
        {"hidden_size": "4096"},
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 0},
        {"hidden_size": 4097},
        {"vocab_size": 1.5},
        {"tie_word_embeddings": "yes"},
    ],
)
def test_sizes_that_no_model_has_are_refused_in_one_line(fields: dict[str, Any]) -> None:
    with pytest.raises(PlanningError) as refused:
        model("llama", **fields)
    assert "\n" not in str(refused.value)


# As transformers counts

_PER_FAMILY = 3


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_every_family_has_the_parameters_that_transformers_makes_of_its_configuration() -> None:
    """On the meta device, in a process of its own: small random configurations, and an empty one."""
    asked = []
    for kind in FAMILIES:
        number = random.Random(kind)
        asked += [
            {"model_type": kind},
            *({"model_type": kind, **small(kind, number)} for _ in range(_PER_FAMILY)),
        ]
    done = subprocess.run(
        [sys.executable, "-c", _COUNTS],
        input=json.dumps([[FAMILIES[each["model_type"]].wrap_class, each] for each in asked]),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    differ = []
    for given, counted in zip(asked, json.loads(done.stdout.splitlines()[-1]), strict=True):
        fields = dict(given)
        made = model(fields.pop("model_type"), **fields)
        ours = [made.architecture, made.parameters, made.largest_layer, made.blocks, made.largest_block]
        if ours != counted:
            differ.append((given, ours, counted))
    assert not differ


_COUNTS = """
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
transformers.logging.set_verbosity_error()
found = []
for wrap, values in json.load(sys.stdin):
    kind = values.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **values)
    auto = {"bert": "AutoModel", "roberta": "AutoModel", "vit": "AutoModel", "t5": "AutoModelForSeq2SeqLM"}
    with torch.device("meta"):
        model = getattr(transformers, auto.get(kind, "AutoModelForCausalLM")).from_config(config)
    blocks = [sum(p.numel() for p in m.parameters()) for m in model.modules() if type(m).__name__ == wrap]
    own = [sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()]
    number = sum(p.numel() for p in model.parameters())
    found.append([type(model).__name__, number, max(own), len(blocks), max(blocks)])
print(json.dumps(found))
"""
