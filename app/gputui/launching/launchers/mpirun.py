"""mpirun (Open MPI, MPICH, Intel MPI): a process a device. The program finds its device by its local rank."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.launchers.base import Completed, Request, contradiction
from gputui.launching.launchers.options import number
from gputui.launching.launchers.payload import Payload, is_python, of_python, program

_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi", "orterun", "prterun")
_COUNT = ("-n", "-np", "--np", "-c", "--n")
_ELSEWHERE = (
    "-H",
    "-host",
    "--host",
    "-hosts",
    "-hostfile",
    "--hostfile",
    "-machinefile",
    "--machinefile",
    "-f",
)
_FLAGS = frozenset(
    (
        *("-v", "--verbose", "-q", "--quiet", "--allow-run-as-root", "--oversubscribe", "--bind-to-none"),
        *("--tag-output", "--timestamp-output", "-V", "--version", "-h", "--help", "--report-bindings"),
        *("--display-map", "--display-allocation", "--bynode", "--byslot", "--use-hwthread-cpus", "-l"),
        *("--noprefix", "--nolocal", "--nooversubscribe", "-nolocal", "-oversubscribe", "-report-bindings"),
    )
)
_TWO = ("-mca", "--mca", "-gmca", "--gmca", "-env", "-genv", "--prtemca", "--pmixmca")
"""Options that take two words (`--mca NAME VALUE`)."""


class Mpirun:
    """`mpirun -np N python train.py`: processes on this machine inherit the environment."""

    name = "mpirun"

    def recognises(self, command: Sequence[str]) -> bool:
        return program(command) in _PROGRAMS

    def payload(self, command: Sequence[str]) -> Payload:
        end = _end(command)
        inner = of_python(command[end:])
        return Payload(inner.kind, inner.words, inner.python, _options(command, end))

    def start(self, payload: Payload) -> tuple[str, ...]:
        if payload.kind == "program":
            return ("mpirun", *payload.words)
        module = ("-m",) if payload.kind == "module" else ()
        return ("mpirun", payload.python or "python", *module, *payload.words)

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        end = _end(command)
        inner = command[end:]
        return (*command[:end], python, *inner[1:]) if is_python(inner) else tuple(command)

    def complete(self, request: Request) -> Completed:
        command, devices = request.command, len(request.devices)
        words = command[1 : _end(command)]
        warnings, remarks = [], []
        given = [number(words[i + 1]) for i, word in enumerate(words[:-1]) if word in _COUNT]
        if given:
            if devices and given[0] not in (None, devices):
                warnings.append(contradiction("-np", given[0] or 0, devices))
            added: tuple[str, ...] = ()
        else:
            added = ("-np", str(request.count))
            if devices and request.count != devices:
                warnings.append(contradiction("-np", request.count, devices))
        elsewhere = [word for word in words if word in _ELSEWHERE]
        if elsewhere:
            warnings.append(
                f"{elsewhere[0]}: processes on other machines get other devices, by their own indices"
            )
        if devices > 1:
            remarks.append("every process sees all the chosen devices: the program takes its own by its rank")
        if request.logs:
            remarks.append("mpirun is not told of the logs: --output-filename is Open MPI's own option")
        return Completed((command[0], *added, *command[1:]), tuple(warnings), tuple(remarks))


def _end(command: Sequence[str]) -> int:
    """The place of the program that mpirun starts."""
    place = 1
    while place < len(command) and command[place].startswith("-"):
        word = command[place]
        place += 1 if word in _FLAGS or "=" in word else 3 if word in _TWO else 2
    return min(place, len(command))


def _options(command: Sequence[str], end: int) -> tuple[str, ...]:
    """mpirun's own options but for the count."""
    words, out, place = command[1:end], [], 0
    while place < len(words):
        if words[place] in _COUNT:
            place += 2
            continue
        out.append(words[place])
        place += 1
    return tuple(out)
