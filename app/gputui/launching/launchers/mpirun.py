"""mpirun (Open MPI, MPICH, Intel MPI): one process per device, which selects its device by its local rank.

Options: `mpirun --help full` of Open MPI 4.1, where one dash and two are the same; those of MPICH's Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from gputui.inventory.formatting import devices_text
from gputui.inventory.light_dataclasses import replace
from gputui.launching.argument_vector import (
    Arguments,
    Option,
    OptionTable,
    machines_of,
    program_name,
    read_options,
    whole_number,
    write_options,
)
from gputui.launching.intent import (
    CommandContext,
    DeviceCount,
    Intent,
    NamedDevices,
    beside_each_other,
)
from gputui.launching.launchers.base import (
    Completed,
    Launcher,
    LauncherRequest,
    contradiction,
    count_in,
)
from gputui.launching.launchers.entrypoint import Entrypoint, in_python, of_command
from gputui.vendors.visibility import Visibility

_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi", "orterun", "prterun")
COUNTS = ("np", "npernode")
"""The options for the number of processes, in all and per machine: on one machine they are the same."""

_SETTING = ("x", "env", "genv")
"""The options that set a variable for the processes."""

_HOSTS = ("H", "host", "hosts")
_HOST_FILES = ("hostfile", "machinefile", "f", "default-hostfile", "app")
"""The options that name machines, and those that name a file with machines."""

OPTIONS = OptionTable(
    flags="allow-run-as-root bind-to-core bind-to-socket bind-to-none bycore bynode byslot continuous d"
    " debug-devel debug debug-daemons debug-daemons-file disable-recovery display-allocation"
    " display-devel-allocation display-devel-map display-diffable-map display-map display-topo"
    " do-not-launch do-not-resolve dvm enable-instant-on-support enable-recovery fwd-mpirun-port"
    " get-stack-traces h help index-argv-by-rank leave-session-attached merge-stderr-to-stdout nolocal"
    " nooversubscribe noprefix novm output-proctable oversubscribe pernode q quiet report-bindings"
    " report-child-jobs-separately report-state-on-timeout s preload-binary set-cwd-to-session-dir"
    " show-progress tag-output timestamp-output tv use-hwthread-cpus use-regexp v verbose V version xml"
    " l prepend-rank info print-all-exitcodes envall genvall envnone genvnone disable-auto-cleanup"
    " disable-x enable-x disable-hostname-propagation",
    valued="np|n|c npernode|N|ppn|perhost",
    pairs="mca gmca prtemca pmixmca env genv",
    unlisted="value",
    letters=False,
)


class Mpirun(Launcher):
    """`mpirun -np N python train.py`: processes on this machine inherit the environment."""

    name = "mpirun"

    def recognises(self, command: Sequence[str]) -> bool:
        return program_name(command) in _PROGRAMS

    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        given = _read(command)
        inner = of_command(given.operands)
        return Entrypoint(inner.kind, inner.words, inner.python, given.without(("np",)).option_words)

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        """Return the number of processes, with a device each, and the devices that the command names; for
        several programs (`-np 1 a : -np 1 b`), those of all."""
        names = context.host_environment.names()
        counts = [_count_here(given, names) for given, _ in parts(command)]
        known = [count for count in counts if count is not None]
        total = sum(count.number for count in known)
        words = " : ".join(count.words for count in known)
        readers = {each.variable: each for each in context.visibilities if each.variable}
        lists = [
            NamedDevices(" ".join(option.words), ",".join(readers[name].entries(value[0])))
            for given, _ in parts(command)
            for option in given.named(_SETTING)
            for name, *value in [re.split("[= ]", option.value, maxsplit=1)]
            # (Without a value it is passed on as it is.)
            if name in readers and value
        ]
        return beside_each_other(Intent(devices=each) for each in lists).around(
            Intent(count=DeviceCount(words, total) if known and len(known) == len(counts) else None)
        )

    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        return ("mpirun", *entrypoint.by_python())

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        given = _read(command)
        return (*command[:1], *given.option_words, *in_python(given.operands, python))

    def complete(self, request: LauncherRequest) -> Completed:
        command, devices = request.command, len(request.devices)
        given = _read(command)
        done = Completed()
        names = request.host_environment.names()
        machines = _machines(given, names)
        says = given.named(COUNTS) or "pernode" in given or _per_machine(given) or _slots(given)
        added = () if says else ("-np", str(request.count))
        here = _count_here(given, names)
        asked = here.number if here is not None else None if says else request.count
        # Each of several programs (`mpirun -np 1 a : -np 1 b`) has a count of its own.
        if devices and asked not in (None, devices) and ":" not in given.operands:
            several = here.words if here is not None and machines != 1 else ""
            done.warn(
                f"{several} in the command asks for {asked} here, with {devices_text(devices)} selected"
                if several
                else contradiction("-np", asked or 0, devices)
            )
        if machines != 1:
            option = given.named((*_HOSTS, *_HOST_FILES))[0]
            done.warn(
                f"{option.words[0]}: processes on other machines get other devices, by their own indices"
            )
        words = command[1:]
        if ":" in given.operands:
            everywhere = [option for part, _ in parts(command) for option in part.options]
            _say_of_lists([o for o in everywhere if _sets_devices(o, request.visibility)], request, done)
        else:
            words = (*write_options(_on_devices(given.options, request, done)), *given.rest)
        if request.one_each:
            done.refuse(
                f"{request.vendor.one_part}, and mpirun shows every process the same list: select one of"
                " them, or use --launcher torchrun"
            )
        elif devices > 1:
            done.remark(
                "every process sees all the selected devices; the program must select its own by its rank"
            )
        if request.logs:
            done.remark("no logs: only Open MPI has an option for them (--output-filename)")
        return done.as_argv((*command[:1], *added, *words))


def _machines(given: Arguments, names: Collection[str]) -> int | None:
    """Return how many machines take part; None where only a file says so. `names` are those of this
    machine."""
    if given.named(_HOST_FILES):
        return None
    return machines_of((host for host, _ in _hosts(given)), names)


def _hosts(given: Arguments) -> list[tuple[str, int | None]]:
    """Return the machines that the options name, and the number of processes on each (`-H a:2,b:2`)."""
    each = [host.partition(":") for option in given.named(_HOSTS) for host in option.value.split(",")]
    return [(host, whole_number(slots)) for host, _, slots in each if host]


def _slots(given: Arguments) -> int:
    """Return how many processes the machines take together, which is the default number of processes; 0 where
    they do not say it."""
    slots = [number for _, number in _hosts(given)]
    return 0 if None in slots else sum(number for number in slots if number is not None)


def _per_machine(given: Arguments) -> str:
    """Return the number of processes per machine, or per part of it, as a mapping gives it: "2:node"."""
    kind, _, number = given.get("map-by").partition(":")
    return number if kind.lower() == "ppr" else ""


def _count_here(given: Arguments, names: Collection[str]) -> DeviceCount | None:
    """Return how many processes are started on this machine; None where that is not known."""
    each, _, part = _per_machine(given).partition(":")
    if each:
        # (The number of sockets of a machine is not known here.)
        number = whole_number(each) if part.lower().partition(":")[0] == "node" else None
        return DeviceCount(f"--map-by {given.get('map-by')}", number) if number else None
    machines, options = _machines(given, names), given.named(COUNTS)
    total = count_in(given, *COUNTS)
    if options and options[-1].name == "npernode":
        return total
    hosts = given.text(*_HOSTS)
    if total is None and not options and "pernode" not in given and _slots(given):
        total = DeviceCount(hosts, _slots(given))
    if total is None or machines == 1:
        return total
    if machines is None or total.number % machines:
        return None
    words = total.words if total.words == hosts else f"{total.words} {hosts}"
    return DeviceCount(words, total.number // machines)


def _sets_devices(option: Option, visibility: Visibility) -> bool:
    """Whether an option sets one of the variables that select devices: NAME=VALUE, or NAME VALUE."""
    return option.name in _SETTING and option.value.startswith(
        tuple(f"{name}{sign}" for name in visibility.names for sign in "= ")
    )


def _on_devices(options: Sequence[Option], request: LauncherRequest, done: Completed) -> list[Option]:
    """Return the options, with those that set the variables changed to the selected devices."""
    visibility = request.visibility
    ours = dict(visibility.changes(request.devices, "index" if request.by_index else "uuid"))
    written = []
    for option in options:
        if _sets_devices(option, visibility):
            name, value = re.split("[= ]", option.value, maxsplit=1)
            # (Where UUIDs name the devices, the order of counting does not matter.)
            wanted = ours.get(name) or (value if name != visibility.variable else visibility.none)
            same = value == wanted or (
                request.by_index
                and name == visibility.variable
                and visibility.names_in_order(value, request.devices)
            )
            if not same:
                done.rewritten(option.words)
                values = (name, wanted) if len(option.values) == 2 else (f"{name}={wanted}",)
                option = replace(option, values=values)
        written.append(option)
    return written


def _say_of_lists(overriding: Sequence[Option], request: LauncherRequest, done: Completed) -> None:
    """Report, for several programs, which options set the variables, and which of them lead to other
    devices."""
    for option in overriding:
        words = " ".join(option.words)
        text = f"{words} in the command overrides the selected devices"
        name, value = re.split("[= ]", option.value, maxsplit=1)
        if name == request.visibility.variable:
            others = request.visibility.names_others(value, request.devices, request.by_index)
            done.asks_for_others(words, text, value) if others else done.warn(text)
        elif (name, value) != request.visibility.order and request.by_index:
            done.asks_for_others(words, text)
        else:
            done.warn(text)


def parts(command: Sequence[str]) -> Iterator[tuple[Arguments, tuple[str, ...]]]:
    """Yield mpirun's options and the program's words, for each program of `mpirun -np 1 a : -np 1 b`."""
    rest = tuple(command[1:])
    while rest:
        given = read_options(rest, OPTIONS)
        words = tuple(takewhile(lambda word: word != ":", given.operands))
        yield given, words
        rest = given.operands[len(words) + 1 :]


def _read(command: Sequence[str]) -> Arguments:
    return read_options(command[1:], OPTIONS)
