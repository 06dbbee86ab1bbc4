"""From devices and a command to the launch: the only place where one is made."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from gputui.inventory.device import Device
from gputui.launching.launch import Launch
from gputui.launching.launchers import LAUNCHERS, recognised
from gputui.launching.launchers.base import Completed, Launcher, Request
from gputui.launching.launchers.payload import settled
from gputui.launching.plan import AUTO, Plan
from gputui.launching.surroundings import Machine, Surroundings
from gputui.launching.visibility import BY_BUS, ORDER, VISIBLE, variables
from gputui.launching.wrappers import assigned, losing, unwrap


def launcher_of(plan: Plan) -> Launcher:
    """The launcher that is in force for a plan."""
    return recognised(unwrap(plan.command)[1]) if plan.launcher == AUTO else LAUNCHERS[plan.launcher]


def compose(
    devices: Sequence[Device],
    plan: Plan,
    environ: Mapping[str, str],
    surroundings: Surroundings | None = None,
) -> Launch:
    """The launch of `plan` on exactly `devices` in this order; no devices means CPU only.

    `environ` is what the command will inherit; it is looked at for warnings, never changed.
    """
    prefix, command = unwrap(plan.command)
    launcher = launcher_of(plan)
    completed = Completed(())
    if command:
        completed = _completed(launcher, prefix, command, devices, plan, environ, surroundings or Machine())
    ours: tuple[tuple[str, str | None], ...] = variables(devices, plan.ids)
    if completed.visible == "command":
        ours = ((ORDER, BY_BUS), (VISIBLE, None))
    return Launch(
        argv=(*prefix, *completed.argv),
        changes=(*ours, *_additions(plan, ours)),
        directory=plan.directory,
        warnings=(*completed.warnings, *_warnings(devices, plan, prefix, ours, environ)),
        remarks=(*completed.remarks, *_elsewhere(devices, plan, launcher)),
        devices=tuple(devices),
        launcher=launcher.name,
    )


def _completed(
    launcher: Launcher,
    prefix: tuple[str, ...],
    command: tuple[str, ...],
    devices: Sequence[Device],
    plan: Plan,
    environ: Mapping[str, str],
    surroundings: Surroundings,
) -> Completed:
    """The launcher's own command, completed; a command of another launcher is taken apart first."""
    remarks: tuple[str, ...] = ()
    source = recognised(command)
    if source is not launcher:
        payload = settled(source.payload(command), surroundings.is_file, plan.directory)
        command = launcher.start(payload)
        if payload.left_out:
            remarks = (f"left out, as they are {source.name}'s: {' '.join(payload.left_out)}",)
    if plan.python is not None:
        command = launcher.with_python(command, plan.python)
    done = launcher.complete(
        Request(
            command=command,
            devices=tuple(devices),
            environ=_inherited(environ, plan, prefix),
            surroundings=surroundings,
            by_uuid=plan.ids == "uuid",
            processes=plan.processes,
            logs=plan.logs,
            numa=plan.numa,
            nodes=plan.nodes,
            rendezvous=plan.rendezvous,
            prefix=prefix,
            directory=plan.directory,
        )
    )
    return Completed(done.argv, done.warnings, (*remarks, *done.remarks), done.visible)


def _inherited(environ: Mapping[str, str], plan: Plan, prefix: Sequence[str]) -> dict[str, str]:
    """What the launcher's command will find in its environment."""
    changed = {**environ, **dict(plan.additions), **dict(assigned(prefix))}
    return {name: value for name, value in changed.items() if value is not None}


def _elsewhere(devices: Sequence[Device], plan: Plan, launcher: Launcher) -> tuple[str, ...]:
    """What starts the other ones of several machines: each chooses its devices itself."""
    if plan.nodes < 2 or launcher.name != "torchrun" or plan.rendezvous is None:
        # (Without a place to meet: a batch script, whose scheduler starts the others.)
        return ()
    words = ["gputui", "run", *(["-n", str(len(devices))] if devices else ["--gpus", "none"])]
    words += ["--nodes", str(plan.nodes), "--rendezvous", plan.rendezvous]
    asked = {
        "--launcher": None if plan.launcher == AUTO else plan.launcher,
        "--python": plan.python,
        "--processes": str(plan.processes) if plan.processes else None,
        "--directory": plan.directory,
        "--logs": plan.logs,
    }
    words += [word for name, value in asked.items() if value is not None for word in (name, value)]
    words += ["--numa-binding"] if plan.numa else []
    # A rank without what the others have (NCCL_IB_DISABLE) hangs them all.
    words += [f"--env={name}={value}" for name, value in plan.additions]
    return (f"on each of the other machines: {shlex.join([*words, '--', *plan.command])}",)


def _mps(devices: Sequence[Device], environ: Mapping[str, str]) -> bool:
    """Whether an MPS daemon stands between programs and devices, with a list of its own (CUDA MPS guide)."""
    there = any(process.kind == "mps" for device in devices for process in device.processes or ())
    return there or bool(environ.get("CUDA_MPS_PIPE_DIRECTORY"))


def _additions(plan: Plan, ours: Sequence[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
    names = {name for name, _ in ours}
    return tuple((name, value) for name, value in plan.additions if name not in names)


def _warnings(
    devices: Sequence[Device],
    plan: Plan,
    prefix: Sequence[str],
    ours: Sequence[tuple[str, str | None]],
    environ: Mapping[str, str],
) -> list[str]:
    """What there is to say whatever the launcher."""
    warnings = []
    wanted = dict(ours)
    overridden = [
        f"{name}={value}" for name, value in plan.additions if name in wanted and value != wanted[name]
    ]
    if overridden:
        warnings.append(f"{' '.join(overridden)} of the command gives way to the chosen devices")
    within = [
        name if value is None else f"{name}={value}"
        for name, value in assigned(prefix)
        if name in wanted and value != wanted[name]
    ]
    if within:
        warnings.append(f"{' '.join(within)} within the command overrides the chosen devices")
    lost = losing(prefix)
    if lost is not None and VISIBLE not in dict(assigned(prefix)):
        warnings.append(f"{lost} does not give the command the variables: the chosen devices do not count")
    if plan.nodes > 1 and launcher_of(plan).name in ("python", "mpirun"):
        warnings.append("several machines are started by torchrun here: --launcher torchrun")
    if (wanted.get(VISIBLE) or "-")[0].isdigit() and _mps(devices, environ):
        warnings.append("an MPS daemon may number the devices otherwise; UUIDs are right (--ids uuid, u)")
    if len(devices) > 1 and any(device.parent for device in devices):
        warnings.append("a process uses one MIG instance only, however many are visible")
    return warnings
