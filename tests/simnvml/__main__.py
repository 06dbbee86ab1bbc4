"""`python -m simnvml BOX`: play a simulated box in real time, for other programs to look at."""

from __future__ import annotations

import shlex
import sys
import tempfile
import threading
import time
from pathlib import Path

from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box
from simnvml.session import SimulatedNvml


def play(box: Box, stop: threading.Event) -> None:
    """Print the environment that leads a program to `box`, and keep the box moving until `stop`."""
    with tempfile.TemporaryDirectory(prefix=f"simnvml-{box.name}-") as directory:
        nvml, opened = SimulatedNvml(Path(directory)), time.time()
        nvml.show_box(box, 0.0, opened)
        for name, value in nvml.environment({}).items():
            print(f"export {name}={shlex.quote(value)}")
        print(f"# {box.name} moves until this is interrupted", flush=True)
        while not stop.wait(1.0):
            nvml.show_box(box, time.time() - opened, opened)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in BOXES:
        print(f"usage: python -m simnvml BOX; there are: {', '.join(BOXES)}", file=sys.stderr)
        return 2
    try:
        play(BOXES[sys.argv[1]], threading.Event())
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
