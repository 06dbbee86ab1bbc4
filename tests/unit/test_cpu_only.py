"""A run on the CPU needs no device, and so no driver: `--gpus none`, and `c` in the screen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gputui.allocating.allocate import allocate
from gputui.allocating.request import Request
from gputui.cli.allocation_listener import AllocationListener
from gputui.sources.source import NoDevices
from simnvml import SimulatedNvml
from unit.calling import Call
from unit.claims_support import Box

LIST = "CUDA_VISIBLE_DEVICES"
NO_DRIVER, NOT_LOADED = 12, 9


@pytest.fixture(params=[NO_DRIVER, NOT_LOADED, None])
def without_driver(
    request: pytest.FixtureRequest, nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine where NVML does not start; with None, one where it never answers."""
    # An inherited list says nothing about a run without devices.
    monkeypatch.setenv(LIST, "5")
    if request.param is None:
        nvml_here.hang("nvmlInitWithFlags")
    else:
        nvml_here.fail_init(request.param)


@pytest.mark.usefixtures("without_driver")
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("run", "--dry-run", "--gpus", "none", "--", "python", "t.py"), f"{LIST}= python t.py"),
        (("run", "--dry-run", "--gpus", "none", "--wait", "--", "a"), f"{LIST}= a"),
        (("run", "--dry-run", "--gpus", " none ", "--force", "--", "a"), f"{LIST}= a"),
        (
            ("run", "--dry-run", "--gpus", "none", "--", "torchrun", "t.py"),
            f"{LIST}= torchrun --standalone --nproc-per-node=1 t.py",
        ),
        (("export", "--gpus", "none", "--as", "sh", "--", "python", "t.py"), f"{LIST}= python t.py"),
        (("pick", "--gpus", "none", "--format", "env"), f"{LIST}="),
        (("pick", "--gpus", "none"), ""),
    ],
)
def test_a_call_for_the_cpu_needs_no_driver(call: Call, words: tuple[str, ...], printed: str) -> None:
    assert call(*words).line == printed


@pytest.mark.usefixtures("without_driver")
def test_nor_does_the_check(call: Call) -> None:
    ended = call("check", "--json", "--gpus", "none", "--", sys.executable, "-S", "t.py")
    assert ended.status == 0 and json.loads(ended.out)["equal"] is True


def test_the_command_is_started_as_a_job_too(box: Box) -> None:
    box.driver.fail_init(NO_DRIVER)
    words = ("--gpus", "none", "--", "sh", "-c", f"echo [${LIST}]; exit 7")
    assert box.call("run", "-q", *words) == (7, "[]\n", "")
    for options in (("--detach",), ("--detach", "--wait")):
        status, out, err = box.call("run", "-q", *options, *words)
        assert (status, err) == (0, "")
        assert box.call("jobs", "wait", out.strip())[0] == 7
    assert box.claimed() == []


@pytest.mark.parametrize("words", [("run", "--", "true"), ("pick", "-n", "1", "--gpus", "none"), ("pick",)])
def test_a_call_for_a_device_still_needs_one(box: Box, words: tuple[str, ...]) -> None:
    box.driver.fail_init(NO_DRIVER)
    assert box.call(*words)[0] == 3


def test_a_source_that_is_named_is_still_looked_at(call: Call, tmp_path: Path) -> None:
    words = ("run", "--dry-run", "--gpus", "none", "--from", str(tmp_path / "none"), "--", "a")
    assert call(*words).status == 3


def test_a_command_for_other_devices_is_refused_as_ever(box: Box) -> None:
    box.driver.fail_init(NO_DRIVER)
    words = ("run", "--gpus", "none", "--", "env", f"{LIST}=1", "true")
    assert box.call(*words)[0] == 2


def test_nobody_waits_for_no_device() -> None:
    request = Request(names="none", wait=60.0)
    assert request.cpu_only and not Request(count=1, names="none").cpu_only and not Request().cpu_only
    allocation = allocate(request, NoDevices(), {LIST: "5"}, AllocationListener(), holds=True)
    assert (allocation.devices, allocation.notices) == ((), ())
    assert allocation.lease is not None and allocation.lease.descriptors == []
