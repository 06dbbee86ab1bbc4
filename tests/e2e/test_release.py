"""What is released: built twice it is the same, and each Python runs it, whatever tool installed it."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from e2e.terminal import Terminal
from gputui import __version__
from release_scripts import release_script
from simnvml import SimulatedNvml
from unit.claims_support import EIGHT

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TIME = 1_780_000_000
BIN = Path(sys.executable).parent

needs_build = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("build", "hatchling"))),
    reason="build and hatchling are not installed",
)
pytestmark = [pytest.mark.e2e, pytest.mark.thorough, needs_build]


def _copied(to: Path) -> Path:
    left_out = shutil.ignore_patterns("__pycache__", ".git", ".venv", "dist", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, to, ignore=left_out)
    return to


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    wheel, sdist = sorted(
        release_script("make_dist").make(_copied(folder / "source"), TIME, folder / "made"),
        key=lambda f: f.suffix,
        reverse=True,
    )
    return sdist, wheel


def test_the_same_files_are_the_same_bytes(
    dist: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made in another folder, another day, time zone and locale, by a user with another umask."""
    source = _copied(tmp_path / "another place")
    for file in source.rglob("*"):
        os.utime(file, (1, 1))
        file.chmod(file.stat().st_mode & ~0o077)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    before = os.umask(0o077)
    try:
        again = release_script("make_dist").make(source, TIME, tmp_path / "made")
    finally:
        os.umask(before)
    assert {file.name: file.read_bytes() for file in again} == {file.name: file.read_bytes() for file in dist}


