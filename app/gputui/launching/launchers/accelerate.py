"""Hugging Face Accelerate: `accelerate launch`.

Facts (observed with 1.15.0): `gpu_ids` in the user's configuration overrides the list of visible devices, and
`--gpu_ids all` restores it; `--multi_gpu` discards an FSDP or DeepSpeed type in the configuration, and is an
error with one process; `--main_process_port 0` takes a free port; `--cpu` starts one process whatever the
count is, and does not read the configuration; `enable_cpu_affinity` in a configuration has no effect, but the
option has; torchrun's PET_* variables apply here, too, PET_VIRTUAL_LOCAL_RANK included; with one process and
without torch's launcher, left-over variables of ranks reach it; a bare `--use_fsdp` is FSDP 1 without a wrap
policy; unknown keys of `fsdp_config` are silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from gputui.choosing.grouping import Grouping
from gputui.inventory.formatting import devices_text, printable
from gputui.inventory.light_dataclasses import replace
from gputui.launching.argument_vector import Arguments, OptionTable
from gputui.launching.intent import CommandContext, DeviceCount, Intent, NamedDevices, list_of
from gputui.launching.launch_options import Meeting
from gputui.launching.launchers.accelerate_config import SECTIONS, Config, configuration
from gputui.launching.launchers.base import (
    Completed,
    LauncherRequest,
    ScriptLauncher,
    contradiction,
    count_in,
)
from gputui.launching.launchers.torchrun import gives_one_each, meeting_place, overriding, several

OLDER = ("use-mps-device", "use-xpu", "ipex")
"""Flags of versions before 1.8."""

OPTIONS = OptionTable(
    flags="help|h quiet|q cpu multi-gpu tpu enable-cpu-affinity use-deepspeed use-fsdp"
    " use-parallelism-config use-megatron-lm same-network module|m no-python tpu-cluster no-tpu-cluster"
    " tpu-use-sudo downcast-bf16 debug fp8-use-autocast-during-eval dynamo-use-fullgraph"
    f" dynamo-use-dynamic dynamo-use-regional-compilation {' '.join(OLDER)}",
    valued="tee|t",
    unlisted="value",
)
"""It takes no abbreviations, so its many options with a value need not be listed."""

_KINDS = ("multi-gpu", "use-fsdp", "use-deepspeed", "use-megatron-lm", "tpu", "tpu-cluster", "cpu")
"""The options that select the kind of run; with one of them the configuration's own kind has no effect."""

_SPREADING = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
"""Types in a configuration that start through torch's launcher, one process per device."""

_NOT_SPREADING = ("cpu", "tpu", "tpu-cluster")


class Accelerate(ScriptLauncher):
    """`accelerate launch --num_processes=N --gpu_ids=all … train.py`."""

    name = "accelerate"
    chooses_devices = True
    options = OPTIONS
    starts = ("accelerate launch", "accelerate-launch")
    modules = ("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch")

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        given = self.given(self.split(command)[1])
        typed, config = _typed_intent(given, context), _config_of(given, context)
        return typed if config is None else _intent_of_config(config).around(typed)

    def complete(self, request: LauncherRequest) -> Completed:
        starter, rest = self.split(request.command)
        given, done = self.given(rest), Completed()
        config = _config_of(given, request)
        machines = _machines(given, config, request)
        if request.meeting is not None:
            machines, given = request.nodes, given.without(_MACHINES)
        total = given.number("num-processes") or request.count * machines
        given = _rewritten(given, request, done, total)
        added = _kind(given, config, request, done, total)
        read = config if "--cpu" not in added or "config-file" in given else None
        spreads = "--multi_gpu" in added or ("--cpu" not in added and _spreads(given, config))
        ours = read is None or machines == 1 or "num-machines" in given or request.meeting is not None
        if "num-processes" not in given and (ours or not (read and read.number("num_processes"))):
            # For all machines together.
            added.append(f"--num_processes={request.count * machines}")
        if request.meeting is not None:
            added += _meets(given, read, request, request.meeting)
        elif "num-machines" not in given and ours:
            added.append("--num_machines=1")
        if "gpu-ids" not in given:
            added.append("--gpu_ids=all")
        if "main-process-port" not in given and spreads and machines == 1:
            # Older versions fail where 29500 is taken; 0 means a free port in all versions.
            added.append("--main_process_port=0")
        added += _fsdp(given, read, request, done)
        if spreads:
            _check_sizes(given, read, total, done)
        if request.logs and "log-dir" not in given:
            added += [f"--log_dir={request.logs}", *(["--tee=3"] if "tee" not in given else [])]
        _say(given, request, done, machines)
        _say_of_kind(given, request, done, spreads, machines)
        if read is not None:
            _say_of_config(read, given, request, done, spreads, machines)
        if machines > 1 and request.meeting is None:
            _check_rank(given, read, done, machines)
            _say_of_machines(given, read, request, done, machines)
        if request.one_each:
            _show_one_each(request, done, spreads)
        if read is not None and read.problem is None and not read.elsewhere:
            done.settings = read.values
        return done.as_argv((*starter, *added, *given.words), ranked=spreads)

    def lost_with_another(self, request: LauncherRequest) -> str | None:
        given = self.given(self.split(request.command)[1])
        for name, kind in _LOST.items():
            if name in given:
                return f"{kind} from --{name.replace('-', '_')}"
        config = _config_of(given, request)
        if config is None or given.named(_KINDS) or config.kind not in _LOST.values():
            return None
        return f"{config.kind} from {config.path}"


