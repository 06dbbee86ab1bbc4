"""Hugging Face Accelerate: `accelerate launch`.

Facts (seen with 1.15.0): `gpu_ids` of the user's configuration overrides the devices' variable, and
`--gpu_ids all` restores it; `--multi_gpu` drops an FSDP or DeepSpeed type of the configuration, and with one
process it is an error; `--main_process_port 0` takes a free port; `--cpu` starts one process whatever the
count, and does not read the configuration; `enable_cpu_affinity` of a configuration has no effect, the option
has; torchrun's PET_* variables count here too.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.argument_vector import Arguments, option_table, program_name
from gputui.launching.launchers.accelerate_config import Config, configuration
from gputui.launching.launchers.base import Completed, LauncherRequest, Notices, ScriptLauncher, contradiction
from gputui.launching.launchers.torchrun import overriding, several
from gputui.launching.python_command import module_prefix

_MODULE = "accelerate.commands.launch"
OLDER = ("use-mps-device", "use-xpu", "ipex")
"""Flags of versions before 1.8."""

OPTIONS = option_table(
    flags="help|h quiet|q cpu multi-gpu tpu enable-cpu-affinity use-deepspeed use-fsdp"
    " use-parallelism-config use-megatron-lm same-network module|m no-python tpu-cluster no-tpu-cluster"
    " tpu-use-sudo downcast-bf16 debug fp8-use-autocast-during-eval dynamo-use-fullgraph"
    f" dynamo-use-dynamic dynamo-use-regional-compilation {' '.join(OLDER)}",
    valued="tee|t",
    unlisted="value",
)
"""It takes no abbreviations, and so its many options with a value need not be listed."""

_KINDS = ("multi-gpu", "use-fsdp", "use-deepspeed", "use-megatron-lm", "tpu", "tpu-cluster", "cpu")
"""The options that say which kind of run it is; with one of them the configuration's own does not count."""

_SPREADING = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
"""Types of a configuration that start through torch's launcher, a process a device."""

_NOT_SPREADING = ("cpu", "tpu", "tpu-cluster")


