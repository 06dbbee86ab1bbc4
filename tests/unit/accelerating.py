"""Launches of `accelerate launch` for tests."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu
from unit.host_environments import Told

HOME = {"HOME": "/home/u"}
DEFAULT = "/home/u/.cache/huggingface/accelerate/default_config.yaml"
MODULE = "accelerate.commands.launch"
TWO = "--num_processes=2 --num_machines=1 --gpu_ids=all"
SPREAD = f"--multi_gpu {TWO} --main_process_port=0"
FSDP_2 = "--fsdp_version=2 --fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP"
ONE = "--num_processes=1 --num_machines=1 --gpu_ids=all"


def made(
    command: str,
    devices: int | tuple[int, ...] = 2,
    config: str | None = None,
    *,
    environ: Mapping[str, str] = HOME,
    files: Mapping[str, str] | None = None,
    **options: Any,
) -> Launch:
    """The launch of a command; `config` is the text of the user's own configuration."""
    indices = range(devices) if isinstance(devices, int) else devices
    told = {**({DEFAULT: config} if config is not None else {}), **(files or {})}
    return compose(
        [gpu(index) for index in indices],
        LaunchOptions(tuple(shlex.split(command)), **{"launcher": "accelerate", **options}),
        environ,
        Told(told),
    )
