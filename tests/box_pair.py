"""Two boxes over a real ssh, each with its own devices, claims and jobs, and local calls of gputui."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gputui.allocating.claims.read import claims
from gputui.inventory.job import Job
from gputui.jobs.store import all_jobs
from simnvml import SimulatedNvml
from ssh_boxes import Place, SshBoxes
from unit.builders import box, gpu

GPUTUI = (sys.executable, "-m", "gputui")
_SHOWN = ("LD_LIBRARY_PATH", "SIMNVML_BOX", "SIMNVML_CONTROL", "SIMNVML_COUNTS")


class BoxPair:
    """The boxes, by `names`; `homes` are their homes, in which calls start (`--directory .`)."""

    def __init__(
        self,
        boxes: SshBoxes,
        folder: Path,
        library: Path,
        name: str,
        places: Sequence[Place | None] = (None, None),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.names = (f"{name}a", f"{name}b")
        self.homes: list[Path] = []
        self._claims: list[str] = []
        for each, place in zip(self.names, places, strict=True):
            own = folder / each
            own.mkdir()
            nvml = SimulatedNvml(own, library)
            nvml.show(box(gpu(0), gpu(1)))
            shown = nvml.environment()
            given = {key: shown[key] for key in _SHOWN} | {"GPUTUI_CLAIMS": str(own / "claims")}
            home = boxes.add(each, {**given, **(environ or {})}, at=place)
            self.homes.append(home)
            self._claims.append(given["GPUTUI_CLAIMS"])
        self.environ = boxes.environment({**os.environ, "HOME": str(folder)})

    @property
    def both(self) -> str:
        """Both names, as `--on` takes them."""
        return ",".join(self.names)

    def torchrun(self, script: str) -> None:
        """Write the `torchrun` of each box, a script of sh; BOX is 0 on the first, 1 on the second."""
        for number, home in enumerate(self.homes):
            program = home / "bin" / "torchrun"
            program.write_text(f"#!/bin/sh\nBOX={number}\n{script}\n")
            program.chmod(0o755)

    def start(self, *words: str, on: str | None = None, **more: Any) -> subprocess.Popen[bytes]:
        """Start `gputui run --on` both boxes, and leave it running."""
        return subprocess.Popen(
            [*GPUTUI, "run", "--on", on or self.both, "--directory", ".", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            **more,
        )

    def run(self, *words: str, on: str | None = None) -> tuple[int, list[str], str]:
        """The exit status, lines of output and messages of a call that ends."""
        with self.start(*words, on=on) as process:
            out, said = process.communicate(timeout=100)
            return process.returncode, out.decode().splitlines(), said.decode()

    # These need no call of gputui, so that they are cheap enough to ask again and again.

    def jobs(self, number: int) -> list[Job]:
        """The jobs of a box."""
        return all_jobs({"XDG_STATE_HOME": str(self.homes[number] / ".local" / "state")})

    def states(self) -> list[list[str]]:
        """The states of their jobs."""
        return [[job.state for job in self.jobs(number)] for number in (0, 1)]

    def claimed(self) -> list[bool]:
        """Whether any device of each box is claimed."""
        return [bool(claims({"GPUTUI_CLAIMS": folder})[0]) for folder in self._claims]

    def close(self) -> None:
        """Kill the processes of the jobs that still run."""
        for number in (0, 1):
            for job in self.jobs(number):
                for process in (job.command, job.supervisor):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL) if process else None
