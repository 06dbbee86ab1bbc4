"""Plans for serving: vLLM's own log lines of public models, what a command says, and GGUF headers."""

from __future__ import annotations

import json
import os
import shlex
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.inventory.formatting import GIB
from gputui.inventory.light_dataclasses import replace
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.training_words import training_of
from gputui.planning.box import Box
from gputui.planning.closed_forms import FAMILIES, closed_form
from gputui.planning.fields import Fields
from gputui.planning.model import Model, PlanningError
from gputui.planning.plan import Row
from gputui.planning.reading import bits_of, read_model, shaped
from gputui.planning.safetensors import Count
from gputui.planning.serving import ENGINES, Serving, held, served
from gputui.planning.serving_plan import serving_plan
from table_tests import each_row
from unit import planning_models
from unit.calling import Call
from unit.planning_models import LLAMA3_8B, LLAMA3_70B, h100s, llama_like, model

LOGS = json.loads((Path(__file__).parents[1] / "data" / "vllm_logs.json").read_text())
NO_VARIABLES = {"HOME": "/nonexistent"}


def of_config(name: str) -> Model:
    config = LOGS["configs"][name]
    if config["model_type"] not in FAMILIES:
        return shaped(Count(1, 0), name, config)
    return replace(closed_form(Fields(config, "config.json"), name), bits=bits_of(config))


def said(command: str) -> Serving:
    found = training_of(LaunchOptions(tuple(shlex.split(command))), NO_VARIABLES).serving
    assert found is not None
    return found


def devices(count: int, total: float, free: float | None = None, **facts: Any) -> Box:
    equal = planning_models.box(count, int((total if free is None else free) * GIB), "PIX", None)
    return replace(equal, memory_total=int(total * GIB), **facts)


def rows(known: Model, serving: Serving, box: Box) -> dict[str, Row]:
    return {row.name: row for row in serving_plan(known, serving, box).rows}


# vLLM's log lines


@each_row("log", LOGS["caches"], ids=lambda log: f"{log['model']}-{log['context']}")
def test_a_cache_of_this_memory_holds_what_vllm_logged(log: dict[str, Any]) -> None:
    """Within 1.5 %: a log rounds the memory to 0.01 GiB."""
    cache = of_config(log["model"]).cache
    assert cache is not None
    tensor, stages = log.get("tensor", 1), log.get("pipeline", 1)
    found = held(Serving("vLLM"), cache, log["context"], int(log["available"] * GIB), tensor, stages)
    if "tokens" in log:
        assert found.tokens == pytest.approx(log["tokens"], rel=0.015)
    if "longest" in log:
        assert found.longest == pytest.approx(log["longest"], rel=0.001)
    if "needed" in log:
        assert found.request_bytes / GIB == pytest.approx(log["needed"], abs=0.006)


def _name(log: dict[str, Any]) -> str:
    return f"{log['model']}-{log.get('device', '')}-{log['command'][-12:]}"


def from_the_command(log: dict[str, Any]) -> tuple[Row, float]:
    """The plan of a run that vLLM logged, from the memory of the device and the command alone; and the share
    by which its cache differs."""
    known = of_config(log["model"])
    if "stored" in log:
        known = replace(known, bits=4, stored=int(log["stored"] * GIB))
    count = log.get("devices", 1)
    box = devices(count, log["total"], a100=log.get("a100", False))
    if log.get("direct"):
        box = replace(box, links=h100s(count).links)
    row = serving_plan(known, said(log["command"]), box).rows[0]
    assert row.serving is not None
    if "tokens" in log:
        return row, row.serving.tokens / log["tokens"] - 1
    return row, row.bytes.cache / GIB / log["available"] - 1


@each_row("log", LOGS["wholes"] + LOGS["holdout"], ids=_name)
def test_a_device_has_room_for_the_cache_that_vllm_logged(log: dict[str, Any]) -> None:
    """Within 5 %, also where no constant was fitted on the log; where it is missed, the log says why."""
    row, differs = from_the_command(log)
    assert row.fits is not log.get("refused", False)
    assert (abs(differs) > 0.05) is ("missed" in log)


def test_most_logs_on_which_nothing_was_fitted_are_within_5_percent() -> None:
    """The numbers of docs/planning.md."""
    held_out = LOGS["holdout"]
    assert (len(held_out), len({log["model"] for log in held_out})) == (18, 14)
    assert sum("missed" not in log for log in held_out) == 16


def test_the_model_that_is_missed_is_not_missed_by_more_than_it_says() -> None:
    """Qwen3-235B-A22B-FP8 on four H100s."""
    assert from_the_command(LOGS["missed"][0])[1] < 0.25


