"""Compose devices and a command into a launch. No other module makes a launch for given devices."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.grouping import MAX_DEVICES
from gputui.choosing.named_devices import NONE
from gputui.inventory.device import Device, has_instances
from gputui.inventory.formatting import devices_text, duration, read_duration
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.link import PCIE_CLASSES, family
from gputui.inventory.quoting import posix
from gputui.launching.argument_vector import program_name
from gputui.launching.container_command import read_container
from gputui.launching.container_launch import PORT, complete_container
from gputui.launching.host_environment import HostEnvironment, ThisHost
from gputui.launching.intent import Intent
from gputui.launching.launch import Launch, OwnDevices
from gputui.launching.launch_options import AUTO, NEVER, LaunchOptions, Meeting, words_of
from gputui.launching.launchers import LAUNCHERS, recognised
from gputui.launching.launchers.base import (
    Completed,
    Launcher,
    LauncherRequest,
    Visible,
)
from gputui.launching.launchers.entrypoint import with_interpreter_beside
from gputui.launching.programs import program_of
from gputui.launching.programs.program import Program
from gputui.launching.programs.serving import SERVING
from gputui.launching.python_command import is_python
from gputui.launching.read_intent import read_intent
from gputui.launching.wrappers import assigned, unwrap, with_variables
from gputui.system.environment import Environ, Variables
from gputui.vendors.registry import vendor_of
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Changes, Visibility, with_changes


def launcher_of(options: LaunchOptions) -> Launcher:
    """The launcher that the launch options select, or that is recognised from the command."""
    return recognised(unwrap(options.command)[1]) if options.launcher == AUTO else LAUNCHERS[options.launcher]


def starts_several(options: LaunchOptions, intent: Intent) -> bool:
    """Whether the command is known to start several processes that work together: through a launcher, or as
    its own options or scripts say."""
    return launcher_of(options).name != "python" or (intent.count or intent.group) is not None


def compose(
    devices: Sequence[Device],
    options: LaunchOptions,
    environ: Environ,
    host_environment: HostEnvironment | None = None,
    box: Sequence[Vendor] = (),
    intent: Intent | None = None,
    meeting: Meeting | None = None,
    link: str | None = None,
) -> Launch:
    """The launch of `options` on exactly `devices` in this order; no devices means CPU only.

    `environ` is the environment that the command will inherit; it is only read. `box` are the vendors of all
    devices of the box: without `devices`, the devices of all of them are hidden. `intent` is the command's
    intent, where the caller has read it; `meeting` is given where the other machines of the launch are
    started at the same time; `link` is the weakest link between the devices, None where it is not known.
    Raises MixedVendorsError for devices of several vendors.
    """
    vendor = vendor_of(devices, box)
    visibility = vendor.visibility
    prefix, command = unwrap(options.command)
    launcher = launcher_of(options)
    program = program_of(command)
    by_uuid_refused = options.ids == "uuid" and program is not None and program.only_indices
    if by_uuid_refused:
        options = replace(options, ids="index")
    completed = Completed()
    if command:
        host = host_environment or ThisHost()
        completed = _completed(launcher, prefix, command, devices, options, environ, host, vendor, meeting)
    ours, prefix, remarks = _device_variables(
        devices, options, environ, vendor, box, prefix, completed.visible
    )
    completed.remarks += remarks
    if program is not None and program.only_indices:
        _only_indices(completed, program, devices, by_uuid_refused, visibility)
    reads_ranks = not completed.ranked and _reads_ranks(launcher, command)
    stale = _stale(environ, options, prefix) if reads_ranks else ()
    if stale:
        completed.remark(
            f"{_shown({name: environ[name] for name in stale})} unset: left over from another run, they would"
            " make the program wait for other ranks (to keep them, write them before the command)"
        )
    if not devices:
        # A script may name devices itself when it finds an empty list.
        read = replace(options, additions=(*options.additions, *with_changes({}, ours).items()))
        intent = read_intent(read, environ, host_environment, (vendor,))
    intent = intent or read_intent(options, environ, host_environment, (vendor,))
    refused = why_not_on_machines(options, meeting is not None) if options.nodes > 1 else None
    if refused is not None:
        completed.warn(refused)
    _warn(completed, devices, options, prefix, ours, environ, vendor, intent)
    if intent.trainer and launcher.name == "python" and len(devices) > 1:
        completed.remark(_of_trainer(len(devices), vendor, link))
    if options.time_limit is not None:
        limit = duration(options.time_limit)
        completed.remark(f"ended after {limit} by gputui or a scheduler, not by the line itself")
    further = (*completed.changes, *((name, None) for name in stale))
    idle = options.idle_release
    if idle is not None and idle != NEVER:
        limit = duration(read_duration(idle))
        completed.remark(f"as a job, stopped by gputui once its devices were idle for {limit}")
    return Launch(
        argv=(*prefix, *completed.argv),
        changes=(*ours, *_additions(options, ours, further)),
        directory=options.directory,
        warnings=tuple(completed.warnings),
        remarks=(*completed.remarks, *(() if meeting else _elsewhere(devices, options, launcher))),
        devices=tuple(devices),
        launcher=launcher.name,
        own=_with_option(completed.own, visibility),
        vendor_name=vendor.name,
        refused=completed.refused or (intent.leaves if devices else None) or vendor.refused(devices),
        names=completed.names or completed.visible == "command",
        settings=completed.settings,
        time_limit=options.time_limit,
    )


def _device_variables(
    devices: Sequence[Device],
    options: LaunchOptions,
    environ: Environ,
    vendor: Vendor,
    box: Sequence[Vendor],
    prefix: tuple[str, ...],
    visible: Visible,
) -> tuple[Changes, tuple[str, ...], list[str]]:
    """The environment changes that make exactly these devices visible, the wrappers before the command with
    these changes, and the remarks on them."""
    visibility = vendor.visibility
    before = visibility.changes_here(_inherited(environ, options, prefix)) if devices else ()
    match visible:
        case "command":
            ours = (*before, *visibility.changes_beside_own_list(devices))
        case "elsewhere":
            ours = ()
        case _:
            ours = (*before, *visibility.changes(devices, options.ids))
    if not devices:
        ours = (
            *ours,
            *(change for other in box if other is not vendor for change in other.visibility.changes(())),
        )
    prefix, rewritten = with_variables(prefix, ours, {**environ, **dict(options.additions)})
    # A variable that only the command itself had set is no longer in it.
    ours = tuple(each for each in ours if each not in before or each[0] in environ)
    remarks = []
    taken_away = {name: environ[name] for name, value in ours if value is None and (name, value) in before}
    if taken_away:
        remarks.append(f"{_shown(taken_away)} unset: with it, the selected indices would mean other devices")
    remarks += [
        f"{_shown({name: value})} replaced by the selected devices"
        for name, value in rewritten
        if name != visibility.variable or not visibility.names_in_order(value, devices)
    ]
    return ours, prefix, remarks


RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
"""Variables that make a program wait for other ranks; a shell may still have them from another run."""

_BESIDE_RANKS = (
    *("LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    *("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    "TORCHELASTIC_USE_AGENT_STORE",
)
"""The further variables that torchrun sets, and those that are usual on clusters."""


def _reads_ranks(launcher: Launcher, command: Sequence[str]) -> bool:
    """Whether the started program itself reads the variables of ranks.

    A shell script may need them: `torchrun --node-rank $RANK`.
    """
    return launcher.name != "python" or is_python(command) or program_name(command).endswith(".py")


def _stale(environ: Environ, options: LaunchOptions, prefix: Sequence[str]) -> tuple[str, ...]:
    """The variables of ranks that are inherited and not written before the command."""
    typed = _typed(options, prefix)
    if not any(name in environ and name not in typed for name in RANKS):
        return ()
    return tuple(name for name in (*RANKS, *_BESIDE_RANKS) if name in environ and name not in typed)


def _typed(options: LaunchOptions, prefix: Sequence[str]) -> frozenset[str]:
    """The variables that are written before the command."""
    return frozenset(name for name, _ in (*options.additions, *assigned(prefix)))


def _only_indices(
    notices: Completed, program: Program, devices: Sequence[Device], refused: bool, visibility: Visibility
) -> None:
    """Report the treatment of UUIDs for a program that parses each entry of the list as a number."""
    if refused:
        notices.remark(f"devices named by index: {program.name} cannot read UUIDs in {visibility.variable}")
    if has_instances(devices):
        notices.warn(f"{program.name} cannot read the UUID of a MIG instance in {visibility.variable}")


def _with_option(own: OwnDevices | None, visibility: Visibility) -> OwnDevices | None:
    """`own` with the option of gputui that names the same devices; no option can name a device twice."""
    if own is None or own.option is not None or own.listed is None:
        return own
    entries = visibility.entries(own.listed)
    if len(set(entries)) < len(entries):
        return own
    return replace(own, option=f"--gpus {','.join(entries) or NONE}")


_NO_DEVICE_OF_ANY_BOX = 9_000_000


def on_any(
    options: LaunchOptions,
    count: int,
    environ: Environ,
    host_environment: HostEnvironment | None = None,
    box: Sequence[Vendor] = (),
    intent: Intent | None = None,
) -> Launch:
    """The launch on any `count` devices, which are not known yet: its program, and its `refusal`.

    It is for a call that will wait for its devices. The command is completed for devices with indices that no
    command names: words that contradict these contradict any devices.
    """
    vendor = vendor_of((), box).name
    # The count is capped: a number that no box has is too large without a list of that length.
    count = min(count, MAX_DEVICES + 1)
    devices = [Device(index=_NO_DEVICE_OF_ANY_BOX + place, uuid="", vendor=vendor) for place in range(count)]
    return compose(devices, options, environ, host_environment, intent=intent)


def _completed(
    launcher: Launcher,
    prefix: tuple[str, ...],
    command: tuple[str, ...],
    devices: Sequence[Device],
    options: LaunchOptions,
    environ: Environ,
    host_environment: HostEnvironment,
    vendor: Vendor,
    meeting: Meeting | None,
) -> Completed:
    """Complete the launcher's own command; a command of another launcher is taken apart first."""
    container = read_container(command)
    if container is not None and vendor.containers is not None and launcher.name == "python":
        port = host_environment.free_port() if container.arguments.get("network") == "host" else PORT
        return complete_container(container, devices, vendor, options, port)
    source = recognised(command)
    request = LauncherRequest(
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
        meeting=meeting,
        prefix=prefix,
        directory=options.directory,
        vendor=vendor,
        typed=_typed(options, prefix),
    )
    lost, warnings, remarks = None, tuple[str, ...](), tuple[str, ...]()
    if source is not launcher:
        lost = source.lost_with_another(request)
        command, warnings, remarks = started_by_another(
            launcher, command, host_environment, options.directory
        )
    if options.python is not None:
        command = launcher.with_python(command, options.python)
    done = launcher.complete(replace(request, command=command))
    done.warnings[:0], done.remarks[:0] = warnings, remarks
    if lost is not None:
        done.refused = f"{launcher.name} would train without {lost}: leave --launcher {launcher.name} out"
    return done


