"""The files that start a training run with a strategy, as texts: accelerate's YAML and DeepSpeed's JSON.

Sources of the keys: accelerate/commands/config/config_args.py (`ClusterConfig`; an unknown top-level key is
an error, an unknown key in a part is ignored), `prepare_multi_gpu_env` and `prepare_deepspeed_cmd_env`
(accelerate 1.15.0); deepspeed/runtime/config.py (0.19.8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import field, frozen
from gputui.planning.model import PlanningError
from gputui.planning.strategies import Strategy
from gputui.planning.workload import Precision, Workload, mixed_precision

if TYPE_CHECKING:
    from gputui.planning.plan import Plan, Row

YAML_NAME = "accelerate.yaml"
JSON_NAME = "deepspeed.json"
FSDP_NAME = "fsdp.json"
FOLDER = "gputui-plan"
"""The usual folder for the files, in the directory of the command: there its relative paths begin, and users
look."""


class RecipeError(PlanningError):
    """The recipe is impossible; the message gives the reason in one line."""


@frozen
class Recipe:
    """A strategy and all other settings that its files depend on.

    precision      as `workload.Precision`
    checkpointing  activations are computed again in the backward pass
    wrap           for fsdp2: the class of a layer, or several with commas; None: the model's
                   `_no_split_modules`
    accumulation   micro-batches per step
    """

    strategy: Strategy
    precision: Precision = "autocast"
    checkpointing: bool = False
    wrap: str | None = None
    accumulation: int = 1

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def devices(self) -> int:
        return self.strategy.devices

    @property
    def offload(self) -> Literal["none", "optimizer", "all"]:
        """The states that DeepSpeed keeps in host memory; all: optimizer states and weights."""
        if not self.strategy.offloads:
            return "none"
        return "optimizer" if self.strategy.stage == 2 else "all"

    @property
    def fsdp(self) -> bool:
        """Whether FSDP 2 shards. Where tensor parallelism takes all devices, nothing is left to shard."""
        group = self.strategy.tensor_parallel
        return self.strategy.kind == "fsdp2" and (group == 1 or self.devices > group)


@frozen
class PlanFiles:
    """The launcher and the files that start a recipe.

    launcher  by its name in `--launcher`
    texts     by file name
    notes     sentences about settings that no file can hold: those of the script or its options
    """

    launcher: Literal["python", "torchrun", "accelerate", "deepspeed"]
    texts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def recipe_of(made: Plan, row: Row) -> Recipe:
    """The settings that the files of a row depend on."""
    workload = made.workload
    if not isinstance(workload, Workload):
        raise RecipeError("a server needs no files: its command says how it divides the model")
    return Recipe(
        row.strategy,
        workload.precision,
        workload.checkpointing,
        made.model.wrap_class,
        row.strategy.own(workload).accumulation,
    )


def files_of(recipe: Recipe, started_by: str = "python") -> PlanFiles:
    """The files of a recipe, and its launcher. Raises RecipeError for pipeline parallelism.

    `started_by` is the launcher of the command as it is: where accelerate or deepspeed starts the command, it
    still does, where it can.
    """
    if not recipe.strategy.startable:
        raise RecipeError(
            f"{recipe.name}: no launcher divides a model into a pipeline; the training program does"
            " (Megatron-LM's --pipeline-model-parallel-size, torch.distributed.pipelining)"
        )
    if recipe.strategy.stage and started_by == "deepspeed":
        texts = {JSON_NAME: deepspeed_json(recipe)}
        return PlanFiles("deepspeed", texts, _notes(recipe, "deepspeed"))
    if recipe.strategy.kind == "dp" or (
        recipe.strategy.kind in ("single", "ddp") and started_by != "accelerate"
    ):
        launcher: Literal["python", "torchrun"] = "torchrun" if recipe.strategy.kind == "ddp" else "python"
        return PlanFiles(launcher, notes=_notes(recipe, launcher))
    texts = {YAML_NAME: accelerate_yaml(recipe)}
    if recipe.strategy.stage:
        texts[JSON_NAME] = deepspeed_json(recipe)
    return PlanFiles("accelerate", texts, _notes(recipe, "accelerate"))


def cluster_config(kind: str, processes: int, machines: int = 1, cpu: bool = False) -> dict[str, Any]:
    """The keys that every accelerate configuration has. `kind` is its `distributed_type`."""
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        # Any other value overrides the list of visible devices.
        "gpu_ids": "all",
        "num_processes": processes,
        "num_machines": machines,
        "machine_rank": 0,
        "mixed_precision": "no",
        "use_cpu": cpu,
    }
    if kind not in ("NO", "MULTI_CPU") and machines == 1:
        # A free port, because another run may use the default port.
        config["main_process_port"] = 0
    return config


def accelerate_yaml(recipe: Recipe) -> str:
    """The configuration for `accelerate launch --config_file`, including DeepSpeed's settings."""
    import yaml

    config = cluster_config(_kind(recipe), recipe.devices)
    config["mixed_precision"] = _mixed_precision(recipe)
    if recipe.fsdp:
        config["fsdp_config"] = _fsdp_config(recipe)
    if recipe.strategy.stage:
        config["deepspeed_config"] = _deepspeed_config(recipe)
    if recipe.strategy.sharing > 1:
        shared, zero = recipe.strategy.context_parallel, recipe.strategy.deepspeed
        config["parallelism_config"] = {
            "parallelism_config_tp_size": recipe.strategy.tensor_parallel,
            "parallelism_config_dp_shard_size": recipe.strategy.replicas,
            "parallelism_config_dp_replicate_size": 1,
            "parallelism_config_cp_size": 1 if zero else shared,
            **({"parallelism_config_sp_size": shared} if zero else {}),
        }
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    return f"# {_title(recipe)}: accelerate launch --config_file {YAML_NAME}\n{text}"


