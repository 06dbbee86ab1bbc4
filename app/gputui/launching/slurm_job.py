"""What makes a launch a job of Slurm's: its name, its tasks, their cores, and what cannot be one."""

from __future__ import annotations

import re

from gputui.launching.argument_vector import Arguments, program_name, read_options
from gputui.launching.container_command import gives_devices, read_container
from gputui.launching.launch import Launch
from gputui.launching.launchers.mpirun import COUNTS, Mpirun, parts
from gputui.launching.programs.clusters import SRUN
from gputui.launching.wrappers import unwrap

CORES = "OMP_NUM_THREADS"


def no_job(launch: Launch) -> str | None:
    """Why Slurm cannot start the command, None where it can."""
    if launch.argv[0].startswith("-"):
        return f"srun would read {launch.argv[0]!r} as its own option"
    return names_devices(launch, "Slurm")


def names_devices(launch: Launch, scheduler: str) -> str | None:
    """That the command is a container's with devices of this box, where a scheduler chooses others; else
    None."""
    container = read_container(unwrap(launch.argv)[1])
    if container is not None and any(gives_devices(each, launch.vendor) for each in container.options):
        return f"the {container.engine} command names devices of this machine, and {scheduler} selects others"
    return None


def devices_option(launch: Launch, kind: str = "") -> str:
    """The option that asks for the launch's devices on each machine; `kind` as the site calls their type."""
    gres, count = launch.vendor.gres, len(launch.devices)
    of_type = f"{kind}:{count}" if kind else str(count)
    return f"gpus-per-node={of_type}" if gres == "gpu" else f"gres={gres}:{of_type}"


def job_name(launch: Launch) -> str:
    """A name made from the command: its script, or its program."""
    script = next((word for word in launch.argv if word.endswith(".py")), launch.argv[0])
    stem = script.rsplit("/", 1)[-1].removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:64].strip("-.") or "gputui"


def cores_of(launch: Launch) -> int | None:
    """Cores of a task, where the launch says how many threads each of its processes has."""
    threads = dict(launch.changes).get(CORES) or ""
    if not (threads.isascii() and threads.isdigit()) or not int(threads):
        return None
    of_one_process = launch.launcher == "python" or tasks_of(launch) is not None
    return int(threads) * (1 if of_one_process else max(1, len(launch.devices)))


def tasks_of(launch: Launch) -> int | None:
    """The processes of a command that starts Slurm's tasks itself (mpirun, srun); None of another command."""
    command = unwrap(launch.argv)[1]
    if program_name(command) == "srun":
        given = read_options(command[1:], SRUN)
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
