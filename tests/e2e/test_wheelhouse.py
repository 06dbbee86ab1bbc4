"""docs/install.md, for machines without internet: its lines make a folder of packages and install it."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from simnvml import SimulatedNvml
from unit.claims_support import EIGHT

ROOT = Path(__file__).parents[2]
LINES = [
    shlex.split(line, comments=True)
    for line in (ROOT / "docs" / "install.md").read_text().splitlines()
    if "wheelhouse" in line and line.startswith(("pip ", "uv ", "pipx "))
]
HOUSE = "wheelhouse"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not installed"),
]


def _line(*begin: str) -> list[str]:
    """The words of the page's line that begins so, after the program's name."""
    (found,) = (line for line in LINES if tuple(line[: len(begin)]) == begin)
    return found[1:]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains the finished copy of the packages, and no source."""
    folder = tmp_path_factory.mktemp("made")
    clone = folder / "clone"
    for name in ("app", "docs"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, clone)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    asked = [*pip, "download", "--quiet", "--no-deps", "--retries=0", "--timeout=10", "mdurl", "-d", folder]
    if subprocess.run(asked, capture_output=True, timeout=120).returncode:
        pytest.skip("no package index can be reached")
    done = subprocess.run(
        [*pip, *_line("pip", "wheel")], cwd=clone, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (clone / HOUSE).rename(folder / HOUSE)
    return folder


def _installed(words: list[str], copied: Path, home: Path) -> None:
    """Install without an index: no setting names one, and no server listens at that of the variables."""
    nowhere = "http://127.0.0.1:9/simple"
    environ = {
        "HOME": str(home),
        "PATH": f"{home / '.local' / 'bin'}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_COMPILE": "1",
        "PIP_INDEX_URL": nowhere,
        "UV_DEFAULT_INDEX": nowhere,
        "UV_NO_CONFIG": "1",
        "UV_PYTHON": os.path.realpath(sys.executable),
        "PIPX_DEFAULT_PYTHON": os.path.realpath(sys.executable),
    }
    done = subprocess.run(
        words, cwd=copied, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def _with_pip(copied: Path, home: Path) -> Path:
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    _installed([*pip, *_line("pip", "install")], copied, home)
    return python.parent / "gputui"


def _with(*words: str) -> Callable[[Path, Path], Path]:
    def install(copied: Path, home: Path) -> Path:
        program = shutil.which(words[0], path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if program is None:
            pytest.skip(f"{words[0]} is not installed")
        _installed([program, *_line(*words)], copied, home)
        return home / ".local" / "bin" / "gputui"

    return install


@pytest.mark.thorough
@pytest.mark.parametrize(
    "install", [_with_pip, _with("uv", "tool"), _with("pipx", "install")], ids=["pip", "uv", "pipx"]
)
def test_it_is_installed_from_the_folder_alone_and_starts_jobs(
    install: Callable[[Path, Path], Path], copied: Path, tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    gputui = install(copied, tmp_path)
    simulated_nvml.show_box(EIGHT)
    environ = simulated_nvml.environment(
        {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "GPUTUI_CLAIMS": str(tmp_path / "claims")}
    )

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [gputui, *words],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    started = call("run", "--gpus", "6", "--detach", "--", "sh", "-c", "exit $CUDA_VISIBLE_DEVICES")
    assert started.returncode == 0, started.stderr
    assert call("jobs", "wait", started.stdout.strip()).returncode == 6


def test_each_line_names_the_same_folder() -> None:
    assert len(LINES) == 4
    assert all(re.search(rf"\b{HOUSE}\b", shlex.join(line)) for line in LINES)
