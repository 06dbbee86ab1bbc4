"""A model by its name: folders, files, the cache, numbers; and names of no model, refused in one line."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.planning.model import Model, PlanningError, UnknownArchitectureError
from gputui.planning.reading import find_model, parameters_of, read_model
from table_tests import each_row
from unit.planning_models import GPT2, LLAMA2_7B

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 97,
}
NO_VARIABLES: dict[str, str] = {"HOME": "/nonexistent"}


def read(name: str, place: Path, environ: dict[str, str] | None = None) -> Model:
    return read_model(name, NO_VARIABLES if environ is None else environ, place)


def configured(folder: Path, **fields: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, **fields}))
    return folder


def tensors(path: Path, shapes: dict[str, tuple[int, ...]], kind: str = "BF16", width: int = 2) -> Path:
    """A safetensors file whose tensors are holes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        number = width
        for each in shape:
            number *= each
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + number]}
        at += number
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return path


def refused(name: str, place: Path, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(PlanningError) as error:
        read(name, place, environ)
    text = str(error.value)
    assert text and "\n" not in text and len(text) < 400
    return text


def test_a_folder_and_its_configuration_are_the_same_model(tmp_path: Path) -> None:
    configured(tmp_path / "mine")
    by_folder, by_file = read("mine", tmp_path), read("mine/config.json", tmp_path)
    assert by_folder.parameters == by_file.parameters
    assert (by_folder.name, by_folder.counted) == ("mine", "closed form")
    assert by_folder.wrap_class == "LlamaDecoderLayer"


def test_a_configuration_without_a_model_type_is_known_by_its_class(tmp_path: Path) -> None:
    fields = {key: value for key, value in LLAMA.items() if key != "model_type"}
    (tmp_path / "config.json").write_text(json.dumps({**fields, "architectures": ["LlamaForCausalLM"]}))
    assert read("config.json", tmp_path).wrap_class == "LlamaDecoderLayer"


def test_a_number_is_a_model_of_that_size(tmp_path: Path) -> None:
    known = read("8B", tmp_path)
    assert (known.parameters, known.counted, known.wrap_class) == (8 * 10**9, "given", None)
    assert known.notices and find_model("8B", {}, tmp_path) is None
    assert read("1.5b", tmp_path).parameters == 1_500_000_000


@each_row(
    ("size", "heads"),
    [("1B", 16), ("3B", 24), ("7B", 32), ("8B", 32), ("13B", 40), ("70B", 64), ("405B", 128)],
)
def test_a_number_has_the_heads_of_models_of_this_size(tmp_path: Path, size: str, heads: int) -> None:
    assert read(size, tmp_path).heads == heads


def test_a_folder_called_like_a_number_is_the_folder(tmp_path: Path) -> None:
    configured(tmp_path / "8B")
    assert read("8B", tmp_path).wrap_class == "LlamaDecoderLayer"


@each_row(("text", "number"), [("7000000000", 7 * 10**9), ("6.7e9", 6_700_000_000), ("8B", 8 * 10**9)])
def test_a_number_of_parameters(text: str, number: int) -> None:
    assert parameters_of(text) == number


@each_row("text", ["", "-8B", "0", "8X", "1e400", "nan", "inf", "1" * 50, "٣"])
def test_what_is_no_number_of_parameters(text: str) -> None:
    with pytest.raises(PlanningError):
        parameters_of(text)


# The cache of huggingface_hub


@each_row(
    ("variables", "hub"),
    [
        ({"HF_HUB_CACHE": "{}/own"}, "own"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/old"}, "old"),
        ({"HF_HOME": "{}/home"}, "home/hub"),
        ({"HF_HOME": "~/home", "HOME": "{}"}, "home/hub"),
        ({"HF_HOME": "$SCRATCH/home", "SCRATCH": "{}"}, "home/hub"),
        ({"HF_HUB_CACHE": "${{SCRATCH}}/$NONE", "SCRATCH": "{}"}, "$NONE"),
        ({"XDG_CACHE_HOME": "{}/xdg"}, "xdg/huggingface/hub"),
        ({"HOME": "{}"}, ".cache/huggingface/hub"),
        ({"HF_HUB_CACHE": "{}/own", "HF_HOME": "{}/home", "HOME": "/nonexistent"}, "own"),
    ],
)
def test_a_hub_id_is_found_in_the_cache_where_the_variables_say(
    tmp_path: Path, variables: dict[str, str], hub: str
) -> None:
    repository = tmp_path / hub / "models--org--tiny-model"
    configured(repository / "snapshots" / ("a" * 40))
    configured(repository / "snapshots" / ("b" * 40), num_hidden_layers=3)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("b" * 40)
    environ = {"HOME": "/nonexistent"} | {key: value.format(tmp_path) for key, value in variables.items()}
    found = read("org/tiny-model", tmp_path, environ)
    assert (found.name, found.layers) == ("org/tiny-model", 3)


def test_a_folder_of_any_number_of_snapshots_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(contextlib.nullcontext[None]):
        def __enter__(self) -> Iterator[Path]:  # type: ignore[override]
            return itertools.repeat(tmp_path)

    monkeypatch.setattr(os, "scandir", lambda folder: Endless())
    monkeypatch.setattr(os, "listdir", None)
    with pytest.raises(PlanningError, match="no such model"):
        read_model("org/model", {"HF_HUB_CACHE": str(tmp_path)}, tmp_path)


def test_a_hub_id_that_is_not_in_the_cache_says_so(tmp_path: Path) -> None:
    refused("meta-llama/Llama-2-7b-hf", tmp_path)
    (tmp_path / "hub" / "models--org--x" / "refs").mkdir(parents=True)
    (tmp_path / "hub" / "models--org--x" / "refs" / "main").write_text("../../..")
    refused("org/x", tmp_path, {"HF_HOME": str(tmp_path)})


# Stored weights


SHAPES = {"wte": (100, 64), "block.weight": (64, 192), "block.bias": (192,), "scale": ()}
STORED = 100 * 64 + 64 * 192 + 192 + 1


def test_a_header_tells_the_exact_number(tmp_path: Path) -> None:
    tensors(tmp_path / "model.safetensors", SHAPES)
    for name in ("model.safetensors", "."):
        found = read(name, tmp_path)
        assert (found.parameters, found.largest_layer, found.counted) == (STORED, 64 * 192, "safetensors")


def test_buffers_that_are_stored_are_no_parameters(tmp_path: Path) -> None:
    path = tensors(tmp_path / "model.safetensors", {**SHAPES, "h.0.attn.bias": (1, 1, 32, 32)})
    assert read(path.name, tmp_path).parameters == STORED
    path = tensors(tmp_path / "model.safetensors", {**SHAPES, "layers.0.rotary_emb.inv_freq": (32,)})
    assert read(path.name, tmp_path).parameters == STORED


def test_an_index_is_the_sum_of_its_files(tmp_path: Path) -> None:
    tensors(tmp_path / "1.safetensors", SHAPES)
    tensors(tmp_path / "2.safetensors", {"head": (64, 100)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte": "1.safetensors", "head": "2.safetensors"}}))
    assert read(index.name, tmp_path).parameters == STORED + 6400
    (tmp_path / "2.safetensors").unlink()
    refused(index.name, tmp_path)
    told = {"metadata": {"total_parameters": 42_000}, "weight_map": {"wte": "1.safetensors", "x": "gone"}}
    index.write_text(json.dumps(told))
    assert read(index.name, tmp_path).parameters == 42_000
    for name in ("../elsewhere.safetensors", "n" * 300):
        index.write_text(json.dumps({"weight_map": {"wte": name}}))
        for given in (index.name, "."):
            refused(given, tmp_path)


def test_stored_weights_beside_a_configuration_have_its_shape(tmp_path: Path) -> None:
    configured(tmp_path, model_type="newest", architectures=["NewestForCausalLM"])
    with pytest.raises(UnknownArchitectureError):
        read(".", tmp_path)
    tensors(tmp_path / "model.safetensors", SHAPES)
    found = read(".", tmp_path)
    assert (found.parameters, found.layers, found.hidden) == (STORED, 2, 64)
    assert found.architecture == "NewestForCausalLM" and found.notices


def test_a_folder_of_a_family_is_counted_by_its_form_and_its_file_by_the_file(tmp_path: Path) -> None:
    tensors(configured(tmp_path) / "model.safetensors", SHAPES)
    assert read(".", tmp_path).counted == "closed form"
    by_file = read("model.safetensors", tmp_path)
    assert (by_file.counted, by_file.parameters) == ("safetensors", STORED)
    assert by_file.wrap_class == "LlamaDecoderLayer" and by_file.notices


# Inputs that are no model


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tensors(tmp_path / "model.safetensors", SHAPES)
    whole = path.read_bytes()
    for length in (0, 4, 8, 20, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path.name, tmp_path)


@each_row(
    "header",
    [
        b"[]",
        b"{",
        b"{}",
        b'{"x": 5}',
        b'{"x": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"x": {"dtype": {}, "shape": [1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}',
        b"[" * 100_000,
    ],
)
def test_a_header_that_is_none_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    refused(path.name, tmp_path)


def test_an_adapter_names_the_model_that_it_adapts_and_its_rank(tmp_path: Path) -> None:
    adapter = {"base_model_name_or_path": "owner/base", "peft_type": "LORA", "r": 16}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    text = refused(str(tmp_path), tmp_path)
    assert "owner/base" in text and "--lora 16" in text
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": 5, "r": True}))
    assert "--lora" not in refused(str(tmp_path), tmp_path)


@each_row("name", ["model.gguf", "pytorch_model.bin", "best.ckpt"])
def test_weights_of_other_formats_are_refused_with_what_to_give(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    assert "8B" in refused(name, tmp_path)
    assert "8B" in refused(str(tmp_path), tmp_path)


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    assert "LFS" in refused("model.safetensors", tmp_path)


def test_a_file_of_two_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2 * 1024**3)
    assert "config.json" in refused("config.json", tmp_path)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write((2**31).to_bytes(8, "little"))
        file.truncate(2 * 1024**3)
    refused("model.safetensors", tmp_path)


@each_row("text", ["", "[]", "null", "5", "{}", '{"model_type": 5}', "[" * 100_000, "\x00", "{"])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    refused("config.json", tmp_path)


@each_row("name", ["", "\0", "no/such/model/here", "../../etc", "a" * 5000, "-1B", "a b", "\x1b[2J"])
def test_a_name_of_nothing_is_refused(tmp_path: Path, name: str) -> None:
    assert refused(name, tmp_path).isprintable()


def test_a_pipe_and_a_folder_in_place_of_a_file_do_not_stop_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    refused("config.json", tmp_path)
    refused(".", tmp_path)
    (tmp_path / "empty").mkdir()
    refused("empty", tmp_path)


def test_the_defaults_of_a_family_are_those_of_its_class() -> None:
    assert (GPT2.hidden, GPT2.layers, GPT2.max_positions) == (768, 12, 1024)
    assert (LLAMA2_7B.hidden, LLAMA2_7B.kv_heads) == (4096, 32)


@each_row("serves", [False, True])
@each_row(("kind", "field"), [("llama", "num_key_value_heads"), ("falcon", "num_kv_heads")])
@each_row(("heads", "fits"), [(7, False), (64, False), (8, True), (32, True)])
def test_key_value_heads_that_do_not_divide_the_heads_are_refused(
    tmp_path: Path, kind: str, field: str, heads: int, fits: bool, serves: bool
) -> None:
    config = {"model_type": kind, "hidden_size": 4096, "num_attention_heads": 32, field: heads}
    (tmp_path / "config.json").write_text(json.dumps({**config, "new_decoder_architecture": True}))
    if fits:
        assert read_model(str(tmp_path), {}, tmp_path, serves).kv_heads == heads
    else:
        with pytest.raises(PlanningError, match=f"{heads} key/value heads"):
            read_model(str(tmp_path), {}, tmp_path, serves)
