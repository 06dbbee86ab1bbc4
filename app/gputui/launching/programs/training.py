"""Programs that train: axolotl, TRL, LLaMA-Factory, swift, torchtune, Lightning, Composer, YOLO, …"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.launching.argument_vector import OptionTable
from gputui.launching.intent import DeviceCount
from gputui.launching.programs.program import (
    TORCH_DEVICE,
    ConfigurationFile,
    DeviceOption,
    Program,
    Size,
    given_options,
    groups_only,
)
from gputui.launching.torchrun_options import TORCHRUN

_COMPOSER = OptionTable(
    flags="verbose|v module-mode|m command-mode|c version help|h",
    valued="nproc|n stdout stderr world-size base-rank node-rank master-addr master-port",
    abbreviations=True,
)
_HOROVODRUN = OptionTable(
    flags="version|v check-build|cb disable-cache verbose hierarchical-allreduce no-hierarchical-allreduce"
    " hierarchical-allgather no-hierarchical-allgather torus-allreduce no-torus-allreduce autotune"
    " no-autotune timeline-mark-cycles no-timeline-mark-cycles no-stall-check stall-check mpi-threads-disable"
    " no-mpi-threads-disable tcp log-with-timestamp log-without-timestamp log-hide-timestamp"
    " no-log-hide-timestamp prefix-output-with-timestamp|prefix-timestamp gloo mpi jsrun help|h",
    valued="num-proc|np hosts|H hostfile ssh-port|p ssh-identity-file|i",
    pairs="blacklist-cooldown-range",
    unlisted="value",
    letters=False,
)

# (A selection: these programs use accelerate's other options, such as --debug, themselves.)
_ACCELERATE = (
    *("num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port", "gpu-ids"),
    *("config-file", "mixed-precision", "dynamo-backend", "deepspeed-config-file", "rdzv-backend"),
)
_ACCELERATE_FLAGS = ("multi-gpu", "cpu", "use-fsdp", "use-deepspeed", "use-megatron-lm")


def _picked(arguments: Sequence[str], valued: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """Return the launcher's options among the arguments of a program that passes them on."""
    words = [word for word in arguments if word != "--"]
    places = {given.place: given for given in given_options(words, valued)}
    for place, word in enumerate(words):
        if place in places:
            yield from places[place].words
        elif word.startswith("--") and word[2:].replace("_", "-") in flags:
            yield word


def _axolotl(arguments: Sequence[str]) -> tuple[str, ...]:
    """`axolotl train c.yml --launcher torchrun -- --nproc_per_node=2` starts torchrun, else accelerate.

    Options that it does not know go to the launcher, and so does everything after a "--".
    """
    launcher = next((given.value for given in given_options(arguments, ("launcher",))), "accelerate")
    if launcher == "torchrun":
        return (
            "torchrun",
            *_picked(arguments, (*TORCHRUN.valued,), ("standalone",)),
            "-m",
            "axolotl.cli.train",
        )
    if launcher != "accelerate":
        return ()
    options = _picked(arguments, _ACCELERATE, _ACCELERATE_FLAGS)
    return ("accelerate", "launch", *options, "-m", "axolotl.cli.train")


def _trl(arguments: Sequence[str]) -> tuple[str, ...]:
    """TRL starts `accelerate launch`, with a configuration file where one is named by a path."""
    words = list(arguments)
    for given in given_options(arguments, ("accelerate-config",)):
        if not given.value.endswith((".yaml", ".yml", ".json")) and "/" not in given.value:
            # One of TRL's own, which gputui does not read.
            return ()
        words[given.place : given.place + len(given.words)] = ("--config_file", given.value)
    return ("accelerate", "launch", *_picked(words, _ACCELERATE, _ACCELERATE_FLAGS), "trl.py")


def _trl_usual(arguments: Sequence[str]) -> DeviceCount | None:
    """All configurations that come with TRL say eight processes (trl/accelerate_configs)."""
    own = next(given_options(arguments, ("accelerate-config",)), None)
    if own is None or _trl(arguments):
        return None
    return DeviceCount(f"{' '.join(own.words)} (num_processes: 8)", 8, firm=False)


def _verl_usual(_arguments: Sequence[str]) -> DeviceCount:
    return DeviceCount("trainer.n_gpus_per_node, which is 8 where nothing is said", 8, firm=False)


_AXOLOTL_COMMANDS = "train|evaluate|inference|merge-sharded-fsdp-weights"
_SWIFT_SIZES = (
    Size("vllm-tensor-parallel-size|sglang-tp-size|lmdeploy-tp", "tp"),
    Size("vllm-pipeline-parallel-size", "pp"),
    Size("vllm-data-parallel-size", "dp"),
)
_SWIFT_FILE = ConfigurationFile("", variables="ENV")

