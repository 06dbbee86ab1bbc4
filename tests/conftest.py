"""Fixtures of all tests: the simulated NVIDIA driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnvml import SimulatedNvml, build


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    """The simulated libnvidia-ml.so.1, compiled."""
    return build()


@pytest.fixture
def simulated_nvml(nvml_library: Path, tmp_path: Path) -> SimulatedNvml:
    """A simulated driver of this test's own; it shows no box yet, so that NVML does not start."""
    return SimulatedNvml(tmp_path, nvml_library)


@pytest.fixture
def nvml_here(simulated_nvml: SimulatedNvml) -> Iterator[SimulatedNvml]:
    """The same, met by pynvml in the process of the tests."""
    simulated_nvml.use_here()
    yield simulated_nvml
    simulated_nvml.leave_here()
