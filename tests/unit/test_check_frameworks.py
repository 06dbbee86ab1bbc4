"""A check of a command that trains with TensorFlow or JAX: the program asked, and what its answer proves."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import simcuda
from gputui.checking.check import check
from gputui.checking.framework import framework_of
from gputui.checking.render import lines, to_document
from gputui.checking.report import Report
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch import Launch
from gputui.sources.simulated.boxes import BOXES
from gputui.vendors.nvidia.vendor import VENDOR
from messages import numbers
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import box
from unit.fakeframeworks import install

PYTHON = sys.executable
SCRIPTS = {
    "tensorflow": [
        "import tensorflow as tf",
        "from tensorflow import keras",
        "import os\ndef f():\n    import tensorflow.keras.layers",
        "import numpy, tensorflow as tf",
        "import tensorflow\nimport jax",
        "import tf_keras",
    ],
    "jax": [
        "import jax.numpy as jnp",
        "from flax import linen",
        "try:\n    import jax\nexcept ImportError:\n    raise SystemExit",
    ],
    "torch": [
        "import torch",
        "import jax\nimport torch",
        "from torch import nn\nimport tensorflow",
        "import os",
        "from .tensorflow import x",
        "# import jax",
        "'''import tensorflow'''",
        "import jaxtyping",
        "",
    ],
}


@each_row(("framework", "text"), [(name, text) for name, texts in SCRIPTS.items() for text in texts])
def test_the_imports_of_the_script_tell(tmp_path: Path, framework: str, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    assert framework_of(("python", "train.py"), str(tmp_path)) == framework


@each_row(
    "command",
    [
        *("python train.py", "python -X dev train.py --x", "train.py", "./train.py", "uv run train.py"),
        *(
            "torchrun --nproc-per-node 2 train.py",
            "mpirun -np 2 python train.py",
            "env A=1 python -u train.py",
        ),
        *("python -m train", "python -m pkg", "python -m pkg.sub", "accelerate launch train.py"),
        *("mpirun -np 2 python -X dev -m pkg", "python -c import\tjax"),
    ],
)
def test_the_script_is_found_in_the_command(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/__main__.py", "pkg/sub.py"):
        (tmp_path / name).write_text("import jax\n")
    assert framework_of(command.split(" "), str(tmp_path)) == "jax"
    monkeypatch.chdir(tmp_path)
    assert framework_of(command.split(" ")) == "jax"


@each_row(
    "command",
    ["", "python", "python none.py", "python -", "bash train.sh", "python .", "python -m none", "uv"],
)
def test_where_there_is_nothing_to_read_torch_is_asked(tmp_path: Path, command: str) -> None:
    assert framework_of(command.split(), str(tmp_path)) == "torch"


def test_of_a_script_the_beginning_is_read_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert framework_of(("python", "pipe.py"), str(tmp_path)) == "torch"
    (tmp_path / "long.py").write_text("import jax\n" + "# x\n" * 300_000)
    assert framework_of(("python", "long.py"), str(tmp_path)) == "jax"
    (tmp_path / "many_words.py").write_text("import jax\n" + "x = 1\n" * 15_000)
    assert framework_of(("python", "many_words.py"), str(tmp_path)) == "jax"
    (tmp_path / "late.py").write_text("# x\n" * 300_000 + "import jax\n")
    assert framework_of(("python", "late.py"), str(tmp_path)) == "torch"


# The answers, with the simulated CUDA driver in the same process.


class Fake:
    """A command whose script imports a framework, on a simulated machine."""

    def __init__(self, folder: Path, nvml: SimulatedNvml, name: str, framework: str) -> None:
        self.snapshot: Snapshot = nvml.show_box(BOXES[name])
        self.folder, self.framework = folder, framework
        (folder / "train.py").write_text(f"import {framework}\n")
        base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(install(folder))}
        self.environ = simcuda.environment(nvml.environment(base), simcuda.build())

    def check(self, *places: int, told: dict[str, Any], plugin: bool = True) -> Report:
        devices = tuple(self.snapshot.devices[place] for place in places)
        names = [device.name for device in devices]
        environ = {**self.environ, "FAKE_FRAMEWORK": json.dumps({"devices": names, **told})}
        if plugin:
            environ["PYTHONPATH"] += f":{self.folder / 'plugin'}"
        launch = Launch(
            (PYTHON, "train.py"), VENDOR.visibility.changes(devices), str(self.folder), devices=devices
        )
        return check(launch, self.snapshot, environ)


@pytest.fixture(params=["tensorflow", "jax"])
def dgx(request: pytest.FixtureRequest, tmp_path: Path, simulated_nvml: SimulatedNvml) -> Fake:
    return Fake(tmp_path, simulated_nvml, "dgx-h100", request.param)


def test_count_by_the_framework_and_order_by_the_driver_are_the_proof(dgx: Fake) -> None:
    report = dgx.check(5, 2, told={})
    assert report.equal and [each.state for each in report.comparisons] == ["equal", "equal"]
    assert report.conclusion.startswith(f"equal: {dgx.framework} 2.21.0 sees 2, and {VENDOR.driver} ")
    assert [each.seen.uuid for each in report.comparisons if each.seen] == [
        VENDOR.bare_uuid(dgx.snapshot.devices[place].uuid) for place in (5, 2)
    ]
    assert f"{dgx.framework} 2.21.0 (" in lines(report)[0]
    told = to_document(report)
    assert told["framework"] == {
        "name": dgx.framework, "version": "2.21.0", "error": None, "devices": 2, "told_by": "driver"
    }  # fmt: skip
    assert told["torch"] is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_count_is_not_equal_whatever_the_driver_says(dgx: Fake, count: int) -> None:
    name = dgx.snapshot.devices[0].name
    report = dgx.check(5, 2, told={"devices": [name] * count})
    assert report.status == "differs" and "equal" not in {each.state for each in report.comparisons}


def test_a_framework_that_sees_none_is_told_how_to_get_its_libraries(dgx: Fake) -> None:
    report = dgx.check(5, 2, told={"devices": []})
    assert VENDOR.build(dgx.framework) in report.conclusion
    assert VENDOR.driver[1:] in report.conclusion, "the driver itself shows them"


def test_a_framework_that_calls_them_otherwise_than_the_driver_proves_nothing(dgx: Fake) -> None:
    report = dgx.check(5, 2, told={"devices": ["NVIDIA A100", "NVIDIA A100"]})
    assert not report.equal and report.comparisons[0].state == "differs"


def test_a_cpu_build_is_named_with_its_own_remedy(dgx: Fake) -> None:
    report = dgx.check(5, 2, told={"devices": [], "built": False}, plugin=False)
    assert "CPU build" in report.conclusion and VENDOR.build(dgx.framework) in report.conclusion
    assert VENDOR.torch_build not in report.conclusion
    assert dgx.check(told={"devices": [], "built": False}, plugin=False).equal, "CPU only"


def test_a_framework_that_cannot_be_imported_is_not_equal(dgx: Fake) -> None:
    report = dgx.check(5, told={"import": "libcudart.so.12"})
    assert report.conclusion == (
        f"not equal: {dgx.framework} cannot be imported: ImportError: libcudart.so.12"
    )


def test_without_the_framework_the_driver_is_asked(dgx: Fake) -> None:
    dgx.environ["PYTHONPATH"] = ""
    report = dgx.check(5, told={}, plugin=False)
    if report.seen is not None and report.seen.framework is not None:
        pytest.skip(f"{dgx.framework} is installed here")
    assert report.equal and report.conclusion.startswith(f"equal: {VENDOR.driver} ")
    assert f"no {dgx.framework}:" in lines(report)[0]


def test_a_real_framework_without_a_gpu_answers_what_the_fake_one_does(tmp_path: Path) -> None:
    """Runs for the tests' interpreter and those in GPUTUI_TEST_FRAMEWORKS (a path list) that have one."""
    pythons = [PYTHON, *filter(None, os.environ.get("GPUTUI_TEST_FRAMEWORKS", "").split(os.pathsep))]
    found = 0
    for python in pythons:
        for framework in ("tensorflow", "jax"):
            (tmp_path / "train.py").write_text(f"import {framework}\n")
            launch = Launch((python, "train.py"), VENDOR.visibility.changes(()), str(tmp_path))
            report = check(launch, box(), os.environ)
            assert report.equal, report.conclusion
            found += report.seen is not None and report.seen.framework is not None
    if not found:
        pytest.skip("neither tensorflow nor jax is installed")


def test_how_many_are_seen_is_in_the_sentence(dgx: Fake) -> None:
    assert numbers(dgx.check(5, 2, 1, told={}).conclusion)[-2:] == [3, 3]