def test_the_wheel_has_what_the_program_reads_and_nothing_twice(dist: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(dist[1]) as archive:
        names = set(archive.namelist())
    source = ROOT / "app"
    ours = {
        str(file.relative_to(source))
        for file in source.rglob("*")
        if file.is_file() and "__pycache__" not in str(file)
    }
    pages = [file for file in (ROOT / "docs").rglob("*") if file.is_file() and file.suffix != ".1"]
    docs = {f"gputui/docs/{file.relative_to(ROOT / 'docs')}" for file in pages}
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == {*ours, *docs, f"gputui-{__version__}.data/data/share/man/man1/gputui.1"}


@pytest.mark.parametrize("tool", ["twine", "check-wheel-contents"])
def test_the_checkers_accept_it(dist: tuple[Path, Path], tool: str) -> None:
    if not (BIN / tool).exists():
        pytest.skip(f"{tool} is not installed")
    words = {"twine": ["check", "--strict", *dist], "check-wheel-contents": [dist[1]]}[tool]
    done = subprocess.run([BIN / tool, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sdist_has_what_the_tests_read(dist: tuple[Path, Path]) -> None:
    with tarfile.open(dist[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = (
        ".ci/run",
        "SECURITY.md",
        "CITATION.cff",
        "release/recipe.yaml",
        "tests/conftest.py",
        "docs/gputui.1",
    )
    assert not {*needed} - names
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|/dist/|\.git/", name)]


def test_an_editable_installation_has_no_copy_of_the_docs(tmp_path: Path) -> None:
    """A folder `gputui` beside it would be imported, empty, where the working copy has gone."""
    pytest.importorskip("editables")
    script = "import sys, hatchling.build as b; print(b.build_editable(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", script, tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=120
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.startswith("gputui/")]


def test_cffconvert_reads_the_citation() -> None:
    """In an environment of its own: it wants an older jsonschema than the tests."""
    if not (BIN / "uv").exists():
        pytest.skip("uv is not installed")
    words = [BIN / "uv", "tool", "run", "cffconvert"]
    if subprocess.run([*words, "--version"], capture_output=True, timeout=120, check=False).returncode:
        pytest.skip("uv reaches no cffconvert")
    done = subprocess.run(
        [*words, "--validate"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


# Installed.


@functools.cache
def _python(version: str) -> str | None:
    """A Python of that version that can make environments and is in none: on PATH, or pyenv's."""
    pyenv = Path(pwd.getpwuid(os.getuid()).pw_dir, ".pyenv")
    found = [shutil.which(f"python{version}"), *sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))]
    ask = "import sys, venv; print(*sys.version_info[:2], sep='.') if sys.prefix == sys.base_prefix else 0"
    for python in filter(None, found):
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return str(python)
    return None


def _wheels(python: str, wheel: Path, house: Path) -> Path:
    """A folder of the wheel and the packages that it needs with this Python."""
    pip = [sys.executable, "-m", "pip", "--python", python, "download", "--quiet", "--dest", house]
    try_one = [*pip, "--disable-pip-version-check", "--no-deps", "mdurl"]
    if subprocess.run(try_one, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("pip reaches no registry of packages")
    words = [*pip, "--disable-pip-version-check", "--only-binary=:all:", wheel]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return house


def _install(tool: str, python: str, wheels: Path, home: Path) -> Path:
    """Install gputui with nothing but the wheels, and return the folder of the program."""
    environ = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PIP_CONFIG_FILE": os.devnull,
        # (pipx installs by uv where it finds one.)
        **dict.fromkeys(("PIP_NO_INDEX", "PIP_NO_COMPILE", "UV_NO_INDEX", "UV_NO_CONFIG", "UV_OFFLINE"), "1"),
        "PIP_FIND_LINKS": str(wheels),
        "UV_FIND_LINKS": str(wheels),
    }
    of_venv = home / "venv" / "bin" / "python"
    by_tool: dict[str, list[list[str | Path]]] = {
        "pip": [
            [python, "-m", "venv", "--without-pip", home / "venv"],
            [sys.executable, "-m", "pip", "--python", of_venv, "install", "--quiet", "gputui"],
        ],
        "uv": [[BIN / "uv", "tool", "install", "--python", python, "gputui"]],
        "pipx": [[BIN / "pipx", "install", "--python", python, "gputui"]],
    }
    for words in by_tool[tool]:
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    return of_venv.parent if tool == "pip" else home / ".local" / "bin"


def _readme_lines() -> list[str]:
    """The lines of the README that call gputui, without the first one's installation."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    first, *others = [line[line.index("gputui ") :] for line in lines if re.search(r"(^|bin/)gputui ", line)]
    assert first == "gputui --demo" and len(others) >= 6
    return [first, *others]


@pytest.mark.skipif(
    not ((BIN / "uv").exists() and (BIN / "pipx").exists()), reason="uv and pipx are not installed"
)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_readme_works_with_each_python_by_each_tool(
    version: str, dist: tuple[Path, Path], tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    python = _python(version)
    if python is None:
        pytest.skip(f"no Python {version} is here")
    wheels = _wheels(python, dist[1], tmp_path / "wheels")
    simulated_nvml.show_box(EIGHT)
    for tool in ("pip", "uv", "pipx"):
        home = tmp_path / tool
        home.mkdir()
        folder = _install(tool, python, wheels, home)
        _readme_works(folder, home, simulated_nvml)
        # (uv leaves it in the tool's own environment.)
        assert tool == "uv" or (folder.parent / "share" / "man" / "man1" / "gputui.1").exists()


def _readme_works(folder: Path, home: Path, nvml: SimulatedNvml) -> None:
    """Run the README's lines with the program in the folder."""
    programs = home / "programs"
    programs.mkdir()
    for name, script in {
        "torchrun": "echo on $CUDA_VISIBLE_DEVICES",
        "python": "exit 7",
        "jq": "cat",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (home / "train.py").touch()
    environ = nvml.environment(
        {
            "HOME": str(home),
            "PATH": f"{folder}:{programs}:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "GPUTUI_CLAIMS": str(home / "claims"),
            "LANG": "C.UTF-8",
        }
    )
    told = {}
    for line in _readme_lines():
        if line.startswith("gputui mcp "):
            # (It needs the extra, which is not installed here; tests/unit/test_mcp.py starts it.)
            continue
        if re.match("gputui (--demo$|-- )", line):
            with closing(Terminal(["sh", "-c", line], environ, cwd=home)) as terminal:
                terminal.until("STATE").until("free").send("q")
                assert terminal.end() == 0
            continue
        done = subprocess.run(
            ["sh", "-c", line],
            env=environ,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        told[line.partition(" #")[0].strip()] = done.stdout
    assert told["gputui run -n 2 -- torchrun train.py"] == "on 0,1\n"
    document = next(text for line, text in told.items() if line.startswith("gputui ls --json"))
    assert len(json.loads(document)["devices"]) == 8
    assert "torchrun" in (home / "jobs.sh").read_text()
    version_line = subprocess.run(
        ["gputui", "--version"], env=environ, capture_output=True, text=True, check=True
    )
    assert version_line.stdout == f"gputui {__version__}\n"
