"""DeepSpeed's own launcher (deepspeed/launcher/runner.py and launch.py, 0.19.8).

It has two stages. The first one finds machines and devices, and sorts them (0.15.2 and newer); UUIDs and MIG
instances are a ValueError (#5278); an empty list of visible devices does not mean none; `--include` and
similar options make it ignore the list. The second one starts the processes on the devices in `--world_info`,
in that order. So: ascending indices by `--include`, without the variable; everything else by the second
stage, which passes `--local_rank` to the script as the first one does. (torchrun does not: DeepSpeed-Chat's
and BingBert's scripts then use a RandomSampler, and every rank reads all the data.)

On one machine the first stage adds nothing to the environment: `.deepspeed_env` is for several machines.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence

from gputui.inventory.device import has_instances
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.argument_vector import Arguments, Option, OptionTable, read_options, write_options
from gputui.launching.host_environment import HostEnvironment, below
from gputui.launching.intent import CommandContext, DeviceCount, Intent, NamedDevices
from gputui.launching.launchers.base import Completed, LauncherRequest, ScriptLauncher, count_in
from gputui.launching.launchers.entrypoint import with_interpreter_beside
from gputui.launching.launchers.torchrun import meeting_place
from gputui.launching.python_command import started_program

_SECOND = "deepspeed.launcher.launch"
OLDER = ("elastic-training",)
"""Flags of versions before 0.19."""

OPTIONS = OptionTable(
    flags="help|h module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid"
    f" bind-cores-to-rank quiet|q {' '.join(OLDER)}",
    valued="hostfile|H include|i exclude|e num-nodes num-gpus|num-accelerators master-port master-addr"
    " node-rank launcher launcher-args enable-each-rank-log autotuning bind-core-list ssh-port venv-script"
    " log-level",
    unlisted="value",
    abbreviations=True,
)

SECOND_OPTIONS = OptionTable(
    flags="help|h module no-python no-local-rank bind-cores-to-rank quiet|q",
    valued="node-rank master-addr master-port world-info save-pid enable-each-rank-log bind-core-list"
    " log-level",
    unlisted="value",
    abbreviations=True,
)
"""Options of the second stage."""

_DEVICES = ("include", "exclude", "num-gpus", "num-nodes")
"""Options that name devices: with one of them the variable is ignored, and then deleted."""

_KEPT = (
    *("module", "no-python", "no-local-rank", "enable-each-rank-log", "bind-cores-to-rank"),
    *("bind-core-list", "log-level", "quiet", "master-port"),
)
"""Options of the first stage that it passes on to the second one unchanged."""

_SAID_ANYWAY = (*_DEVICES, "hostfile", "master-addr")
"""Options of the first stage that are replaced by others in the line of the second one."""

HOSTFILE = "/job/hostfile"
"""Read without being named, where it exists; its machines then count, and neither variable nor `--include
localhost` does."""


class Deepspeed(ScriptLauncher):
    """`deepspeed --include=localhost:0,2 --master_port=P train.py`, or its second stage."""

    name = "deepspeed"
    chooses_devices = True
    options = OPTIONS
    starts = ("deepspeed", "deepspeed.pt", "ds")
    modules = ("deepspeed.launcher.runner", _SECOND)

    def given(self, words: Sequence[str], starter: Sequence[str] = ()) -> Arguments:
        second = started_program(starter).module == _SECOND
        return read_options(words, SECOND_OPTIONS if second else OPTIONS)

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        starter, rest = self.split(command)
        given = self.given(rest, starter)
        world = _world(given.get("world-info")) if "world-info" in given else None
        if world is not None:
            listed = [entry for entries in world.values() for entry in entries]
            return Intent(devices=NamedDevices(given.text("world-info"), ",".join(listed)))
        names = context.host_environment.names()
        include = given.get("include")
        included, left_out = _included(include, names), _included(given.get("exclude"), names)
        if included is None and re.fullmatch(r"(localhost|127\.0\.0\.1):.+", include):
            # Not a list: it is refused later, as deepspeed does.
            return Intent(devices=NamedDevices(given.text("include"), include.partition(":")[2]))
        if included is not None:
            return Intent(devices=NamedDevices(given.text("include"), ",".join(map(str, included))))
        if left_out is not None:
            return Intent(excluded=NamedDevices(given.text("exclude"), ",".join(map(str, left_out))))
        count = count_in(given, "num-gpus")
        hostfile = _hostfile(given, context.directory, context.host_environment)
        if count is None and hostfile is not None and hostfile.slots_here and not given.named(_DEVICES):
            slots = hostfile.slots_here
            count = DeviceCount(f"slots={slots} in {hostfile.path}", slots, False)
        return Intent(count=count and replace(count, takes_first=True))

    def complete(self, request: LauncherRequest) -> Completed:
        starter, rest = self.split(request.command)
        given, done = self.given(rest, starter), Completed()
        if request.processes not in (None, len(request.devices)):
            done.warn(f"deepspeed starts one process per device; {request.processes} processes are asked for")
        if request.numa:
            done.remark("deepspeed has no --numa-binding (--bind_cores_to_rank is its own)")
        if request.one_each:
            done.refuse(
                f"{request.vendor.one_part}, and deepspeed shows every process the same list: select one of"
                " them, or use --launcher torchrun, which passes no --local_rank"
            )
        if request.meeting is not None:
            why = f"gputui starts it on each of {request.nodes} machines"
            return self._by_second_stage(given.without(("master-port",)), why, request, done)
        if given.table is SECOND_OPTIONS:
            return _second_completed(starter, given, request, done)
        hostfile = _hostfile(given, request.directory, request.host_environment)
        own = given.named(_DEVICES)
        if _elsewhere(given, own, hostfile, request, done):
            added = _logs(given, request)
            return done.as_argv((*starter, *added, *rest), "command")
        if own and not _names_exactly(own, request):
            done.rewritten(write_options(own))
            given, own = given.without(_DEVICES), ()
        if hostfile is not None and "hostfile" in given and hostfile.slots_here is not None:
            done.remark(f"{given.text('hostfile')} left out: it means this machine")
            given = given.without(("hostfile",))
        reason = None if own else _against(request)
        if reason is not None or request.one_each:
            return self._by_second_stage(given, reason, request, done)
        added = []
        if not own:
            added.append(f"--include=localhost:{','.join(map(str, _numbers(request)))}")
            variable = request.visibility.variable
            ignores = f"; it then ignores {variable}" if variable else ""
            done.remark(f"deepspeed gets the devices through --include{ignores}")
        added += _port(given, request, done)
        if "hostfile" not in given and request.host_environment.is_file(HOSTFILE):
            added.append("--hostfile=/dev/null")
            done.remark(f"{HOSTFILE} would override the devices: --hostfile=/dev/null")
        added += _logs(given, request)
        return done.as_argv((*starter, *added, *given.words), "command")

    def _by_second_stage(
        self,
        given: Arguments,
        reason: str | None,
        request: LauncherRequest,
        done: Completed,
    ) -> Completed:
        """Return the command that the first stage would start, on the devices in their order."""
        if reason is not None:
            done.remark(f"started through deepspeed's second stage: {reason}")
        if "autotuning" in given:
            done.refuse(
                f"--autotuning starts its runs through deepspeed's first stage, and {reason}: select GPUs in"
                " ascending order, by index"
            )
        left = given.without((*_KEPT, *_SAID_ANYWAY)).option_words
        if left:
            done.remark(f"left out, because the second stage has no such options: {' '.join(left)}")
        kept = [word for option in given.named(_KEPT) for word in _long(option)]
        start = (*self._python(request), "-m", _SECOND, f"--world_info={_world_info(request)}")
        if request.meeting is None:
            where = ["--master_addr=127.0.0.1", *_port(given, request, done)]
        else:
            host, port = meeting_place(request)
            where = [f"--node_rank={request.meeting.rank}", f"--master_addr={host}", f"--master_port={port}"]
        added = (*where, *_logs(given, request))
        done.names = bool(request.devices)
        return done.as_argv((*start, *added, *kept, *given.rest))

    def _python(self, request: LauncherRequest) -> tuple[str, ...]:
        """Return the interpreter of the deepspeed that the command names, with its options."""
        host_environment = request.host_environment
        entrypoint = self.entrypoint(request.command)
        if entrypoint.python is None and entrypoint.home is None and request.path is not None:
            named = host_environment.interpreter(request.path)
            if named is not None:
                # By its name alone, where it is the one on PATH.
                name = named[0].rsplit("/", 1)[-1]
                found = host_environment.program(name, request.environ)
                return (name, *named[1:]) if found == named[0] else named
        entrypoint = with_interpreter_beside(entrypoint, host_environment.is_file, request.directory)
        return (entrypoint.python or "python", *entrypoint.options)


def _second_completed(
    starter: Sequence[str], given: Arguments, request: LauncherRequest, done: Completed
) -> Completed:
    """Complete a command of the second stage itself, on the devices."""
    world = _world(given.get("world-info"))
    typed = given.text("world-info")
    if world is not None and len(world) > 1:
        text = f"{typed} says on which machines and devices deepspeed starts"
        done.asks_for_others("--world_info", text)
        return done.as_argv((*starter, *given.words), "command")
    added = []
    ours = [str(entry) for entry in _entries(request)]
    if world is None or list(*world.values()) != ours:
        if typed:
            done.rewritten((typed,))
        given = given.without(("world-info",))
        added.append(f"--world_info={_world_info(request)}")
    added += [*_port(given, request, done), *_logs(given, request)]
    done.names = bool(request.devices)
    return done.as_argv((*starter, *added, *given.words))


def _entries(request: LauncherRequest) -> list[int | str]:
    """Return the devices for the second stage, which writes them into the variable and starts one process
    each."""
    if not request.devices:
        none = request.visibility.none if request.count == 1 else request.visibility.none_in_words
        return [none] * request.count
    if request.by_index:
        return [*_numbers(request)]
    return [*request.visibility.identifiers(request.devices, "uuid").split(",")]


def _world_info(request: LauncherRequest) -> str:
    own = {"localhost": _entries(request)}
    if request.meeting is not None:
        # Of other machines, only the number of their processes counts.
        own = {f"machine-{rank}": [*range(request.count)] for rank in range(request.nodes)}
        own[f"machine-{request.meeting.rank}"] = _entries(request)
    text = json.dumps(own, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def _world(text: str) -> dict[str, list[str]] | None:
    """Return the devices of each machine in a `--world_info`; None where it is not valid."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(entries, list) for entries in found.values()):
        return None
    return {host: [str(entry) for entry in entries] for host, entries in found.items()}


