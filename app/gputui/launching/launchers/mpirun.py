"""mpirun (Open MPI, MPICH, Intel MPI): one process per device, which takes its device by its local rank.

Options: `mpirun --help full` of Open MPI 4.1, where one dash and two are the same; Hydra's of MPICH.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from gputui.launching.argument_vector import (
    Arguments,
    Option,
    option_table,
    program_name,
    read_options,
    whole_number,
)
from gputui.launching.launchers.base import Completed, LauncherRequest, Notices, contradiction
from gputui.launching.launchers.entrypoint import Entrypoint, of_command
from gputui.launching.python_command import is_python
from gputui.vendors.visibility import Visibility

_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi", "orterun", "prterun")
_COUNTS = ("np", "npernode")
"""The number of processes, and that of each machine: on one machine they are the same."""

_ELSEWHERE = ("H", "host", "hosts", "hostfile", "machinefile", "f", "default-hostfile", "app")
OPTIONS = option_table(
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


class Mpirun:
    """`mpirun -np N python train.py`: processes on this machine inherit the environment."""

    name = "mpirun"

    def recognises(self, command: Sequence[str]) -> bool:
        return program_name(command) in _PROGRAMS

    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        given = _read(command)
        inner = of_command(given.operands)
        return Entrypoint(inner.kind, inner.words, inner.python, given.without(("np",)).option_words)

    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        return ("mpirun", *entrypoint.by_python())

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        given = _read(command)
        inner = given.operands
        if is_python(inner):
            inner = (python, *inner[1:])
        elif inner and inner[0].endswith(".py"):
            inner = (python, *inner)
        return (*command[:1], *given.option_words, *inner)

    def complete(self, request: LauncherRequest) -> Completed:
        command, devices = request.command, len(request.devices)
        given = _read(command)
        notices = Notices()
        added: tuple[str, ...] = ()
        asked: int | None = request.count
        counts = given.named(_COUNTS)
        if counts:
            asked = whole_number(counts[0].value)
        elif "pernode" not in given:
            added = ("-np", str(request.count))
        # Of several programs (`mpirun -np 1 a : -np 1 b`) each has a count of its own.
        if devices and asked not in (None, devices) and ":" not in given.operands:
            notices.warn(contradiction("-np", asked or 0, devices))
        notices.warnings += [
            f"{option.words[0]}: processes on other machines get other devices, by their own indices"
            for option in given.named(_ELSEWHERE)
        ][:1]
        everywhere = [option for part, _ in parts(command) for option in part.options]
        overriding = [
            o for o in everywhere if o.name in ("x", "env", "genv") and _assigns(o.value, request.visibility)
        ]
        _say_of_lists(overriding, request, notices)
        if devices > 1:
            notices.remark("every process sees all the chosen devices: the program takes its own by its rank")
        if request.logs:
            notices.remark("mpirun is not told of the logs: --output-filename is Open MPI's own option")
        argv = (*command[:1], *added, *command[1:])
        return Completed(argv, tuple(notices.warnings), tuple(notices.remarks), own=notices.own)


def _assigns(value: str, visibility: Visibility) -> bool:
    """Whether an option sets one of the variables that say which devices: NAME=VALUE, or NAME VALUE."""
    return any(value.startswith((f"{name}=", f"{name} ")) for name in visibility.names)


def _say_of_lists(overriding: Sequence[Option], request: LauncherRequest, notices: Notices) -> None:
    """Say which options set the variables, and which of them lead to other devices."""
    for option in overriding:
        words = " ".join(option.words)
        text = f"{words} of the command overrides the chosen devices"
        name, value = re.split("[= ]", option.value, maxsplit=1)
        if name == request.visibility.variable:
            others = request.visibility.names_others(value, request.devices, request.by_index)
            notices.asks_for_others(words, text, value) if others else notices.warn(text)
        elif (name, value) != request.visibility.order and request.by_index:
            notices.asks_for_others(words, text)
        else:
            notices.warn(text)


def parts(command: Sequence[str]) -> Iterator[tuple[Arguments, tuple[str, ...]]]:
    """Of each program of `mpirun -np 1 a : -np 1 b`: mpirun's options, and the program's words."""
    rest = tuple(command[1:])
    while rest:
        given = read_options(rest, OPTIONS)
        words = tuple(takewhile(lambda word: word != ":", given.operands))
        yield given, words
        rest = given.operands[len(words) + 1 :]


def _read(command: Sequence[str]) -> Arguments:
    return read_options(command[1:], OPTIONS)