def _config_of(given: Arguments, asked: LauncherRequest | CommandContext) -> Config | None:
    """Return the configuration that accelerate reads for these options."""
    file = given.get("config-file") if "config-file" in given else None
    if file is None and "cpu" in given:
        return None
    return configuration(file, asked.environ, asked.directory, asked.host_environment)


def _machines(given: Arguments, config: Config | None, request: LauncherRequest) -> int:
    """Return how many machines take part; the command counts before the configuration."""
    if "num-machines" in given:
        return given.number("num-machines") or 1
    if config is None or config.elsewhere or not (request.devices or "config-file" in given):
        return 1
    return config.machines


_MACHINES = ("num-machines", "machine-rank", "main-process-ip", "main-process-port")


def _meets(given: Arguments, config: Config | None, request: LauncherRequest, meeting: Meeting) -> list[str]:
    """Return the options for one of several machines that are started together."""
    host, port = meeting_place(request)
    added = [f"--num_machines={request.nodes}", f"--machine_rank={meeting.rank}"]
    added += [f"--main_process_ip={host}", f"--main_process_port={port}"]
    if _by_deepspeed(given, config) and "deepspeed-multinode-launcher" not in given:
        # The default starts deepspeed's own launcher, which goes to the other machines itself.
        added.append("--deepspeed_multinode_launcher=standard")
    return added


def _by_deepspeed(given: Arguments, config: Config | None) -> bool:
    own = config is not None and config.kind == "DEEPSPEED" and not given.named(_KINDS)
    return "use-deepspeed" in given or own


def _rewritten(given: Arguments, request: LauncherRequest, done: Completed, total: int) -> Arguments:
    """Return the options without those that name other devices, or that accelerate refuses on these
    devices."""
    if "gpu-ids" in given and given.get("gpu-ids") != "all" and not _names_these(given, request):
        done.rewritten((given.text("gpu-ids"),))
        given = given.without(("gpu-ids",))
    if "multi-gpu" in given and total < 2:
        done.remark("--multi_gpu left out: accelerate refuses it with one process")
        given = given.without(("multi-gpu",))
    return given


def _names_these(given: Arguments, request: LauncherRequest) -> bool:
    """Whether `--gpu_ids` names exactly the devices, in this order."""
    ids, visibility = given.get("gpu-ids"), request.visibility
    if not request.devices:
        return "cpu" in given
    ours = visibility.identifiers(request.devices, "uuid" if request.by_uuid else "index")
    return ids == ours or (request.by_index and visibility.names_in_order(ids, request.devices))


_ONLY_FSDP_1 = (
    *("fsdp-sharding-strategy", "fsdp-backward-prefetch", "fsdp-use-orig-params", "fsdp-forward-prefetch"),
    "fsdp-sync-module-states",
)
"""Options that only FSDP 1 has (`FullyShardedDataParallelPlugin`)."""

FSDP_2_SINCE = {"accelerate": (1, 6), "torch": (2, 6)}
"""The first versions with FSDP 2."""


