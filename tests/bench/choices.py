"""`python -m bench.choices`: the table in docs/choosing.md of the devices that each program selects on
recorded boxes.

The real programs run on the simulated driver, which shows each box idle, or with a job on its first or last
GPU. "First n free" is the choice of people who look at nvidia-smi. Needs the extra `dev` (nvisel comes with
nvitop).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.choosing import TOPOLOGIES
from bench.report import tool
from gputui.choosing.links import weakest_ring
from gputui.inventory.link import strength
from gputui.inventory.matrix_text import read
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import Task
from simnvml import SimulatedNvml

COUNTS = (2, 3, 4)


def table(driver: SimulatedNvml) -> Iterator[str]:
    """The choices whose weakest links differ, in Markdown, and the number of those that do not differ."""
    yield "| box | busy | n | first n free | nvisel | gputui |"
    yield "|---|---|---|---|---|---|"
    alike, weaker = 0, [0, 0, 0]
    for file in TOPOLOGIES:
        idle = box_of(read(file.read_text()), file.stem)
        for busy in (None, 0, len(idle.gpus) - 1):
            box = idle if busy is None else replace(idle, tasks=(_job(busy),))
            driver.show_box(box)
            snapshot = at(box, 60.0, 0.0)
            free = [d.index for d in snapshot.devices if not d.processes]
            for count in (n for n in COUNTS if n <= len(free)):
                choices = [
                    free[:count],
                    _asked(driver, ["nvisel", "-n", str(count)]),
                    _asked(driver, ["gputui", "pick", "-n", str(count)]),
                ]
                links = [_weakest(snapshot, chosen) for chosen in choices]
                best = max(map(strength, links))
                weaker = [n + (strength(link) < best) for n, link in zip(weaker, links, strict=True)]
                if len(set(links)) == 1:
                    alike += 1
                    continue
                cells = (
                    f"{','.join(map(str, chosen))} ({link})"
                    for chosen, link in zip(choices, links, strict=True)
                )
                state = "none" if busy is None else f"GPU {busy}"
                yield f"| {box.name.replace('_', ' ')} | {state} | {count} | {' | '.join(cells)} |"
    yield f"\nIn {alike} more cases the weakest links are the same. Weaker than the best of the three:"
    yield f"first n free {weaker[0]}, nvisel {weaker[1]}, gputui {weaker[2]} times."


def _job(device: int) -> Task:
    return Task(
        devices=(str(device),), user="olek", command="python train.py", pid=4411, memory=60_000, load=97
    )


def _asked(driver: SimulatedNvml, argv: Sequence[str]) -> list[int]:
    program = tool(argv[0])
    if program is None:
        raise SystemExit(f"{argv[0]} is not installed")
    done = subprocess.run(
        [program, *argv[1:]], env=driver.environment(), capture_output=True, text=True, check=True
    )
    return [int(index) for index in done.stdout.strip().split(",")]


def _weakest(snapshot: Snapshot, chosen: Sequence[int]) -> str | None:
    """The weakest link of the ring that a collective builds over these devices."""
    return weakest_ring(snapshot, [snapshot.devices[index] for index in chosen])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for line in table(SimulatedNvml(Path(directory))):
            print(line)


if __name__ == "__main__":
    sys.exit(main())
