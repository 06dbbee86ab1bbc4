"""A script for Slurm's `sbatch`.

Slurm itself counts devices and chooses them: it discards the submitter's list of visible devices, and sets
its own. So the script asks for the number of selected devices, and names none. Observed with Slurm 22.05:
srun takes a lone ":" among a program's words for the start of another job's options; to a step without
devices it does not pass on a list, not even an empty one, so the step may see all devices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.inventory.device import has_instances
from gputui.inventory.quoting import change_directory, quote
from gputui.launching.argument_vector import program_name, read_options
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    need_command,
    other_changes,
    selected_by,
)
from gputui.launching.launch import Launch
from gputui.launching.launchers.mpirun import parts
from gputui.launching.launchers.torchrun import RENDEZVOUS, Torchrun
from gputui.launching.programs.clusters import SRUN
from gputui.launching.scheduler_job import (
    CORES,
    cores_of,
    devices_option,
    job_name,
    no_job,
    slurm_time,
    tasks_of,
)
from gputui.launching.wrappers import unwrap

_PORT = 29500
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+=-]+")


def to_sbatch(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return the script. Raises ExportError for what Slurm cannot start, such as several machines without
    torchrun."""
    need_command(launch, "a batch script")
    why_not = no_job(launch)
    if why_not is not None:
        raise ExportError(why_not)
    lines = ["#!/bin/bash", *_header(launch, options), ""]
    if launch.devices:
        visibility = launch.vendor.visibility
        variable = visibility.slurm or visibility.variable
        # (Slurm has no variable for devices that are not a "gpu" to it.)
        itself = launch.vendor.gres == "gpu"
        says = f"sets {variable} itself" if itself else f"the site's prolog sets {variable}"
        lines.append(f"# Slurm selects the devices{f', and {says}' if variable else ''}.")
    if launch.directory and not _PLAIN.fullmatch(launch.directory):
        lines.append(f"{change_directory(launch.directory, quote)} || exit")
    for name, value in other_changes(launch).items():
        lines.append(f"unset {name}" if value is None else f"export {name}={quote(value) if value else ''}")
    if cores_of(launch):
        # Since 22.05, srun does not inherit this from the job.
        lines.append('export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"')
    if options.nodes == 1:
        return "\n".join([*lines, _started([quote(word) for word in launch.argv], launch)])
    words = _between_nodes(launch)
    lines.append('export head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)')
    return "\n".join([*lines, _started(words, launch)])


def sbatch_notes(launch: Launch) -> tuple[str, ...]:
    """Return notes on what the script leaves to Slurm."""
    notes = []
    if launch.devices:
        notes.append(selected_by("Slurm", f"the script asks for {len(launch.devices)}", launch))
    if launch.devices and launch.vendor.gres != "gpu":
        notes.append(f"a site may use another name than {launch.vendor.gres}; `sinfo -o %G` shows it")
    if has_instances(launch.devices):
        notes.append("MIG instances may need their type: --gpus-per-node=TYPE:N, as `sinfo -o %G` shows it")
    if not cores_of(launch):
        notes.append(f"no --cpus-per-task: Slurm then gives each task one core (set {CORES}=N)")
    return tuple(notes)


def _header(launch: Launch, options: ExportOptions) -> list[str]:
    cores = cores_of(launch)
    asked = {
        "job-name": _name(launch, options),
        "nodes": str(options.nodes),
        "ntasks-per-node": str(tasks_of(launch) or 1),
        **dict([devices_option(launch).split("=")] if launch.devices else []),
        "cpus-per-task": str(cores) if cores else None,
        "time": slurm_time(launch),
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
    """Return the line that starts the words, which are quoted already: through srun, unless they start
    Slurm's tasks themselves."""
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
    """Return the words with `hiding` in front of each program that they start: a step without devices would
    not pass on an empty list."""
    before, command = unwrap(launch.argv)
    if program_name(command) == "srun":
        given = read_options(command[1:], SRUN)
        return [*before, command[0], *given.option_words, *hiding, *given.operands]
    words = [*before, command[0]]
    for place, (given, program) in enumerate(parts(command)):
        words += [*([":"] if place else []), *given.option_words, *hiding, *program]
    return words


def _between_nodes(launch: Launch) -> list[str]:
    """Return torchrun's words for several machines, quoted; the shell fills in those that only Slurm
    knows."""
    before, command = unwrap(launch.argv)
    torchrun = Torchrun()
    if not torchrun.recognises(command):
        raise ExportError(
            f"several nodes are started through torchrun, not {launch.launcher}: --launcher torchrun"
        )
    starter, rest = torchrun.split(command)
    given = torchrun.given(rest)
    # Only Slurm knows the machine of the rendezvous; its other settings (--rdzv-conf) stay.
    kept = given.without([name for name in RENDEZVOUS if name != "rdzv-conf"])
    return [
        *(quote(word) for word in (*before, *starter)),
        '--nnodes="$SLURM_NNODES"',
        "--rdzv-backend=c10d",
        '--rdzv-id="$SLURM_JOB_ID"',
        f'--rdzv-endpoint="$head:{_PORT}"',
        *(quote(word) for word in (*kept.option_words, *given.operands)),
    ]
