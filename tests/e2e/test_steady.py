"""The real program on the simulated driver with a living process: its known facts stay on the screen."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import replace

import pytest

from e2e.conftest import Start
from e2e.terminal import Terminal
from gputui.inventory.process import Process
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.system.namespaces import in_initial_namespace
from simnvml import SimulatedNvml

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not in_initial_namespace(), reason="pids of this container are not the driver's"),
]

READINGS = 30


def test_the_owner_stays_where_the_number_of_the_process_stood(
    start: Start, base_environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    box = at(BOXES["idle"], 0, time.time())
    with subprocess.Popen(["sleep", "1000"]) as child, contextlib.ExitStack() as at_the_end:
        at_the_end.callback(child.kill)
        process = Process(child.pid, "compute", memory=2**34)
        simulated_nvml.show(replace(box, devices=(replace(box.devices[0], processes=(process,)),), links=()))
        environment = simulated_nvml.environment(base_environment)
        terminal = start("--interval", "0.1", environment=environment)
        terminal.until("● you sleep")
        # Most of these readings have no owners.
        simulated_nvml.reset_counts()

        def have_been_read(screen: Terminal) -> bool:
            assert "● you sleep" in screen.text
            return simulated_nvml.counts().get("nvmlDeviceGetUtilizationRates", 0) > READINGS

        terminal.until(have_been_read)
        terminal.send("q")
        assert terminal.end() == 0