def _long(option: Option) -> tuple[str, ...]:
    """Return the option with its full name: an abbreviation for one stage may be ambiguous for the other."""
    name = f"--{option.name.replace('-', '_')}"
    return (f"{name}={option.value}",) if option.values else (name,)


def _port(given: Arguments, request: LauncherRequest, done: Completed) -> list[str]:
    """Return an option for a port that nothing listens on: the default is 29500, with no other where it is
    taken."""
    if "master-port" in given:
        return []
    port = request.host_environment.free_port()
    if port is None:
        done.warn("no TCP port is free here: deepspeed will try 29500 (--master_port PORT)")
        return []
    return [f"--master_port={port}"]


def _logs(given: Arguments, request: LauncherRequest) -> list[str]:
    wanted = request.logs and "enable-each-rank-log" not in given
    return [f"--enable_each_rank_log={request.logs}"] if wanted else []


@frozen
class Hostfile:
    """The file that says on which machines deepspeed starts, and how many devices each has.

    path        as the command has it
    slots_here  the slots of this machine, where it is the only one in the file; None otherwise, and for a
                file that deepspeed refuses
    """

    path: str
    slots_here: int | None


def _hostfile(given: Arguments, directory: str | None, host_environment: HostEnvironment) -> Hostfile | None:
    """Return the hostfile that deepspeed will read; None where it reads none. (It ignores what is not a
    regular file.)"""
    path = given.get("hostfile") if "hostfile" in given else HOSTFILE
    place = below(directory, path)
    if not host_environment.is_file(place):
        return None
    slots = _slots(host_environment.text(place))
    here = len(slots) == 1 and slots.keys() <= set(host_environment.names())
    return Hostfile(path, next(iter(slots.values())) if here else None)


