"""mpirun (Open MPI, MPICH, Intel MPI): a process a device. The program finds its device by its local rank.

Options: `mpirun --help full` of Open MPI 4.1, where one dash and two are the same; Hydra's of MPICH.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gputui.launching.launchers.base import Completed, Request, Saying, contradiction
from gputui.launching.launchers.options import number, words
from gputui.launching.launchers.payload import Payload, is_python, of_python, program
from gputui.vendors.visibility import Visibility

_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi", "orterun", "prterun")
_COUNT = ("n", "np", "c")
_PER_MACHINE = ("N", "npernode", "ppn", "perhost")
"""On one machine they say the number of processes too."""

_ELSEWHERE = ("H", "host", "hosts", "hostfile", "machinefile", "f", "default-hostfile", "app")
_FLAGS = words(
    "allow-run-as-root bind-to-core bind-to-socket bind-to-none bycore bynode byslot continuous d"
    " debug-devel debug debug-daemons debug-daemons-file disable-recovery display-allocation"
    " display-devel-allocation display-devel-map display-diffable-map display-map display-topo"
    " do-not-launch do-not-resolve dvm enable-instant-on-support enable-recovery fwd-mpirun-port"
    " get-stack-traces h help index-argv-by-rank leave-session-attached merge-stderr-to-stdout nolocal"
    " nooversubscribe noprefix novm output-proctable oversubscribe pernode q quiet report-bindings"
    " report-child-jobs-separately report-state-on-timeout s preload-binary set-cwd-to-session-dir"
    " show-progress tag-output timestamp-output tv use-hwthread-cpus use-regexp v verbose V version xml"
    " l prepend-rank info print-all-exitcodes envall genvall envnone genvnone disable-auto-cleanup"
    " disable-x enable-x disable-hostname-propagation"
)
_TWO = words("mca gmca prtemca pmixmca env genv")
"""Options that take two words (`--mca NAME VALUE`)."""


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    words: tuple[str, ...]

    @property
    def value(self) -> str:
        """All that stands behind the name, in one piece."""
        return " ".join(self.words[1:]) or self.words[0].partition("=")[2]


class Mpirun:
    """`mpirun -np N python train.py`: processes on this machine inherit the environment."""

    name = "mpirun"

    def recognises(self, command: Sequence[str]) -> bool:
        return program(command) in _PROGRAMS

    def payload(self, command: Sequence[str]) -> Payload:
        options, end = _read(command)
        inner = of_python(command[end:])
        left_out = tuple(word for option in options if option.name not in _COUNT for word in option.words)
        return Payload(inner.kind, inner.words, inner.python, left_out)

    def start(self, payload: Payload) -> tuple[str, ...]:
        if payload.kind == "program":
            return ("mpirun", *payload.words)
        module = ("-m",) if payload.kind == "module" else ()
        return ("mpirun", payload.python or "python", *payload.options, *module, *payload.words)

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        end = _read(command)[1]
        inner = command[end:]
        if is_python(inner):
            return (*command[:end], python, *inner[1:])
        script = bool(inner) and inner[0].endswith(".py")
        return (*command[:end], python, *inner) if script else tuple(command)

    def complete(self, request: Request) -> Completed:
        command, devices = request.command, len(request.devices)
        options, end = _read(command)
        said = Saying()
        added: tuple[str, ...] = ()
        asked: int | None = request.count
        counts = [option for option in options if option.name in (*_COUNT, *_PER_MACHINE)]
        if counts:
            asked = number(counts[0].value)
        elif not any(option.name == "pernode" for option in options):
            added = ("-np", str(request.count))
        # Of several programs (`mpirun -np 1 a : -np 1 b`) each has a count of its own.
        if devices and asked not in (None, devices) and ":" not in command[end:]:
            said.warnings.append(contradiction("-np", asked or 0, devices))
        said.warnings += [
            f"{option.words[0]}: processes on other machines get other devices, by their own indices"
            for option in options
            if option.name in _ELSEWHERE
        ][:1]
        everywhere = [option for each, _ in parts(command) for option in each]
        overriding = [
            o for o in everywhere if o.name in ("x", "env", "genv") and _assigns(o.value, request.visibility)
        ]
        _say_of_lists(overriding, request, said)
        if devices > 1:
            said.remarks.append(
                "every process sees all the chosen devices: the program takes its own by its rank"
            )
        if request.logs:
            said.remarks.append("mpirun is not told of the logs: --output-filename is Open MPI's own option")
        argv = (*command[:1], *added, *command[1:])
        return Completed(argv, tuple(said.warnings), tuple(said.remarks), own=said.own)


def _assigns(value: str, visibility: Visibility) -> bool:
    """Whether an option sets one of the variables that say which devices: NAME=VALUE, or NAME VALUE."""
    return any(value.startswith((f"{name}=", f"{name} ")) for name in visibility.names)


def _say_of_lists(overriding: Sequence[_Option], request: Request, said: Saying) -> None:
    """Say which options set the variables, and which of them lead to other devices."""
    for option in overriding:
        words = " ".join(option.words)
        text = f"{words} of the command overrides the chosen devices"
        name, value = re.split("[= ]", option.value, maxsplit=1)
        other_order = (name, value) != request.visibility.order
        if name == request.visibility.variable:
            others = request.visibility.names_others(value, request.devices, request.by_index)
            said.asks_for_others(words, text, value) if others else said.warnings.append(text)
        elif other_order and request.by_index:
            said.asks_for_others(words, text)
        else:
            said.warnings.append(text)


def parts(command: Sequence[str]) -> Iterator[tuple[list[_Option], tuple[str, ...]]]:
    """Of each program of `mpirun -np 1 a : -np 1 b`: its options, and its words."""
    begin = 1
    while begin < len(command):
        options, end = _read((*command[:1], *command[begin:]))
        words = list(takewhile(lambda word: word != ":", command[begin - 1 + end :]))
        yield options, tuple(words)
        begin += end + len(words)


def _read(command: Sequence[str]) -> tuple[list[_Option], int]:
    """mpirun's own options, and the place of the program that it starts."""
    options, place = [], 1
    while place < len(command) and command[place].startswith("-"):
        begin, word = place, command[place]
        name, equals, _ = word.lstrip("-").partition("=")
        if equals or name in _FLAGS:
            place += 1
        else:
            # Intel's `-genv NAME=VALUE` is in one word.
            two = name in _TWO and "=" not in "".join(command[place + 1 : place + 2])
            place += 3 if two else 2
        place = min(place, len(command))
        options.append(_Option(name, tuple(command[begin:place])))
    return options, place
