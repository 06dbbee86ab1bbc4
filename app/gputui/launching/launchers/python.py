"""A command without a launcher: one process that sees all selected devices. The command stays as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gputui.launching.argument_vector import program_name
from gputui.launching.intent import NO_INTENT, CommandContext, Intent
from gputui.launching.launchers.accelerate import Accelerate
from gputui.launching.launchers.base import Completed, LauncherRequest, Notices
from gputui.launching.launchers.deepspeed import Deepspeed
from gputui.launching.launchers.entrypoint import Entrypoint, of_command
from gputui.launching.launchers.torchrun import Torchrun
from gputui.launching.programs import program_of
from gputui.launching.programs.program import Program
from gputui.launching.python_command import is_python
from gputui.launching.shells import shell_of

_ELSEWHERE = {
    **dict.fromkeys(("srun", "sbatch"), "Slurm's, which gives the devices of the job"),
    **dict.fromkeys(("ssh", "kubectl"), "not of this machine, and gets none of its variables"),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), "in a container, which gets no variable (gputui export --as docker)"
    ),
    **dict.fromkeys(("tmux", "su", "runuser"), "in an environment of its own"),
    "tox": "of tox, which hands on only the variables of its pass_env",
}
"""Programs whose command does not inherit our variables, and where it runs."""

_STARTED = (Accelerate(), Torchrun())
"""The launchers that programs of the table start."""

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_MODULES = {
    **dict.fromkeys(("torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_CHOOSING = {each.name: each.own_choice for each in (Accelerate(), Deepspeed())}
"""Launchers that choose devices themselves by default, and how."""


class Python:
    """`python train.py`, and every command that needs no launcher (TensorFlow, JAX, a shell script)."""

    name = "python"

    def recognises(self, command: Sequence[str]) -> bool:
        return is_python(command)

    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        return of_command(command)

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        """What the row of its program says; nothing for a program that is in no row."""
        program = program_of(command)
        if program is None:
            return NO_INTENT
        said, started = program.intent(command, context), program.started(command)
        launcher = next((each for each in _STARTED if each.recognises(started)), None)
        return said.around(launcher.intent(started, context)) if launcher is not None else said

    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        return entrypoint.by_python()

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        if is_python(command):
            return (python, *command[1:])
        return (python, *command) if command and command[0].endswith(".py") else tuple(command)

    def complete(self, request: LauncherRequest) -> Completed:
        command, notices = request.command, Notices()
        name = program_name(command)
        if request.processes is not None and request.processes > 1:
            notices.warn(
                f"{request.processes} processes need a launcher, such as torchrun; python starts one"
            )
        where = _ELSEWHERE.get(name)
        if where is not None and request.devices and not _names(command, request.visibility.variable):
            notices.warn(f"what {name} starts is {where}: the selected devices do not count")
        elif not is_python(command) and program_of(command) is None:
            # (What a shell starts, the intent of the command tells.)
            behind = _behind(command) if shell_of(command) is None else None
            if behind in _CHOOSING:
                notices.warn(f"gputui adds nothing to {behind} inside {name}: {_CHOOSING[behind]}")
            if behind is not None and request.count > 1:
                notices.remark(f"gputui adds nothing to {behind} inside {name}: say there how many processes")
        if request.one_each:
            notices.warn(f"{request.vendor.one_part}; the launcher torchrun shows each process one")
        asked = {"--logs": request.logs, "--numa-binding": request.numa}
        if any(asked.values()):
            what = " and ".join(option for option, given in asked.items() if given)
            notices.remark(f"{what}: only a launcher can do that")
        if command and command[0].endswith(".py") and "/" not in command[0] and "uv" not in request.prefix:
            # A bare file name is on nobody's PATH.
            command = ("python", *command)
        program, ranked = program_of(command), False
        if program is not None and where is None:
            command, ranked = _of_program(program, tuple(command), request, notices)
        if program is not None and not request.devices and program.runs_elsewhere(command):
            return notices.completed(tuple(command), "elsewhere")
        if program is not None and program.names_beside_no_list(command, request.devices, request.vendor):
            notices.remark(f"{request.visibility.variable} left out: {program.name} might count in it")
            return notices.completed(tuple(command), "command", ranked)
        return notices.completed(tuple(command), ranked=ranked)

    def lost_with_another(self, request: LauncherRequest) -> str | None:
        return None


def _of_program(
    program: Program, command: tuple[str, ...], request: LauncherRequest, notices: Notices
) -> tuple[tuple[str, ...], bool]:
    """The command of a program of the table, for the devices; and whether the launcher that it starts sets
    every variable of ranks. The options of that launcher go behind its own."""
    context = CommandContext(request.environ, request.host_environment, (request.vendor,), request.directory)
    command, remarks = program.on_devices(command, request.devices, context)
    notices.remarks += remarks
    notices.changes += program.changed_variables(command, len(request.devices), context)
    started = program.started(command)
    launcher = next((each for each in _STARTED if each.recognises(started)), None)
    if launcher is None:
        return command, False
    done = launcher.complete(request.of(started))
    notices.warnings += done.warnings
    notices.remarks += done.remarks
    notices.changes += done.changes
    notices.own, notices.refused = notices.own or done.own, notices.refused or done.refused
    before, after = Counter(started), Counter(done.argv)
    kept = _in_order(command, Counter(command) - (before - after))
    added = _in_order(done.argv, after - before)
    return program.with_launcher_options([*kept], [*added]), done.ranked


def _in_order(words: Sequence[str], some: Counter[str]) -> Iterator[str]:
    """Those of the words that are in `some`, as often as there."""
    left = some.copy()
    for word in words:
        if left[word] > 0:
            left[word] -= 1
            yield word


def _names(command: Sequence[str], variable: str) -> bool:
    """Whether a command hands the variable on itself (`ssh box NAME=1 …`)."""
    return bool(variable) and any(variable in word for word in command)


def _behind(command: Sequence[str]) -> str | None:
    """The launcher among the words of a program that we do not know: `rocprof accelerate launch …`,
    `gdb --args python -m torch.distributed.run …`; None for none."""
    words: list[str] = []
    for place, word in enumerate(command):
        # `flock FILE -c 'COMMAND'`: a shell's whole command is one word.
        words += word.split() if place and re.fullmatch("-[a-z]*c", command[place - 1]) else [word]
    for place, word in enumerate(words[1:], 1):
        name = program_name((word,))
        if word in _MODULES and words[place - 1] in ("-m", "--module"):
            return _MODULES[word]
        if name in _LAUNCHERS and (name != "accelerate" or words[place + 1 : place + 2] == ["launch"]):
            return name
    return None
