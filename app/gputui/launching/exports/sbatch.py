"""A script for Slurm's `sbatch`.

Slurm counts devices and chooses them itself: it discards the list of visible devices of whoever submits, and
sets its own. So the script asks for as many devices as were chosen, and names none. Seen with Slurm 22.05:
srun takes a lone ":" among a program's words for the start of another job's options; to a step without
devices it hands no such list on, not even an empty one, and all may be seen then.
"""

from __future__ import annotations

import re

from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    final_changes,
    need_command,
    need_variable,
    other_changes,
    visible_devices,
)
from gputui.launching.launch import Launch
from gputui.launching.launchers.torchrun import RENDEZVOUS, Torchrun
from gputui.launching.quoting import quote
from gputui.launching.wrappers import unwrap

_PORT = 29500
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+=-]+")
_CORES = "OMP_NUM_THREADS"


def to_sbatch(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """The script. Raises ExportError for what Slurm cannot start: several machines without torchrun."""
    need_command(launch, "a batch script")
    need_variable(launch, "Slurm chooses others")
    if launch.argv[0].startswith("-"):
        raise ExportError(f"srun would take {launch.argv[0]!r} for an option of its own")
    lines = ["#!/bin/bash", *_header(launch, options), ""]
    if launch.devices:
        lines.append(f"# Slurm chooses the devices, and sets {launch.vendor.visibility.variable} itself.")
    if launch.directory and not _PLAIN.fullmatch(launch.directory):
        place = launch.directory if launch.directory.startswith("/") else f"./{launch.directory}"
        lines.append(f"cd -- {quote(place)} || exit")
    for name, value in other_changes(launch).items():
        lines.append(f"unset {name}" if value is None else f"export {name}={quote(value) if value else ''}")
    if _cores(launch):
        # Since 22.05 srun does not take this over from the job.
        lines.append('export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"')
    if options.nodes == 1:
        return "\n".join([*lines, _srun([quote(word) for word in launch.argv], launch)])
    words = _between_nodes(launch)
    lines.append('export head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)')
    return "\n".join([*lines, _srun(words, launch)])


def sbatch_notes(launch: Launch) -> tuple[str, ...]:
    """What the script leaves to Slurm."""
    notes = []
    if launch.devices:
        chosen = visible_devices(launch)
        notes.append(
            f"Slurm chooses the devices: the script asks for {len(launch.devices)}, not for {chosen}"
        )
    if any(device.parent for device in launch.devices):
        notes.append("MIG instances may need their type: --gpus-per-node=TYPE:N, as `sinfo -o %G` names it")
    if not _cores(launch):
        notes.append(
            f"no --cpus-per-task: Slurm then gives a node's task one core ({_CORES}=N says how many)"
        )
    return tuple(notes)


def _header(launch: Launch, options: ExportOptions) -> list[str]:
    count = len(launch.devices)
    cores = _cores(launch)
    asked = {
        "job-name": _name(launch, options),
        "nodes": str(options.nodes),
        "ntasks-per-node": "1",
        "gpus-per-node": str(count) if count else None,
        "cpus-per-task": str(cores) if cores else None,
        "output": "%x-%j.out",
        "chdir": launch.directory if launch.directory and _PLAIN.fullmatch(launch.directory) else None,
    }
    return [f"#SBATCH --{name}={value}" for name, value in asked.items() if value is not None]


def _name(launch: Launch, options: ExportOptions) -> str:
    if options.name is not None:
        if not _PLAIN.fullmatch(options.name) or "/" in options.name:
            raise ExportError(f"{options.name!r} cannot be the name of a job: letters, digits and ._- can")
        return options.name
    script = next((word for word in launch.argv if word.endswith(".py")), launch.argv[0])
    stem = script.rsplit("/", 1)[-1].removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:64].strip("-.") or "gputui"


def _cores(launch: Launch) -> int | None:
    """Cores of a node's task, where the launch says how many threads each of its processes has."""
    threads = final_changes(launch).get(_CORES) or ""
    if not (threads.isascii() and threads.isdigit()) or not int(threads):
        return None
    return int(threads) * (1 if launch.launcher == "python" else max(1, len(launch.devices)))


def _srun(words: list[str], launch: Launch) -> str:
    """srun with the words, which are quoted already."""
    if not launch.devices:
        hidden = launch.vendor.visibility.changes(())
        words = ["env", *(f"{name}={value}" for name, value in hidden), *words] if hidden else words
    if ":" in launch.argv:
        words = ["bash", "-c", quote("exec " + " ".join(words))]
    return " ".join(["srun", *words])


def _between_nodes(launch: Launch) -> list[str]:
    """torchrun's words for several machines, quoted; those that Slurm knows are left to the shell."""
    before, command = unwrap(launch.argv)
    torchrun = Torchrun()
    if not torchrun.recognises(command):
        raise ExportError(
            f"several nodes are started through torchrun, not {launch.launcher}: --launcher torchrun"
        )
    starter, rest = torchrun.split(command)
    given = torchrun.given(rest)
    # Between machines only Slurm knows where the processes meet; how they do (--rdzv-conf) stays.
    kept = given.without([name for name in RENDEZVOUS if name != "rdzv-conf"])
    return [
        *(quote(word) for word in (*before, *starter)),
        '--nnodes="$SLURM_NNODES"',
        "--rdzv-backend=c10d",
        '--rdzv-id="$SLURM_JOB_ID"',
        f'--rdzv-endpoint="$head:{_PORT}"',
        *(quote(word) for word in (*kept.option_words, *given.operands)),
    ]
