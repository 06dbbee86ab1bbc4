"""Run every measurement and print them as a table, with the budget where there is one."""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from pathlib import Path

import gputui
from bench import choosing, curves, one_shot, planning, screen, shared, used_home
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml

BOX = "shared"


def main() -> None:
    # As in an installation: stale bytecode would be compiled again at every start.
    compileall.compile_dir(Path(gputui.__file__).parent, quiet=1)
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as directory:
        # No setting of the person who measures: the home is as it is after the installation.
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ.pop(name, None)
        os.environ["HOME"] = str(Path(directory, "home"))
        driver = SimulatedNvml(Path(directory))
        driver.show_box(BOXES[BOX])
        gpus, python = len(BOXES[BOX].gpus), sys.version.split()[0]
        print(f"box: {BOX}, {gpus} GPUs, simulated libnvidia-ml; python {python}\n")
        if "--curves" in sys.argv:
            for row in curves.rows(driver, 4.0 if quick else 10.0):
                print(row, flush=True)
            return
        print(f"{'what':<52}{'gputui':>12}{'peer':>22}   budget")
        for row in choosing.rows():
            print(row)
        for row in planning.rows():
            print(row)
        for row in one_shot.rows(driver, 3 if quick else 9):
            print(row)
        for row in screen.rows(driver, 4.0 if quick else 15.0):
            print(row)
        for row in used_home.rows(driver, BOX, 3 if quick else 15):
            print(row)
        for row in shared.rows(driver, 10.0 if quick else 40.0):
            print(row)


if __name__ == "__main__":
    main()