def _slots(text: str | None) -> dict[str, int]:
    """Return the devices of each machine, as `_parse_hostfile` of the runner reads it; {} where that
    raises."""
    slots: dict[str, int] = {}
    for line in (text or "").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=(\d{1,9})", line)
        if match is None or match[1] in slots:
            return {}
        slots[match[1]] = int(match[2])
    return slots


def _elsewhere(
    given: Arguments,
    own: Sequence[Option],
    hostfile: Hostfile | None,
    request: LauncherRequest,
    done: Completed,
) -> bool:
    """Whether deepspeed starts on other machines, which cannot be rewritten; reports it.

    A hostfile that is read without being named counts only with options of the command that may mean its
    machines.
    """
    names = request.host_environment.names()
    words = " ".join(write_options(own))
    local = all(_on_this_machine(option, names) for option in own)
    here = hostfile is None or hostfile.slots_here is not None
    if not here and "hostfile" not in given:
        here = not own or (local and all(option.name in ("include", "exclude") for option in own))
    if here and local:
        return False
    if hostfile is not None and not here:
        text = (
            f"the selected devices have no effect: {hostfile.path} says on which machines and devices"
            " deepspeed starts"
        )
        # (HOSTFILE is not in the command: the command's own options make it count.)
        done.asks_for_others(given.text("hostfile") or words, text)
    else:
        text = f"the selected devices have no effect: {words} in the command means other machines"
        done.asks_for_others(words, text)
    return True


