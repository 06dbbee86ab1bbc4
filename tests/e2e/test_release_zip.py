"""The release zip starts in an empty environment, and so do the jobs that it starts."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from e2e.terminal import Terminal
from simnvml import SimulatedNvml
from unit.claims_support import EIGHT

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(importlib.util.find_spec("shiv") is None, reason="shiv is not installed"),
]

Started = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip, built from the packages that are installed here."""
    file = tmp_path_factory.mktemp("zip") / "gputui.pyz"
    words = [sys.executable, str(ROOT / "release" / "make_zip.py"), "--installed", "-o", str(file)]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    return file


@pytest.fixture
def start(zipped: Path, tmp_path: Path, simulated_nvml: SimulatedNvml) -> Callable[..., Started]:
    """Start the zip with an interpreter without packages, in an environment with a home only."""
    simulated_nvml.show_box(EIGHT)
    home = tmp_path / "home"
    home.mkdir()
    # Unpacked once for all tests: nothing writes in the folder again.
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


@pytest.mark.parametrize("place", ["home", "cache", "unpacked", "packages"])
def test_what_others_could_have_unpacked_there_is_named_and_not_run(
    start: Callable[..., Started], tmp_path: Path, place: str
) -> None:
    assert start("pick", "-n", "1", root=False).returncode == 0
    home = tmp_path / "home"
    (unpacked,) = (home / ".cache" / "gputui").glob("gputui.pyz_*")
    changed = {
        "home": home,
        "cache": unpacked.parent,
        "unpacked": unpacked,
        "packages": unpacked / "site-packages",
    }[place]
    changed.chmod(0o777)
    done = start("pick", "-n", "1", root=False)
    assert done.returncode == 1 and done.stdout == "" and repr(str(changed)) in done.stderr
    changed.chmod(0o755)
    assert start("pick", "-n", "1", root=False).returncode == 0


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_what_it_unpacks_is_closed_to_others_whatever_the_umask_which_its_commands_get(
    start: Callable[..., Started], tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        for _ in range(2):
            done = start("run", "-q", "-n", "1", "--", "sh", "-c", "umask", root=False)
            assert done.stdout == f"{umask:04o}\n", done.stderr
    finally:
        os.umask(before)
    (unpacked,) = (tmp_path / "home" / ".cache" / "gputui").glob("gputui.pyz_*")
    assert unpacked.stat().st_mode & 0o077 == 0


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


# Another Python than the one that made it


@pytest.fixture(scope="module")
def for_every_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip as it is released, built from packages of the registry."""
    folder = tmp_path_factory.mktemp("released")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    asked = [*pip, "download", "--quiet", "--no-deps", "--dest", str(folder / "one"), "tomli"]
    if subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("pip reaches no registry of packages")
    file = folder / "gputui.pyz"
    words = [sys.executable, str(ROOT / "release" / "make_zip.py"), "-o", str(file)]
    made = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert made.returncode == 0, made.stderr
    return file


@pytest.fixture(params=PYTHONS)
def another_python(request: pytest.FixtureRequest) -> str:
    """A Python of PATH other than the running one. A name there may start none, as with pyenv."""
    name = f"python{request.param}"
    if name == "python{}.{}".format(*sys.version_info):
        pytest.skip("it runs these tests")
    found = shutil.which(name)
    words = [found or name, "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False) if found else None
    if done is None or done.returncode:
        pytest.skip(f"no {name} on PATH")
    return done.stdout.strip()


def test_another_python_starts_it_in_an_empty_environment(
    for_every_python: Path, another_python: str, tmp_path: Path
) -> None:
    settings = tmp_path / ".config" / "gputui" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[devices]\nnever = ["0"]\n')
    (tmp_path / "job.sh").write_text("torchrun --nproc-per-node=3 train.py\n")
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "GPUTUI_CLAIMS": str(tmp_path / "claims")}
    # Every Python unpacks and starts the same folder.
    environ["SHIV_ROOT"] = str(for_every_python.parent / "unpacked")
    gputui = (another_python, str(for_every_python))

    def call(*words: str) -> Started:
        return subprocess.run(
            [*gputui, *words],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    listed = call("ls", "--demo", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert len(json.loads(listed.stdout)["devices"]) == 8

    # The commands that a script starts are read.
    dry = call("run", "--demo=dgx-h100", "--dry-run", "--", "bash", "job.sh")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert len(dry.stdout.split()[1].split("=")[1].split(",")) == 3

    started = call(
        "run", "--demo=idle", "--detach", "--", "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; exit 5"
    )
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    assert call("jobs", "wait", job).returncode == 5
    assert "on 1\n" in call("jobs", "log", job).stdout

    with closing(Terminal([*gputui, "--demo=idle"], {**environ, "TERM": "xterm-256color"})) as terminal:
        terminal.until("STATE").until("free").send("q")
        assert terminal.end() == 0


def test_its_packages_are_for_every_python_that_it_is_for(for_every_python: Path) -> None:
    with zipfile.ZipFile(for_every_python) as archive:
        asked = {
            name: message_from_bytes(archive.read(name))["Requires-Python"] or ""
            for name in archive.namelist()
            if name.endswith(".dist-info/METADATA")
        }
    assert len(asked) > 10
    assert [name for name, versions in asked.items() if "3.10" not in SpecifierSet(versions)] == []
