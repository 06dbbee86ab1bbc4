"""The answers of the training's own Python about a model: from files, and from the real libraries."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.checking.plan_proof import (
    PlanProof,
    differences,
    estimated,
    prove,
)
from gputui.launching.launch import Launch
from gputui.planning.estimators import Estimate
from gputui.planning.workload import Precision, Workload
from table_tests import each_row
from unit.builders import gpu

MODEL = {
    "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
    "architecture": "LlamaForCausalLM",
    "parameters": 134515008,
    "largest_layer": 28311552,
    "wrap_class": "LlamaDecoderLayer",
    "blocks": 30,
    "largest_block": 3540096,
}
ESTIMATES = {
    "version": "0.19.8",
    "estimates": [{"stage": 3, "offload": "all", "gpu": 113246208, "cpu": 3631905216}],
}
TRACKED = {"peak": 6, "without": []}
WHOLE = {"model.json": MODEL, "estimates.json": ESTIMATES, "tracked.json": TRACKED}
LAUNCH = Launch(argv=("python", "train.py"), devices=(gpu(0),), vendor_name="nvidia")


def answered(tmp_path: Path, files: dict[str, Any], last: str = "", seconds: float = 20.0) -> PlanProof:
    """The proof where the child writes these files."""
    answers = tmp_path / "answers"
    answers.mkdir()
    for name, content in files.items():
        (answers / name).write_text(content if isinstance(content, str) else json.dumps(content))
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nfor file in {answers}/*; do [ ! -e "$file" ] || cp "$file" "$2"; done\n{last}\n'
    )
    python.chmod(0o755)
    return prove(LAUNCH, os.environ, "m", Workload(), python=str(python), seconds=seconds)


def test_all_that_is_answered_is_in_the_proof(tmp_path: Path) -> None:
    proof = answered(tmp_path, WHOLE)
    assert proof == PlanProof(
        "LlamaForCausalLM",
        {
            "parameters": 134515008,
            "largest_layer": 28311552,
            "zero3 gpu, offload all": 113246208,
            "zero3 cpu, offload all": 3631905216,
            "peak": 6,
        },
        {"torch": "2.13.0", "transformers": "5.23.0", "deepspeed": "0.19.8"},
    )


def test_without_transformers_nothing_is_proved_and_nothing_failed(tmp_path: Path) -> None:
    proof = answered(tmp_path, {"model.error": "ModuleNotFoundError: No module named 'transformers'"})
    assert (proof.numbers.get("parameters"), proof.problems, len(proof.remarks)) == (None, (), 1)


def test_a_model_that_transformers_does_not_know_is_a_problem(tmp_path: Path) -> None:
    proof = answered(tmp_path, {"model.error": "OSError: m is not a local folder\nand more"})
    assert proof.problems == ("OSError: m is not a local folder",) and proof.remarks == ()


@each_row("part", ["estimates", "tracked"])
@each_row("error", ["ModuleNotFoundError: deepspeed", "AttributeError: changed", ""])
def test_what_a_library_lacks_or_has_changed_is_a_remark(tmp_path: Path, part: str, error: str) -> None:
    files = {**WHOLE, f"{part}.error": error}
    del files[f"{part}.json"]
    proof = answered(tmp_path, files)
    assert (proof.numbers.get("parameters"), proof.problems, len(proof.remarks)) == (134515008, (), 1)
    assert ("peak" not in proof.numbers) is (part == "tracked")
    assert (not any("zero" in what for what in proof.numbers)) is (part == "estimates")


def test_what_was_answered_counts_where_the_time_ends_and_then_the_child_is_gone(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    files = {"model.json": MODEL, "estimates.json": ESTIMATES}
    proof = answered(tmp_path, files, f"echo $$ > {pid}; exec sleep 600", seconds=3.0)
    assert proof.numbers.get("parameters") == 134515008 and "peak" not in proof.numbers
    assert proof.problems == () and any("within" in remark for remark in proof.remarks)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_child_that_says_nothing_is_a_problem_with_its_last_line(tmp_path: Path) -> None:
    (problem,) = answered(tmp_path, {}, "echo gone wrong; exit 3").problems
    assert "gone wrong" in problem


@each_row(
    ("file", "content"),
    [
        ("model.json", "not JSON"),
        ("model.json", "[]"),
        ("model.json", {**MODEL, "parameters": "many"}),
        ("model.json", {**MODEL, "parameters": -1}),
        ("model.json", {**MODEL, "wrap_class": 1}),
        ("model.json", {**MODEL, "versions": []}),
        ("estimates.json", {**ESTIMATES, "estimates": [{"stage": 3, "offload": "tape", "gpu": 1, "cpu": 1}]}),
        ("tracked.json", {**TRACKED, "peak": 1e9}),
        ("tracked.json", {"peak": 1}),
        ("tracked.json", "1" * 5_000_000),
    ],
)
def test_an_answer_that_is_none_is_a_problem_and_not_believed(
    tmp_path: Path, file: str, content: Any
) -> None:
    proof = answered(tmp_path, {**WHOLE, file: content})
    assert len(proof.problems) == 1
    assert ("parameters" not in proof.numbers) is (file == "model.json")
    assert ("peak" not in proof.numbers) is (file == "tracked.json")


def test_the_interpreter_sees_no_device_and_a_folder_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES|$3" > seen\n')
    python.chmod(0o755)
    launch = replace(LAUNCH, changes=(("CUDA_VISIBLE_DEVICES", "3"),))
    prove(launch, os.environ, "mine", Workload(batch=4), 8, python=str(python))
    visible, _, spec = (tmp_path / "seen").read_text().partition("|")
    assert visible == ""
    told = json.loads(spec)
    assert (told["model"], told["batch"], told["devices"]) == (str(tmp_path / "mine"), 4, 8)


def test_who_cancels_need_not_wait(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    cancelled = threading.Event()
    cancelled.set()
    assert prove(LAUNCH, os.environ, "m", Workload(), python=str(python), cancelled=cancelled).problems


def test_differences_are_those_of_numbers_that_both_know() -> None:
    theirs = estimated((Estimate(2, "none", 10, 20), Estimate(3, "all", 1, 2)))
    proof = PlanProof(numbers={"parameters": 100, "peak": 200, **theirs})
    ours = estimated((Estimate(2, "none", 10, 25), Estimate(3, "none", 1, 2)))
    closed = {"parameters": 100, "largest_layer": 7, "peak": 220, **ours}
    found = differences(proof, closed)
    assert [(*each[:3], round(each.share, 2)) for each in found] == [
        ("parameters", 100, 100, 0.0),
        ("peak", 220, 200, 0.1),
        ("zero2 gpu, offload none", 10, 10, 0.0),
        ("zero2 cpu, offload none", 25, 20, 0.25),
    ]
    assert differences(PlanProof(), closed) == []


LIBRARIES = ("torch", "transformers")
needs_libraries = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in LIBRARIES),
    reason="torch and transformers are not installed",
)
H, LAYERS, KV, F, V = 64, 2, 32, 160, 512
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": H,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": F,
    "vocab_size": V,
    "tie_word_embeddings": False,
}


def proved(tmp_path: Path, config: dict[str, Any], step: Workload, devices: int = 2) -> PlanProof:
    """The proof by the libraries that are installed here."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    return prove(LAUNCH, os.environ, str(tmp_path), step, devices, python=sys.executable)


