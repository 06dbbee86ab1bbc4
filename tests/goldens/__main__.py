"""`python -m goldens record DIR` and `python -m goldens compare DIR_A DIR_B`, in the folder tests/.

`record` writes the output of every call of the command line (calls.py, driver_calls.py) and the text of every
page of the screen (pages.py), a file each, with times, pids, versions and paths masked (masks.py). `compare`
prints the differences of two such folders and ends with 1 if there are any.

It records the gputui that is imported: in a worktree, run it with that worktree's own environment.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from goldens.boxes import BOXES

_TESTS = Path(__file__).parent.parent
_PARTS = (
    ("goldens.calls", "words"),
    ("goldens.driver_calls", "driver"),
    *(("goldens.calls", box) for box in BOXES),
    *(("goldens.pages", box) for box in BOXES),
)
"""A separate process records each part, so that no state of another part remains."""


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m goldens")
    actions = made.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--jobs", type=int, default=2, help="parts recorded at once")
    comparing = actions.add_parser("compare")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    args = made.parse_args()
    if args.action == "record":
        return _record(args.folder, args.jobs)
    return _compare(args.first, args.second)


def _record(folder: Path, jobs: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} is not empty", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(jobs) as pool:
        failed = sum(pool.map(lambda part: _part(*part, folder.resolve()), _PARTS))
    print(f"{sum(path.is_file() for path in folder.rglob('*'))} answers in {folder}; {failed} parts failed")
    return 1 if failed else 0


def _part(module: str, name: str, folder: Path) -> bool:
    """Record one part with a home of its own; return whether that failed."""
    with tempfile.TemporaryDirectory(prefix="goldens-") as home:
        environ = {
            **{key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "CC") if key in os.environ},
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "COLUMNS": "120",
            "PYTHONHASHSEED": "0",
            "XDG_STATE_HOME": f"{home}/state",
            "XDG_CONFIG_HOME": f"{home}/config",
            "GPUTUI_CLAIMS": f"{home}/claims",
            "HF_HOME": f"{home}/huggingface",
        }
        done = subprocess.run(
            [sys.executable, "-m", module, name, str(folder)],
            cwd=_TESTS, env=environ, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    print(f"{module.removeprefix('goldens.')} {name}: {'ok' if done.returncode == 0 else done.returncode}")
    return done.returncode != 0


def _compare(first: Path, second: Path) -> int:
    files = sorted(
        {path.relative_to(top) for top in (first, second) for path in top.rglob("*") if path.is_file()}
    )
    different = 0
    for file in files:
        before, after = (_lines(top / file) for top in (first, second))
        if before == after:
            continue
        different += 1
        sys.stdout.writelines(difflib.unified_diff(before, after, str(first / file), str(second / file), n=1))
    print(f"{different} of {len(files)} answers differ")
    return 1 if different else 0


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    raise SystemExit(main())
