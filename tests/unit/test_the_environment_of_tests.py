"""No test sees the environment of the person who runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gputui.jobs.store import all_jobs

_HOSTILE = [
    "GPUTUI_CLAIMS",
    "GPUTUI_JOB",
    "GPUTUI_CALLED",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MPS_PIPE_DIRECTORY",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "HABANA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "PET_NNODES",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "OMP_NUM_THREADS",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "RAY_ADDRESS",
    "NCCL_DEBUG",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "TMUX",
    "STY",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "HF_HOME",
    "HF_HUB_CACHE",
    "ACCELERATE_CONFIG_FILE",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "LC_ALL",
    "LANGUAGE",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONWARNINGS",
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
]


def test_what_a_hostile_environment_says_reaches_no_test(tmp_path: Path) -> None:
    """This runs pytest with the same conftest, on a test that writes down the variables that it sees."""
    tests = Path(__file__).parents[1]
    probe, seen = tmp_path / "test_probe.py", tmp_path / "seen"
    probe.write_text(
        "import json, os, pathlib\n"
        "AT_IMPORT = dict(os.environ)\n"
        "def test_it():\n"
        f"    pathlib.Path({str(seen)!r}).write_text(json.dumps([AT_IMPORT, dict(os.environ)]))\n"
    )
    home = tmp_path / "hostile-home"
    (home / ".config" / "gputui").mkdir(parents=True)
    environ = {**os.environ, **dict.fromkeys(_HOSTILE, "7"), "HOME": str(home), "LC_ALL": "C"}
    # Python itself would fail on these before pytest begins.
    del environ["PYTHONPATH"], environ["PYTHONWARNINGS"]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*argv, "--rootdir", str(tmp_path), "-c", str(tests.parent / "pyproject.toml"), str(probe)],
        env={**environ, "PYTHONPATH": str(tests)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for found in json.loads(seen.read_text()):
        own = {"GPUTUI_CLAIMS", "XDG_CONFIG_HOME"}
        assert not [name for name in _HOSTILE if name in found and name not in own]
        assert found["HOME"] != str(home) and "7" not in {found.get(name) for name in own}


def test_the_home_is_the_tests_own_and_empty(home: Path) -> None:
    assert Path.home() == home and list(home.iterdir()) == []
    assert all_jobs(os.environ) == []