def test_adapters_take_what_vllm_logged() -> None:
    """Llama-3.1-8B with 2 adapters of rank 16 took 15.1749 GiB, and 14.9889 without (vLLM 0.8.2)."""
    known = of_config("Llama-3.1-8B")
    words = "vllm serve M --enable-lora --max-loras 2 --max-lora-rank 16"
    plain, adapted = (rows(known, said(each), devices(1, 44))["single"] for each in ("vllm serve M", words))
    added = (adapted.bytes.weights - plain.bytes.weights) / GIB
    assert added == pytest.approx(15.1749 - 14.9889, rel=0.15)
    shared = rows(known, said(words), devices(2, 44))["tp2"].bytes.weights
    assert shared > adapted.bytes.weights / 2


def test_sglang_keeps_what_it_logged() -> None:
    """Qwen3-235B-A22B-FP8 on four H100s: github.com/vllm-project/vllm/issues/21348."""
    words = "python3 -m sglang.launch_server --model M --tp 4 --mem-fraction-static 0.93"
    box = replace(devices(4, 79.2), links=h100s(4).links)
    (row,) = serving_plan(of_config("Qwen3-235B-A22B-FP8"), said(words), box).rows
    assert row.serving is not None and row.serving.tokens == pytest.approx(367_404, rel=0.05)


def test_llama_cpp_allocates_what_it_logged() -> None:
    """Qwen2.5-3B with 4,096 tokens: github.com/SciSharp/LLamaSharp/issues/1099."""
    known = llama_like("qwen2", 2048, 36, 16, 2, 11008, 151936, True)
    row = rows(known, said("llama-server -m M.gguf -c 4096"), devices(1, 16))["single"]
    assert row.bytes.cache == 144 * 1024**2
    assert row.bytes.activations == pytest.approx(300.75 * 1024**2, rel=0.05)


def test_ten_models_have_a_source() -> None:
    logs = [*LOGS["caches"], *LOGS["wholes"]]
    assert len({log["model"] for log in logs}) >= 10
    assert all("." in log["source"] and log["version"] and log["device"] for log in logs)


# The shape of a cache


@each_row(
    ("fields", "layers", "sliding", "heads", "width"),
    [
        ({"model_type": "llama", "num_key_value_heads": 8}, 32, 0, 8, 256),
        ({"model_type": "mistral", "sliding_window": 4096}, 0, 32, 8, 256),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, 32, 0, 32, 256),
        ({"model_type": "gemma2", "sliding_window": 4096}, 13, 13, 4, 512),
        ({"model_type": "deepseek_v3"}, 61, 0, 1, 576),
        ({"model_type": "falcon"}, 32, 0, 1, 128),
        (
            {"model_type": "qwen3", "layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8},
            8,
            0,
            32,
            256,
        ),
    ],
)
def test_the_layers_of_a_cache(
    fields: dict[str, Any], layers: int, sliding: int, heads: int, width: int
) -> None:
    cache = model(**{"kind": fields.pop("model_type"), **fields}).cache
    assert cache is not None
    assert (cache.layers, cache.sliding, cache.heads, cache.width) == (layers, sliding, heads, width)


@each_row(
    "fields",
    [
        {"sliding_window": "wide"},
        {"sliding_window": 512, "sliding_window_pattern": "LLLG"},
        {"layer_types": "all"},
        {"layer_types": [1]},
        {"kv_lora_rank": -1},
    ],
)
def test_odd_fields_of_the_cache_leave_a_training_as_it_was(fields: dict[str, Any]) -> None:
    odd = model("llama", **fields)
    assert odd.cache is None and odd.parameters == model("llama").parameters
    with pytest.raises(PlanningError, match="not known"):
        serving_plan(odd, Serving("vLLM"), devices(1, 24))


def test_an_encoder_has_no_cache_and_is_not_served() -> None:
    with pytest.raises(PlanningError, match="does not generate"):
        serving_plan(model("bert"), Serving("vLLM"), devices(1, 24))


def test_a_cache_of_8_bits_holds_twice_as_much() -> None:
    full = rows(LLAMA3_8B, Serving("vLLM"), devices(1, 79))["single"].serving
    half = rows(LLAMA3_8B, Serving("vLLM", cache_type="fp8_e5m2"), devices(1, 79))["single"].serving
    assert full is not None and half is not None
    assert half.tokens == pytest.approx(2 * full.tokens, rel=0.001)
    assert 2 * half.token_bytes == full.token_bytes == 2 * 32 * 8 * 128 * 2


