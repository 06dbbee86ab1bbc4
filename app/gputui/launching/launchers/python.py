"""A command without a launcher: one process that sees all selected devices. The command stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gputui.inventory.light_dataclasses import replace
from gputui.launching.intent import NO_INTENT, CommandContext, Intent
from gputui.launching.launchers.accelerate import Accelerate
from gputui.launching.launchers.base import Completed, Launcher, LauncherRequest
from gputui.launching.launchers.entrypoint import Entrypoint, in_python, of_command
from gputui.launching.launchers.torchrun import Torchrun
from gputui.launching.programs import program_of
from gputui.launching.programs.program import Program
from gputui.launching.python_command import is_python

_STARTED = (Accelerate(), Torchrun())
"""The launchers that programs in the table start."""


class Python(Launcher):
    """`python train.py`, and every command that needs no launcher (TensorFlow, JAX, a shell script)."""

    name = "python"

    def recognises(self, command: Sequence[str]) -> bool:
        return is_python(command)

    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        return of_command(command)

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        """Return what the row of its program says; nothing for a program without a row."""
        program = program_of(command)
        if program is None:
            return NO_INTENT
        said, started = program.intent(command, context), program.started(command)
        launcher = next((each for each in _STARTED if each.recognises(started)), None)
        return said.around(launcher.intent(started, context)) if launcher is not None else said

    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        return entrypoint.by_python()

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        return in_python(command, python)

    def complete(self, request: LauncherRequest) -> Completed:
        command, done = request.command, Completed()
        if request.processes is not None and request.processes > 1:
            done.warn(f"{request.processes} processes need a launcher such as torchrun; python starts one")
        if request.one_each:
            done.warn(f"{request.vendor.one_part}; the launcher torchrun shows each process one")
        asked = {"--logs": request.logs, "--numa-binding": request.numa}
        if any(asked.values()):
            what = " and ".join(option for option, given in asked.items() if given)
            done.remark(f"{what}: only a launcher can do that")
        if command and command[0].endswith(".py") and "/" not in command[0] and "uv" not in request.prefix:
            # A bare file name is not found on PATH.
            command = ("python", *command)
        program, ranked = program_of(command), False
        if program is not None:
            command, ranked = _of_program(program, tuple(command), request, done)
        if program is not None and not request.devices and program.runs_elsewhere(command):
            return done.as_argv(tuple(command), "elsewhere")
        if program is not None and program.names_beside_no_list(command, request.devices, request.vendor):
            done.remark(
                f"{request.visibility.variable} left out: {program.name} might count devices within it"
            )
            return done.as_argv(tuple(command), "command", ranked)
        return done.as_argv(tuple(command), ranked=ranked)


def _of_program(
    program: Program, command: tuple[str, ...], request: LauncherRequest, done: Completed
) -> tuple[tuple[str, ...], bool]:
    """Return the command of a program in the table, for the devices; and whether the launcher that it starts
    sets every variable of ranks. The options of that launcher follow its own."""
    context = CommandContext(request.environ, request.host_environment, (request.vendor,), request.directory)
    command, remarks = program.on_devices(command, request.devices, context)
    done.remarks += remarks
    done.changes += program.changed_variables(command, len(request.devices), context)
    started = program.started(command)
    launcher = next((each for each in _STARTED if each.recognises(started)), None)
    if launcher is None:
        return command, False
    inner = launcher.complete(replace(request, command=started))
    done.warnings += inner.warnings
    done.remarks += inner.remarks
    done.changes += inner.changes
    done.own, done.refused = inner.own, inner.refused
    before, after = Counter(started), Counter(inner.argv)
    kept = _in_order(command, Counter(command) - (before - after))
    added = _in_order(inner.argv, after - before)
    return program.with_launcher_options([*kept], [*added]), inner.ranked


def _in_order(words: Sequence[str], some: Counter[str]) -> Iterator[str]:
    """Return those of the words that are in `some`, as often as there."""
    left = some.copy()
    for word in words:
        if left[word] > 0:
            left[word] -= 1
            yield word
