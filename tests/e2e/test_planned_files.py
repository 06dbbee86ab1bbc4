"""The files of a plan, read by the real accelerate and deepspeed, and processes started from them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.ranks import ranks_of
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.planned import prepared, write
from unit.builders import gpu
from unit.planning_models import recipe


def needs(*packages: str) -> Any:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


pytestmark = [pytest.mark.e2e, needs("accelerate", "torch")]

LLAMA = "LlamaDecoderLayer"
RECIPES = {
    "single": recipe("single"),
    "ddp": recipe("ddp", 2),
    "fsdp2": recipe("fsdp2", 4, wrap=LLAMA, checkpointing=True),
    "fsdp2 kept": recipe("fsdp2", 4, "bf16", wrap=LLAMA, reshard=False),
    "tp2-fsdp2": recipe("tp2-fsdp2", 8, wrap=LLAMA),
    "tp8-fsdp2": recipe("tp8-fsdp2", 8),
    "zero1": recipe("zero1", 2),
    "zero2": recipe("zero2", 2, "fp16", accumulation=4),
    "zero3": recipe("zero3", 2),
    "zero2-offload": recipe("zero2-offload", 2),
    "zero3-offload": recipe("zero3-offload", 2, "bf16"),
}

READ = """
import json, os, sys
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import (
    prepare_deepspeed_cmd_env, prepare_multi_gpu_env, prepare_simple_launcher_cmd_env)

told = {}
for name, file in json.loads(sys.argv[1]).items():
    args = launch_command_parser().parse_args(["--config_file", file, "train.py"])
    args, defaults, from_config = _validate_launch_command(args)
    args.deepspeed_fields_from_accelerate_config = ",".join([*defaults.deepspeed_config, "mixed_precision"])
    if args.use_deepspeed:
        environment = prepare_deepspeed_cmd_env(args)[1]
    elif args.use_fsdp or args.multi_gpu:
        environment = prepare_multi_gpu_env(args)
    else:
        environment = prepare_simple_launcher_cmd_env(args)[1]
    prefixes = ("ACCELERATE_", "FSDP_", "PARALLELISM_")
    told[name] = {key: value for key, value in environment.items() if key.startswith(prefixes)}
    told[name] |= {
        "CUDA_VISIBLE_DEVICES": environment.get("CUDA_VISIBLE_DEVICES"), "processes": args.num_processes}
print("TOLD" + json.dumps(told))
"""

PLUGINS = """
import json, os, sys
from types import SimpleNamespace
told = {}
before = dict(os.environ)
from accelerate import ParallelismConfig
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from deepspeed.runtime.config import DeepSpeedConfig
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

TRAINER = SimpleNamespace(
    world_size=1, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_grad_norm=1.0,
    learning_rate=1e-4, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=0.0,
    save_on_each_node=False, fp16=False, fp16_full_eval=False, bf16=True, bf16_full_eval=False)

def of_trainer(file):
    config = HfTrainerDeepSpeedConfig(file)
    config.trainer_config_process(TRAINER)
    assert not config.mismatches and "auto" not in json.dumps(config.config), config.config
    return config.config

def deepspeed(config):
    config = json.loads(json.dumps(config))
    for name, value in (("train_batch_size", 8), ("train_micro_batch_size_per_gpu", 2),
                        ("gradient_accumulation_steps", 4), ("gradient_clipping", 1.0)):
        if config.get(name) == "auto":
            config[name] = value
    if config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] != 8:
        config.pop("train_batch_size")
    read = DeepSpeedConfig(config)
    offload = [part and str(getattr(part.device, "value", part.device)) for part in (
        read.zero_config.offload_optimizer, read.zero_config.offload_param)]
    return {"stage": int(read.zero_config.stage), "offload": offload, "accumulation":
            read.gradient_accumulation_steps}