@needs_libraries
@pytest.mark.parametrize(("precision", "checkpointing"), [("bf16", True), ("fp16", False)])
def test_a_small_model_is_counted_and_a_step_of_it_tracked(
    tmp_path: Path, precision: Precision, checkpointing: bool
) -> None:
    proof = proved(tmp_path, TINY, Workload(2, 128, precision, checkpointing=checkpointing))
    block = 2 * H * H + 2 * H * KV + 3 * H * F + 2 * H
    count = 2 * V * H + LAYERS * block + H
    assert (proof.problems, proof.name) == ((), "LlamaForCausalLM")
    assert (proof.numbers.get("parameters"), proof.numbers["largest_layer"]) == (count, V * H)
    width = 2 if precision == "bf16" else 4
    assert proof.numbers["peak"] > 3 * width * count, proof.remarks
    told = {what: number for what, number in proof.numbers.items() if "gpu" in what}
    if importlib.util.find_spec("deepspeed") is None:
        assert not told
    else:
        assert told["zero2 gpu, offload none"] == 2 * count + int(18 * count / 2)
        assert told["zero3 gpu, offload none"] == 4 * V * H + int(18 * count / 2)
        assert len(told) == 5


@needs_libraries
def test_attention_dropout_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    config = {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 1,
        "n_head": 2,
        "vocab_size": 64,
        "n_positions": 64,
    }
    proof = proved(tmp_path, config, Workload(1, 32, "autocast"))
    assert "peak" in proof.numbers and proof.name == "GPT2LMHeadModel"
    assert any("attn_pdrop" in remark for remark in proof.remarks)


@needs_libraries
def test_a_model_of_images_is_counted_and_no_step_of_it_is_tracked(tmp_path: Path) -> None:
    config = {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    proof = proved(tmp_path, config, Workload(precision="autocast"))
    assert proof.numbers.get("parameters") and "peak" not in proof.numbers
    assert proof.problems == () and proof.remarks


@needs_libraries
def test_code_beside_a_configuration_is_not_run_and_that_is_a_problem_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    proof = proved(tmp_path, config, Workload(precision="autocast"))
    assert "parameters" not in proof.numbers and not (tmp_path / "ran").exists()
    (problem,) = proof.problems
    assert len(problem.splitlines()) == 1
