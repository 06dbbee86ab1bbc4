"""The kubernetes form: valid by the published schemas of Kubernetes, with the words that its rules leave."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportError, ExportOptions
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.vendors.registry import vendor_of
from table_tests import each_row
from unit.builders import NOW, gpu, instance
from unit.test_exports_compose import NO_STRINGS
from unit.test_exports_docker import PYTORCH, TEXTS, _launch


def _pod(text: str) -> dict[str, Any]:
    document = yaml.safe_load(text)
    assert (document["apiVersion"], document["kind"]) == ("batch/v1", "Job")
    pod: dict[str, Any] = document["spec"]["template"]["spec"]
    return pod


def _container(*argv: str, options: ExportOptions = PYTORCH, **more: Any) -> dict[str, Any]:
    (found,) = _pod(FORMS["kubernetes"].write(_launch(*argv, **more), options))["containers"]
    container: dict[str, Any] = found
    return container


def _expanded(text: str, environment: dict[str, str]) -> str:
    """What Kubernetes makes of a word (third_party/forked/golang/expansion): `$$` a `$`, `$(A)` a value."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)", lambda found: environment.get(found[1], found[0]) if found[1] else "$", text
    )


def test_it_asks_for_as_many_as_were_chosen_and_names_none() -> None:
    text = FORMS["kubernetes"].write(_launch("torchrun", "t.py", directory="/w d"), PYTORCH)
    (container,) = _pod(text)["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert "GPU-" not in text and "CUDA_VISIBLE_DEVICES" not in text
    assert (container["image"], container["workingDir"]) == ("pytorch/pytorch", "/w d")


def test_ranks_have_more_shared_memory_than_a_container_has() -> None:
    pod = _pod(FORMS["kubernetes"].write(_launch("x"), PYTORCH))
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": pod["volumes"][0]["name"], "mountPath": "/dev/shm"}
    ]
    assert "volumes" not in _pod(FORMS["kubernetes"].write(_launch("x", devices=(gpu(1),)), PYTORCH))


def test_hostile_words_and_values_are_in_it_as_they_are() -> None:
    values = {f"V{n}": word for n, word in enumerate([*TEXTS, "$(V0)", "$$(V0)", "$$$"])}
    container = _container(*TEXTS, "$(V1)", "$$(V1)", more=tuple(values.items()))
    told = [_expanded(word, values) for word in container["command"]]
    assert told == [*TEXTS, "$(V1)", "$$(V1)"]
    assert {each["name"]: _expanded(each["value"], values) for each in container["env"]} == values


def test_without_devices_those_of_the_node_are_hidden() -> None:
    container = _container("x", devices=())
    assert "resources" not in container
    assert container["env"] == [{"name": "CUDA_VISIBLE_DEVICES", "value": ""}]


@each_row("box", ["amd", "intel", "gaudi"])
def test_other_vendors_have_names_of_their_own(box: str) -> None:
    devices = at(BOXES[box], 0.0, NOW).devices[:1]
    launch = compose(devices, LaunchOptions(("python", "t.py")), {})
    (container,) = _pod(FORMS["kubernetes"].write(launch, PYTORCH))["containers"]
    assert container["resources"] == {"limits": {vendor_of(devices).kubernetes: 1}}


def test_instances_may_have_another_name_which_is_said() -> None:
    part = instance(gpu(1, mig=True))
    notes = FORMS["kubernetes"].notes(_launch("x", devices=(part,)), PYTORCH)
    assert any("MIG" in note for note in notes) and any("selects the devices" in note for note in notes)


@each_row(
    ("words", "more", "reason"),
    [
        (("docker", "run", "i", "x"), {}, "--image"),
        ((), {}, "after --"),
        (("x",), {"directory": "here"}, "absolute path"),
        (("x",), {"options": replace(PYTORCH, name="A_b")}, "name of a pod"),
        (("x",), {"options": replace(PYTORCH, name="a" * 64)}, "name of a pod"),
        (("x",), {"options": replace(PYTORCH, nodes=2)}, "one pod"),
        (("x", "\udcff"), {}, "UTF-8"),
    ],
)
def test_what_a_pod_cannot_start_is_refused(
    words: tuple[str, ...], more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ExportError, match=reason):
        _container(*words, **more)


@each_row("argv", [("Train_Me.v2.py",), ("_",), ("x" * 80 + ".py",), ("größe.py",)])
def test_a_name_made_from_the_command_is_a_label(argv: tuple[str, ...]) -> None:
    assert re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", _container(*argv)["name"])


@each_row("devices", [(), (gpu(0),), (gpu(2), gpu(0))], ids=["none", "one", "two"])
def test_the_schemas_of_kubernetes_accept_it(devices: tuple[Any, ...]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    launch = _launch("python", *TEXTS, devices=devices, more=(("A", "1e-4"), ("B", None)), directory="/w")
    document = yaml.safe_load(FORMS["kubernetes"].write(launch, PYTORCH))
    for version in (kubernetes_validate.latest_version(), "1.28"):
        kubernetes_validate.validate(document, version, strict=True)
    document["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, "1.28", strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_devices_words_and_values_as_they_are() -> None:
    """`kubectl set image --local` decodes a file into Kubernetes' own types, and asks no cluster."""
    words = [*TEXTS, *NO_STRINGS]
    values = {f"V{place}": word for place, word in enumerate(words)}
    text = FORMS["kubernetes"].write(_launch(*words, more=tuple(values.items()), directory="/w d"), PYTORCH)
    command = ["kubectl", "set", "image", "--local", "--output=json", "--filename=-", "*=other:1"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    document = json.loads(done.stdout)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert document["spec"]["backoffLimit"] == 0
    assert [_expanded(word, values) for word in container["command"]] == words
    assert {each["name"]: _expanded(each.get("value", ""), values) for each in container["env"]} == values
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert (container["image"], container["workingDir"]) == ("other:1", "/w d")
