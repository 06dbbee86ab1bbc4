"""Puts devices and a command together: the only place that makes a launch for given devices."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gputui.choosing.named_devices import NONE
from gputui.inventory.device import Device
from gputui.launching.device_lists import lists_within
from gputui.launching.host_environment import HostEnvironment, ThisHost
from gputui.launching.launch import Launch, OwnDevices
from gputui.launching.launch_options import AUTO, LaunchOptions, words_of
from gputui.launching.launchers import LAUNCHERS, recognised
from gputui.launching.launchers.base import Completed, Launcher, LauncherRequest, Notices
from gputui.launching.launchers.entrypoint import with_interpreter_beside
from gputui.launching.launchers.mpirun import parts
from gputui.launching.wrappers import assigned, losing, unwrap
from gputui.vendors.registry import vendor_of
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Changes, Visibility


def launcher_of(options: LaunchOptions) -> Launcher:
    """The launcher that is in force for launch options."""
    return recognised(unwrap(options.command)[1]) if options.launcher == AUTO else LAUNCHERS[options.launcher]


def compose(
    devices: Sequence[Device],
    options: LaunchOptions,
    environ: Mapping[str, str],
    host_environment: HostEnvironment | None = None,
    box: Sequence[Vendor] = (),
) -> Launch:
    """The launch of `options` on exactly `devices` in this order; no devices means CPU only.

    `environ` is what the command will inherit; it is looked at for warnings, never changed. `box` are the
    vendors of all devices that are there: without `devices`, those of each are hidden. Raises
    MixedVendorsError for devices of several vendors.
    """
    vendor = vendor_of(devices, box)
    visibility = vendor.visibility
    prefix, command = unwrap(options.command)
    launcher = launcher_of(options)
    completed = Completed(())
    if command:
        completed = _completed(
            launcher, prefix, command, devices, options, environ, host_environment or ThisHost(), vendor
        )
    ours = visibility.changes(devices, options.ids)
    if completed.visible == "command":
        ours = visibility.changes_beside_own_list()
    if not devices:
        ours = (*ours, *(change for other in box if other is not vendor for change in _hidden(other)))
    notices = Notices([*completed.warnings], [*completed.remarks], completed.own)
    _warn(notices, devices, options, prefix, ours, environ, vendor)
    return Launch(
        argv=(*prefix, *completed.argv),
        changes=(*ours, *_additions(options, ours)),
        directory=options.directory,
        warnings=tuple(notices.warnings),
        remarks=(*notices.remarks, *_elsewhere(devices, options, launcher)),
        devices=tuple(devices),
        launcher=launcher.name,
        own=_with_option(notices.own, visibility),
        vendor_name=vendor.name,
    )


def _hidden(vendor: Vendor) -> Changes:
    """What hides all devices of a vendor."""
    return vendor.visibility.changes(())


def _with_option(own: OwnDevices | None, visibility: Visibility) -> OwnDevices | None:
    """With the option of gputui that names the same devices; none can where one of them is named twice."""
    if own is None or own.option is not None or own.listed is None:
        return own
    entries = visibility.entries(own.listed)
    if len(set(entries)) < len(entries):
        return own
    return replace(own, option=f"--gpus {','.join(entries) or NONE}")


_NO_DEVICE_OF_ANY_BOX = 9_000_000


def own_devices(
    options: LaunchOptions,
    count: int,
    environ: Mapping[str, str],
    host_environment: HostEnvironment | None = None,
    box: Sequence[Vendor] = (),
) -> OwnDevices | None:
    """What in the command asks for devices of its own, whichever `count` devices it is to run on; None where
    nothing does.

    For a call that does not know its devices yet, as it is to wait for them. The command is completed for
    devices with indices that no command names: what contradicts those contradicts any.
    """
    vendor = vendor_of((), box).name
    devices = [Device(index=_NO_DEVICE_OF_ANY_BOX + place, uuid="", vendor=vendor) for place in range(count)]
    return compose(devices, options, environ, host_environment).own


def _completed(
    launcher: Launcher,
    prefix: tuple[str, ...],
    command: tuple[str, ...],
    devices: Sequence[Device],
    options: LaunchOptions,
    environ: Mapping[str, str],
    host_environment: HostEnvironment,
    vendor: Vendor,
) -> Completed:
    """The launcher's own command, completed; a command of another launcher is taken apart first."""
    remarks: tuple[str, ...] = ()
    source = recognised(command)
    if source is not launcher:
        entrypoint = with_interpreter_beside(
            source.entrypoint(command), host_environment.is_file, options.directory
        )
        command = launcher.start(entrypoint)
        if entrypoint.left_out:
            remarks = (f"left out, as they are {source.name}'s: {' '.join(entrypoint.left_out)}",)
    if options.python is not None:
        command = launcher.with_python(command, options.python)
    done = launcher.complete(
        LauncherRequest(
            command=command,
            devices=tuple(devices),
            environ=_inherited(environ, options, prefix),
            host_environment=host_environment,
            by_uuid=options.ids == "uuid",
            processes=options.processes,
            logs=options.logs,
            numa=options.numa,
            nodes=options.nodes,
            rendezvous=options.rendezvous,
            prefix=prefix,
            directory=options.directory,
            vendor=vendor,
        )
    )
    return replace(done, remarks=(*remarks, *done.remarks))