def started_by_another(
    launcher: Launcher, command: Sequence[str], host_environment: HostEnvironment, directory: str | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The entrypoint of another launcher's command, started by this launcher, with warnings and remarks about
    the lost parts."""
    source = recognised(command)
    entrypoint = with_interpreter_beside(source.entrypoint(command), host_environment.is_file, directory)
    warnings, remarks = list[str](), list[str]()
    if entrypoint.left_out:
        remarks.append(f"options of {source.name} left out: {' '.join(entrypoint.left_out)}")
    if source.name == "deepspeed" and "--no_local_rank" not in entrypoint.left_out:
        warnings.append(
            f"deepspeed passes --local_rank to the script, {launcher.name} does not: a script that expects it"
            " reads all the data in every rank"
        )
    return launcher.start(entrypoint), tuple(warnings), tuple(remarks)


_ON_MACHINES = ("torchrun", "accelerate", "deepspeed")
"""The launchers that can start on several machines. All but the first need the number of each machine, which
is known only where gputui starts them together."""


def why_not_on_machines(options: LaunchOptions, together: bool) -> str | None:
    """Why the command cannot start on several machines, None where it can. `together`: gputui starts it on
    all of them."""
    launcher, able = launcher_of(options).name, _ON_MACHINES if together else _ON_MACHINES[:1]
    if launcher in able:
        return None
    if launcher in _ON_MACHINES:
        return f"{launcher} starts on several machines by --on BOX,…; for --nodes, add --launcher torchrun"
    only = f"only {', '.join(able)} can start a command on several machines"
    program = program_of(unwrap(options.command)[1])
    # torchrun would start a server once for each device.
    return only if program in SERVING else f"{only}: add --launcher torchrun"


def _inherited(environ: Environ, options: LaunchOptions, prefix: Sequence[str]) -> dict[str, str]:
    """The environment that the launcher's command will inherit."""
    return with_changes(environ, (*options.additions, *assigned(prefix)))


def _elsewhere(devices: Sequence[Device], options: LaunchOptions, launcher: Launcher) -> tuple[str, ...]:
    """The remark with the command for the other machines of several: each machine chooses its own devices."""
    if options.nodes < 2 or launcher.name != "torchrun" or options.rendezvous is None:
        # Without a rendezvous it is a batch script, whose scheduler starts the other machines.
        return ()
    devices_there = ("-n", str(len(devices))) if devices else ("--gpus", "none")
    # Include all variables: a rank that lacks one of them (NCCL_IB_DISABLE) makes all ranks hang.
    words = ["gputui", "run", *devices_there, *words_of(options)]
    return (f"on each of the other machines: {' '.join(map(posix, [*words, '--', *options.command]))}",)


def _additions(options: LaunchOptions, ours: Changes, launchers: Changes) -> Changes:
    """The changes that do not select devices: the launcher's, and the user's, which take precedence."""
    names = {name for name, _ in ours}
    typed = {name: value for name, value in options.additions if name not in names}
    return (*(change for change in launchers if change[0] not in typed), *typed.items())


def _warn(
    notices: Completed,
    devices: Sequence[Device],
    options: LaunchOptions,
    prefix: Sequence[str],
    ours: Changes,
    environ: Environ,
    vendor: Vendor,
    intent: Intent,
) -> None:
    """Add the warnings and remarks that do not depend on the launcher."""
    wanted, variable = dict(ours), vendor.visibility.variable
    _warn_of_lists(notices, devices, options, wanted, vendor.visibility, intent)
    by_index = (wanted.get(variable) or "-")[0].isdigit()
    if devices and wanted.get(variable) and not by_index and (warning := vendor.by_uuid_warning(devices)):
        notices.warn(warning)
    for warning in vendor.launch_warnings(devices, _inherited(environ, options, prefix), by_index):
        notices.warn(warning)
    if vendor.visibility.order_in_words and len(devices) > 1:
        notices.warn(vendor.visibility.order_in_words)


def _of_trainer(devices: int, vendor: Vendor, link: str | None) -> str:
    """The remark about the Trainer of transformers in one process with several devices.

    Its guide (perf_train_gpu_many, "DP vs DDP", 4.49) measured two GPUs: DataParallel took 110.6 s; one
    process per device took 101.9 s over NVLink and 131.4 s without.
    """
    used = "uses DataParallel" if vendor.data_parallel else "uses the first one only"
    measured = "which its guide measured"
    if vendor.data_parallel and link in PCIE_CLASSES:
        used += f", {measured} 15.9 % faster than one process per device without NVLink ({link} here)"
    elif vendor.data_parallel and link is not None and family(link) == "NVLink":
        used += f", {measured} 8.5 % slower than one process per device over NVLink ({link} here)"
    started = "the launcher torchrun starts one per device"
    return f"one process for {devices} GPUs, in which the Trainer of transformers {used}; {started}"


def _warn_of_lists(
    notices: Completed,
    devices: Sequence[Device],
    options: LaunchOptions,
    wanted: Variables,
    visibility: Visibility,
    intent: Intent,
) -> None:
    """Report the command's own lists of devices that are replaced, and those that ask for devices other than
    `devices`."""
    variable = visibility.variable
    by_index = visibility.means_our_indices(wanted)
    overridden = {name: value for name, value in options.additions if wanted.get(name, value) != value}
    if by_index and visibility.names_in_order(overridden.get(variable), devices):
        # It names the same devices in another way.
        del overridden[variable]
    if overridden:
        notices.remark(f"{_shown(overridden)} replaced by the selected devices")
    named = intent.devices
    if named is not None and not named.rewritable:
        others = visibility.names_others(named.listed, devices, by_index) or (devices and not named.listed)
        if others:
            text = f"{named.words} in the command overrides the selected devices"
            notices.asks_for_others(named.words, text, named.listed)
    doubt = intent.doubt or (None if devices else intent.doubt_if_empty)
    for warning in (*intent.warnings, *((doubt,) if doubt else ())):
        notices.warn(warning)
    number = f"{devices_text(len(devices))} selected"
    if intent.needs is not None and devices and intent.needs.number > len(devices):
        notices.warn(f"{intent.needs.words} needs {intent.needs.number}, with {number}")
    count = intent.count
    # The other launchers warn about their own options.
    plain = launcher_of(options).name == "python"
    if count is not None and count.firm and plain and len(devices) not in (0, count.number):
        notices.warn(f"{count.words} in the command asks for {count.number}, with {number}")


def _shown(values: Variables) -> str:
    return " ".join(f"-u {name}" if value is None else f"{name}={value}" for name, value in values.items())
