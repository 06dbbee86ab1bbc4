"""Calls that end by themselves: `pick` next to nvisel, `ls --json` next to gpustat."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from bench.report import row, tool
from simnvml import SimulatedNvml


def rows(driver: SimulatedNvml, times: int) -> Iterator[str]:
    """Median times, and NVML calls per GPU."""
    bare = seconds(driver, [sys.executable, "-c", "pass"], times)
    yield row("bare interpreter", f"{bare * 1000:.0f} ms")
    ours = tool("gputui") or ""
    pairs = (
        ("pick -n 2", [ours, "pick", "-n", "2"], "nvisel", ["-n", "2"], 0.20),
        ("ls --json", [ours, "ls", "--json"], "gpustat", ["--json"], 0.15),
    )
    for what, argv, peer, words, share in pairs:
        mine = seconds(driver, argv, times)
        found = tool(peer)
        if found is None:
            yield row(what, f"{mine * 1000:.0f} ms", f"{peer} not installed")
            continue
        theirs = seconds(driver, [found, *words], max(3, times // 2))
        verdict = f"{mine / theirs:.2f} × {peer} (at most {share:.2f})"
        yield row(what, f"{mine * 1000:.0f} ms", f"{peer} {theirs * 1000:.0f} ms", verdict)
        calls = f"{calls_a_gpu(driver, argv):.1f}"
        peers = f"{peer} {calls_a_gpu(driver, [found, *words]):.1f}"
        yield row(f"{what}: NVML calls a GPU", calls, peers, "at most 6" if what.startswith("pick") else "")


def seconds(
    driver: SimulatedNvml, argv: Sequence[str], times: int, environ: Mapping[str, str] | None = None
) -> float:
    """The median time from start to end."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(
            argv,
            env=driver.environment(environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def calls_a_gpu(driver: SimulatedNvml, argv: Sequence[str]) -> float:
    """NVML calls of one run, divided by the eight GPUs. Looking up the text of an error does not count."""
    driver.reset_counts()
    subprocess.run(
        argv, env=driver.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return (
        sum(n for name, n in driver.counts().items() if name.startswith("nvml") and "Error" not in name) / 8
    )
