"""A configuration for `accelerate launch --config_file FILE`.

Keys and their meaning: accelerate/commands/config/config_args.py (ClusterConfig; an unknown key is an error)
and `_validate_launch_command` (1.15.0). `gpu_ids: all` leaves the list of visible devices alone;
every other value overrides it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gputui.inventory.formatting import is_digits
from gputui.inventory.light_dataclasses import replace
from gputui.launching.argument_vector import Arguments, read_options
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    need_text,
    other_changes,
    visible_devices,
)
from gputui.launching.launch import Launch
from gputui.launching.launchers import recognised
from gputui.launching.launchers.accelerate import OPTIONS
from gputui.launching.launchers.accelerate_config import Config
from gputui.launching.launchers.entrypoint import Entrypoint
from gputui.launching.wrappers import unwrap
from gputui.planning.files import cluster_config
from gputui.vendors.visibility import Changes

_KINDS = {
    "use-fsdp": "FSDP",
    "use-deepspeed": "DEEPSPEED",
    "use-megatron-lm": "MEGATRON_LM",
    "multi-gpu": "MULTI_GPU",
}
_WRITTEN = frozenset(("num-processes", "num-machines", "gpu-ids", "cpu", "use-parallelism-config"))
"""Options that the configuration always contains, because the launch gives their values."""

_KEYS = frozenset(
    (
        *("mixed-precision", "machine-rank", "main-process-ip", "main-process-port", "rdzv-backend"),
        *("main-training-function", "same-network", "enable-cpu-affinity", "debug", "downcast-bf16"),
    )
)
_SECTIONS = {
    "fsdp": "fsdp_config",
    "megatron-lm": "megatron_lm_config",
    "fp8": "fp8_config",
    "dynamo": "dynamo_config",
    "parallelism-config": "parallelism_config",
    "deepspeed": "deepspeed_config",
    **dict.fromkeys(
        (
            *("zero-stage", "zero3", "offload-optimizer", "offload-param", "gradient-accumulation-steps"),
            "gradient-clipping",
        ),
        "deepspeed_config",
    ),
}
"""The part of the configuration that has the options with that prefix, each under its own name."""


def to_accelerate(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return the YAML, with the line that starts it as a comment at the top.

    Options of an `accelerate launch` that are keys of the configuration are moved there; the others stay on
    the line. Values of the user's own configuration are included, too, because accelerate reads only one of
    the two.
    """
    import yaml

    need_text(launch, "accelerate's configuration")
    before, command = unwrap(launch.argv)
    launcher = recognised(command)
    entrypoint = launcher.entrypoint(command)
    given = read_options(entrypoint.left_out if launcher.name == "accelerate" else (), OPTIONS)
    config, left = _config(given, launch)
    start: tuple[str, ...] = ()
    if entrypoint.words:
        file = options.file or "FILE"
        kind = {"module": ("--module",), "program": ("--no_python",), "script": ()}[entrypoint.kind]
        start = (*before, *_starter(entrypoint), "--config_file", file, *left, *kind, *entrypoint.words)
    line = replace(launch, argv=start, changes=_changes(launch)).line
    return f"# {line}\n{yaml.safe_dump(config, sort_keys=False, allow_unicode=True)}".rstrip("\n")


def accelerate_notes(launch: Launch) -> tuple[str, ...]:
    """Return notes on what the file leaves to its line."""
    variable = launch.vendor.visibility.variable
    which = f"{variable} the devices; the" if variable else "not the devices; the"
    return (f"the file gives the number of processes, {which} comment at the top is the line to start it",)


def _starter(entrypoint: Entrypoint) -> tuple[str, ...]:
    """Return the words that start accelerate in the interpreter, or in the environment, that the command
    names."""
    if entrypoint.python is not None:
        return entrypoint.by_module("accelerate.commands.launch")
    return (f"{entrypoint.home}/accelerate" if entrypoint.home is not None else "accelerate", "launch")


def _changes(launch: Launch) -> Changes:
    """Return the changes; where another launcher names the devices on its line, the variable is added."""
    if visible_devices(launch) is not None:
        return launch.changes
    return (*launch.vendor.visibility.changes(launch.devices), *other_changes(launch).items())


def _config(given: Arguments, launch: Launch) -> tuple[dict[str, object], list[str]]:
    """Return the configuration, and the options that stay on the line."""
    theirs = Config("", launch.settings or {})
    if "config-file" in given and launch.settings is None:
        raise ExportError(f"the configuration of the command cannot be read: {given.get('config-file')}")
    if "tpu" in given:
        raise ExportError("--tpu is not for these devices")
    count = given.number("num-processes") or theirs.number("num_processes") or max(1, len(launch.devices))
    kind = _kind(given, launch, theirs.kind, count)
    machines = given.number("num-machines") or theirs.machines
    cpu = not launch.devices or "cpu" in given
    config = cluster_config(kind, count, machines, cpu)
    left: list[str] = []
    parts = {key: dict(value) for key, value in theirs.values.items() if isinstance(value, Mapping)}
    usual = {"machine_rank", "mixed_precision"}
    config.update(
        (key, value)
        for key, value in theirs.values.items()
        if key not in parts and (key in usual or key not in config)
    )
    for option in given.options:
        name = option.name
        key, section = name.replace("-", "_"), section_of(name)
        if name in _KINDS or name in _WRITTEN or name == "config-file":
            continue
        value = True if name in OPTIONS.flags else _value(given.get(name))
        if name in _KEYS:
            config[key] = value
        elif section is not None:
            parts.setdefault(section, {})[key] = value
        else:
            left += option.words
    return {**config, **parts}, left


def _kind(given: Arguments, launch: Launch, theirs: str, count: int) -> str:
    if not launch.devices or "cpu" in given:
        return "MULTI_CPU" if count > 1 else "NO"
    named = next((kind for name, kind in _KINDS.items() if name in given), None)
    if named is None and launch.settings is None and launch.launcher == "accelerate" and count > 1:
        # The line says no kind, so the launcher has found one in a configuration that cannot be read.
        raise ExportError(
            "your own accelerate configuration says which kind of run this is, and cannot be read; name it in"
            " the command (--use_fsdp, --use_deepspeed, --multi_gpu)"
        )
    named = named or theirs
    if named in ("NO", "MULTI_GPU"):
        return "MULTI_GPU" if count > 1 else "NO"
    return named


def section_of(name: str) -> str | None:
    """Return the part of the configuration for an option of the launcher, None where there is none."""
    return next((section for start, section in _SECTIONS.items() if f"{name}-".startswith(f"{start}-")), None)


def _value(text: str) -> object:
    """Return the value as accelerate's own files have it: numbers and truth values are not text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if is_digits(text):
        return int(text)
    return text
