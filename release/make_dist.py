"""Makes the sdist and the wheel of the last commit, the same bytes each time, and prints their SHA-256.

    python release/make_dist.py [-o dist]

The files are those of the commit, whatever else is in the folder, and have its time (SOURCE_DATE_EPOCH).
The wheel is made from the sdist. Needs build and hatchling (the extra `release`); hatchling's version is in
the wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    args = parser.parse_args()
    if _git("status", "--porcelain").strip():
        print("warning: changes that are not committed are left out", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
            archive.extractall(folder)
        made = make(Path(folder), int(_git("log", "-1", "--format=%ct")), Path(folder, "made"))
        args.output.mkdir(parents=True, exist_ok=True)
        for file in made:
            shutil.copy2(file, args.output)
            print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")
    return 0


def make(source: Path, time: int, output: Path) -> list[Path]:
    """Build the sdist of `source`, and the wheel of the sdist, with `time` (seconds since the epoch), in the
    new folder `output`."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(source)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
    done = subprocess.run(
        words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stdout)
    return sorted(output.iterdir())


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    sys.exit(main())
