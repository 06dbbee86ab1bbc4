"""From devices and a command to the launch: the only place where one is made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gputui.inventory.device import Device
from gputui.launching.launch import Launch, OwnDevices
from gputui.launching.launchers import LAUNCHERS, recognised
from gputui.launching.launchers.base import Completed, Launcher, Request, Saying
from gputui.launching.launchers.mpirun import parts
from gputui.launching.launchers.payload import settled
from gputui.launching.listed import lists_within
from gputui.launching.plan import AUTO, Plan
from gputui.launching.surroundings import Machine, Surroundings
from gputui.launching.visibility import (
    BY_BUS,
    ORDER,
    VISIBLE,
    names_in_order,
    names_none,
    names_others,
    names_these,
    variables,
)
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
    said = Saying([*completed.warnings], [*completed.remarks], completed.own)
    _warn(said, devices, plan, prefix, ours, environ)
    return Launch(
        argv=(*prefix, *completed.argv),
        changes=(*ours, *_additions(plan, ours)),
        directory=plan.directory,
        warnings=tuple(said.warnings),
        remarks=(*said.remarks, *_elsewhere(devices, plan, launcher)),
        devices=tuple(devices),
        launcher=launcher.name,
        own=said.own,
    )


_NO_DEVICE_OF_ANY_BOX = 9_000_000


def own_devices(
    plan: Plan, count: int, environ: Mapping[str, str], surroundings: Surroundings | None = None
) -> OwnDevices | None:
    """What in the command asks for devices of its own, whichever `count` devices it is to run on; None where
    nothing does.

    For a call that does not know its devices yet, as it is to wait for them. The command is completed for
    devices with indices that no command names: what contradicts those contradicts any.
    """
    devices = [Device(index=_NO_DEVICE_OF_ANY_BOX + place, uuid="") for place in range(count)]
    return compose(devices, plan, environ, surroundings).own


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
    return replace(done, remarks=(*remarks, *done.remarks))


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


def _warn(
    said: Saying,
    devices: Sequence[Device],
    plan: Plan,
    prefix: Sequence[str],
    ours: Sequence[tuple[str, str | None]],
    environ: Mapping[str, str],
) -> None:
    """Say what there is to say whatever the launcher."""
    wanted = dict(ours)
    _warn_of_lists(said, devices, plan, prefix, wanted)
    lost = losing(prefix)
    if lost is not None and VISIBLE not in dict(assigned(prefix)):
        said.warnings.append(
            f"{lost} does not give the command the variables: the chosen devices do not count"
        )
    if plan.nodes > 1 and launcher_of(plan).name in ("python", "mpirun"):
        said.warnings.append("several machines are started by torchrun here: --launcher torchrun")
    if (wanted.get(VISIBLE) or "-")[0].isdigit() and _mps(devices, environ):
        said.warnings.append(
            "an MPS daemon may number the devices otherwise; UUIDs are right (--ids uuid, u)"
        )
    if len(devices) > 1 and any(device.parent for device in devices):
        said.warnings.append("a process uses one MIG instance only, however many are visible")


def _warn_of_lists(
    said: Saying,
    devices: Sequence[Device],
    plan: Plan,
    prefix: Sequence[str],
    wanted: Mapping[str, str | None],
) -> None:
    """Say which lists of devices the command itself has, and which of them ask for others than `devices`."""
    by_index = ORDER in wanted
    overridden = {name: value for name, value in plan.additions if wanted.get(name, value) != value}
    if overridden:
        words, listed = _shown(overridden), overridden.get(VISIBLE)
        text = f"{words} of the command gives way to the chosen devices"
        if listed is None or names_these(listed, devices):
            said.warnings.append(text)
        else:
            said.asks_for_others(words, text, listed, ignored=True)
    theirs = dict(assigned(prefix))
    effective = theirs.get(VISIBLE, wanted[VISIBLE])
    within = {n: value for n, value in theirs.items() if n in wanted and value != wanted[n]}
    if by_index and names_in_order(within.get(VISIBLE), devices):
        # The same in other words.
        del within[VISIBLE]
    if within:
        words = _shown(within)
        text = f"{words} within the command overrides the chosen devices"
        if _overrides(within, effective, devices, by_index):
            said.asks_for_others(words, text, within.get(VISIBLE))
        else:
            said.warnings.append(text)
    for words, listed in _lists_of_programs(plan.command):
        if names_others(listed, devices, by_index):
            text = f"{words} within the command overrides the chosen devices"
            said.asks_for_others(words, text, listed)


def _shown(values: Mapping[str, str | None]) -> str:
    return " ".join(f"-u {name}" if value is None else f"{name}={value}" for name, value in values.items())


def _overrides(
    within: Mapping[str, str | None], listed: str | None, devices: Sequence[Device], by_index: bool
) -> bool:
    """Whether variables that are set for the whole command (unset: None) lead it to other devices.

    `listed` is the list that it then has, None for none; `by_index` whether ours counts in PCI order.
    """
    if VISIBLE in within:
        if listed is None or names_others(listed, devices, by_index):
            return True
        if names_none(listed) and devices:
            # Claimed for nothing.
            return True
    # Of the same numbers another order of counting makes other devices.
    return ORDER in within and (listed or "-")[0].isdigit()


def _lists_of_programs(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The lists of devices among the words of what the command starts in the end, behind a launcher too."""
    inner = unwrap(command)[1]
    launcher = recognised(inner)
    if launcher.name == "mpirun":
        programs = [words for _, words in parts(inner)]
    else:
        payload = launcher.payload(inner)
        programs = [payload.words] if payload.kind == "program" else []
    for words in programs:
        yield from lists_within(words)
