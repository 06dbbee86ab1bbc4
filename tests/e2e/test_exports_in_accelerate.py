"""The accelerate form, started by the real `accelerate launch` with the line at its top."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from e2e.ranks import ranks_of
from gputui.launching.compose import compose
from gputui.launching.exports import ExportOptions
from gputui.launching.exports.accelerate import to_accelerate
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"),
]

SCRIPT = """
import json, os, sys
names = ("WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ACCELERATE_MIXED_PRECISION")
with open(f"rank{os.environ.get('RANK', '')}.json", "w") as file:
    json.dump({"argv": sys.argv[1:]} | {name: os.environ.get(name) for name in names}, file)
"""


@pytest.mark.parametrize("count", [2, 1])
def test_the_processes_start_on_the_chosen_devices_whatever_the_users_own_file_says(
    tmp_path: Path, count: int
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    own = tmp_path / "home" / "accelerate" / "default_config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("distributed_type: MULTI_GPU\ngpu_ids: 6,7\nnum_processes: 2\nmixed_precision: fp16\n")
    command = ("accelerate", "launch", "--multi_gpu", "--mixed_precision=bf16", "train.py", "--lr", "3 e-4")
    devices = (gpu(2), gpu(0))[:count]
    words = command if count > 1 else (*command[:2], *command[3:])
    launch = compose(devices, LaunchOptions(words), {"HF_HOME": str(tmp_path / "home")})
    text = to_accelerate(launch, ExportOptions(file="config.yaml"))
    (tmp_path / "config.yaml").write_text(text + "\n")
    line = text.partition("\n")[0].removeprefix("# ")
    told = ranks_of(line, tmp_path, HF_HOME=str(tmp_path / "home"))
    assert (
        told
        == [
            {
                "argv": ["--lr", "3 e-4"],
                "WORLD_SIZE": "2" if count > 1 else None,
                "CUDA_VISIBLE_DEVICES": "2,0" if count > 1 else "2",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "ACCELERATE_MIXED_PRECISION": "bf16",
            }
        ]
        * count
    )
