"""`python -m long_life` (in tests/): a screen that is open for a day, with thousands of opened pages.

The readings come through the real nvidia-ml-py from the simulated driver, one after the other, each a second
later than the one before; keys open and close the pages. The program prints the use of the process meanwhile:
resident memory, objects, open files, threads. It ends with 1 if, since the first thousand steps (the first
tenth of fewer than ten thousand), the process has grown by more than 2 MiB, or by more than one file or
thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil

from gputui.sources.simulated.boxes import BOXES
from gputui.sources.source import Want
from gputui.system.processes import ProcessTable
from gputui.tui.messages import NewReading
from gputui.tui.readings import Reading
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from tui.support import Session, session
from tui.test_long_life import PAGES

ALLOWED = 2.0
"""MiB of permitted growth."""
_FIRST = 1000
"""Steps after which all lazy work has been done once."""
_PATIENCE = 300.0
"""Seconds for a reading to be shown."""
_EVERYTHING = Want.ALL | Want.DETAILS | Want.HOST | Want.QUEUE


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m long_life", description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=10_000, metavar="N")
    parser.add_argument("--readings", type=int, default=86_400, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputui-long-life-") as place:
        driver = SimulatedNvml(Path(place))
        driver.show_box(BOXES["shared"])
        driver.use_here()
        claims = Path(place) / "claims"
        claims.mkdir()
        claims.chmod(0o1777)
        os.environ.update(GPUTUI_CLAIMS=str(claims), XDG_STATE_HOME=place, XDG_CONFIG_HOME=place)
        return asyncio.run(_live(args.pages, args.readings))


async def _live(pages: int, readings: int) -> int:
    source = NvmlSource(ProcessTable(host_pids=True))
    steady = True
    # The sampler rests: the test makes each reading.
    async with session(source=source, size=(130, 40), interval=100_000) as s:
        await s.press("4")
        for what, number, steps in (
            ("readings", readings, _readings(s, source)),
            ("pages", pages, _pages(s)),
        ):
            if number:
                steady = await _is_steady(what, number, steps) and steady
    return int(not steady)


async def _is_steady(what: str, number: int, steps: AsyncIterator[None]) -> bool:
    """Whether this number of steps leaves the process about as it was after the first of them."""
    process = psutil.Process()
    seen: list[tuple[float, int, int]] = []
    tenth = max(1, number // 10)
    for step in range(1, number + 1):
        await anext(steps)
        if step % tenth == 0 or step == min(_FIRST, tenth):
            gc.collect()
            now = process.memory_info().rss / 2**20, process.num_fds(), process.num_threads()
            seen.append(now)
            print(
                f"{step:>6} {what}: {now[0]:6.2f} MiB, {len(gc.get_objects())} objects,"
                f" {now[1]} files, {now[2]} threads",
                flush=True,
            )
    first, last = seen[0], seen[-1]
    return last[0] - first[0] <= ALLOWED and all(last[n] - first[n] <= 1 for n in (1, 2))


async def _readings(s: Session, source: NvmlSource) -> AsyncIterator[None]:
    began = time.time()
    second = 0
    while True:
        second += 1
        snapshot, before = replace(source.read(_EVERYTHING), time=began + second), s.main.app_state.snapshot
        s.main.post_message(NewReading(Reading(snapshot, time.monotonic())))
        # A reading of the sampler itself comes in between where the screen looks at something else. A shared
        # machine stands still at times.
        await s.until(lambda before=before: s.main.app_state.snapshot is not before, _PATIENCE)
        yield


async def _pages(s: Session) -> AsyncIterator[None]:
    """Open and close each page. The pilot's keys are not used: they wait until the process rests, which takes
    four fifths of the time."""
    while True:
        for key in PAGES:
            for pressed, screens in ((key, 2), ("escape", 1)):
                if pressed.startswith("@"):
                    s.main.choose(pressed.removeprefix("@"))
                else:
                    s.app.simulate_key(pressed)
                while len(s.app.screen_stack) != screens:
                    await s.pilot.pause(0)
                # This lets all widgets answer, and paints.
                await s.pilot.pause(0)
            yield


if __name__ == "__main__":
    sys.exit(main())