# The ways to divide a model


def test_weights_and_cache_of_32_bits_take_twice_as_much() -> None:
    single = [
        rows(LLAMA3_8B, said(f"vllm serve M --max-model-len 4096 --dtype {name}"), devices(1, 80))["single"]
        for name in ("float32", "auto")
    ]
    assert single[0].bytes.weights == 2 * single[1].bytes.weights
    assert single[0].serving is not None and single[1].serving is not None
    assert single[0].serving.token_bytes == 2 * single[1].serving.token_bytes


def test_the_fewest_devices_that_hold_it_come_first_and_sizes_divide_the_heads() -> None:
    found = serving_plan(LLAMA3_70B, Serving("vLLM"), devices(8, 79.2)).rows
    assert found[0].name == "tp2" and found[0].fits
    assert {row.strategy.tensor_parallel for row in found} == {1, 2, 4, 8}
    assert not rows(LLAMA3_70B, Serving("vLLM"), devices(8, 79.2))["single"].fits
    three = rows(LLAMA3_70B, Serving("vLLM"), devices(3, 79.2))
    assert set(three) == {"single", "tp2", "pp3"}


def test_a_size_of_the_command_that_divides_no_heads_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanningError, match=r"tensor parallel 3 .* 64 heads"):
        serving_plan(LLAMA3_70B, said("vllm serve M -tp 3"), devices(4, 79))
    with pytest.raises(PlanningError, match=r"pipeline parallel 90 .* 80"):
        serving_plan(LLAMA3_70B, said("vllm serve M -pp 90"), devices(90, 79))


def test_adapters_are_said_with_their_rank() -> None:
    words = served(said("vllm serve M --enable-lora --max-loras 4 --max-lora-rank 64"))
    assert "4 LoRA adapters with rank 64" in words
    assert "LoRA" not in served(said("vllm serve M --max-loras 4"))


def test_a_command_for_more_devices_than_there_are_says_how_many() -> None:
    with pytest.raises(PlanningError, match="on 4 GPUs, and there are 2"):
        serving_plan(LLAMA3_70B, said("vllm serve M -tp 2 -pp 2"), devices(2, 79.2))


def test_a_context_that_does_not_fit_says_which_would() -> None:
    row = rows(LLAMA3_8B, Serving("vLLM", context=131072), devices(1, 23.6))["single"]
    assert row.fits is False and row.margin is not None and row.margin < 0
    assert row.serving is not None and f"{row.serving.longest:,} tokens" in row.outcome
    again = rows(LLAMA3_8B, Serving("vLLM", context=row.serving.longest), devices(1, 23.6))["single"]
    assert again.fits


def test_a_share_that_is_not_free_says_which_would_be() -> None:
    row = rows(LLAMA3_8B, Serving("vLLM"), devices(1, 80, free=60))["single"]
    assert row.fits is False and "0.75" in row.outcome
    # The weights alone need more than is free.
    row = rows(LLAMA3_8B, Serving("vLLM"), devices(1, 80, free=10))["single"]
    assert row.fits is False and not row.change


def test_a_context_beyond_the_models_own_is_said() -> None:
    notices = serving_plan(LLAMA3_8B, Serving("vLLM", context=8192), devices(1, 80)).notices
    assert not any("positions" in each for each in notices)
    beyond = serving_plan(LLAMA3_8B, Serving("vLLM", context=1 << 20), devices(1, 80)).notices
    assert any("positions" in each for each in beyond)


def test_nvlink_takes_more_than_pcie() -> None:
    """NCCL's buffers: 0.1 GiB over PCIe, 1.5 in a ring of NVLink."""
    direct = replace(devices(2, 79), links=h100s(2).links)
    fixed = [rows(LLAMA3_8B, Serving("vLLM"), box)["tp2"].bytes.fixed for box in (devices(2, 79), direct)]
    alone = rows(LLAMA3_8B, Serving("vLLM"), direct)["single"].bytes.fixed
    assert alone < fixed[0] < fixed[1]


def test_devices_of_unknown_memory_are_not_judged() -> None:
    box = replace(devices(1, 80), memory_free=(None,), memory_total=0)
    row = rows(LLAMA3_8B, Serving("vLLM"), box)["single"]
    assert row.fits is None and "not known" in row.outcome


def test_llama_cpp_divides_layers_and_leaves_some_on_the_host() -> None:
    box = devices(2, 24)
    assert set(rows(LLAMA3_8B, Serving("llama.cpp"), box)) == {"single", "pp2"}
    whole = rows(LLAMA3_8B, Serving("llama.cpp", context=8192), box)["single"]
    half = rows(LLAMA3_8B, Serving("llama.cpp", context=8192, layers=16), box)["single"]
    assert half.bytes.cache * 2 == whole.bytes.cache == 8192 * 131072
    assert half.bytes.weights < whole.bytes.weights / 2


