"""A script for Slurm's `sbatch`.

Slurm counts devices and chooses them itself: it discards the list of visible devices of whoever submits, and
sets its own. So the script asks for as many devices as were chosen, and names none. Seen with Slurm 22.05:
srun takes a lone ":" among a program's words for the start of another job's options; to a step without
devices it hands no such list on, not even an empty one, and all may be seen then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.argument_vector import program_name, read_options
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    need_command,
    need_variable,
    other_changes,
    visible_devices,
)
from gputui.launching.launch import Launch
from gputui.launching.launchers.mpirun import parts
from gputui.launching.launchers.torchrun import RENDEZVOUS, Torchrun
from gputui.launching.programs.clusters import SRUN
from gputui.launching.quoting import quote
from gputui.launching.slurm_job import CORES, cores_of, devices_option, job_name, no_job, tasks_of
from gputui.launching.wrappers import unwrap

_PORT = 29500
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+=-]+")


def to_sbatch(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """The script. Raises ExportError for what Slurm cannot start: several machines without torchrun."""
    need_command(launch, "a batch script")
    need_variable(launch, "Slurm chooses others")
    why_not = no_job(launch)
    if why_not is not None:
        raise ExportError(why_not)
    lines = ["#!/bin/bash", *_header(launch, options), ""]
    if launch.devices:
        visibility = launch.vendor.visibility
        variable = visibility.slurm or visibility.variable
        # (Of devices that are no "gpu" to it, Slurm knows no variable.)
        itself = launch.vendor.gres == "gpu"
        says = f"sets {variable} itself" if itself else f"the site's prolog sets {variable}"
        lines.append(f"# Slurm selects the devices{f', and {says}' if variable else ''}.")
    if launch.directory and not _PLAIN.fullmatch(launch.directory):
        place = launch.directory if launch.directory.startswith("/") else f"./{launch.directory}"
        lines.append(f"cd -- {quote(place)} || exit")
    for name, value in other_changes(launch).items():
        lines.append(f"unset {name}" if value is None else f"export {name}={quote(value) if value else ''}")
    if cores_of(launch):
        # Since 22.05 srun does not take this over from the job.
        lines.append('export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"')
    if options.nodes == 1:
        return "\n".join([*lines, _started([quote(word) for word in launch.argv], launch)])
    words = _between_nodes(launch)
    lines.append('export head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)')
    return "\n".join([*lines, _started(words, launch)])


def sbatch_notes(launch: Launch) -> tuple[str, ...]:
    """What the script leaves to Slurm."""
    notes = []
    if launch.devices:
        chosen = visible_devices(launch) or "these"
        notes.append(
            f"Slurm selects the devices: the script asks for {len(launch.devices)}, not for {chosen}"
        )
    if launch.devices and launch.vendor.gres != "gpu":
        notes.append(f"a site may call them otherwise than {launch.vendor.gres}: `sinfo -o %G` names it")
    if any(device.parent for device in launch.devices):
        notes.append("MIG instances may need their type: --gpus-per-node=TYPE:N, as `sinfo -o %G` names it")
    if not cores_of(launch):
        notes.append(f"no --cpus-per-task: Slurm then gives a task one core ({CORES}=N says how many)")
    return tuple(notes)


def _header(launch: Launch, options: ExportOptions) -> list[str]:
    cores = cores_of(launch)
    asked = {
        "job-name": _name(launch, options),
        "nodes": str(options.nodes),
        "ntasks-per-node": str(tasks_of(launch) or 1),
        **dict([devices_option(launch).split("=")] if launch.devices else []),
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
    return job_name(launch)


def _started(words: list[str], launch: Launch) -> str:
    """The line that starts the words, which are quoted already: through srun, unless they start Slurm's tasks
    themselves."""
    own = tasks_of(launch) is not None
    hiding = () if launch.devices else launch.vendor.visibility.changes(())
    hidden = [f"{name}={value}" for name, value in hiding]
    if hidden and own:
        words = [quote(word) for word in _hidden_within(launch, ("env", *hidden))]
    elif hidden:
        words = ["env", *hidden, *words]
    if ":" in launch.argv and not own:
        words = ["bash", "-c", quote("exec " + " ".join(words))]
    return " ".join(words if own else ["srun", *words])


def _hidden_within(launch: Launch, hiding: Sequence[str]) -> list[str]:
    """The words with `hiding` in front of each program that is started: on its way there, through a step
    without devices, an empty list would be lost."""
    before, command = unwrap(launch.argv)
    if program_name(command) == "srun":
        given = read_options(command[1:], SRUN)
        return [*before, command[0], *given.option_words, *hiding, *given.operands]
    words = [*before, command[0]]
    for place, (given, program) in enumerate(parts(command)):
        words += [*([":"] if place else []), *given.option_words, *hiding, *program]
    return words


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
