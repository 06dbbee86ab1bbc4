"""The folder in which a cluster tells dcgm-exporter which jobs run on which GPU (DCGM_HPC_JOB_MAPPING_DIR).

A file for each GPU has its index as its name and the id of a job in each line ("HPC job mapping" in
dcgm-exporter's README): a scheduler's prolog adds a line, and its epilog removes it. `gputui metrics` reads
them, and adds lines for gputui's jobs, which it knows by their claims: "gputui-ID". Such a line is nobody
else's, so that the next reading removes what has ended, whatever became of who wrote it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gputui.inventory.snapshot import Snapshot
from gputui.system.files import open_plain, write_public

VARIABLE = "DCGM_HPC_JOB_MAPPING_DIR"
"""dcgm-exporter's own."""

OURS = "gputui-"
_ID = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_MOST_BYTES, _MOST_JOBS = 64 * 1024, 64


def read_jobs(folder: Path) -> dict[str, tuple[str, ...]]:
    """The ids of jobs by the index of the GPU, as the files have them. Raises OSError for no such folder."""
    names = [name for name in os.listdir(folder) if name.isascii() and name.isdigit()]  # noqa: PTH208
    return {name: _lines(folder / name) for name in names}


def with_own_jobs(jobs: Mapping[str, Sequence[str]], snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """The same with gputui's jobs as they are now, by the claims of the snapshot."""
    found = {gpu: [job for job in ids if not job.startswith(OURS)] for gpu, ids in jobs.items()}
    for device in snapshot.devices:
        claim = snapshot.claimed.get(device.key)
        gpu = snapshot.by_key.get(device.parent or "", device)
        # (What a claim says is its holder's word.)
        if device.vendor == "nvidia" and claim and claim.job and _ID.fullmatch(claim.job):
            ids = found.setdefault(str(gpu.index), [])
            if f"{OURS}{claim.job}" not in ids:
                ids.append(f"{OURS}{claim.job}")
    return {gpu: tuple(ids) for gpu, ids in found.items()}


def write_jobs(folder: Path, before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> None:
    """Write the files that have changed. Raises OSError, also where others can write into the folder: they
    could lead us to another file."""
    for gpu, ids in after.items():
        if tuple(before.get(gpu, ())) != tuple(ids):
            write_public(folder / gpu, "".join(f"{job}\n" for job in ids).encode())


def _lines(file: Path) -> tuple[str, ...]:
    """The ids in a file, as far as they are some; () where it is none."""
    try:
        with os.fdopen(open_plain(file), "rb") as stream:
            text = stream.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        # (It has gone since the folder was listed, or is no file of jobs.)
        return ()
    return tuple(line.strip() for line in text.splitlines()[:_MOST_JOBS] if line.strip())