def _on_this_machine(option: Option, names: Sequence[str]) -> bool:
    """Whether an option that names devices names only devices of this machine."""
    if option.name == "num-nodes":
        return option.value in ("1", "-1")
    if option.name in ("include", "exclude"):
        return all(part.partition(":")[0] in names for part in option.value.split("@"))
    return True


def _names_exactly(own: Sequence[Option], request: LauncherRequest) -> bool:
    """Whether the command's own words make deepspeed run on exactly these devices, in this order."""
    if not request.by_index or not request.devices:
        return False
    chosen = _numbers(request)
    (option, *others) = own
    if others:
        return False
    if option.name == "num-gpus":
        return chosen == list(range(len(chosen))) and option.value == str(len(chosen))
    named = _included(option.value, ("localhost",)) if option.name == "include" else None
    if named is None:
        return False
    return sorted(set(named)) == chosen


def _against(request: LauncherRequest) -> str | None:
    """Return why deepspeed's first stage cannot start on exactly these devices in this order; None where it
    can."""
    if not request.devices:
        return f"to the first stage, an empty {request.visibility.variable} does not mean no GPU"
    if has_instances(request.devices):
        return "the first stage accepts no MIG instances"
    if not request.by_index:
        return "the first stage accepts no UUIDs"
    indices = _numbers(request)
    if indices != sorted(indices):
        return f"the first stage would sort the devices and run on {','.join(map(str, sorted(indices)))}"
    return None


def _numbers(request: LauncherRequest) -> list[int]:
    """Return the entries that deepspeed writes into the vendor's variable
    (accelerator.visible_devices_envs)."""
    return [request.visibility.number(device) for device in request.devices]


def _included(text: str, names: Sequence[str]) -> list[int] | None:
    """Return the devices of `--include localhost:0,2`; None where it says anything else."""
    match = re.fullmatch(r"([^:@]+):(\d{1,9}(?:,\d{1,9})*)", text, re.ASCII)
    return [int(part) for part in match[2].split(",")] if match and match[1] in names else None
