"""The release zip starts in an empty environment, and so do the jobs that it starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simnvml import SimulatedNvml
from unit.claims_support import EIGHT

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("shiv") is None, reason="shiv is not installed"),
]

Started = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip, of the packages that are installed here."""
    file = tmp_path_factory.mktemp("zip") / "gputui.pyz"
    words = [sys.executable, str(ROOT / "release" / "make_zip.py"), "--installed", "-o", str(file)]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    return file


@pytest.fixture
def start(zipped: Path, tmp_path: Path, simulated_nvml: SimulatedNvml) -> Callable[..., Started]:
    """Starts the zip by an interpreter without packages, in an environment with nothing but a home."""
    simulated_nvml.show_box(EIGHT)
    home = tmp_path / "home"
    home.mkdir()
    # (Unpacked once for all tests: what is in the folder is never written again.)
    environ = simulated_nvml.environment(
        {"HOME": str(home), "PATH": "/usr/bin:/bin", "GPUTUI_CLAIMS": str(tmp_path / "claims")}
    )
    environ["SHIV_ROOT"] = str(zipped.parent / "unpacked")
    python = os.path.realpath(sys.executable)

    def call(*words: str, root: bool = True) -> Started:
        return subprocess.run(
            [python, str(zipped), *words],
            env=environ if root else {k: v for k, v in environ.items() if k != "SHIV_ROOT"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert subprocess.run([python, "-c", "import gputui"], env=environ, capture_output=True).returncode
    return call


def test_it_starts_and_unpacks_itself_below_the_users_cache(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    done = start("pick", "-n", "2", root=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0,1\n", "")
    (unpacked,) = (tmp_path / "home" / ".cache" / "gputui").glob("gputui.pyz_*")
    assert (unpacked / "site-packages" / "gputui" / "jobs" / "supervise.py").exists()


def test_a_command_gets_its_devices_and_nothing_of_the_zip(start: Callable[..., Started]) -> None:
    done = start("run", "-q", "--gpus", "3", "--", "sh", "-c", "env; exit 7")
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert done.returncode == 7, done.stderr
    assert variables["CUDA_VISIBLE_DEVICES"] == "3"
    assert not {name for name in variables if name.startswith("PYTHON")}


@pytest.mark.parametrize("waits", [(), ("--wait=60", "--window=0")], ids=["at once", "in line"])
def test_a_job_is_supervised_from_the_zip(start: Callable[..., Started], waits: tuple[str, ...]) -> None:
    script = 'echo "on $CUDA_VISIBLE_DEVICES"; exit 5'
    done = start("run", "--gpus", "6", "--detach", *waits, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert start("jobs", "wait", job).returncode == 5
    assert "on 6\n" in start("jobs", "log", job).stdout


def test_the_file_itself_can_be_started(zipped: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(os.path.realpath(sys.executable))
    shutil.copy2(zipped, programs / "gputui")
    environ = {"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin"}
    words = [str(programs / "gputui"), "ls", "--demo=idle", "--format", "{free}/{total}"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "2/2\n"), done.stderr