def deepspeed_json(recipe: Recipe) -> str:
    """The configuration for `--deepspeed` of transformers' Trainer.

    "auto" takes the value from the options of the Trainer, or of accelerate, which must be the same here.
    """
    zero: dict[str, Any] = {"stage": recipe.strategy.stage}
    if recipe.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if recipe.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if recipe.strategy.stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    config = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
    }
    return json.dumps(config, indent=2) + "\n"


def fsdp_json(recipe: Recipe) -> str:
    """The configuration for `--fsdp_config` of transformers' Trainer, where a command names one."""
    config = {key.removeprefix("fsdp_"): value for key, value in _fsdp_config(recipe).items()}
    del config["offload_params"]
    return json.dumps(config, indent=2) + "\n"


def _title(recipe: Recipe) -> str:
    return f"{recipe.name} on {devices_text(recipe.devices)}, {recipe.precision}"


def _kind(recipe: Recipe) -> str:
    if recipe.strategy.stage:
        return "DEEPSPEED"
    if recipe.fsdp:
        return "FSDP"
    return "MULTI_GPU" if recipe.devices > 1 else "NO"


def _mixed_precision(recipe: Recipe) -> str:
    """The value of accelerate's `mixed_precision`.

    With mixed precision, FSDP 2 converts the weights to fp32 (`fsdp2_prepare_model`), so weights in bf16 need
    "no". DeepSpeed converts them to bf16 itself, and keeps fp32 copies.
    """
    if recipe.precision == "bf16" and recipe.strategy.stage:
        return "bf16"
    return mixed_precision(recipe.precision)


def _fsdp_config(recipe: Recipe) -> dict[str, Any]:
    config = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": recipe.strategy.reshard,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": recipe.wrap,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_activation_checkpointing": recipe.checkpointing,
        "fsdp_offload_params": False,
        "fsdp_cpu_ram_efficient_loading": True,
    }
    return {key: value for key, value in config.items() if value is not None}


def _deepspeed_config(recipe: Recipe) -> dict[str, Any]:
    config: dict[str, Any] = {
        "zero_stage": recipe.strategy.stage,
        "offload_optimizer_device": "none" if recipe.offload == "none" else "cpu",
        "offload_param_device": "cpu" if recipe.offload == "all" else "none",
        "gradient_accumulation_steps": recipe.accumulation,
    }
    if recipe.strategy.stage == 3:
        config |= {"zero3_init_flag": True, "zero3_save_16bit_model": True}
    return config


def _notes(recipe: Recipe, launcher: str) -> tuple[str, ...]:
    zero, bf16, mixed = recipe.strategy.deepspeed, recipe.precision == "bf16", _mixed_precision(recipe)
    notes = (
        (bf16 and zero, "DeepSpeed keeps fp32 weights and optimizer states in addition to the bf16 weights"),
        (
            bf16 and not zero,
            "the script must load the model in bf16 (dtype=torch.bfloat16), without --bf16, which would keep"
            " fp32 weights",
        ),
        (
            launcher != "accelerate" and mixed != "no",
            f"the script must set mixed precision (--{mixed} of transformers' Trainer)",
        ),
        (
            recipe.checkpointing and recipe.fsdp,
            "the file sets activation checkpointing; the script must not (--gradient_checkpointing)",
        ),
        (
            recipe.checkpointing and not recipe.fsdp,
            "the script must set activation checkpointing (--gradient_checkpointing)",
        ),
        (
            recipe.accumulation > 1,
            f"the script must set accumulation, too (--gradient_accumulation_steps={recipe.accumulation})",
        ),
        (
            recipe.fsdp and recipe.wrap is None,
            "each of the model's own _no_split_modules is a unit; a model without them needs a wrap class",
        ),
        (
            recipe.strategy.kind == "dp",
            "the script must wrap the model in torch.nn.DataParallel, as transformers' Trainer does in one"
            " process with several devices",
        ),
        (
            recipe.strategy.context_parallel > 1,
            "the script must divide its sequences, as transformers' Trainer does ("
            + ("UlyssesSPDataLoaderAdapter" if zero else "Accelerator.maybe_context_parallel")
            + ")",
        ),
        (
            recipe.strategy.tensor_parallel > 1,
            'the script must load the model with tp_plan="auto" and the device mesh of its Accelerator'
            " (torch_device_mesh)",
        ),
        (
            zero and launcher == "accelerate",
            f"{JSON_NAME} is for --deepspeed of transformers' Trainer, which {YAML_NAME} makes unnecessary",
        ),
    )
    return tuple(text for holds, text in notes if holds)
