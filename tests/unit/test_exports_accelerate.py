"""The accelerate form: YAML that accelerate itself loads if it is installed, and the line that starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputui.inventory.device import Device
from gputui.launching.compose import compose
from gputui.launching.exports import DEFAULT, ExportError, ExportOptions
from gputui.launching.exports.accelerate import to_accelerate
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers import LAUNCHERS
from table_tests import each_row
from unit.builders import gpu

TWO, ONE = (gpu(2), gpu(0)), (gpu(3),)
BASE = {
    "compute_environment": "LOCAL_MACHINE",
    "gpu_ids": "all",
    "machine_rank": 0,
    "mixed_precision": "no",
    "num_machines": 1,
    "use_cpu": False,
}
SPREAD = {**BASE, "main_process_port": 0, "num_processes": 2}


def _launch(
    *argv: str, devices: tuple[Device, ...] = TWO, environ: dict[str, str] | None = None, **facts: Any
) -> Launch:
    return compose(devices, LaunchOptions(argv, **facts), {"HF_HOME": "/nonexistent", **(environ or {})})


def _read(launch: Launch, options: ExportOptions = DEFAULT) -> tuple[str, dict[str, Any]]:
    text = to_accelerate(launch, options)
    first, _, rest = text.partition("\n")
    assert first.startswith("# ") and rest
    config = yaml.safe_load(text)
    return first[2:], config


def test_a_script_on_two_devices() -> None:
    line, config = _read(_launch("python", "train.py", "--lr", "3e-4"), ExportOptions(file="a b.yaml"))
    assert config == {**SPREAD, "distributed_type": "MULTI_GPU"}
    assert line == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,0"
        " accelerate launch --config_file 'a b.yaml' train.py --lr 3e-4"
    )


def test_one_device_is_of_the_type_no_in_quotes() -> None:
    launch = _launch("python", "train.py", devices=ONE)
    _, config = _read(launch)
    assert config == {**BASE, "distributed_type": "NO", "num_processes": 1}
    assert "distributed_type: 'NO'" in to_accelerate(launch)


def test_cpu_only_uses_the_cpu() -> None:
    line, config = _read(_launch("python", "train.py", devices=()))
    assert config == {**BASE, "distributed_type": "NO", "num_processes": 1, "use_cpu": True}
    assert line.startswith("CUDA_VISIBLE_DEVICES= accelerate launch")


@each_row("launcher", list(LAUNCHERS))
def test_every_launcher_gives_what_it_starts(launcher: str) -> None:
    # The order is ascending, so that deepspeed takes the devices itself.
    launch = _launch("python", "train.py", "-x", launcher=launcher, devices=(gpu(0), gpu(2)))
    line, config = _read(launch)
    assert config == {**SPREAD, "distributed_type": "MULTI_GPU"}
    assert line == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2"
        " accelerate launch --config_file FILE train.py -x"
    )


@each_row(
    ("argv", "end"),
    [
        (("python", "-m", "pkg", "a"), "accelerate launch --config_file FILE --module pkg a"),
        (("sh", "-c", "x y"), "accelerate launch --config_file FILE --no_python sh -c 'x y'"),
        (("/v/bin/python", "t.py"), "/v/bin/python -m accelerate.commands.launch --config_file FILE t.py"),
        (("/v/bin/torchrun", "t.py"), "/v/bin/accelerate launch --config_file FILE t.py"),
        (
            ("python", "-X", "dev", "-m", "accelerate.commands.launch", "t.py"),
            "python -X dev -m accelerate.commands.launch --config_file FILE t.py",
        ),
        (("uv", "run", "python", "t.py"), "uv run accelerate launch --config_file FILE t.py"),
        (("accelerate", "launch", "--module", "pkg"), "accelerate launch --config_file FILE --module pkg"),
        (
            ("accelerate", "launch", "--num_cpu_threads_per_process", "4", "--quiet", "t.py", "--debug"),
            "accelerate launch --config_file FILE --num_cpu_threads_per_process 4 --quiet t.py --debug",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_line_starts_what_the_command_starts(argv: tuple[str, ...], end: str) -> None:
    line, _ = _read(_launch(*argv))
    assert line.endswith(f" {end}")


def test_options_that_are_keys_move_into_the_file() -> None:
    line, config = _read(
        _launch(
            *(
                "accelerate",
                "launch",
                "--mixed_precision",
                "bf16",
                "--use_fsdp",
                "--fsdp_offload_params=true",
            ),
            *("--fsdp_sharding_strategy", "SHARD_GRAD_OP", "--dynamo_backend", "inductor", "--debug"),
            *("--fsdp_min_num_params=2000", "--main_process_port=0", "t.py", "--mixed_precision", "no"),
        )
    )
    assert config == {
        **SPREAD,
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "debug": True,
        "fsdp_config": {
            "fsdp_offload_params": True,
            "fsdp_sharding_strategy": "SHARD_GRAD_OP",
            "fsdp_min_num_params": 2000,
        },
        "dynamo_config": {"dynamo_backend": "inductor"},
    }
    assert line.endswith("accelerate launch --config_file FILE t.py --mixed_precision no")


def test_deepspeed_of_accelerate_keeps_its_part() -> None:
    _, config = _read(
        _launch(
            "accelerate", "launch", "--use_deepspeed", "--zero_stage", "3", "--gradient_clipping=1.0", "t.py"
        )
    )
    assert config["distributed_type"] == "DEEPSPEED"
    assert config["deepspeed_config"] == {"zero_stage": 3, "gradient_clipping": "1.0"}


def test_the_number_of_processes_that_was_asked_for_is_kept() -> None:
    _, config = _read(_launch("accelerate", "launch", "--num_processes=4", "t.py"))
    assert config["num_processes"] == 4 and config["distributed_type"] == "MULTI_GPU"


def test_without_a_command_the_comment_has_the_variables() -> None:
    line, config = _read(_launch())
    assert line == "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,0"
    assert config["num_processes"] == 2


def test_a_configuration_of_the_command_that_is_not_there_is_refused() -> None:
    with pytest.raises(ExportError, match=r"/x\.yaml"):
        to_accelerate(_launch("accelerate", "launch", "--config_file", "/x.yaml", "t.py"))


_OWN = """distributed_type: FSDP
gpu_ids: '0,1'
num_processes: 8
main_process_port: 29501
mixed_precision: bf16
debug: true
fsdp_config: {fsdp_version: 2, fsdp_offload_params: true}
"""


@pytest.mark.parametrize("named", [False, True])
def test_what_the_users_own_file_says_is_in_ours(tmp_path: Path, named: bool) -> None:
    """accelerate reads one file only."""
    file = tmp_path / "accelerate" / "default_config.yaml"
    file.parent.mkdir()
    file.write_text(_OWN)
    option = ("--config_file", str(file)) if named else ()
    environ = {} if named else {"HF_HOME": str(tmp_path)}
    words = ("accelerate", "launch", *option, "--fsdp_state_dict_type", "FULL_STATE_DICT", "t.py")
    line, config = _read(_launch(*words, environ=environ))
    assert config == {
        **SPREAD,
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "debug": True,
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_offload_params": True,
            "fsdp_state_dict_type": "FULL_STATE_DICT",
        },
    }
    assert line.endswith("accelerate launch --config_file FILE t.py")


def test_a_file_for_several_machines_stays_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "distributed_type: MULTI_GPU\nnum_machines: 2\nmachine_rank: 1\nnum_processes: 4\n"
        "main_process_ip: h\nmain_process_port: 29501\n"
    )
    _, config = _read(_launch("accelerate", "launch", "--config_file", str(file), "t.py"))
    said = ("num_machines", "machine_rank", "num_processes", "main_process_ip", "main_process_port")
    assert [config[key] for key in said] == [2, 1, 4, "h", 29501]
    assert config["gpu_ids"] == "all"


def test_hostile_words_stay_in_the_comment() -> None:
    line, config = _read(_launch("python", "t.py", "a\nuse_cpu: true", "# x", "\u2028"))
    assert config == {**SPREAD, "distributed_type": "MULTI_GPU"} and line.isprintable()


LOADED = """
import json, sys
from accelerate.commands.config.config_args import load_config_from_file
print(json.dumps([load_config_from_file(file).to_dict() for file in sys.argv[1:]]))
"""


@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate_itself_loads_every_one(tmp_path: Path) -> None:
    launches = [
        _launch("python", "t.py"),
        _launch("python", "t.py", devices=ONE),
        _launch("python", "t.py", devices=()),
        _launch("accelerate", "launch", "--use_fsdp", "--fsdp_version", "2", "--debug", "t.py"),
        _launch("accelerate", "launch", "--use_deepspeed", "--zero_stage=2", "--same_network", "t.py"),
        _launch("accelerate", "launch", "--cpu", "--num_processes", "2", "t.py", devices=()),
        _launch("accelerate", "launch", "--dynamo_backend=inductor", "--mixed_precision=fp16", "t.py"),
    ]
    files = [tmp_path / f"{place}.yaml" for place in range(len(launches))]
    for file, launch in zip(files, launches, strict=True):
        file.write_text(to_accelerate(launch) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    kinds = ["MULTI_GPU", "NO", "NO", "FSDP", "DEEPSPEED", "MULTI_CPU", "MULTI_GPU"]
    assert [config["distributed_type"] for config in loaded] == kinds
    assert [config["num_processes"] for config in loaded] == [2, 1, 1, 2, 2, 2, 2]
    assert {config["gpu_ids"] for config in loaded} == {"all"}
    assert [config["use_cpu"] for config in loaded] == [False, False, True, False, False, True, False]