@each_row(
    ("config", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, 8),
        ({"quant_method": "mxfp4"}, 4),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
            },
            4 + 20 / 128,
        ),
        ({"bits": "many"}, 8),
        ("awq", 0),
    ],
)
def test_the_bits_of_quantized_weights(config: object, bits: float) -> None:
    assert bits_of({"quantization_config": config}) == bits


def test_quantized_weights_are_their_files_or_their_bits(tmp_path: Path) -> None:
    config = {**LOGS["configs"]["Llama-3.1-8B"], "quantization_config": {"bits": 4, "group_size": 128}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    known = read_model(str(tmp_path), NO_VARIABLES, tmp_path)
    weights = rows(known, Serving("vLLM"), devices(1, 24))["single"].bytes.weights
    # The files of hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4.
    assert weights == pytest.approx(5.73e9, rel=0.01)
    index = {"metadata": {"total_size": 5_700_000_000}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    known = read_model(str(tmp_path), NO_VARIABLES, tmp_path)
    assert rows(known, Serving("vLLM"), devices(1, 24))["single"].bytes.weights == 5_700_000_000


@each_row(
    ("command", "times", "noted"),
    [
        ("vllm serve M --quantization fp8", 8, False),
        ("vllm serve M --quantization bitsandbytes", 4, False),
        ("vllm serve M --quantization awq", 16, True),
        ("vllm serve M --quantization foo", 16, True),
        ("vllm serve M --quantization none", 16, False),
        ("text-generation-launcher --model-id M --quantize bitsandbytes", 8, False),
        ("text-generation-launcher --model-id M --quantize gptq", 16, True),
    ],
)
def test_weights_are_quantized_by_a_server_that_can(command: str, times: int, noted: bool) -> None:
    plan = serving_plan(LLAMA3_8B, said(command), devices(1, 80))
    outside = 4 * LLAMA3_8B.vocabulary * LLAMA3_8B.hidden
    blocks = (2 * LLAMA3_8B.parameters - outside) * times / 16
    assert plan.rows[0].bytes.weights == int(blocks + outside)
    assert any("is not counted: the model" in each for each in plan.notices) == noted


def test_weights_that_are_quantized_stay_as_they_are() -> None:
    known = replace(LLAMA3_8B, bits=4.5, stored=5_700_000_000)
    for method in ("awq", "fp8"):
        plan = serving_plan(known, Serving("vLLM", quantization=method), devices(1, 80))
        assert plan.rows[0].bytes.weights == known.stored
        assert not any("is not counted: the model" in each for each in plan.notices)


@pytest.mark.usefixtures("models")
def test_only_a_training_is_told_that_quantized_weights_count_in_full(call: Call) -> None:
    config = {**LOGS["configs"]["Llama-3.1-8B"], "quantization_config": {"bits": 4, "group_size": 128}}
    Path("Llama-3.1-8B", "config.json").write_text(json.dumps(config))

    def notes(*words: str) -> str:
        return " ".join(call("plan", "--demo", "dgx-h100", "--json", "--", *words).json["notices"])

    assert "quantized" in notes("train.py", "--model", "Llama-3.1-8B")
    assert "quantized" not in notes("vllm", "serve", "Llama-3.1-8B")
    assert "GGUF" in notes("train.py", "--model", "m.gguf")
    assert "GGUF" not in notes("llama-server", "-m", "m.gguf")


def test_a_model_without_a_form_is_served_by_its_bytes_or_its_text_part(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LOGS["configs"]["gpt-oss-20b"]))
    with pytest.raises(PlanningError):
        read_model(str(tmp_path), NO_VARIABLES, tmp_path, serves=True)
    index = {"metadata": {"total_size": 13_761_264_768}, "weight_map": {"a": "gone.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    known = read_model(str(tmp_path), NO_VARIABLES, tmp_path, serves=True)
    assert known.stored == 13_761_264_768 and known.cache is not None and known.cache.sliding == 12
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "config.json").write_text(json.dumps({"text_config": LOGS["configs"]["gemma-3-1b-it"]}))
    known = read_model(str(parts), NO_VARIABLES, tmp_path, serves=True)
    assert known.parameters == 999_885_952 and "parts other than text" in known.notices[-1]


# What a command says


@each_row(
    ("command", "expected"),
    [
        ("vllm serve M --max-model-len 32k -tp 2", Serving("vLLM", 32000, tensor=2, pipeline=1)),
        ("vllm serve M --max_model_len=16K --gpu-memory-utilization .8", Serving("vLLM", 16384, 0.8)),
        (
            "python -m vllm.entrypoints.openai.api_server --model M --kv-cache-dtype fp8 --quantization fp8",
            Serving("vLLM", cache_type="fp8", quantization="fp8"),
        ),
        ("vllm serve M -pp 2", Serving("vLLM", tensor=1, pipeline=2)),
        (
            "python -m sglang.launch_server --model-path M --mem-fraction-static 0.85 --context-length 8192",
            Serving("SGLang", 8192, 0.85),
        ),
        # (The tokens of all requests together.)
        ("python -m sglang.launch_server --model-path M --max-total-tokens 9000", Serving("SGLang")),
        (
            "text-generation-launcher --model-id M --max-total-tokens 9000",
            Serving("Text Generation Inference", 9000),
        ),
        (
            "text-generation-launcher --model-id M --num-shard 2 --quantize bitsandbytes-nf4",
            Serving("Text Generation Inference", quantization="bitsandbytes-nf4", tensor=2, pipeline=1),
        ),
        (
            "llama-server -m M.gguf -c 4096 -ngl 20 -ctk q8_0",
            Serving("llama.cpp", 4096, None, "q8_0", layers=20),
        ),
        ("vllm serve M --max-model-len many --gpu-memory-utilization 90", Serving("vLLM")),
    ],
)
def test_the_words_of_a_server(command: str, expected: Serving) -> None:
    assert said(command) == expected
    assert training_of(LaunchOptions(tuple(shlex.split(command))), NO_VARIABLES).model in ("M", "M.gguf")


def test_other_servers_are_a_doubt_as_before() -> None:
    assert training_of(LaunchOptions(("trtllm-serve", "M")), NO_VARIABLES).serving is None


# GGUF

_LLAMA_KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.tags": ["text", "chat"],
    "llama.block_count": 32,
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.tokens": ["token"] * 128256,
}


def gguf(path: Path, keys: dict[str, Any], size: int = 4_920_000_000, head: bytes = b"GGUF\3\0\0\0") -> Path:
    """A GGUF file whose tensors are a hole."""

    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    def value(found: Any) -> bytes:
        if isinstance(found, str):
            return struct.pack("<I", 8) + text(found)
        if isinstance(found, float):
            return struct.pack("<If", 6, found)
        if isinstance(found, int):
            return struct.pack("<II", 4, found)
        inner = 8 if isinstance(found[0], str) else 4
        each = [text(one) if inner == 8 else struct.pack("<I", one) for one in found]
        return struct.pack("<IIQ", 9, inner, len(found)) + b"".join(each)

    data = head + struct.pack("<QQ", 291, len(keys))
    data += b"".join(text(name) + value(found) for name, found in keys.items())
    with path.open("wb") as file:
        file.write(data)
        file.truncate(max(size, len(data)))
    return path


def test_the_header_of_a_gguf_file_is_the_shape_and_its_size_the_weights(tmp_path: Path) -> None:
    known = read_model(str(gguf(tmp_path / "m.gguf", _LLAMA_KEYS)), NO_VARIABLES, tmp_path)
    assert (known.parameters, known.counted, known.stored) == (8_030_261_248, "GGUF", 4_920_000_000)
    assert known.cache == LLAMA3_8B.cache and known.max_positions == 131072
    row = rows(known, Serving("llama.cpp", context=8192), devices(1, 24))["single"]
    assert row.bytes.weights == 4_920_000_000 and row.fits and row.bytes.cache == GIB


def test_all_parts_of_a_split_gguf_file_count(tmp_path: Path) -> None:
    gguf(tmp_path / "m-00002-of-00002.gguf", {}, 1_000_000)
    first = gguf(tmp_path / "m-00001-of-00002.gguf", _LLAMA_KEYS, 3_000_000)
    assert read_model(str(first), NO_VARIABLES, tmp_path).stored == 4_000_000


def test_the_parts_of_a_gguf_file_are_found_in_a_folder_that_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among a million files of another user, a listing takes seconds."""
    first = gguf(tmp_path / "m-00001-of-99999.gguf", _LLAMA_KEYS, 3_000_000)
    gguf(tmp_path / "m-00002-of-99999.gguf", {}, 1_000_000)

    def closed(*_: object) -> None:
        raise PermissionError

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, closed)
    assert read_model(str(first), NO_VARIABLES, tmp_path).stored == 4_000_000


def test_a_gguf_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    one = gguf(tmp_path / "m**[1]-00001-of-00002.gguf", _LLAMA_KEYS)
    other = gguf(tmp_path / "m**[1]-00002-of-00002.gguf", _LLAMA_KEYS)
    gguf(tmp_path / "m1-00002-of-00002.gguf", _LLAMA_KEYS)
    both = one.stat().st_size + other.stat().st_size
    assert read_model(one.name, NO_VARIABLES, tmp_path).stored == both


def test_a_gguf_file_of_an_unknown_architecture_has_the_usual_shape(tmp_path: Path) -> None:
    keys = {name.replace("llama", "newest"): value for name, value in _LLAMA_KEYS.items()}
    keys |= {"general.architecture": "newest", "newest.attention.head_count_kv": [8, 0, 4]}
    known = read_model(str(gguf(tmp_path / "m.gguf", keys)), NO_VARIABLES, tmp_path)
    assert known.cache is not None and (known.cache.layers, known.cache.heads) == (32, 8)


def test_a_missing_gguf_file_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(PlanningError) as refused:
        read_model("gone.gguf", NO_VARIABLES, tmp_path)
    assert "download" not in str(refused.value)


def test_a_gguf_file_without_an_architecture_is_refused(tmp_path: Path) -> None:
    keys = {name: value for name, value in _LLAMA_KEYS.items() if name != "general.architecture"}
    for path in (gguf(tmp_path / "a.gguf", keys), gguf(tmp_path / "b.gguf", {"general.architecture": 3})):
        with pytest.raises(PlanningError, match="header"):
            read_model(str(path), NO_VARIABLES, tmp_path)


@pytest.mark.parametrize("architecture", ["llama", "newest"])
def test_a_fault_in_a_gguf_file_names_this_file(tmp_path: Path, architecture: str) -> None:
    keys = {name.replace("llama", architecture): value for name, value in _LLAMA_KEYS.items()}
    keys |= {"general.architecture": architecture, f"{architecture}.attention.head_count_kv": 0}
    with pytest.raises(PlanningError, match=r"^m\.gguf: "):
        read_model(str(gguf(tmp_path / "m.gguf", keys)), NO_VARIABLES, tmp_path)


def _damaged(whole: bytes) -> list[bytes]:
    lists = struct.pack("<IQ", 9, 1) * 80_000
    return [
        *(whole[:length] for length in (0, 3, 8, 23, 24, 40, 200, 300)),
        b"GGUF\1\0\0\0" + whole[8:],
        b"\0" * 4096,
        whole[:16] + b"\xff" * 8 + whole[24:300],
        whole[:24] + b"\xff" * 300,
        b"GGUF\3\0\0\0"
        + struct.pack("<QQ", 1, 1)
        + struct.pack("<Q", 1)
        + b"x"
        + struct.pack("<I", 9)
        + lists,
        whole.replace(b"llama", b"\xff\xfe\xfd\xfc\xfb"),
        # A list of lists of different kinds, whose largest is not defined.
        whole.replace(
            struct.pack("<II", 4, 32),
            struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQB", 0, 1, 1) + struct.pack("<IQQ", 8, 1, 0),
        ),
        # Names without a letter, as many as its first mebibyte holds: they take longer than a reading may.
        whole[:16] + b"\xff" * 8 + b"\0" * (1 << 20),
    ]


@each_row("place", range(16))
def test_a_damaged_gguf_file_is_refused_in_one_line_or_read_within_bounds(tmp_path: Path, place: int) -> None:
    whole = gguf(tmp_path / "m.gguf", _LLAMA_KEYS, 0).read_bytes()
    path = tmp_path / "damaged.gguf"
    path.write_bytes(_damaged(whole)[place])

    def read() -> None:
        try:
            assert read_model(str(path), NO_VARIABLES, tmp_path).stored == path.stat().st_size
        except PlanningError as error:
            assert str(error) and "\n" not in str(error) and len(str(error)) < 400

    assert_costs(0.2, lambda: cpu_seconds(read))


def test_a_gguf_file_of_a_whole_vocabulary_is_read_at_once(tmp_path: Path) -> None:
    """The vocabulary is not read: only its length."""
    path = gguf(tmp_path / "m.gguf", _LLAMA_KEYS)
    assert_costs(0.05, lambda: cpu_seconds(lambda: read_model(str(path), NO_VARIABLES, tmp_path)))


# The calls


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("Llama-3.1-8B", "Qwen3-32B"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LOGS["configs"][name]))
    gguf(tmp_path / "m.gguf", _LLAMA_KEYS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("models")
def test_the_plan_of_a_server_as_text_and_as_json(call: Call) -> None:
    words = ("plan", "--demo", "rtx3090", "-n", "2")
    command = ("--", "vllm", "serve", "Llama-3.1-8B", "--max-model-len", "32768")
    said = call(*words, *command)
    assert said.status == 0 and "vLLM  92% of each device  context 32768" in said.out
    assert "REQUESTS" in said.out and "DeepSpeed" not in said.out and "peak" in said.err
    document = call(*words, "--json", *command).json
    found = {row["name"]: row for row in document["strategies"]}
    assert set(found) == {"single", "tp2", "pp2"} and document["estimators"]["deepspeed"] == []
    assert found["tp2"]["fits"] and found["tp2"]["serving"]["context"] == 32768
    assert found["tp2"]["bytes"]["total"] == sum(found["tp2"]["bytes"].values()) / 2


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    "command",
    [
        "python -m sglang.launch_server --model-path Llama-3.1-8B",
        "text-generation-launcher --model-id Llama-3.1-8B --max-total-tokens 8192",
        "llama-server -m m.gguf -ngl 99 -c 8192",
        "python -m vllm.entrypoints.openai.api_server --model Llama-3.1-8B",
    ],
)
def test_every_server_that_is_known_has_a_plan(call: Call, command: str) -> None:
    document = call("plan", "--demo", "dgx-h100", "-n", "2", "--json", "--", *shlex.split(command)).json
    assert all(row["serving"]["tokens"] > 0 for row in document["strategies"] if row["fits"])
    assert any(row["fits"] for row in document["strategies"])


def test_the_table_in_the_documentation_is_the_one_that_is_shown(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen3-8B").mkdir()
    (tmp_path / "Qwen3-8B" / "config.json").write_text(json.dumps(LOGS["configs"]["Qwen3-8B"]))
    monkeypatch.setattr("gputui.cli.plan.output_width", lambda: 80)
    command = ("vllm", "serve", "Qwen3-8B", "--max-model-len", "32768")
    shown = call("plan", "--demo", "rtx3090", "--", *command).out
    assert shown in (Path(__file__).parents[2] / "docs" / "planning.md").read_text()


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("command", "added"),
    [
        ("vllm serve Llama-3.1-8B --max-model-len 16384", ""),
        (
            "vllm serve Llama-3.1-8B --max-model-len 16384 --tensor-parallel-size 2",
            "--tensor-parallel-size 2",
        ),
        ("vllm serve Llama-3.1-8B --max-model-len 100000 --dtype float32", "--tensor-parallel-size=4"),
        ("python -m sglang.launch_server --model-path Llama-3.1-8B --pp-size 2", "--pp-size 2"),
        ("vllm serve odd --max-model-len 100000", "--pipeline-parallel-size=4"),
    ],
)
def test_the_answer_for_a_server_has_the_call_that_starts_it(
    call: Call, tmp_path: Path, command: str, added: str
) -> None:
    odd = {**LOGS["configs"]["Llama-3.1-8B"], "num_attention_heads": 37, "num_key_value_heads": 37}
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**odd, "head_dim": 128}))
    words = ("plan", "--demo", "rtx3090", "--measured", "none", "--", *command.split())
    (tmp_path / "none").write_text('{"measured": {"copies": []}}')
    first, _, proposed = call(*words).out.splitlines()[:3]
    best = next(row for row in call(*words[:3], "--json", *words[5:]).json["strategies"] if row["fits"])
    assert first.startswith(f"Use {best['name']} on {best['devices']} GPU") and "tokens fit at once" in first
    said = shlex.split(proposed)
    started = call(*said[1:3], "--dry-run", *said[3:])
    assert started.status == 0 and added in started.out
    assert len(started.out.partition("VISIBLE_DEVICES=")[2].split()[0].split(",")) == best["devices"]


@pytest.mark.usefixtures("models")
def test_a_server_without_stages_is_offered_none(call: Call) -> None:
    for command, stages in (("text-generation-launcher --model-id", False), ("vllm serve", True)):
        document = call("plan", "--demo", "rtx3090", "--json", "--", *command.split(), "Llama-3.1-8B").json
        assert any(row["pp"] > 1 for row in document["strategies"]) == stages


@pytest.mark.usefixtures("models")
def test_the_sequence_of_a_call_is_the_context(call: Call) -> None:
    command = ("--", "vllm", "serve", "Llama-3.1-8B")
    document = call("plan", "--demo", "rtx3090", "-s", "4096", "--json", *command).json
    assert {row["serving"]["context"] for row in document["strategies"]} == {4096}


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("words", "devices", "added"),
    [
        ("vllm serve Llama-3.1-8B --max-model-len 16384", 1, ""),
        ("vllm serve Llama-3.1-8B", 2, "--tensor-parallel-size=2"),
        ("vllm serve Qwen3-32B --max-model-len 4096", 4, "--tensor-parallel-size=4"),
        ("vllm serve Llama-3.1-8B -tp 4", 4, ""),
        ("llama-server -m m.gguf", 1, ""),
    ],
)
def test_run_takes_as_many_devices_as_a_server_needs(
    call: Call, words: str, devices: int, added: str
) -> None:
    said = call("run", "--demo", "rtx3090", "-n", "auto", "--dry-run", "--", *shlex.split(words))
    assert said.status == 0, said.err
    listed = said.out.partition("CUDA_VISIBLE_DEVICES=")[2].split()[0]
    assert len(listed.split(",")) == devices
    assert (added in said.out) if added else "--tensor-parallel-size" not in said.out


@pytest.mark.usefixtures("models")
def test_run_says_why_no_number_is_enough(call: Call) -> None:
    said = call(
        *("run", "--demo", "rtx3090", "-n", "auto", "--dry-run", "--"),
        *("vllm", "serve", "Qwen3-32B", "--gpu-memory-utilization", "0.5"),
    )
    assert said.status == 4 and said.err.endswith("does not fit on the 4 free GPUs\n")
    said = call("run", "--demo", "rtx3090", "-n", "auto", "--dry-run", "--", "vllm", "serve", "Qwen3-32B")
    assert said.status == 0
    said = call(
        *("run", "--demo", "rtx3090", "-n", "auto", "--dry-run", "--"),
        *("vllm", "serve", "Llama-3.1-8B", "-tp", "1"),
    )
    assert said.status == 4 and "would fit with at most" in said.err
    # A GTX 1080 beside an RTX 4090: both together have less room than the larger one alone.
    said = call(
        *("run", "--demo", "mixed", "-n", "auto", "--dry-run", "--"),
        *("vllm", "serve", "Llama-3.1-8B", "--max-model-len", "131072"),
    )
    assert said.status == 4 and "would fit on one with at most" in said.err


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--demo", "--use", "tp2", "-o", "x", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "--prove", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "--", "vllm", "serve", "Llama-3.1-8B", "-tp", "3"],
        ["plan", "--demo", "--nodes", "2", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "--group", "tp=2", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "-b", "4", "--lora", "8", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "--checkpointing", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "--weights-only", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["run", "-n", "auto", "--dry-run", "--demo", "--optim", "sgd", "--", "vllm", "serve", "Llama-3.1-8B"],
        ["plan", "--demo", "--", "vllm", "serve", "nowhere/nothing"],
        ["plan", "--demo", "--", "llama-server", "-m", "gone.gguf"],
        ["plan", "--demo", "--", "vllm", "serve"],
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(call: Call, words: list[str]) -> None:
    said = call(*words)
    assert said.status == 2 and said.out == ""
    assert len([line for line in said.err.splitlines() if not line.startswith("gputui: note")]) == 1


def test_every_plan_of_a_server_is_made_at_once() -> None:
    """At most 20 ms for the slowest family and engine on eight devices."""
    box = devices(8, 79.2)
    known = [closed_form(Fields({"model_type": kind}, "config.json"), kind) for kind in FAMILIES]

    for each in known:
        for name in ENGINES if each.cache is not None else ():
            planned = partial(serving_plan, each, Serving(name), box)
            assert_costs(0.02, partial(cpu_seconds, planned))


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("words", [("run", "-n", "auto", "--dry-run"), ("plan",)])
@pytest.mark.parametrize(("method", "noted"), [("awq", True), ("fp8", False)])
def test_quantization_that_the_model_cannot_have_is_noted(
    call: Call, words: tuple[str, ...], method: str, noted: bool
) -> None:
    command = ("vllm", "serve", "Llama-3.1-8B", "--max-model-len", "8192", "--quantization", method)
    ended = call(*words, "--demo", "rtx3090", "--", *command)
    assert ended.status == 0 and (f"{method} is not counted" in ended.err) == noted


def test_an_unknown_architecture_of_a_server_says_what_to_give(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    config = {"model_type": "odd", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100, "intermediate_size": 8}))
    words = ("plan", "--demo", "rtx3090", "--", "vllm", "serve", str(tmp_path))
    said = call(*words).refused(2)
    assert "'odd'" in said and "model.safetensors.index.json" in said and "'vllm'" in said
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 12000000}}')
    assert call(*words).status == 0
