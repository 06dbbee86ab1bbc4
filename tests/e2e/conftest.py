"""The real program in real terminals, on the simulated libnvidia-ml."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from confinement import Confined, box_of_eight
from e2e.slurm_cluster import slurm, slurm_cluster  # noqa: F401 - one cluster for all files
from e2e.terminal import Terminal
from simnvml import SimulatedNvml

GPUTUI = (sys.executable, "-m", "gputui")

Start = Callable[..., Terminal]


@pytest.fixture
def base_environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a person at a plain terminal: no variable of the test run."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "TZ": os.environ.get("TZ", "UTC"),
        "GPUTUI_CLAIMS": str(tmp_path / "claims"),
    }


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Confined:
    """A machine of eight idle GPUs with a device file each, on which commands can be confined."""
    return box_of_eight(tmp_path, simulated_nvml)


@pytest.fixture
def start(base_environment: dict[str, str]) -> Iterator[Start]:
    """Start gputui with these words in a terminal; every started program is killed at the end of the test."""
    started: list[Terminal] = []

    def begin(
        *words: str,
        environment: Mapping[str, str] | None = None,
        size: tuple[int, int] = (80, 24),
        argv: Sequence[str] = GPUTUI,
        cwd: Path | None = None,
    ) -> Terminal:
        terminal = Terminal([*argv, *words], environment or base_environment, size, cwd)
        started.append(terminal)
        return terminal

    yield begin
    for terminal in started:
        terminal.close()