def _fsdp(given: Arguments, config: Config | None, request: LauncherRequest, done: Completed) -> list[str]:
    """Return the options for FSDP 2 with one unit per layer, where the command says only `--use_fsdp`.

    accelerate's own default is FSDP 1 with the whole model as one unit, which every device gathers as a
    whole.
    """
    if "use-fsdp" not in given:
        return []
    prefixed = {
        key if key.startswith("fsdp") else f"fsdp_{key}"
        for key in map(str, config.section("fsdp_config") if config is not None else ())
    }
    said = {name.replace("_", "-") for name in prefixed} | {option.name for option in given.options}
    if not said.isdisjoint(("fsdp-version", *_ONLY_FSDP_1)):
        return []
    for package, since in FSDP_2_SINCE.items():
        version = request.host_environment.version(package, request.path) if request.path else None
        if version is not None and version < since:
            return []
    added = ["--fsdp_version=2"]
    if "fsdp-auto-wrap-policy" not in said:
        added.append("--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP")
    done.remark(f"{' '.join(added)}: accelerate's own default is FSDP 1 with the whole model in one unit")
    return added


def _check_sizes(given: Arguments, config: Config | None, total: int, done: Completed) -> None:
    """Refuse sizes of a parallelism configuration that accelerate refuses once all processes have started."""
    kept = None if config is None or given.named(_KINDS) else config
    theirs, wrong = (kept.sizes, kept.wrong_sizes) if kept else ({}, {})
    if "use-parallelism-config" in given:
        wrong |= {f"--{name}": given.get(name) for name in _SIZES if name in given and not given.number(name)}
    if wrong:
        name, value = next(iter(wrong.items()))
        done.refuse(f"{name} is {printable(str(value)[:40])}, not a whole number from 1")
        return
    if not theirs and "use-parallelism-config" not in given:
        return
    typed = {name.replace("-", "_"): given.number(name) for name in _SIZES if name in given}
    prefix = "parallelism_config_"
    sizes = {name: {**typed, **theirs}.get(f"{prefix}{name}_size") or 1 for name in _PARALLEL}
    replicate, shard, _, context, sequence = sizes.values()
    product = prod(sizes.values())
    where = f" in {config.path}" if theirs and config is not None else ""
    words = " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    if context > 1 and sequence > 1:
        done.refuse(
            f"cp {context} and sp {sequence}{where}: accelerate divides a sequence in one of the two ways"
        )
    elif replicate > 1 and shard == 1 and product not in (replicate, replicate * sequence):
        done.refuse(
            f"{words}{where}: accelerate combines tp and cp with dp_shard, not with dp_replicate alone"
        )
    elif product > 1 and sequence == 1 and product != total:
        done.refuse(f"parallelism_config {words} = {product}{where}, and num_processes is {total}")


_PARALLEL = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
"""The sizes of a parallelism configuration; their product is the number of processes, but for DeepSpeed's sp
(accelerate/parallelism_config.py, `_validate_accelerator`)."""


def _show_one_each(request: LauncherRequest, done: Completed, spreads: bool) -> None:
    """Show each process one of the devices: by torch's variable, because accelerate has no option for it."""
    if not spreads:
        done.warn(f"{request.vendor.one_part}, and this is a single process")
    elif _ONE_EACH not in request.environ and gives_one_each(request, done):
        done.changes.append((_ONE_EACH, "1"))
        done.remark(f"{_ONE_EACH}=1: {request.vendor.one_part}, so each process is shown its own")


_ONE_EACH = "PET_VIRTUAL_LOCAL_RANK"
"""torchrun's --virtual-local-rank as a variable; accelerate starts its processes through torchrun."""

_NOT_STANDARD = ("", "pdsh", "openmpi", "mvapich", "mpich", "nossh")
"""The multi-node launchers for DeepSpeed that go through deepspeed's launcher; "" is the default."""


def _check_rank(given: Arguments, config: Config | None, done: Completed, machines: int) -> None:
    if "machine-rank" in given or config is None:
        done.check_rank(given.text("machine-rank"), given.get("machine-rank"), machines)
        return
    rank = str(config.values.get("machine_rank"))
    done.check_rank(f"machine_rank {rank} in {config.path}", rank, machines)


