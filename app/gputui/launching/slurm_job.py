"""The properties of a launch as a Slurm job: its name, its tasks, their cores, and why it cannot be a job."""

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
    """Return why Slurm cannot start the command, None where it can."""
    if launch.argv[0].startswith("-"):
        return f"srun would read {launch.argv[0]!r} as its own option"
    return names_devices(launch, "Slurm")


def names_devices(launch: Launch, scheduler: str) -> str | None:
    """Return a sentence where the command gives a container devices of this box, as a scheduler chooses
    others; otherwise None."""
    container = read_container(unwrap(launch.argv)[1])
    if container is not None and any(gives_devices(each, launch.vendor) for each in container.options):
        return f"the {container.engine} command names devices of this machine, and {scheduler} selects others"
    return None


def devices_option(launch: Launch, kind: str = "") -> str:
    """Return the option that requests the launch's devices per machine; `kind` is the site's type name."""
    gres, count = launch.vendor.gres, len(launch.devices)
    of_type = f"{kind}:{count}" if kind else str(count)
    return f"gpus-per-node={of_type}" if gres == "gpu" else f"gres={gres}:{of_type}"


def job_name(launch: Launch) -> str:
    """Return a name made from the command's script or program."""
    script = next((word for word in launch.argv if word.endswith(".py")), launch.argv[0])
    stem = script.rsplit("/", 1)[-1].removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:64].strip("-.") or "gputui"


def cores_of(launch: Launch) -> int | None:
    """Return the cores of a task, where the launch sets the threads of each process; otherwise None."""
    threads = dict(launch.changes).get(CORES) or ""
    if not (threads.isascii() and threads.isdigit()) or not int(threads):
        return None
    of_one_process = launch.launcher == "python" or tasks_of(launch) is not None
    return int(threads) * (1 if of_one_process else max(1, len(launch.devices)))


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
