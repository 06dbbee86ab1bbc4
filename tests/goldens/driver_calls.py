"""`python -m goldens.driver_calls PART DIR`: calls on the simulated driver, in which commands really run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from goldens.calls import file_name
from goldens.masks import masked
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml, build

_EIGHT = replace(BOXES["dgx-h100"], name="eight", tasks=())
_SHOWS = "-- sh -c 'echo $CUDA_VISIBLE_DEVICES $0 $@; sleep 0.3'"
_CALLS = """
ls
ls --json
ls --details
topo
topo --json
people
claims
claims --json
queue
pick -n 2
pick -n 2 --why
pick -n 9
run -n 2 SHOWS
run --gpus 3,1 SHOWS
run --gpus none SHOWS
run -q -n 1 -- sh -c 'exit 3'
run -n 1 -- /nope
run -n 9 SHOWS
run --detach -n 1 --name one SHOWS
jobs wait one
jobs log one
jobs show one
jobs
jobs rerun one --dry-run
launches
run --saved 1 --dry-run
compare -n 2 --vary env:X=0,1 SHOWS
compare -n 2 --vary env:X=0,1 --json SHOWS
compare --vary n=1,2 --csv SHOWS
compare -q --gpus none --vary word:s=0,1 -- sh -c 'exit {s}'
compare -n 1 --vary word:s=2,1 --metric 'm=([0-9]+)' -- sh -c 'echo m={s}'
compare -n 1 --vary word:s=2,1 -- sh -c 'exit {s}'
compare -n 1 --repeat 2 --warm-up --vary env:X=0,1 SHOWS
compare -q -n 1 --timeout 0.2 --vary word:s=60,0 -- sleep '{s}'
compare -n 1 --vary env:API_KEY=sk-abcdefabcdefabcdef,b SHOWS
compare --list
each -n 1 --jobs 1 -- sh -c 'echo $CUDA_VISIBLE_DEVICES' '{1..3}'
each -n 1 --jobs 1 --json -- sh -c 'exit {0..1}'
each -n 1 --jobs 1 --retry 1 -- sh -c 'exit {0..1}'
each -q -n 1 --jobs 1 --stop-on-failure -- sh -c 'exit {1,0}'
each --gpus none -- sh -c 'exit {0..1}'
each -n 9 -- sh -c 'exit {0..1}'
each --gpus 4 --memory 20G --jobs 1 -- sh -c 'echo {0..1}'
each --list
"""
"""In a line, SHOWS is replaced by a command that prints its devices."""


def main() -> None:
    folder = Path(sys.argv[2]) / "calls" / sys.argv[1]
    folder.mkdir(parents=True)
    home = Path(os.environ["HOME"])
    driver = home / "driver"
    driver.mkdir()
    nvml = SimulatedNvml(driver, build())
    nvml.show_box(_EIGHT)
    gputui = str(Path(sys.executable).with_name("gputui"))
    for number, line in enumerate(_CALLS.strip().splitlines()):
        words = shlex.split(line.replace("SHOWS", _SHOWS))
        done = subprocess.run(
            [gputui, *words], cwd=home, env=nvml.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        said = f"status {done.returncode}\n--- out\n{done.stdout}--- err\n{done.stderr}"
        said = f"$ gputui {' '.join(words)}\n{said}"
        (folder / file_name(number, words)).write_text(masked(said, ran=True))


if __name__ == "__main__":
    main()
