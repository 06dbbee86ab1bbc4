"""The folder with a cluster's mapping of GPUs to jobs for dcgm-exporter (DCGM_HPC_JOB_MAPPING_DIR).

The file for a GPU has the GPU's index as its name and the id of a job in each line ("HPC job mapping" in
dcgm-exporter's README): a scheduler's prolog adds a line, and its epilog removes it. `gputui metrics` reads
the files, and adds lines for gputui's jobs, which it finds by their claims: "gputui-ID". Only gputui writes
such a line, so the next reading removes the lines of ended jobs, regardless of the process that wrote them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gputui.allocating.claims.files import word_of
from gputui.inventory.formatting import is_digits
from gputui.inventory.snapshot import Snapshot
from gputui.system.files import read_own, write_private

VARIABLE = "DCGM_HPC_JOB_MAPPING_DIR"
"""The variable of dcgm-exporter."""

OURS = "gputui-"
_MOST_BYTES, _MOST_JOBS = 64 * 1024, 64


def read_jobs(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the ids of jobs by the index of the GPU. Raises OSError where there is no such folder."""
    # (No machine has a thousand GPUs, but the folder may have a million files of somebody's.)
    names = [name for name in os.listdir(folder) if is_digits(name) and len(name) < 4]  # noqa: PTH208
    return {name: _lines(folder / name) for name in names}


def with_own_jobs(jobs: Mapping[str, Sequence[str]], snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the same with gputui's current jobs, by the claims of the snapshot."""
    found = {gpu: [job for job in ids if not job.startswith(OURS)] for gpu, ids in jobs.items()}
    for device in snapshot.devices:
        claim = snapshot.claimed.get(device.key)
        gpu = snapshot.by_key.get(device.parent or "", device)
        # The holder writes the claim, so its content is not trusted.
        if device.vendor == "nvidia" and claim and word_of(claim.job):
            ids = found.setdefault(str(gpu.index), [])
            if f"{OURS}{claim.job}" not in ids:
                ids.append(f"{OURS}{claim.job}")
    return {gpu: tuple(ids) for gpu, ids in found.items()}


def write_jobs(folder: Path, before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> None:
    """Write the files that have changed. Raises OSError, also where other users can write into the folder: a
    link of theirs could redirect the write."""
    for gpu, ids in after.items():
        if tuple(before.get(gpu, ())) != tuple(ids):
            write_private(folder / gpu, "".join(f"{job}\n" for job in ids), mode=0o644)


def _lines(file: Path) -> tuple[str, ...]:
    """Return the ids in a file; () where the file cannot be read."""
    try:
        text = read_own(file, _MOST_BYTES).decode(errors="replace")
    except OSError:
        # The file was removed after the folder was listed, is no file of jobs, or others can change it.
        return ()
    return tuple(line.strip() for line in text.splitlines()[:_MOST_JOBS] if line.strip())