def _say_of_machines(
    given: Arguments, config: Config | None, request: LauncherRequest, done: Completed, machines: int
) -> None:
    """Report that the command or its configuration is for several machines, which stay as they are."""
    where = (
        "--num_machines" if "num-machines" in given or config is None else f"num_machines in {config.path}"
    )
    own = str(config.section("deepspeed_config").get("deepspeed_multinode_launcher", "")) if config else ""
    way = given.get("deepspeed-multinode-launcher", own)
    if _by_deepspeed(given, config) and way in _NOT_STANDARD:
        text = (
            f"accelerate starts deepspeed's launcher on {machines} machines, which takes the first devices of"
            " each machine (deepspeed_multinode_launcher: standard does not)"
        )
        done.asks_for_others(f"{where} {machines}", text)
    if "num-machines" in given or config is None:
        return
    done.remark(f"{machines} machines, as {config.path} says; this is the line for one of them")
    total = given.number("num-processes") or config.number("num_processes") or 0
    if request.devices and total and total != request.count * machines:
        here = f"num_processes {total} on {machines} machines ({config.path})"
        done.warn(f"{here} does not give each of {devices_text(len(request.devices))} a process here")


_LOST = {"use-fsdp": "FSDP", "use-deepspeed": "DEEPSPEED", "use-megatron-lm": "MEGATRON_LM"}
"""Kinds of run that accelerate gives to a script that does not set them itself."""


_SIZES = {
    "parallelism-config-tp-size": "tensor",
    "parallelism-config-dp-replicate-size": "",
    "parallelism-config-dp-shard-size": "",
    "parallelism-config-cp-size": "",
    "parallelism-config-sp-size": "",
    "megatron-lm-tp-degree": "tensor",
    "megatron-lm-pp-degree": "pipeline",
}
"""The options that give sizes, and the dimension of each. Those of a parallelism configuration multiply to
the number of processes (accelerate/parallelism_config.py); Megatron's leave the replicas open."""


def _typed_intent(given: Arguments, context: CommandContext) -> Intent:
    """Return what the options of the command say."""
    devices, ids = None, given.get("gpu-ids", "all")
    if "cpu" in given:
        devices = NamedDevices("--cpu", "")
    elif ids != "all":
        devices = NamedDevices(given.text("gpu-ids"), list_of(context.visibility, ids))
    sizes = {name: given.number(name) or 1 for name in _SIZES if name in given}
    count = count_in(given, "num-processes")
    if count is None and sizes and "use-parallelism-config" in given:
        count = DeviceCount(given.text(*_SIZES), prod(sizes.values()))
    return Intent(devices, _on_each(count, given.number("num-machines")), _group(sizes))


def _intent_of_config(config: Config) -> Intent:
    """Return what the configuration file says, all of it as defaults."""
    if config.values.get("use_cpu") is True:
        return Intent(devices=NamedDevices(f"use_cpu in {config.path}", "", firm=False))
    devices = count = None
    if config.gpu_ids is not None:
        listed = ",".join(part.strip() for part in config.gpu_ids.split(","))
        devices = NamedDevices(f"gpu_ids {listed} in {config.path}", listed, firm=False)
    sizes, processes = config.sizes, config.number("num_processes")
    if prod(sizes.values()) > 1:
        words = " ".join(f"{name} {size}" for name, size in sizes.items())
        count = DeviceCount(f"{words} in {config.path}", prod(sizes.values()), firm=False)
    elif processes:
        count = DeviceCount(f"num_processes {processes} in {config.path}", processes, firm=False)
    named = {name.replace("_", "-"): size for name, size in sizes.items()}
    return Intent(devices, _on_each(count, config.machines), _group(named))