class Accelerate(ScriptLauncher):
    """`accelerate launch --num_processes=N --gpu_ids=all … train.py`."""

    name = "accelerate"
    options = OPTIONS
    starter = ("accelerate", "launch")
    module = _MODULE

    def split(self, command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """`accelerate launch`, as one program or as a module; and what follows."""
        module, own = module_prefix(command)
        if program_name(command) in ("accelerate", "accelerate-launch"):
            own = 1
        elif module not in (_MODULE, "accelerate.commands.accelerate_cli"):
            return (), tuple(command)
        if program_name(command) == "accelerate" or module == "accelerate.commands.accelerate_cli":
            own = own + 1 if command[own : own + 1] and command[own] == "launch" else 0
        return tuple(command[:own]), tuple(command[own:])

    def complete(self, request: LauncherRequest) -> Completed:
        starter, rest = self.split(request.command)
        given, notices = self.given(rest), Notices()
        config = None
        if "config-file" in given or "cpu" not in given:
            file = given.get("config-file") if "config-file" in given else None
            config = configuration(file, request.environ, request.directory, request.host_environment)
        added = _kind(given, config, request, notices)
        spreads = "--multi_gpu" in added or ("--cpu" not in added and _spreads(given, config))
        machines = given.number("num-machines") or 1
        if "num-processes" not in given:
            # Of all machines together.
            added.append(f"--num_processes={request.count * machines}")
        if "num-machines" not in given:
            added.append("--num_machines=1")
        if "gpu-ids" not in given:
            added.append("--gpu_ids=all")
        if "main-process-port" not in given and spreads and machines == 1:
            # Older versions stop where 29500 is taken; 0 is a free one in all.
            added.append("--main_process_port=0")
        if request.logs and "log-dir" not in given:
            added += [f"--log_dir={request.logs}", *(["--tee=3"] if "tee" not in given else [])]
        _say(given, request, notices, machines)
        _say_of_kind(given, request, notices, spreads)
        if config is not None and ("--cpu" not in added or "config-file" in given):
            _say_of_config(config, given, request, notices, spreads)
        argv = (*starter, *added, *rest)
        return Completed(argv, tuple(notices.warnings), tuple(notices.remarks), own=notices.own)


def _kind(given: Arguments, config: Config | None, request: LauncherRequest, notices: Notices) -> list[str]:
    """The option that says which kind of run it is, where neither the command nor the configuration does."""
    if any(name in given for name in _KINDS):
        return []
    if not request.devices:
        if config is not None and "config-file" not in given:
            notices.remark(f"--cpu: accelerate does not read {config.path} then")
        return ["--cpu"]
    if (given.number("num-processes") or request.count) < 2:
        return []
    if config is None:
        return ["--multi_gpu"]
    if config.problem is not None or config.elsewhere:
        return []
    if config.kind in _SPREADING and config.kind != "MULTI_GPU":
        notices.remark(f"{config.kind} as {config.path} says")
    return ["--multi_gpu"] if config.kind == "NO" else []


def _spreads(given: Arguments, config: Config | None) -> bool:
    """Whether accelerate will start through torch's launcher."""
    if any(name in given for name in _KINDS):
        return not any(name in given for name in _NOT_SPREADING)
    return config is not None and config.kind in _SPREADING


def _say(given: Arguments, request: LauncherRequest, notices: Notices, machines: int) -> None:
    count = len(request.devices)
    ids = given.get("gpu-ids", "all")
    same = count and ids == request.visibility.identifiers(
        request.devices, "uuid" if request.by_uuid else "index"
    )
    if ids != "all" and not same:
        words = f"--gpu_ids={ids}"
        warning = f"{words} of the command overrides the chosen devices"
        if "cpu" not in given and request.visibility.names_others(ids, request.devices, request.by_index):
            notices.asks_for_others(words, warning, ids)
        else:
            notices.warn(warning)
    asked = given.number("num-processes") if "num-processes" in given else request.processes
    if count and asked is not None and asked != count * machines:
        notices.warn(contradiction("--num_processes", asked, count))
    if machines > 1 or request.nodes > 1:
        notices.warn("several machines are started by torchrun here: --launcher torchrun")
    if request.numa:
        notices.remark("accelerate has no --numa-binding; torchrun has")
    indices = [device.index for device in request.devices]
    if "enable-cpu-affinity" in given and count and indices != list(range(count)):
        notices.warn(
            "--enable_cpu_affinity pins processes by NVML index and ignores the choice:"
            f" GPU {indices[0]}'s process gets the CPUs near GPU 0 (torchrun's --numa-binding is right)"
        )


def _say_of_kind(given: Arguments, request: LauncherRequest, notices: Notices, spreads: bool) -> None:
    asked = given.number("num-processes") or request.processes or 1
    if request.devices and "cpu" in given:
        notices.warn("--cpu of the command leaves the chosen devices unused")
    if not request.devices:
        kinds = [f"--{name.replace('-', '_')}" for name in _KINDS if name in given and name != "cpu"]
        if kinds:
            notices.warn(f"the command asks for {kinds[0]}, and no device is chosen")
        elif asked > 1:
            notices.warn(f"accelerate starts one process on the CPU; {asked} are asked for")
    variables = overriding(request.environ)
    if spreads and variables:
        waiting = several(request.environ)
        then = f", and waits for {waiting} machines" if waiting else ""
        notices.warn(f"accelerate takes torchrun's defaults from {variables} in your environment{then}")


def _say_of_config(
    config: Config, given: Arguments, request: LauncherRequest, notices: Notices, spreads: bool
) -> None:
    """What the line says in spite of the file, so that nobody wonders."""
    if config.problem is not None:
        notices.warn(f"{config.path}: {config.problem}")
        return
    if config.elsewhere:
        notices.warn(f"{config.path} starts on SageMaker, not on these devices")
        return
    if config.values.get("use_cpu") is True and request.devices and not spreads:
        notices.warn(f"use_cpu in {config.path} leaves the chosen devices unused")
    named = any(name in given for name in _KINDS)
    if config.kind not in ("NO", *_SPREADING) and not named and request.devices:
        notices.warn(f"distributed_type {config.kind} in {config.path} is not for these devices")
    unlike = []
    if config.gpu_ids is not None and "gpu-ids" not in given:
        unlike.append(f"gpu_ids {config.gpu_ids}")
    for key, name, ours in (
        ("num_processes", "num-processes", request.count),
        ("num_machines", "num-machines", 1),
        ("main_process_port", "main-process-port", 0 if spreads else None),
    ):
        theirs = config.number(key)
        if theirs is not None and theirs > 0 and ours is not None and theirs != ours and name not in given:
            unlike.append(f"{key} {theirs}")
    if unlike:
        notices.remark(f"{', '.join(unlike)} in {config.path} would count: the line says otherwise")