for name, (environment, file) in json.loads(sys.argv[1]).items():
    os.environ.clear()
    os.environ.update(before | {k: v for k, v in environment.items() if isinstance(v, str)})
    if environment.get("ACCELERATE_USE_FSDP") == "true":
        plugin = FullyShardedDataParallelPlugin()
        told[name] = {"version": plugin.fsdp_version, "wrap": plugin.transformer_cls_names_to_wrap,
                      "reshard": plugin.reshard_after_forward,
                      "checkpointing": plugin.activation_checkpointing}
        if "PARALLELISM_CONFIG_TP_SIZE" in environment:
            sizes = ParallelismConfig()
            told[name] |= {"tp": sizes.tp_size, "shard": sizes.dp_shard_size, "all": sizes.total_size}
    elif file is not None:
        plugin = DeepSpeedPlugin()
        plugin.set_mixed_precision(environment["ACCELERATE_MIXED_PRECISION"])
        told[name] = {"yaml": deepspeed(plugin.deepspeed_config),
                      "json": deepspeed(of_trainer(file)), "init": plugin.zero3_init_flag}
print("TOLD" + json.dumps(told))
"""


def told_by(script: str, argument: object, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(argument)],
        env={**os.environ, "HF_HOME": str(folder), "CUDA_VISIBLE_DEVICES": "3,1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("TOLD"))
    return dict(json.loads(line.removeprefix("TOLD")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def files(folder: Path) -> dict[str, dict[str, str]]:
    """The paths of the files of every recipe by name, for a command that accelerate starts."""
    command = LaunchOptions(("accelerate", "launch", "train.py"))
    return {
        name: {path.name: str(path) for path in write(prepared(each, command, str(folder / name)))}
        for name, each in RECIPES.items()
    }


@pytest.fixture(scope="module")
def environments(folder: Path, files: dict[str, dict[str, str]]) -> dict[str, dict[str, Any]]:
    """The environments that `accelerate launch` gives the processes of each recipe."""
    return told_by(READ, {name: each["accelerate.yaml"] for name, each in files.items()}, folder)


def test_accelerate_reads_every_file_and_leaves_the_devices_alone(
    environments: dict[str, dict[str, Any]],
) -> None:
    assert {name: told["processes"] for name, told in environments.items()} == {
        name: each.devices for name, each in RECIPES.items()
    }
    assert {told["CUDA_VISIBLE_DEVICES"] for told in environments.values()} == {"3,1"}


def test_fsdp_2_shards_by_the_models_class_of_layers(environments: dict[str, dict[str, Any]]) -> None:
    told = environments["fsdp2"]
    assert (told["FSDP_VERSION"], told["FSDP_TRANSFORMER_CLS_TO_WRAP"]) == ("2", LLAMA)
    assert (told["FSDP_RESHARD_AFTER_FORWARD"], told["FSDP_ACTIVATION_CHECKPOINTING"]) == ("true", "true")
    assert told["ACCELERATE_MIXED_PRECISION"] == "bf16"
    kept = environments["fsdp2 kept"]
    assert (kept["FSDP_RESHARD_AFTER_FORWARD"], kept["ACCELERATE_MIXED_PRECISION"]) == ("false", "no")


@pytest.mark.parametrize(("name", "tp", "shard"), [("tp2-fsdp2", "2", "4"), ("tp8-fsdp2", "8", "1")])
def test_tensor_parallel_sizes_arrive(
    environments: dict[str, dict[str, Any]], name: str, tp: str, shard: str
) -> None:
    told = environments[name]
    assert told["ACCELERATE_USE_PARALLELISM_CONFIG"] == "true"
    assert (told["PARALLELISM_CONFIG_TP_SIZE"], told["PARALLELISM_CONFIG_DP_SHARD_SIZE"]) == (tp, shard)
    assert ("ACCELERATE_USE_FSDP" in told) is (shard != "1")


@pytest.mark.parametrize("name", [name for name, each in RECIPES.items() if each.strategy.stage])
def test_zero_arrives_with_its_stage_and_what_the_host_keeps(
    environments: dict[str, dict[str, Any]], name: str
) -> None:
    told, each = environments[name], RECIPES[name]
    assert told["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == str(each.strategy.stage)
    devices = [told[f"ACCELERATE_DEEPSPEED_OFFLOAD_{part}_DEVICE"] for part in ("OPTIMIZER", "PARAM")]
    assert devices == [
        "none" if each.offload == "none" else "cpu",
        "cpu" if each.offload == "all" else "none",
    ]
    assert told["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == str(each.accumulation)
    assert told["ACCELERATE_MIXED_PRECISION"] == ("fp16" if each.precision == "fp16" else "bf16")


@needs("deepspeed", "transformers")
def test_the_plugins_of_the_training_and_deepspeed_itself_say_the_same(
    folder: Path, files: dict[str, dict[str, str]], environments: dict[str, dict[str, Any]]
) -> None:
    told = told_by(
        PLUGINS, {name: (environments[name], files[name].get("deepspeed.json")) for name in RECIPES}, folder
    )
    assert told["fsdp2"] == {"version": 2, "wrap": [LLAMA], "reshard": True, "checkpointing": True}
    assert told["fsdp2 kept"]["reshard"] is False
    assert {name: told["tp2-fsdp2"][name] for name in ("tp", "shard", "all")} == {
        "tp": 2,
        "shard": 4,
        "all": 8,
    }
    for name, each in RECIPES.items():
        if each.strategy.stage:
            offload = {"none": [None, None], "optimizer": ["cpu", None], "all": ["cpu", "cpu"]}[each.offload]
            for form in ("yaml", "json"):
                read = told[name][form]
                assert read["stage"] == each.strategy.stage
                assert [None if each == "none" else each for each in read["offload"]] == offload, (name, form)
            assert told[name]["yaml"]["accumulation"] == each.accumulation
            assert told[name]["init"] is (each.strategy.stage == 3)


TRAIN = """
import json, os, torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.inner(x))

