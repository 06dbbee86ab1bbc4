"""The costs of a shared box: waiting in line, claims, a list of many jobs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.report import cpu_seconds, row
from gputui.allocating.claims.lease import take
from gputui.allocating.claims.read import claims
from simnvml import SimulatedNvml
from unit.claims_support import Elsewhere

GPUTUI = (sys.executable, "-m", "gputui")


def rows(driver: SimulatedNvml, seconds: float) -> Iterator[str]:
    """The measurements, one after another. The box of `driver` has fewer than eight free devices."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "GPUTUI_CLAIMS": str(Path(folder, "claims"))}
        first, second = _waiting(driver, environ, seconds)
        yield row("waiting, first in line: CPU", f"{first:.3f} %", "", "at most 0.1 %")
        yield row("waiting, sixth in line: CPU", f"{second:.3f} %", "", "at most 0.1 %")
        took, looked = _claiming(environ)
        yield row("claiming two devices: median", f"{took:.2f} ms")
        yield row("reading 16 claims: median", f"{looked:.2f} ms")


def _waiting(driver: SimulatedNvml, environ: dict[str, str], seconds: float) -> tuple[float, float]:
    """CPU in percent of a core, of the first and the sixth waiter for devices that do not become free."""
    begun = []
    try:
        for _ in range(6):
            argv = [*GPUTUI, "run", "-q", "-n", "8", "--wait", "--", "true"]
            begun.append(subprocess.Popen(argv, env=driver.environment(environ), stderr=subprocess.PIPE))
            stderr = begun[-1].stderr
            assert stderr is not None
            # This waiter is in line before the next one starts.
            stderr.readline()
        processes = [psutil.Process(begun[place].pid) for place in (0, 5)]
        # The first look imports what it needs.
        time.sleep(4.0)
        before = [cpu_seconds(process.pid) for process in processes]
        time.sleep(seconds)
        first, second = (
            (cpu_seconds(process.pid) - was) / seconds * 100
            for process, was in zip(processes, before, strict=True)
        )
        return first, second
    finally:
        for process in begun:
            process.kill()
            process.wait()


def _claiming(environ: dict[str, str]) -> tuple[float, float]:
    """Milliseconds to claim two devices and release them, and to read sixteen claims."""
    taken, looked = [], []
    held = Elsewhere([f"GPU-{n:08x}-held" for n in range(16)], environ, "python train.py")
    for _ in range(50):
        began = time.perf_counter()
        take(["GPU-a", "GPU-b"], environ, "python train.py").release()
        taken.append(time.perf_counter() - began)
        began = time.perf_counter()
        claims(environ)
        looked.append(time.perf_counter() - began)
    held.release()
    return statistics.median(taken) * 1000, statistics.median(looked) * 1000
