"""Makes gputui.pyz: one file that runs where there is a Python (3.10 or newer), without root or internet.

    python release/make_zip.py [-o gputui.pyz]              # packages from the registry, for every Python
    python release/make_zip.py --installed [-o gputui.pyz]  # those of this environment, for its Python alone

It is a zip of shiv's: at its first start it unpacks itself into ~/.cache/gputui (SHIV_ROOT names another
folder), so that files of it can be started by their path: the supervisor of a job is. What is there already
is run only if nobody else could have put it there. Needs shiv.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
BY_VERSION = {"tomli": ("3.10",)}
"""The packages that only some versions of Python need, or that are compiled for each. (psutil's compiled part
is for all.)"""
_LEFT_OUT = ("bin/", "../", "__pycache__", "yaml/_yaml.")
"""Of PyYAML the compiled part is left out: 0.7 MB a version, for files of a few lines."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("gputui.pyz"), metavar="FILE")
    parser.add_argument(
        "--installed", action="store_true", help="take the packages of this environment; no network"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site-packages")
        if args.installed:
            copy_installed(site)
        else:
            install(site)
            for version in VERSIONS:
                add_compiled(site, Path(folder, version), version)
        shutil.rmtree(site / "bin", ignore_errors=True)
        pack(site, args.output)
    print(f"{args.output}: {args.output.stat().st_size / 1e6:.1f} MB")
    return 0


def install(site: Path) -> None:
    """gputui and what it needs, as pip finds it for the oldest Python: a newer package may not run there."""
    _packages(site, VERSIONS[0], str(ROOT))
    for file in site.glob("yaml/_yaml.*.so"):
        file.unlink()


def add_compiled(site: Path, folder: Path, version: str) -> None:
    """The compiled parts for a version of Python, and the packages that only that one needs."""
    # (Of the version that is there already: only the compiled part is another one.)
    known = {each.name.lower(): each.version for each in metadata.distributions(path=[str(site)])}
    wanted = [
        f"{name}=={known[name]}" if name in known else name
        for name, versions in BY_VERSION.items()
        if version in versions
    ]
    if not wanted:
        return
    _packages(folder, version, "--no-deps", *wanted)
    for file in sorted(folder.rglob("*")):
        place = site / file.relative_to(folder)
        if file.is_file() and not place.exists() and ".dist-info" not in str(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)


def _packages(folder: Path, version: str, *words: str) -> None:
    """Install packages into a folder, for a version of Python that need not be here."""
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{platform.machine()}")]
    made_for = ["--python-version", version, "--implementation", "cp", "--only-binary=:all:", *platforms]
    quietly = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    command = [sys.executable, "-m", "pip", "install", *quietly, "--target", str(folder), *made_for, *words]
    subprocess.run(command, check=True)


def copy_installed(site: Path) -> None:
    """gputui's own source, and the packages that it needs, from where this interpreter has them."""
    shutil.copytree(ROOT / "app" / "gputui", site / "gputui", ignore=shutil.ignore_patterns("__pycache__"))
    for name in sorted(_needed()):
        for file in metadata.files(name) or ():
            if not any(part in str(file) for part in _LEFT_OUT):
                place = site / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), place)


def _needed() -> set[str]:
    """The packages that gputui needs, and those that these need."""
    found: set[str] = set()
    asked = [*_names(metadata.requires("gputui") or ())]
    while asked:
        each = asked.pop()
        if each not in found:
            found.add(each)
            asked += _names(metadata.requires(each) or ())
    return found


def _names(requirements: Iterable[str]) -> Iterator[str]:
    """The names of those that this environment has. (What has a condition may be for another Python; what an
    extra asks for is no need.)"""
    for requirement in requirements:
        name, condition = re.split(r"[^\w.-]", requirement, maxsplit=1)[0], requirement.partition(";")[2]
        if "extra" in condition:
            continue
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            if not condition:
                raise
        else:
            yield name


_MAIN = """\
import os
import sys
import zipfile

import _bootstrap
import trust

with zipfile.ZipFile(sys.argv[0]) as archive:
    known = _bootstrap.Environment.from_json(archive.read("environment.json").decode())
    place = _bootstrap.cache_path(archive, known.root, known.build_id).absolute()
before = os.umask(0o077)
place.parent.mkdir(parents=True, exist_ok=True)
os.umask(before)
# shiv makes other files beside that folder, whose names everybody knows, too.
reasons = [trust.who_can_change(str(each)) for each in (place.parent, place, place / "site-packages")]
reason = next(filter(None, reasons), None)
if reason is not None:
    sys.exit(f"gputui: {reason}: what is unpacked there is not used; set SHIV_ROOT to a folder of your own")
unpack = _bootstrap.extract_site_packages


def unpack_privately(*given):
    before = os.umask(0o077)
    try:
        unpack(*given)
    finally:
        os.umask(before)


_bootstrap.extract_site_packages = unpack_privately
_bootstrap.bootstrap()
"""
"""What is unpacked has a name that everybody knows: shiv runs it, whoever has put it there."""


def pack(site: Path, output: Path) -> None:
    """The zip of a folder of packages."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, output.name)
        _pack(site, made)
        own = {"__main__.py": _MAIN, "trust.py": (site / "gputui" / "system" / "trust.py").read_text()}
        with made.open("rb") as line, output.open("wb") as written:
            written.write(line.readline())
            with zipfile.ZipFile(made) as before, zipfile.ZipFile(written, "w") as after:
                for each in before.infolist():
                    if each.filename not in own:
                        after.writestr(each, before.read(each))
                when = before.getinfo("__main__.py").date_time
                for name, text in own.items():
                    after.writestr(zipfile.ZipInfo(name, when), text)
        output.chmod(made.stat().st_mode)


def _pack(site: Path, output: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "shiv", "--site-packages", str(site)),
            *("--entry-point", "gputui.cli.main:entry", "--python", "/usr/bin/env python3"),
            *("--root", "~/.cache/gputui", "--compressed", "--reproducible"),
            *("--output-file", str(output.absolute())),
        ],
        check=True,
    )


if __name__ == "__main__":
    sys.exit(main())