torch.manual_seed(0)
model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(8, 1))
accelerator = Accelerator()
if os.environ.get("ACCELERATE_USE_FSDP") == "true":
    # Accelerator takes FSDP for GPUs only; the preparation behind it works on the CPU.
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin()
    model = fsdp2_prepare_model(accelerator, model)
    optimizer = torch.optim.AdamW(model.parameters())
else:
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
loss = model(torch.full((2, 8), 1.0 + accelerator.process_index)).sum()
loss.backward()
optimizer.step()
names = [name for name, module in model.named_modules() if type(module).__name__.startswith("FSDP")]
own = sum(getattr(p, "to_local", lambda: p)().numel() for p in model.parameters())
with open(f"rank{accelerator.process_index}.json", "w") as file:
    json.dump({"ranks": accelerator.num_processes, "model": type(model).__name__, "units": names,
               "precision": accelerator.mixed_precision, "parameters": own,
               "visible": os.environ["CUDA_VISIBLE_DEVICES"]}, file)
"""


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_start_from_the_file_with_the_line_that_is_printed(tmp_path: Path, strategy: str) -> None:
    """On the CPU, with gloo: ACCELERATE_USE_CPU is the training's own variable."""
    (tmp_path / "train.py").write_text(TRAIN)
    command = LaunchOptions(("accelerate", "launch", "train.py"))
    plan = prepared(recipe(strategy, 2, wrap="Block"), command, str(tmp_path / "plan"))
    write(plan)
    launch = compose((gpu(2), gpu(0)), plan.options, {"HF_HOME": str(tmp_path)})
    assert (launch.warnings, launch.refusal) == ((), None)
    told = ranks_of(launch.line, tmp_path, ACCELERATE_USE_CPU="true")
    whole = 2 * 72 + 9
    assert [(each["ranks"], each["precision"], each["visible"]) for each in told] == [(2, "bf16", "2,0")] * 2
    if strategy == "ddp":
        assert {each["model"] for each in told} == {"DistributedDataParallel"}
        assert [each["parameters"] for each in told] == [whole] * 2
    else:
        assert [each["units"] for each in told] == [["", "0", "1"]] * 2, "a unit a layer, and the root"
        assert sum(each["parameters"] for each in told) == whole, "each rank has its share only"
