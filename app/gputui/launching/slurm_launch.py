"""Pass a launch to Slurm: `srun`, or `sbatch` for a launch that runs in the background. Pure.

Slurm selects the devices itself, and does not accept indices. The user can choose the node, the type, the
number of devices, and their order inside the job.

Observed with Slurm 22.05: `--gpu-bind` has no effect on a single task, and `--gpu-bind=none` hides the
devices from several tasks. Where devices are not constrained (cgroup.conf), `map_gpu` counts the node's
devices, and binds every task to the job's first device where its numbers match none of them. So `map_gpu` is
used for whole nodes only, and elsewhere each task orders its own list.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.errors import WrongCallError
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.quoting import posix
from gputui.launching.exports.form import other_changes
from gputui.launching.launch import Launch
from gputui.launching.scheduler_job import cores_of, devices_option, job_name, no_job, slurm_time, tasks_of

_NAME = "--job-name="


class SlurmError(WrongCallError):
    """Slurm cannot start the launch; the message gives the reason, and an alternative where there is one."""


@frozen
class SlurmRequest:
    """A request to Slurm; the number of devices is that of the launch.

    node       the node to run on, "" for any;  partition: "" for the default
    type       the site's name of the device type; "" for any
    whole      whether the launch uses all devices of the node
    order      the order inside, as positions among the devices that Slurm allocates
    processes  the number of tasks, where the command has no launcher that starts them
    detach     whether to submit a batch job, whose id is printed
    name       the name of the job, None for a name made from the command
    """

    node: str = ""
    partition: str = ""
    type: str = ""
    whole: bool = False
    order: tuple[int, ...] = ()
    processes: int = 1
    detach: bool = False
    name: str | None = None


def through_slurm(launch: Launch, request: SlurmRequest) -> Launch:
    """Return the launch through Slurm. Raises SlurmError for a command that Slurm cannot start this way."""
    _check(launch, request)
    own = tasks_of(launch)
    job = [
        *([f"{_NAME}{request.name or job_name(launch)}"] if request.detach or request.name else []),
        *([f"--partition={request.partition}"] if request.partition else []),
        *([f"--nodelist={request.node}"] if request.node else []),
        "--nodes=1",
        f"--ntasks={own or request.processes}",
        f"--{devices_option(launch, request.type)}",
        *([f"--time={limit}"] if (limit := slurm_time(launch)) else []),
    ]
    cores = cores_of(launch)
    of_a_task = [f"--cpus-per-task={cores}"] if cores else []
    bound, words = _in_order(launch, request)
    if own is None and ":" in words:
        # srun takes a lone ":" for the start of another job's options.
        words = ["bash", "-c", "exec " + " ".join(map(posix, words))]
    if not request.detach:
        argv = ["srun", *job, *of_a_task, *bound, *words]
    else:
        started = words if own is not None else ["srun", *of_a_task, *bound, *words]
        script = "exec " + " ".join(map(posix, started))
        argv = ["sbatch", "--parsable", *job, *of_a_task, "--output=%x-%j.out", f"--wrap={script}"]
    devices = f"{len(launch.devices)} {f'{request.type} ' if request.type else ''}"
    devices += "device" if len(launch.devices) == 1 else "devices"
    where = f"which {devices} of {request.node}" if request.node else f"which node, and which {devices} of it"
    order = (
        f"; the command counts them in the order {','.join(map(str, request.order))}"
        if _reordered(request)
        else ""
    )
    remark = f"Slurm decides {where}; they cannot be chosen by index{order}"
    return replace(
        launch,
        argv=tuple(argv),
        changes=tuple(other_changes(launch).items()),
        time_limit=None,
        remarks=(*launch.remarks, remark),
    )


def output_of(launch: Launch, job: str) -> str:
    """Return the file with the output of a job; it is in the directory of the launch from `through_slurm`."""
    name = next(word for word in launch.argv if word.startswith(_NAME)).removeprefix(_NAME)
    return f"{name}-{job}.out"


def _check(launch: Launch, request: SlurmRequest) -> None:
    why_not = launch.refusal or no_job(launch)
    if why_not is not None:
        raise SlurmError(why_not)
    if not launch.devices:
        raise SlurmError("a job without devices does not need gputui: use srun")
    if sorted(request.order) not in ([], list(range(len(launch.devices)))):
        raise SlurmError("the order must name each device once")
    if tasks_of(launch) is None:
        return
    if not request.detach:
        raise SlurmError(
            f"{launch.argv[0]} starts Slurm's tasks itself, inside a job; --detach makes one (sbatch)"
        )
    if _reordered(request):
        raise SlurmError(f"{launch.argv[0]} starts the tasks itself, in an order of its own")


def _reordered(request: SlurmRequest) -> bool:
    return list(request.order) != sorted(request.order)


def _in_order(launch: Launch, request: SlurmRequest) -> tuple[list[str], list[str]]:
    """Return srun's options that assign devices to tasks, and the words that it starts."""
    words, count = [*launch.argv], len(launch.devices)
    if request.processes > 1:
        if request.processes != count:
            return [], words
        if not _reordered(request):
            return ["--gpu-bind=single:1"], words
        if request.whole:
            return [f"--gpu-bind=map_gpu:{','.join(map(str, request.order))}"], words
        places = " ".join(map(str, request.order))
        return [], _reading_list(launch, f"o=({places})", ["${d[${o[$SLURM_LOCALID]}]}"], words)
    if not _reordered(request):
        return [], words
    return [], _reading_list(launch, "", [f"${{d[{place}]}}" for place in request.order], words)


def _reading_list(launch: Launch, before: str, entries: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the words, started with the reordered entries of Slurm's list. With -u, a list that is too short
    ends the job."""
    visibility = launch.vendor.visibility
    variable = visibility.slurm or visibility.variable
    first = f"{before}; " if before else ""
    script = f'{first}IFS=, read -ra d <<<"${variable}" && {variable}={",".join(entries)} exec "$@"'
    return ["bash", "-uc", script, "gputui", *words]
