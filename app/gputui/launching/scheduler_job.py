"""A launch as a job of a scheduler: its name, its tasks and their cores, and why it cannot be a job."""

from __future__ import annotations

import math
import re

from gputui.inventory.formatting import is_digits
from gputui.launching.argument_vector import Arguments, program_name, read_options
from gputui.launching.container_command import gives_devices, read_container
from gputui.launching.launch import Launch
from gputui.launching.launchers.mpirun import COUNTS, Mpirun, parts
from gputui.launching.programs.clusters import SRUN
from gputui.launching.wrappers import unwrap

CORES = "OMP_NUM_THREADS"


def no_job(launch: Launch) -> str | None:
    """Return why Slurm cannot start the command, None where it can."""
    if launch.argv[0].startswith("-"):
        return f"srun would read {launch.argv[0]!r} as its own option"
    return names_devices(launch, "Slurm")


def names_devices(launch: Launch, scheduler: str) -> str | None:
    """Return a sentence where the command names devices of this machine, itself or for its container, as a
    scheduler selects others; otherwise None."""
    container = read_container(unwrap(launch.argv)[1])
    of_container = container and any(gives_devices(each, launch.vendor) for each in container.options)
    if not launch.names and not of_container:
        return None
    program = container.engine if container else launch.launcher
    remedy = "" if container else "; --launcher torchrun names none"
    return f"the {program} command names devices of this machine, and {scheduler} selects others{remedy}"


def devices_option(launch: Launch, kind: str = "") -> str:
    """Return the option that requests the launch's devices per machine; `kind` is the site's type name."""
    gres, count = launch.vendor.gres, len(launch.devices)
    of_type = f"{kind}:{count}" if kind else str(count)
    return f"gpus-per-node={of_type}" if gres == "gpu" else f"gres={gres}:{of_type}"


def job_name(launch: Launch) -> str:
    """Return a name made from the command's script or program."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", launch.script.removesuffix(".py"))[:64].strip("-.") or "gputui"


def cores_of(launch: Launch) -> int | None:
    """Return the cores of a task, where the launch sets the threads of each process; otherwise None."""
    threads = dict(launch.changes).get(CORES) or ""
    if not is_digits(threads) or not int(threads):
        return None
    of_one_process = launch.launcher == "python" or tasks_of(launch) is not None
    return int(threads) * (1 if of_one_process else max(1, len(launch.devices)))


def slurm_time(launch: Launch) -> str | None:
    """Return the time limit of the launch as Slurm reads it, None where there is none."""
    if launch.time_limit is None:
        return None
    minutes, seconds = divmod(math.ceil(launch.time_limit), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def tasks_of(launch: Launch) -> int | None:
    """Return the number of processes of a command that starts Slurm's tasks itself (mpirun, srun); None for
    another command."""
    command = unwrap(launch.argv)[1]
    if program_name(command) == "srun":
        given = read_options(command[1:], SRUN)
        return given.number("ntasks") or given.number("ntasks-per-node") or 1
    if not Mpirun().recognises(command):
        return None
    counts = [_processes(given, len(launch.devices)) for given, _ in parts(command)]
    return sum(counts) or None


def _processes(given: Arguments, devices: int) -> int:
    """Return how many processes mpirun starts for one program; one per device where that is not known."""
    if "pernode" in given:
        return 1
    return next((number for name in COUNTS if (number := given.number(name))), max(1, devices))
