"""Run mutants: `python -m mutation [MODULE …] [--sample N] [--seed S] [--jobs J]`, in the folder tests/.

For each mutant a process of its own imports the changed module in place of the source, and runs the tests of
that module until one fails. A mutant that no test notices has survived: the line is not
tested, or the change makes no difference. Ends with 1 if the unchanged source fails, and with 0 otherwise.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, ModuleType

import hypothesis
import pytest

from mutation.operators import Mutant, mutants
from mutation.targets import TARGETS, tests_of

ROOT = Path(__file__).parents[2]
_SLOWEST = 5.0
"""A mutant whose tests take this many times as long loops for ever: it counts as noticed."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a mutant in place of its module."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutant.tree, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the mutant for the name of its module."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        self._name, self._path, self._mutant = name, path, mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(self._name, self._path, self._mutant)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def _path_of(target: str) -> Path:
    return ROOT / "app" / "gputui" / Path(*target.split(".")).with_suffix(".py")


def _run(target: str, mutant: Mutant | None, patience: float) -> tuple[bool, float]:
    """Whether the tests of a module pass with this mutant of it (None: with its source), and the seconds that
    they take. A process that takes longer than `patience` is killed: then they do not pass."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            os.chdir(ROOT)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            if mutant is not None:
                sys.meta_path.insert(0, _Finder(f"gputui.{target}", str(_path_of(target)), mutant))
            # (The usual options are those of xdist.)
            arguments = [
                "-x",
                "-q",
                "-o",
                "addopts=",
                "-p",
                "no:randomly",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
            ]
            status = int(pytest.main([*arguments, *tests_of(target)]))
        finally:
            os._exit(status)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() - began > patience:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False, patience
        time.sleep(0.02)
    return status == 0, time.monotonic() - began


def _sampled(target: str, count: int | None, seed: int) -> list[Mutant]:
    found = list(mutants(_path_of(target).read_text()))
    if count is None or count >= len(found):
        return found
    places = sorted(random.Random(f"{seed} {target}").sample(range(len(found)), count))
    return [found[place] for place in places]


def _survivors(target: str, found: Sequence[Mutant], jobs: int) -> Iterator[Mutant]:
    """The mutants that the tests do not notice."""
    passes, took = _run(target, None, 600.0)
    if not passes:
        print(f"{target}: its tests fail without any change", file=sys.stderr)
        raise SystemExit(1)
    with ThreadPoolExecutor(jobs) as pool:
        patience = 10.0 + _SLOWEST * took * jobs
        outcomes = pool.map(lambda mutant: (mutant, _run(target, mutant, patience)[0]), found)
        yield from (mutant for mutant, survives in outcomes if survives)


def main() -> int:
    """Run the mutants of the call and print the survivors of each module."""
    parser = argparse.ArgumentParser("python -m mutation", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of: {', '.join(TARGETS)}")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="so many mutants of each module (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones are taken")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="J")
    args = parser.parse_args()
    for name in args.modules:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}")
    hypothesis.settings.register_profile("mutation", database=None, derandomize=True, deadline=None)
    hypothesis.settings.load_profile("mutation")
    killed = total = 0
    for target in args.modules or TARGETS:
        found = _sampled(target, args.sample, args.seed)
        survivors = list(_survivors(target, found, args.jobs))
        killed, total = killed + len(found) - len(survivors), total + len(found)
        print(f"{target}: {len(found) - len(survivors)} of {len(found)} noticed", flush=True)
        for mutant in survivors:
            print(f"  {_path_of(target).relative_to(ROOT)}:{mutant.line}  {mutant.change}", flush=True)
    print(f"in all: {killed} of {total} noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