def _on_each(count: DeviceCount | None, machines: int | None) -> DeviceCount | None:
    """Return the processes of each machine, given the number for all machines."""
    return count and replace(count, number=max(1, count.number // (machines or 1)))


def _group(sizes: Mapping[str, int]) -> Grouping | None:
    """Return the tensor- and pipeline-parallel groups of the sizes; None where there are none."""
    found = {dimension: sizes[name] for name, dimension in _SIZES.items() if dimension and name in sizes}
    group = Grouping(found.get("tensor", 1), found.get("pipeline", 1))
    return group if group.unit > 1 else None


def _kind(
    given: Arguments, config: Config | None, request: LauncherRequest, done: Completed, total: int
) -> list[str]:
    """Return the option for the kind of run, where neither the command nor the configuration sets one."""
    if given.named(_KINDS):
        return []
    if not request.devices:
        if config is not None and "config-file" not in given:
            done.remark(f"with --cpu, accelerate does not read {config.path}")
        return ["--cpu"]
    if total < 2:
        return []
    if config is None:
        return ["--multi_gpu"]
    if config.problem is not None or config.elsewhere:
        return []
    if config.kind in _SPREADING and config.kind != "MULTI_GPU":
        done.remark(f"{config.kind}, as {config.path} says")
    return ["--multi_gpu"] if config.kind == "NO" else []


def _spreads(given: Arguments, config: Config | None) -> bool:
    """Whether accelerate will start through torch's launcher."""
    if given.named(_KINDS):
        return not given.named(_NOT_SPREADING)
    return config is not None and config.kind in _SPREADING


def _say(given: Arguments, request: LauncherRequest, done: Completed, machines: int) -> None:
    count = len(request.devices)
    asked = given.number("num-processes") if "num-processes" in given else request.processes
    if count and asked is not None and asked != count * machines:
        done.warn(contradiction("--num_processes", asked, count))
    if request.numa:
        done.remark("accelerate has no --numa-binding; torchrun has")


def _say_of_kind(
    given: Arguments, request: LauncherRequest, done: Completed, spreads: bool, machines: int
) -> None:
    asked = given.number("num-processes") or request.processes or 1
    if request.devices and "cpu" in given:
        done.warn("--cpu in the command leaves the selected devices unused")
    if not request.devices:
        kinds = [f"--{name.replace('-', '_')}" for name in _KINDS if name in given and name != "cpu"]
        if kinds:
            done.warn(f"the command asks for {kinds[0]}, and no device is selected")
        elif asked > 1:
            done.warn(f"accelerate starts one process on the CPU; {asked} are asked for")
    variables = overriding(request.environ)
    if spreads and variables:
        waiting = several(request.environ) if machines == 1 else None
        kept = waiting and "PET_NNODES" in request.typed
        then = f", and waits for {waiting} machines" if kept else ""
        done.warn(f"accelerate takes torchrun's defaults from {variables} in your environment{then}")
        if waiting and not kept:
            # There is no option for it: accelerate's --num_machines=1 leaves torchrun's own default in force.
            done.changes.append(("PET_NNODES", None))
            done.remark(f"PET_NNODES={waiting} unset: accelerate would wait for {waiting} machines")


def _say_of_config(
    config: Config,
    given: Arguments,
    request: LauncherRequest,
    done: Completed,
    spreads: bool,
    machines: int,
) -> None:
    """Report where the launch line and the configuration file differ, and which of them applies."""
    if config.problem is not None:
        done.warn(f"{config.path}: {config.problem}")
        return
    if config.elsewhere:
        done.warn(f"{config.path} starts on SageMaker, not on these devices")
        return
    if config.values.get("use_cpu") is True and request.devices and not spreads:
        done.warn(f"use_cpu in {config.path} leaves the selected devices unused")
    named = bool(given.named(_KINDS))
    if config.kind not in ("NO", *_SPREADING) and not named and request.devices:
        done.warn(f"distributed_type {config.kind} in {config.path} does not suit these devices")
    kind = next((kind for name, kind in _LOST.items() if name in given), None if named else config.kind)
    for section in SECTIONS:
        counts = {"fsdp_config": kind == "FSDP", "deepspeed_config": kind == "DEEPSPEED"}.get(section, True)
        for key, meant in config.ignored(section) if counts else ():
            hint = f": did you mean {meant}?" if meant else ""
            done.warn(f"accelerate ignores {key} of {section} in {config.path}{hint}")
    ours = {"num_processes": request.count, "num_machines": 1} if machines == 1 else {}
    if spreads and machines == 1:
        ours["main_process_port"] = 0
    unlike = [
        f"{key} {theirs}"
        for key, own in ours.items()
        if (theirs := config.number(key) or own) != own and key.replace("_", "-") not in given
    ]
    if config.gpu_ids is not None and "gpu-ids" not in given:
        unlike.insert(0, f"gpu_ids {config.gpu_ids}")
    if unlike:
        done.remark(f"the launch line overrides {', '.join(unlike)} in {config.path}")
