"""GPUs of several models under a list of numbers, in a real terminal with both simulated libraries."""

from __future__ import annotations

import sys

import pytest

import simcuda
from e2e.conftest import Start
from simnvml import SimulatedNvml
from unit.unlike_boxes import UNCLEAR

pytestmark = pytest.mark.e2e

SEES = (
    "import os, runpy; print([device['uuid'] for device in runpy.run_path(os.environ['PROBE'])['driver']()"
    "['devices']])"
)


def test_the_screen_starts_on_the_device_that_a_program_would_have_got(
    start: Start, base_environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    from gputui.vendors.nvidia.vendor import VENDOR

    # The simulated CUDA counts the 4090 (GPU 2) first.
    uuid = VENDOR.bare_uuid(simulated_nvml.show_box(UNCLEAR).devices[2].uuid)
    environment = {
        **simcuda.environment(simulated_nvml.environment(base_environment), simcuda.build()),
        "CUDA_VISIBLE_DEVICES": "0",
        "PROBE": str(VENDOR.driver_probe),
    }
    terminal = start("--", sys.executable, "-c", SEES, environment=environment)
    terminal.until("CUDA_VISIBLE_DEVICES=0: GPU 2")
    terminal.send("b")
    terminal.until("cuda:0 = GPU 2")
    terminal.send("\r")
    assert terminal.end() == 0
    assert f"['{uuid}']" in terminal.text
