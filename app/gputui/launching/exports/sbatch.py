"""A script for Slurm's `sbatch`.

Slurm counts devices and chooses them itself: it discards the list of visible devices of whoever submits, and
sets its own. So the script asks for as many devices as were chosen, and names none. Seen with Slurm 22.05:
srun takes a lone ":" among a program's words for the start of another job's options; to a step without
devices it hands no such list on, not even an empty one, and all may be seen then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.argument_vector import Arguments, option_table, program_name, read_options
from gputui.launching.container_command import gives_devices, read_container
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
from gputui.launching.launchers.mpirun import COUNTS, Mpirun, parts
from gputui.launching.launchers.torchrun import RENDEZVOUS, Torchrun
from gputui.launching.quoting import quote
from gputui.launching.wrappers import unwrap
from gputui.vendors.visibility import Changes

_PORT = 29500
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+=-]+")
_CORES = "OMP_NUM_THREADS"
_SRUN = option_table(
    flags="contiguous disable-status|X exact exclusive external help|h hold|H immediate|I interactive"
    " kill-on-bad-exit|K label|l multi-prog nice no-allocate|Z no-kill|k overcommit|O overlap oversubscribe|s"
    " preserve-env|E propagate pty quiet|Q quit-on-interrupt reboot resv-ports spread-job unbuffered|u usage"
    " use-min-nodes verbose|v version|V bcast compress",
    valued="ntasks|n ntasks-per-node",
    unlisted="value",
)
"""srun's manual of Slurm 22.05; a value that may be left out is given with "=" only."""


def to_sbatch(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """The script. Raises ExportError for what Slurm cannot start: several machines without torchrun."""
    need_command(launch, "a batch script")
    need_variable(launch, "Slurm chooses others")
    container = read_container(unwrap(launch.argv)[1])
    if container is not None and any(gives_devices(each, launch.vendor) for each in container.options):
        raise ExportError(
            f"the {container.engine} command names devices of this box itself, and Slurm chooses others"
        )
    if launch.argv[0].startswith("-"):
        raise ExportError(f"srun would read {launch.argv[0]!r} as its own option")
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
    if _cores(launch):
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
    if not _cores(launch):
        notes.append(f"no --cpus-per-task: Slurm then gives a task one core ({_CORES}=N says how many)")
    return tuple(notes)


def _header(launch: Launch, options: ExportOptions) -> list[str]:
    count, gres = len(launch.devices), launch.vendor.gres
    cores = _cores(launch)
    asked = {
        "job-name": _name(launch, options),
        "nodes": str(options.nodes),
        "ntasks-per-node": str(_tasks(launch) or 1),
        "gpus-per-node": str(count) if count and gres == "gpu" else None,
        "gres": f"{gres}:{count}" if count and gres != "gpu" else None,
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
    """Cores of a task, where the launch says how many threads each of its processes has."""
    threads = final_changes(launch).get(_CORES) or ""
    if not (threads.isascii() and threads.isdigit()) or not int(threads):
        return None
    of_one_process = launch.launcher == "python" or _tasks(launch) is not None
    return int(threads) * (1 if of_one_process else max(1, len(launch.devices)))


def _tasks(launch: Launch) -> int | None:
    """The processes of a command that starts Slurm's tasks itself (mpirun, srun); None of another command."""
    command = unwrap(launch.argv)[1]
    if program_name(command) == "srun":
        given = read_options(command[1:], _SRUN)
        return given.number("ntasks") or given.number("ntasks-per-node") or 1
    if not Mpirun().recognises(command):
        return None
    counts = [_processes(given, len(launch.devices)) for given, _ in parts(command)]
    return sum(counts) or None


def _processes(given: Arguments, devices: int) -> int:
    """How many processes mpirun starts of one program; where that cannot be told, one a device."""
    if "pernode" in given:
        return 1
    return next((number for name in COUNTS if (number := given.number(name))), max(1, devices))


def _started(words: list[str], launch: Launch) -> str:
    """The line that starts the words, which are quoted already: through srun, unless they start Slurm's tasks
    themselves."""
    own = _tasks(launch) is not None
    hidden = [] if launch.devices else [f"{name}={value}" for name, value in _hiding(launch)]
    if hidden and own:
        words = [quote(word) for word in _hidden_within(launch, ("env", *hidden))]
    elif hidden:
        words = ["env", *hidden, *words]
    if ":" in launch.argv and not own:
        words = ["bash", "-c", quote("exec " + " ".join(words))]
    return " ".join(words if own else ["srun", *words])


def _hiding(launch: Launch) -> Changes:
    """What shows a program no device."""
    return launch.vendor.visibility.changes(())


def _hidden_within(launch: Launch, hiding: Sequence[str]) -> list[str]:
    """The words with `hiding` in front of each program that is started: on its way there, through a step
    without devices, an empty list would be lost."""
    before, command = unwrap(launch.argv)
    if program_name(command) == "srun":
        given = read_options(command[1:], _SRUN)
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