def _inherited(environ: Mapping[str, str], options: LaunchOptions, prefix: Sequence[str]) -> dict[str, str]:
    """What the launcher's command will find in its environment."""
    changed = {**environ, **dict(options.additions), **dict(assigned(prefix))}
    return {name: value for name, value in changed.items() if value is not None}


def _elsewhere(devices: Sequence[Device], options: LaunchOptions, launcher: Launcher) -> tuple[str, ...]:
    """What starts the other ones of several machines: each chooses its devices itself."""
    if options.nodes < 2 or launcher.name != "torchrun" or options.rendezvous is None:
        # (Without a place to meet: a batch script, whose scheduler starts the others.)
        return ()
    devices_there = ("-n", str(len(devices))) if devices else ("--gpus", "none")
    # With all variables: a rank without what the others have (NCCL_IB_DISABLE) hangs them all.
    words = ["gputui", "run", *devices_there, *words_of(options)]
    return (f"on each of the other machines: {shlex.join([*words, '--', *options.command])}",)


def _additions(
    options: LaunchOptions, ours: Sequence[tuple[str, str | None]]
) -> tuple[tuple[str, str | None], ...]:
    names = {name for name, _ in ours}
    return tuple((name, value) for name, value in options.additions if name not in names)


def _warn(
    notices: Notices,
    devices: Sequence[Device],
    options: LaunchOptions,
    prefix: Sequence[str],
    ours: Sequence[tuple[str, str | None]],
    environ: Mapping[str, str],
    vendor: Vendor,
) -> None:
    """Say what there is to say whatever the launcher."""
    wanted, variable = dict(ours), vendor.visibility.variable
    _warn_of_lists(notices, devices, options, prefix, wanted, vendor.visibility)
    lost = losing(prefix, variable)
    if lost is not None and variable not in dict(assigned(prefix)):
        notices.warn(f"{lost} does not give the command the variables: the chosen devices do not count")
    if options.nodes > 1 and launcher_of(options).name in ("python", "mpirun"):
        notices.warn("several machines are started by torchrun here: --launcher torchrun")
    by_index = (wanted.get(variable) or "-")[0].isdigit()
    for warning in vendor.launch_warnings(devices, environ, by_index):
        notices.warn(warning)
    if not vendor.visibility.keeps_order and len(devices) > 1:
        notices.warn(f"{vendor.title} does not keep the order of {variable}: it counts in its own")


def _warn_of_lists(
    notices: Notices,
    devices: Sequence[Device],
    options: LaunchOptions,
    prefix: Sequence[str],
    wanted: Mapping[str, str | None],
    visibility: Visibility,
) -> None:
    """Say which lists of devices the command itself has, and which of them ask for others than `devices`."""
    variable = visibility.variable
    by_index = visibility.means_our_indices(wanted)
    overridden = {name: value for name, value in options.additions if wanted.get(name, value) != value}
    if overridden:
        words, listed = _shown(overridden), overridden.get(variable)
        text = f"{words} of the command gives way to the chosen devices"
        if listed is None or visibility.names_these(listed, devices):
            notices.warn(text)
        else:
            notices.asks_for_others(words, text, listed, ignored=True)
    theirs = dict(assigned(prefix))
    effective = theirs.get(variable, wanted.get(variable))
    within = {n: value for n, value in theirs.items() if n in wanted and value != wanted[n]}
    if by_index and visibility.names_in_order(within.get(variable), devices):
        # The same in other words.
        del within[variable]
    if within:
        words = _shown(within)
        text = f"{words} within the command overrides the chosen devices"
        if _overrides(within, effective, devices, by_index, visibility):
            notices.asks_for_others(words, text, within.get(variable))
        else:
            notices.warn(text)
    for words, listed in _lists_of_programs(options.command, variable):
        if visibility.names_others(listed, devices, by_index):
            text = f"{words} within the command overrides the chosen devices"
            notices.asks_for_others(words, text, listed)


def _shown(values: Mapping[str, str | None]) -> str:
    return " ".join(f"-u {name}" if value is None else f"{name}={value}" for name, value in values.items())


def _overrides(
    within: Mapping[str, str | None],
    listed: str | None,
    devices: Sequence[Device],
    by_index: bool,
    visibility: Visibility,
) -> bool:
    """Whether variables that are set for the whole command (unset: None) lead it to other devices.

    `listed` is the list that it then has, None for none; `by_index` whether the indices in ours mean
    `Device.index`.
    """
    if visibility.variable in within:
        if listed is None or visibility.names_others(listed, devices, by_index):
            return True
        if visibility.names_none(listed) and devices:
            # Claimed for nothing.
            return True
    # Of the same numbers another order of counting makes other devices.
    order = visibility.order
    return order is not None and order[0] in within and (listed or "-")[0].isdigit()


def _lists_of_programs(command: Sequence[str], variable: str) -> Iterator[tuple[str, str]]:
    """The lists of devices among the words of what the command starts in the end, behind a launcher too."""
    inner = unwrap(command)[1]
    launcher = recognised(inner)
    if launcher.name == "mpirun":
        programs = [words for _, words in parts(inner)]
    else:
        entrypoint = launcher.entrypoint(inner)
        programs = [entrypoint.words] if entrypoint.kind == "program" else []
    for words in programs:
        yield from lists_within(words, variable)
