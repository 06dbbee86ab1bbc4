"""The files of a strategy, as texts. In e2e/test_planned_files accelerate and deepspeed read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gputui.planning.files import YAML_NAME, PlanFiles, Recipe, RecipeError, files_of
from table_tests import each_row
from unit.planning_models import recipe

LLAMA = "LlamaDecoderLayer"
SHARDED = ["zero1", "zero2", "zero3", "zero2-offload", "zero3-offload", "fsdp2", "tp2-fsdp2"]


def config(files: PlanFiles) -> dict[str, Any]:
    """The configuration of accelerate."""
    read = yaml.safe_load(files.texts[YAML_NAME])
    assert isinstance(read, dict)
    return read


def zero(made: Recipe) -> dict[str, Any]:
    """The ZeRO part of DeepSpeed's file."""
    return dict(json.loads(files_of(made).texts["deepspeed.json"])["zero_optimization"])


@pytest.mark.parametrize(
    ("strategy", "devices", "launcher"), [("single", 1, "python"), ("ddp", 4, "torchrun")]
)
def test_one_device_and_ddp_need_no_file(strategy: str, devices: int, launcher: str) -> None:
    files = files_of(recipe(strategy, devices))
    assert (files.launcher, files.texts) == (launcher, {})


@pytest.mark.parametrize(("strategy", "devices", "kind"), [("single", 1, "NO"), ("ddp", 4, "MULTI_GPU")])
def test_what_accelerate_starts_it_goes_on_starting(strategy: str, devices: int, kind: str) -> None:
    files = files_of(recipe(strategy, devices), started_by="accelerate")
    assert files.launcher == "accelerate"
    assert (config(files)["distributed_type"], config(files)["num_processes"]) == (kind, devices)


@each_row("strategy", SHARDED)
def test_the_other_strategies_are_a_configuration_of_accelerate(strategy: str) -> None:
    files = files_of(recipe(strategy, 4))
    assert files.launcher == "accelerate"
    assert config(files)["num_processes"] == 4
    assert config(files)["gpu_ids"] == "all", "any other value overrides the devices' variable"


def test_fsdp_2_has_the_models_class_of_layers_and_says_whether_it_reshards() -> None:
    part = config(files_of(recipe("fsdp2", 8, wrap=LLAMA, checkpointing=True)))["fsdp_config"]
    assert part["fsdp_version"] == 2
    assert part["fsdp_transformer_layer_cls_to_wrap"] == LLAMA
    assert (part["fsdp_reshard_after_forward"], part["fsdp_activation_checkpointing"]) == (True, True)
    other = config(files_of(recipe("fsdp2", 8, reshard=False)))["fsdp_config"]
    assert other["fsdp_reshard_after_forward"] is False
    assert "fsdp_transformer_layer_cls_to_wrap" not in other


def test_tensor_parallel_groups_times_shards_are_all_processes() -> None:
    read = config(files_of(recipe("tp4-fsdp2", 8)))
    assert read["distributed_type"] == "FSDP"
    sizes = read["parallelism_config"]
    assert (sizes["parallelism_config_tp_size"], sizes["parallelism_config_dp_shard_size"]) == (4, 2)


def test_devices_that_share_a_sequence_are_in_the_file_by_one_of_the_two_ways() -> None:
    for name, kind, way, other in (("cp2-fsdp2", "FSDP", "cp", "sp"), ("sp2-zero3", "DEEPSPEED", "sp", "cp")):
        files = files_of(recipe(name, 8))
        read = config(files)
        sizes = read["parallelism_config"]
        assert read["distributed_type"] == kind
        assert sizes[f"parallelism_config_{way}_size"] == 2
        assert sizes.get(f"parallelism_config_{other}_size", 1) == 1
        assert sizes["parallelism_config_dp_shard_size"] == 4
        assert any("divide its sequences" in note for note in files.notes)


def test_data_parallel_is_one_process_without_a_file() -> None:
    files = files_of(recipe("dp", 4))
    assert (files.launcher, dict(files.texts)) == ("python", {})
    assert any("DataParallel" in note for note in files.notes)


def test_where_one_group_takes_all_devices_nothing_is_left_to_shard() -> None:
    read = config(files_of(recipe("tp8-fsdp2", 8)))
    assert read["distributed_type"] == "MULTI_GPU"
    assert read["parallelism_config"]["parallelism_config_tp_size"] == 8
    assert "fsdp_config" not in read


@each_row(
    ("strategy", "stage", "optimizer", "params"),
    [
        ("zero1", 1, "none", "none"),
        ("zero2", 2, "none", "none"),
        ("zero3", 3, "none", "none"),
        ("zero2-offload", 2, "cpu", "none"),
        ("zero3-offload", 3, "cpu", "cpu"),
    ],
)
def test_zero_says_its_stage_and_what_the_host_keeps_in_both_files(
    strategy: str, stage: int, optimizer: str, params: str
) -> None:
    made = recipe(strategy, 2, accumulation=4)
    part = config(files_of(made))["deepspeed_config"]
    assert (part["zero_stage"], part["gradient_accumulation_steps"]) == (stage, 4)
    assert (part["offload_optimizer_device"], part["offload_param_device"]) == (optimizer, params)
    assert part.get("zero3_init_flag", False) is (stage == 3)
    assert "deepspeed_config_file" not in part, "beside it these settings are an error"
    own = zero(made)
    assert own["stage"] == stage
    assert own.get("offload_optimizer", {}).get("device", "none") == optimizer
    assert own.get("offload_param", {}).get("device", "none") == params


def test_what_deepspeed_starts_it_goes_on_starting_with_its_own_file() -> None:
    files = files_of(recipe("zero2", 2), started_by="deepspeed")
    assert (files.launcher, list(files.texts)) == ("deepspeed", ["deepspeed.json"])


@each_row(
    ("precision", "sharded", "deepspeed"),
    [("autocast", "bf16", "bf16"), ("fp16", "fp16", "fp16"), ("fp32", "no", "no"), ("bf16", "no", "bf16")],
)
def test_weights_in_bf16_are_no_mixed_precision_except_for_deepspeed(
    precision: Any, sharded: str, deepspeed: str
) -> None:
    assert config(files_of(recipe("fsdp2", 2, precision)))["mixed_precision"] == sharded
    assert config(files_of(recipe("zero2", 2, precision)))["mixed_precision"] == deepspeed


@each_row(
    ("made", "word"),
    [
        (recipe("fsdp2", 2, "bf16"), "dtype"),
        (recipe("ddp", 2, "autocast"), "--bf16"),
        (recipe("ddp", 2, "fp32", checkpointing=True), "--gradient_checkpointing"),
        (recipe("fsdp2", 2, "fp32", accumulation=8), "--gradient_accumulation_steps=8"),
        (recipe("tp2-fsdp2", 4, "fp32", wrap=LLAMA), "tp_plan"),
    ],
)
def test_what_no_file_can_say_is_a_note(made: Recipe, word: str) -> None:
    assert any(word in note for note in files_of(made).notes)


def test_no_note_where_the_files_say_all() -> None:
    assert files_of(recipe("fsdp2", 2, wrap=LLAMA)).notes == ()
    assert files_of(recipe("ddp", 2, "fp32")).notes == ()


def test_no_launcher_makes_a_pipeline() -> None:
    with pytest.raises(RecipeError):
        files_of(recipe("pp4", 8))
