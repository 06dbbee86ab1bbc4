"""From devices and a command to the launch: the only place where one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputui.inventory.device import Device
from gputui.launching.launch import Launch
from gputui.launching.launchers import AUTO, launcher_for
from gputui.launching.visibility import Ids, variables


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user wants to run, apart from the devices.

    `additions` are environment variables that the user wrote before the command (`FOO=1 python train.py`).
    """

    command: tuple[str, ...] = ()
    launcher: str = AUTO
    ids: Ids = "index"
    directory: str | None = None
    additions: tuple[tuple[str, str], ...] = ()


def compose(devices: Sequence[Device], plan: Plan, environ: Mapping[str, str]) -> Launch:
    """The launch of `plan` on exactly `devices` in this order; no devices means CPU only.

    `environ` is what the command will inherit; it is looked at for warnings, never changed.
    """
    launcher = launcher_for(plan.launcher, plan.command)
    completed = launcher.complete(plan.command, len(devices), {**environ, **dict(plan.additions)})
    ours = variables(devices, plan.ids)
    names = {name for name, _ in ours}
    overridden = [f"{name}={value}" for name, value in plan.additions if name in names]
    warnings = list(completed.warnings)
    if overridden:
        warnings.append(f"{' '.join(overridden)} of the command gives way to the chosen devices")
    if len(devices) > 1 and any(device.parent for device in devices):
        warnings.append("a process uses one MIG instance only, however many are visible")
    return Launch(
        argv=completed.argv,
        changes=(*ours, *((name, value) for name, value in plan.additions if name not in names)),
        directory=plan.directory,
        warnings=tuple(warnings),
        remarks=completed.remarks,
        devices=tuple(devices),
        launcher=launcher.name,
    )
