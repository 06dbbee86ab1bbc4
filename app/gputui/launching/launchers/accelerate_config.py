"""The configuration file that `accelerate launch` reads by default, found as accelerate finds it.

accelerate/commands/config/config_args.py and commands/launch.py (`_validate_launch_command`), 1.15.0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gputui.launching.host_environment import HostEnvironment


@dataclass(frozen=True)
class Config:
    """What the file says. `problem` says what is wrong with it; then there are no `values`."""

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def kind(self) -> str:
        """`distributed_type`: NO, MULTI_GPU, FSDP, DEEPSPEED, …"""
        value = self.values.get("distributed_type")
        # An unquoted NO is false in YAML; accelerate compares words, and what is none is like NO.
        return value if isinstance(value, str) else "NO"

    @property
    def elsewhere(self) -> bool:
        """Whether it starts on SageMaker."""
        return self.values.get("compute_environment") == "AMAZON_SAGEMAKER"

    def number(self, key: str) -> int | None:
        """A whole number of the file."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def gpu_ids(self) -> str | None:
        """The devices that the file names; None where it leaves that to the variable."""
        value = self.values.get("gpu_ids")
        if isinstance(value, str | int):
            return None if value == "all" else str(value)
        return None if value is None else type(value).__name__


def configuration(
    given: str | None, environ: Mapping[str, str], directory: str | None, host_environment: HostEnvironment
) -> Config | None:
    """The file that `accelerate launch` will read, None where it will read none.

    `given` is the value of `--config_file`. Relative paths are from the directory of the launch.
    """
    path = os.path.join(directory or "", default_path(environ) if given is None else given)  # noqa: PTH118
    if not host_environment.is_file(path):
        if given is None:
            return None
        return Config(path, problem="accelerate will stop, as there is no such file")
    text = host_environment.text(path)
    if text is None:
        return Config(path, problem="it cannot be read here, and accelerate will do what it says")
    return _read(path, text)


def default_path(environ: Mapping[str, str]) -> str:
    """Where the file is when none is given; it may be relative, where a variable is.

    (The default_config.json of accelerate's documentation is not read: its name in accelerate is that of the
    YAML file.)
    """
    # (As strings, as accelerate joins them: an empty variable is a place too.)
    cache = os.path.join(environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")  # noqa: PTH118
    place = _expanded(environ.get("HF_HOME", cache), environ)
    return os.path.join(place, "accelerate", "default_config.yaml")  # noqa: PTH118


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    """The path without "~", as `os.path.expanduser` would say in a process with that environment."""
    name, slash, rest = path.partition("/")
    if name != "~":
        return os.path.expanduser(path)  # noqa: PTH111 - of "~other", or nothing
    home = environ.get("HOME")
    if home is None:
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    return home.rstrip("/") + slash + rest or "/"


@lru_cache(maxsize=8)
def _read(path: str, text: str) -> Config:
    form = "JSON" if path.endswith(".json") else "YAML"
    try:
        values = _json(text) if form == "JSON" else _yaml(text)
    except _Malformed:
        return Config(path, problem=f"accelerate will stop at it, as it is not {form}")
    if not isinstance(values, dict):
        return Config(path, problem="accelerate will stop at it, as it has no settings in it")
    if "distributed_type" not in values:
        return Config(path, problem="accelerate will stop at it, as it has no distributed_type")
    return Config(path, values)


class _Malformed(Exception):
    """The text is not of its form."""


def _json(text: str) -> object:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Malformed from error


def _yaml(text: str) -> object:
    """PyYAML takes 20 ms to import: only where there is a file to read."""
    import yaml

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    # Beside its own errors PyYAML lets those of its conversions through (`!!bool maybe`, `!!timestamp x`).
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise _Malformed from error