TRAINING = (
    Program(
        name="axolotl",
        starts=(f"axolotl {_AXOLOTL_COMMANDS}",),
        modules=(f"axolotl.cli.main {_AXOLOTL_COMMANDS}",),
        devices=(DeviceOption("gpu-ids", counted="all"),),
        files=(ConfigurationFile("", {"tensor_parallel_size": "tp"}),),
        total=groups_only,
        launches=_axolotl,
        behind_dashes=True,
        source="axolotl/cli/main.py, axolotl/cli/utils/train.py, 0.19",
    ),
    Program(
        name="TRL",
        starts=("trl sft|dpo|grpo|kto|reward|rloo|distillation",),
        sizes=(Size("num-processes", "processes"),),
        devices=(DeviceOption("gpu-ids", counted="all"),),
        usual=_trl_usual,
        asks="--num_processes={count}",
        launches=_trl,
        source="trl/cli/commands/training.py, trl/cli/accelerate_config.py, 1.16",
    ),
    Program(
        name="LLaMA-Factory",
        starts=("llamafactory-cli train", "lmf train"),
        modules=("llamafactory.cli train",),
        variables=("NPROC_PER_NODE",),
        # Else torchrun, with all visible devices.
        source="llamafactory/launcher.py, 0.9.5",
    ),
    Program(
        name="LLaMA-Factory",
        starts=("llamafactory-cli api|chat|webchat|webui|export", "lmf api|chat|webchat|webui|export"),
        source="llamafactory/launcher.py, 0.9.5",
    ),
    Program(
        name="swift",
        starts=("swift pt|sft|rlhf", "megatron pt|sft|rlhf|export"),
        modules=("swift.cli.main pt|sft|rlhf", "swift.cli._megatron.main pt|sft|rlhf|export"),
        variables=("NPROC_PER_NODE",),
        files=(_SWIFT_FILE,),
        source="swift/cli/main.py, 4.6",
    ),
    Program(
        name="swift",
        starts=("swift deploy|rollout|app|eval|sample",),
        modules=("swift.cli.main deploy|rollout|app|eval|sample",),
        sizes=_SWIFT_SIZES,
        files=(_SWIFT_FILE,),
        source="swift/cli/main.py, swift/pipelines/infer/rollout.py, 4.6",
    ),
    Program(
        name="swift",
        starts=("swift infer",),
        modules=("swift.cli.main infer",),
        # Of the commands that serve, only this one is also started through torchrun.
        sizes=_SWIFT_SIZES,
        variables=("NPROC_PER_NODE",),
        files=(_SWIFT_FILE,),
        source="swift/cli/main.py, swift/arguments/infer_args.py, 4.6",
    ),
    Program(
        name="torchtune",
        starts=("tune run",),
        modules=("torchtune._cli.tune run",),
        before=TORCHRUN,
        sizes=(Size("nproc-per-node", "processes"),),
        abbreviations=True,
        source="torchtune/_cli/run.py, 0.6.1",
    ),
    Program(
        name="Lightning Fabric",
        starts=("fabric run", "lightning run model"),
        modules=("lightning.fabric.cli", "lightning_fabric.cli"),
        devices=(
            DeviceOption("devices", counted="visible", number=True, whole=("-1", "")),
            DeviceOption("accelerator", counted="visible", whole=("cuda", "gpu", "auto", "mps", "tpu")),
        ),
        asks="--devices={count}",
        source="lightning/fabric/cli.py, lightning/fabric/utilities/device_parser.py, 2.6.6",
    ),
    Program(
        name="Composer",
        starts=("composer",),
        modules=("composer.cli.launcher", "composer"),
        before=_COMPOSER,
        sizes=(Size("nproc|n", "processes"),),
        abbreviations=True,
        variables=("LOCAL_WORLD_SIZE",),
        source="composer/cli/launcher.py, 0.32.1",
    ),
    Program(
        name="Colossal-AI",
        starts=("colossalai run",),
        sizes=(Size("nproc-per-node", "processes"),),
        asks="--nproc_per_node={count}",
        source="colossalai/cli/launcher/__init__.py",
    ),
    Program(
        name="horovodrun",
        starts=("horovodrun",),
        modules=("horovod.runner.launch",),
        before=_HOROVODRUN,
        sizes=(Size("num-proc|np", "processes"),),
        hosts="hosts|H|hostfile",
        asks="--num-proc={count}",
        abbreviations=True,
        source="horovod/runner/launch.py",
    ),
    Program(
        name="YOLO",
        starts=("yolo", "ultralytics"),
        devices=(
            DeviceOption("device", counted="either", prefix=TORCH_DEVICE, whole=("-1", "", "cuda", "none")),
        ),
        asks="device={devices}",
        key_value=True,
        # Up to 8.4.86 it makes `device` the list of visible devices; since 8.4.87 it takes numbers that are
        # too high for positions among the visible ones for indices.
        only_indices=True,
        source="ultralytics/utils/torch_utils.py: select_device 8.4.86, parse_device 8.4.87 and 8.4.190",
    ),
    Program(
        name="verl",
        modules=("verl.trainer.main_ppo",),
        sizes=(Size("trainer.n-gpus-per-node", "processes"),),
        usual=_verl_usual,
        asks="trainer.n_gpus_per_node={count}",
        key_value=True,
        source="verl/trainer/config/ppo_trainer.yaml, 0.9.1",
    ),
    Program(
        # Options of libraries that many scripts use; then the usual names of such options in scripts.
        name="a Python script",
        any_python=True,
        sizes=(
            Size("tensor-model-parallel-size", "tp"),
            Size("pipeline-model-parallel-size", "pp"),
        ),
        devices=(
            DeviceOption("trainer.devices", counted="visible", number=True, whole=("-1", "auto", "")),
            DeviceOption(
                "gpus|num-gpus|n-gpu|n-gpus|ngpu|ngpus|num-devices|devices|world-size|d",
                counted="visible",
                number=True,
                cpu=(),
                firm=False,
            ),
            DeviceOption(
                "device|gpu-ids",
                counted="visible",
                prefix=TORCH_DEVICE,
                whole=("cuda", "gpu", "auto", "all", "-1", "", "mps", "xpu", "hpu"),
                firm=False,
            ),
        ),
        total=groups_only,
        key_value=True,
        source="lightning/pytorch/cli.py and NeMo (trainer.devices); megatron/training/arguments.py",
    ),
)
