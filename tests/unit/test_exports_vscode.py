"""The VS Code form: each part of the launch in debugpy's attributes (tests/e2e runs it with debugpy)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gputui.inventory.device import Device
from gputui.launching.exports import DEFAULT, ExportError, ExportOptions
from gputui.launching.exports.vscode import to_vscode
from gputui.launching.launch import Launch
from gputui.vendors.nvidia.vendor import VENDOR
from table_tests import each_row
from unit.builders import gpu
from unit.test_quoting_in_shells import HOSTILE

TWO = (gpu(2), gpu(0))


def _read(
    *argv: str,
    options: ExportOptions = DEFAULT,
    devices: tuple[Device, ...] = TWO,
    more: tuple[tuple[str, str | None], ...] = (),
    directory: str | None = None,
) -> dict[str, Any]:
    launch = Launch(argv, (*VENDOR.visibility.changes(devices), *more), directory, devices=devices)
    document = json.loads(to_vscode(launch, options))
    assert document["version"] == "0.2.0"
    (configuration,) = document["configurations"]
    assert configuration["type"] == "debugpy" and configuration["request"] == "launch"
    return configuration


def test_a_script_in_the_workspace() -> None:
    assert _read("python", "train.py", "--lr", "3e-4", more=(("A", "1"),)) == {
        "name": "gputui: train.py on GPU 2,0",
        "type": "debugpy",
        "request": "launch",
        "program": "train.py",
        "args": ["--lr", "3e-4"],
        "env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0", "A": "1"},
        "cwd": "${workspaceFolder}",
        "console": "integratedTerminal",
        "justMyCode": False,
        "subProcess": True,
    }


@each_row(
    ("argv", "target"),
    [
        (("python", "-m", "pkg.x", "-m"), {"module": "pkg.x", "args": ["-m"]}),
        (("python", "-mpkg"), {"module": "pkg", "args": []}),
        (("python", "-um", "pkg", "a"), {"module": "pkg", "args": ["a"], "pythonArgs": ["-u"]}),
        (("/v/bin/python3", "t.py"), {"program": "t.py", "args": [], "python": "/v/bin/python3"}),
        (
            ("python", "-u", "-X", "dev", "t.py"),
            {"program": "t.py", "args": [], "pythonArgs": ["-u", "-X", "dev"]},
        ),
        (("./t.py", "a"), {"program": "./t.py", "args": ["a"]}),
        (
            ("torchrun", "--standalone", "--nproc-per-node=2", "t.py", "a"),
            {"module": "torch.distributed.run", "args": ["--standalone", "--nproc-per-node=2", "t.py", "a"]},
        ),
        (
            ("/v/bin/torchrun", "--nproc-per-node=2", "t.py"),
            {
                "module": "torch.distributed.run",
                "args": ["--nproc-per-node=2", "t.py"],
                "python": "/v/bin/python",
            },
        ),
        (
            ("accelerate", "launch", "--use_fsdp", "--num_processes=2", "t.py"),
            {
                "module": "accelerate.commands.launch",
                "args": ["--use_fsdp", "--num_processes=2", "t.py"],
            },
        ),
        (
            ("deepspeed", "--include=localhost:0,2", "t.py"),
            {"module": "deepspeed.launcher.runner", "args": ["--include=localhost:0,2", "t.py"]},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_started(argv: tuple[str, ...], target: dict[str, Any]) -> None:
    configuration = _read(*argv)
    names = ("program", "module", "args", "python", "pythonArgs")
    assert {name: configuration[name] for name in names if name in configuration} == target


def test_a_variable_that_is_unset_is_null() -> None:
    text = to_vscode(Launch(("python", "t.py"), (("GONE", None),)))
    assert json.loads(text)["configurations"][0]["env"] == {"GONE": None}


def test_the_directory_and_the_name() -> None:
    configuration = _read("python", "t.py", directory="/two words", options=ExportOptions(name="mine"))
    assert (configuration["cwd"], configuration["name"]) == ("/two words", "mine")
    assert _read("python", "t.py", devices=())["name"] == "gputui: t.py on the CPU"


def test_hostile_words_are_the_args() -> None:
    texts = [word for word in HOSTILE if "${" not in word and word.encode(errors="replace").decode() == word]
    assert _read("python", "t.py", *texts)["args"] == texts


@each_row(
    ("argv", "reason"),
    [
        (("sh", "-c", "x"), "not Python"),
        (("mpirun", "-np", "2", "python", "t.py"), "not Python"),
        (("uv", "run", "python", "t.py"), "leave out 'uv run'"),
        (("python", "-c", "x"), "a file or a module"),
        (("python", "-m"), "a file or a module"),
        (("python", "-u", "-cx"), "a file or a module"),
        (("python",), "a file or a module"),
        (("python", "t.py", "${env:HOME}"), "replaces"),
        (("python", "t.py", "caf\udce9"), "UTF-8"),
        ((), "after --"),
    ],
    ids=lambda value: " ".join(value).encode("unicode_escape").decode() if isinstance(value, tuple) else None,
)
def test_what_it_cannot_start_is_refused(argv: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        _read(*argv)
