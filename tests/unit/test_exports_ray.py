"""The ray form: sh reads the line, with a ray that prints its arguments. A real ray: e2e/test_ray.py."""

from __future__ import annotations

import json
import shlex

import pytest

from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportError, ExportOptions
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.vendors.nvidia.vendor import VENDOR
from table_tests import each_row
from unit.builders import gpu

TWO = (gpu(5), gpu(4))


def _words(launch: Launch) -> list[str]:
    return shlex.split(FORMS["ray"].write(launch, ExportOptions()))


def test_ray_gets_the_number_the_folder_the_variables_and_the_words() -> None:
    options = LaunchOptions(
        ("torchrun", "t.py", "it's", "$HOME", "a\nb"), directory="/d e", additions=(("A", "x\n'"),)
    )
    words = _words(compose(TWO, options, {}))
    place = words.index("--")
    assert words[:5] == ["ray", "job", "submit", "--working-dir=/d e", "--entrypoint-num-gpus=2"]
    assert json.loads(words[5].removeprefix("--runtime-env-json=")) == {"env_vars": {"A": "x\n'"}}
    assert words[place + 1 :] == [
        *("torchrun", "--standalone", "--nproc-per-node=2", "t.py", "it's", "$HOME", "a\nb"),
    ]


def test_without_devices_those_of_the_machine_are_hidden() -> None:
    words = _words(compose((), LaunchOptions(("python", "t.py")), {}, box=(VENDOR,)))
    values = next(word for word in words if word.startswith("--runtime-env-json="))
    assert json.loads(values.partition("=")[2])["env_vars"]["CUDA_VISIBLE_DEVICES"] == ""
    assert not any("num-gpus" in word for word in words)


def test_a_variable_is_unset_by_the_command() -> None:
    words = _words(compose(TWO, LaunchOptions(("python", "t.py")), {"RANK": "1", "WORLD_SIZE": "2"}))
    assert words[words.index("--") + 1 :] == ["env", "-u", "RANK", "-u", "WORLD_SIZE", "python", "t.py"]


def test_devices_that_are_no_gpus_to_ray_are_a_resource() -> None:
    devices = [gpu(0, vendor="gaudi"), gpu(1, vendor="gaudi")]
    words = _words(compose(devices, LaunchOptions(("python", "t.py")), {}))
    assert '--entrypoint-resources={"HPU": 2}' in words


@each_row(
    ("command", "nodes"),
    [
        ((), 1),
        (("deepspeed", "t.py"), 1),
        (("docker", "run", "--gpus", "all", "image"), 1),
        (("torchrun", "t.py"), 2),
    ],
)
def test_what_ray_cannot_start_is_refused(command: tuple[str, ...], nodes: int) -> None:
    with pytest.raises(ExportError):
        FORMS["ray"].write(compose(TWO, LaunchOptions(command), {}), ExportOptions(nodes=nodes))
