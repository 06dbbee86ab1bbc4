"""The configuration file that `accelerate launch` reads by default, found as accelerate finds it.

accelerate/commands/config/config_args.py and commands/launch.py (`_validate_launch_command`), 1.15.0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.others_files import NotReadError
from gputui.launching.configuration_text import read_values
from gputui.launching.host_environment import HostEnvironment, below
from gputui.system.environment import Environ
from gputui.vendors.visibility import Changes


@dataclass(frozen=True)
class Config:
    """The values of the file. `problem` says what is wrong with it; then there are no `values`."""

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def kind(self) -> str:
        """`distributed_type`: NO, MULTI_GPU, FSDP, DEEPSPEED, …"""
        value = self.values.get("distributed_type")
        # An unquoted NO is false in YAML; accelerate compares words, and treats an unknown one like NO.
        return value if isinstance(value, str) else "NO"

    @property
    def elsewhere(self) -> bool:
        """Whether it starts on SageMaker."""
        return self.values.get("compute_environment") == "AMAZON_SAGEMAKER"

    def number(self, key: str) -> int | None:
        """Return a whole number from the file, at least one."""
        value = self.values.get(key)
        return value if type(value) is int and value > 0 else None

    @property
    def machines(self) -> int:
        """`num_machines`."""
        return self.number("num_machines") or 1

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a part of the file (`fsdp_config`); empty where it is missing."""
        found = self.values.get(name)
        return found if isinstance(found, Mapping) else {}

    def ignored(self, name: str) -> Changes:
        """Return the keys of a part that accelerate silently ignores, each with the key that may be meant."""
        prefix, known = SECTIONS[name]
        found = []
        for key in self.section(name):
            # (`_validate_launch_command` adds a missing prefix.)
            whole = f"{prefix}{key}" if prefix and not str(key).startswith(prefix[:4]) else str(key)
            if whole not in known:
                found.append((str(key), _meant(whole, known)))
        return tuple(found)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes in `parallelism_config`, whose product is the number of processes; empty for none."""
        given = self._given_sizes
        return {key: size for key, size in given.items() if type(size) is int and size > 0}

    @property
    def wrong_sizes(self) -> dict[str, object]:
        """The sizes there that are not whole numbers from 1, which accelerate refuses."""
        right = self.sizes
        return {key: size for key, size in self._given_sizes.items() if key not in right}

    @property
    def _given_sizes(self) -> Mapping[str, Any]:
        section = self.section("parallelism_config")
        named = {key: size for key, size in section.items() if isinstance(key, str) and key.endswith("_size")}
        return {key: size for key, size in named.items() if size is not None}

    @property
    def gpu_ids(self) -> str | None:
        """The devices that the file names; None where it leaves them to the variable."""
        value = self.values.get("gpu_ids")
        if isinstance(value, str | int):
            return None if value == "all" else str(value)
        return None if value is None else type(value).__name__


def _named(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}{name}" for name in names.split())


SECTIONS: Mapping[str, tuple[str, frozenset[str]]] = {
    "fsdp_config": (
        "fsdp_",
        _named(
            "fsdp_",
            "version offload_params min_num_params sharding_strategy reshard_after_forward auto_wrap_policy"
            " transformer_layer_cls_to_wrap backward_prefetch state_dict_type forward_prefetch"
            " use_orig_params cpu_ram_efficient_loading sync_module_states activation_checkpointing"
            " activation_checkpointing_offload ignored_modules",
        ),
    ),
    "deepspeed_config": (
        "",
        _named(
            "",
            "deepspeed_config_file zero_stage offload_optimizer_device offload_param_device"
            " offload_optimizer_nvme_path offload_param_nvme_path gradient_accumulation_steps"
            " gradient_clipping zero3_init_flag zero3_save_16bit_model deepspeed_hostfile"
            " deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher"
            " deepspeed_moe_layer_cls_names",
        ),
    ),
    "parallelism_config": (
        "",
        _named(
            "parallelism_config_",
            "dp_replicate_size dp_shard_size tp_size cp_size cp_backend cp_comm_strategy sp_size sp_backend"
            " sp_seq_length sp_seq_length_is_variable sp_attn_implementation",
        ),
    ),
    "dynamo_config": (
        "dynamo_",
        _named("dynamo_", "backend mode use_fullgraph use_dynamic use_regional_compilation"),
    ),
}
"""The prefix that accelerate adds to a key without it, and the options that the keys are, by the part of the
file (1.15.0). Every other key becomes an attribute that nothing reads. (All keys of `fp8_config` become
variables.)"""

_MEANT = {"fsdp_cpu_offload": "fsdp_offload_params", "fsdp_offload_param": "fsdp_offload_params"}
"""Keys of other places, and their names here: `cpu_offload` is a name of the plugin class and of
transformers."""


def _meant(key: str, known: frozenset[str]) -> str | None:
    if key in _MEANT:
        return _MEANT[key]
    prefixed = next((name for name in sorted(known) if name.endswith(f"_{key}")), None)
    if prefixed is not None:
        return prefixed
    from difflib import get_close_matches

    return next(iter(get_close_matches(key, sorted(known), 1, 0.8)), None)


def configuration(
    given: str | None, environ: Environ, directory: str | None, host_environment: HostEnvironment
) -> Config | None:
    """Return the file that `accelerate launch` will read, None where it will read none.

    `given` is the value of `--config_file`. Relative paths are from the directory of the launch.
    """
    path = below(directory, default_path(environ) if given is None else given)
    if not host_environment.is_file(path):
        if given is None:
            return None
        return Config(path, problem="there is no such file, so accelerate will fail")
    text = host_environment.text(path)
    if text is None:
        return Config(path, problem="gputui cannot read it here; accelerate will do what it says")
    return _read(path, text)


def default_path(environ: Environ) -> str:
    """Return the path of the file where none is given; it may be relative, where a variable is.

    (The default_config.json in accelerate's documentation is not read: accelerate's constant of that name
    holds the name of the YAML file.)
    """
    # (Joined as strings, as accelerate does it: an empty variable counts, too.)
    cache = os.path.join(environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")  # noqa: PTH118
    place = _expanded(environ.get("HF_HOME", cache), environ)
    return os.path.join(place, "accelerate", "default_config.yaml")  # noqa: PTH118


def _expanded(path: str, environ: Environ) -> str:
    """Return the path without "~", as `os.path.expanduser` would in a process with that environment."""
    name, slash, rest = path.partition("/")
    if name != "~":
        return os.path.expanduser(path)  # noqa: PTH111 - of "~other", or nothing
    home = environ.get("HOME")
    if home is None:
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    return home.rstrip("/") + slash + rest or "/"


def _read(path: str, text: str) -> Config:
    form = "JSON" if path.endswith(".json") else "YAML"
    try:
        values = read_values(text, form)
    except NotReadError as error:
        return Config(
            path, problem=f"gputui does not read it, because {error}; accelerate will do what it says"
        )
    except ValueError:
        return Config(path, problem=f"it is not {form}, so accelerate will fail")
    if not isinstance(values, dict):
        return Config(path, problem="it contains no settings, so accelerate will fail")
    if "distributed_type" not in values:
        return Config(path, problem="it has no distributed_type, so accelerate will fail")
    return Config(path, values)
