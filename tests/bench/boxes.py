"""`python -m bench.boxes [--quick]`: the page of nodes, with twenty boxes.

The first run has gputui on each box over the loopback: the twenty share this machine's cores with the screen
and with sshd. The time of `ssh BOX true` for each box, eight at once, is the lower bound. OpenSSH's own key
exchange takes 70 ms of CPU at each end, and here one machine is both ends: a cheap exchange is measured, too.
The second run measures the screen alone: a script replaces `ssh`. It waits as a network does and prints, once
a second, a reading that gputui has written before.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.report import cpu_seconds, row
from bench.screen import let_run
from e2e.terminal import Terminal
from gputui.choosing.verdict import verdicts
from gputui.cli.ls_text import document_text
from gputui.sources.hosts.calls import AT_ONCE
from gputui.sources.hosts.remote_script import MARK
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from simnvml import SimulatedNvml
from ssh_boxes import SshBoxes

NAMES = tuple(f"gpu{number:02}" for number in range(20))
BOX = "shared"
_LINES = 8
"""Readings that a box of the second run repeats."""

_TELLS = """#!/bin/sh
sleep 0.2
echo {mark} run
while :; do
  for line in {folder}/line*; do
    cat "$line" || exit
    sleep 1
  done
done
"""


class Measured(NamedTuple):
    """Seconds from `O` until every box is painted, and the screen's CPU until then. Then CPU in percent of a
    core: before the page was opened, of the painting thread, of the other threads, and of all ssh processes.
    """

    painted: float
    until_then: float
    before: float
    painting: float
    reading: float
    ssh: float


def measured(environ: Mapping[str, str], seconds: float, unfold: bool = False) -> Measured:
    """The screen of a box, and its page of nodes."""
    terminal = Terminal([sys.executable, "-m", "gputui"], environ, (80, 24))
    pid = terminal.pid
    try:
        terminal.until("○ free")
        let_run(terminal, 2.0)
        before = _percent(terminal, seconds / 2, [pid])[0]
        used, began = cpu_seconds(pid), time.perf_counter()
        terminal.send(":nodes\r")
        terminal.until(lambda t: sum(" free" in line for line in t.lines[1:]) >= len(NAMES), patience=60)
        painted, until_then = time.perf_counter() - began, cpu_seconds(pid) - used
        if unfold:
            terminal.send(" ")
        let_run(terminal, 3.0)
        ssh = [child.pid for child in psutil.Process(pid).children()]
        whole, painting, others = _percent(terminal, seconds, [pid, -pid, *ssh])
        return Measured(painted, until_then, before, painting, whole - painting, others)
    finally:
        terminal.close()


def _percent(terminal: Terminal, seconds: float, pids: list[int]) -> tuple[float, float, float]:
    """Percent of a core: of the first process, its first thread, and all processes from the third on."""

    def used() -> tuple[float, float, float]:
        first = int(Path(f"/proc/{pids[0]}/task/{pids[0]}/schedstat").read_text().split()[0]) / 1e9
        return cpu_seconds(pids[0]), first, sum(cpu_seconds(pid) for pid in pids[2:])

    before, began = used(), time.perf_counter()
    let_run(terminal, seconds)
    took = time.perf_counter() - began
    whole, first, others = ((b - a) / took * 100 for a, b in zip(before, used(), strict=True))
    return whole, first, others


def _report(what: str, found: Measured) -> Iterator[str]:
    yield row(f"{what}: `O` to all painted", f"{found.painted:.2f} s", "", "at most 3 s")
    yield row(f"{what}: CPU of the screen until then", f"{found.until_then:.2f} s")
    whole = found.painting + found.reading
    yield row(f"{what}: CPU of the screen", f"{whole:.2f} %", "", "at most 2 %")
    yield row(f"{what}: of that, before the page", f"{found.before:.2f} %")
    yield row(f"{what}: CPU of all ssh together", f"{found.ssh:.2f} %")


def _over_the_loopback(
    boxes: SshBoxes, environ: Mapping[str, str], seconds: float, what: str
) -> Iterator[str]:
    of_box = {name: environ[name] for name in environ if name.startswith(("LD_LIB", "SIMNVML"))}
    for name in NAMES:
        boxes.add(name, of_box)
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        [*pool.map(lambda name: subprocess.run([boxes.path / "ssh", name, "true"], check=True), NAMES)]
    yield row(f"{what}: `ssh BOX true` of all", f"{time.perf_counter() - began:.2f} s")
    yield from _report(what, measured(boxes.environment(environ), seconds))


def rows(seconds: float) -> Iterator[str]:
    """All measurements."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        driver = SimulatedNvml(folder)
        driver.show_box(BOXES[BOX])
        config = folder / "config" / "gputui"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(f"[hosts]\nboxes = {list(NAMES)}\n")
        environ = driver.environment() | {
            "TERM": "xterm-256color",
            "XDG_CONFIG_HOME": str(config.parent),
            "XDG_STATE_HOME": str(folder / "state"),
            "GPUTUI_CLAIMS": str(folder / "claims"),
        }
        for what, key_exchange in (("curve25519", "curve25519-sha256"), ("OpenSSH's own", None)):
            boxes = SshBoxes(folder / f"boxes-{key_exchange}", key_exchange=key_exchange)
            try:
                yield from _over_the_loopback(boxes, environ, seconds, f"loopback, {what}")
            finally:
                boxes.close()
        told = folder / "told"
        told.mkdir()
        began = time.time()
        for line in range(_LINES):
            snapshot = at(BOXES[BOX], 100.0 + line, began)
            (told / f"line{line}").write_text(document_text(snapshot, verdicts(snapshot)) + "\n")
        (told / "ssh").write_text(_TELLS.format(mark=MARK, folder=told))
        (told / "ssh").chmod(0o755)
        environ["PATH"] = f"{told}:{environ['PATH']}"
        yield from _report("the screen alone", measured(environ, seconds))
        yield from _report("the screen alone, one unfolded", measured(environ, seconds, unfold=True))


def main() -> None:
    for line in rows(4.0 if "--quick" in sys.argv else 15.0):
        print(line, flush=True)


if __name__ == "__main__":
    main()
