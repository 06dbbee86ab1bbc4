"""The configuration that `accelerate launch` reads of itself, found as accelerate finds it.

accelerate/commands/config/config_args.py and commands/launch.py (`_validate_launch_command`), 1.15.0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gputui.launching.surroundings import Surroundings


@dataclass(frozen=True)
class Config:
    """What the file says. `problem` says why it cannot be read; then there are no `values`."""

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def kind(self) -> str:
        """`distributed_type`: NO, MULTI_GPU, FSDP, DEEPSPEED, …"""
        value = self.values.get("distributed_type")
        # An unquoted NO is false in YAML.
        return "NO" if value in (None, False) else str(value)

    def number(self, key: str) -> int | None:
        """A whole number of the file."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def gpu_ids(self) -> str | None:
        """The devices that the file names; None where it leaves that to the variable."""
        value = self.values.get("gpu_ids")
        return None if value in (None, "all") else str(value)


def configuration(
    given: str | None, environ: Mapping[str, str], directory: str | None, surroundings: Surroundings
) -> Config | None:
    """The file that `accelerate launch` will read, None where it will read none.

    `given` is the value of `--config_file`, relative to the directory of the launch.
    """
    if given is not None:
        path = os.path.join(directory or "", os.path.expanduser(given))  # noqa: PTH111, PTH118 - as accelerate does
        text = surroundings.text(path)
        return Config(path, problem="there is no such file") if text is None else _read(path, text)
    for path in default_paths(environ):
        text = surroundings.text(path)
        if text is not None:
            return _read(path, text)
    return None


def default_paths(environ: Mapping[str, str]) -> tuple[str, str]:
    """Where the file is when none is given: the YAML one, else the JSON one of older versions."""
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    place = environ.get("HF_HOME") or f"{cache}/huggingface"
    if place == "~" or place.startswith("~/"):
        place = home + place[1:]
    return f"{place}/accelerate/default_config.yaml", f"{place}/accelerate/default_config.json"


@lru_cache(maxsize=8)
def _read(path: str, text: str) -> Config:
    """PyYAML takes 20 ms to import: only where there is a file to read."""
    try:
        if path.endswith(".json"):
            import json

            values = json.loads(text)
        else:
            import yaml

            values = yaml.safe_load(text)
    except (ValueError, RecursionError) as error:
        return Config(path, problem=f"it is not JSON: {error}")
    except Exception as error:
        if type(error).__module__.split(".")[0] != "yaml":
            raise
        return Config(path, problem="it is not YAML")
    if not isinstance(values, dict):
        return Config(path, problem="it has no settings in it")
    return Config(path, values)
