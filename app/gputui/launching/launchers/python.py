"""A command without a launcher: one process that sees all selected devices. The command stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.argument_vector import program_name
from gputui.launching.launchers.base import Completed, LauncherRequest
from gputui.launching.launchers.entrypoint import Entrypoint, of_command
from gputui.launching.python_command import is_python

_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
"""What a launcher gives its processes; where a shell has them, a program waits for the other ranks."""

_ELSEWHERE = {
    **dict.fromkeys(("srun", "sbatch"), "Slurm's, which gives the devices of the job"),
    **dict.fromkeys(("ssh", "kubectl"), "not of this machine, and gets none of its variables"),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), "in a container, which gets no variable (gputui export --as docker)"
    ),
    **dict.fromkeys(("tmux", "su", "runuser"), "of a server or a login of its own, with other variables"),
}
"""Programs whose command does not inherit our variables, and where it runs."""

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_MODULES = {
    **dict.fromkeys(("torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_CHOOSING = {
    "accelerate": "gpu_ids of its configuration would count, not the chosen devices (--gpu_ids=all)",
    "deepspeed": "it sorts the devices, and takes all where none is chosen",
}
"""Launchers that choose devices themselves by default, and how."""


class Python:
    """`python train.py`, and every command that needs no launcher (TensorFlow, JAX, a shell script)."""

    name = "python"

    def recognises(self, command: Sequence[str]) -> bool:
        return is_python(command)

    def entrypoint(self, command: Sequence[str]) -> Entrypoint:
        return of_command(command)

    def start(self, entrypoint: Entrypoint) -> tuple[str, ...]:
        return entrypoint.by_python()

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        if is_python(command):
            return (python, *command[1:])
        return (python, *command) if command and command[0].endswith(".py") else tuple(command)

    def complete(self, request: LauncherRequest) -> Completed:
        command, warnings, remarks = request.command, [], []
        name = program_name(command)
        left = [f"{rank}={request.environ[rank]}" for rank in _RANKS if rank in request.environ]
        if left and is_python(command):
            warnings.append(f"{' '.join(left)} in your environment: the program may wait for other ranks")
        if request.processes is not None and request.processes > 1:
            warnings.append(f"{request.processes} processes need a launcher; this is one")
        where = _ELSEWHERE.get(name)
        if where is not None and not _names(command, request.visibility.variable):
            warnings.append(f"what {name} starts is {where}: the chosen devices do not count")
        elif not is_python(command):
            behind = _behind(command)
            if behind in _CHOOSING:
                warnings.append(f"{behind} behind {name} is left as it is: {_CHOOSING[behind]}")
            if behind is not None and request.count > 1:
                remarks.append(f"{behind} behind {name} is left as it is: say how many processes yourself")
        asked = {"--logs": request.logs, "--numa-binding": request.numa}
        if any(asked.values()):
            what = " and ".join(option for option, given in asked.items() if given)
            remarks.append(f"{what}: a launcher does that, and this is none")
        if command and command[0].endswith(".py") and "/" not in command[0] and "uv" not in request.prefix:
            # A bare file name is on nobody's PATH.
            command = ("python", *command)
        return Completed(tuple(command), tuple(warnings), tuple(remarks))


def _names(command: Sequence[str], variable: str) -> bool:
    """Whether a command hands the variable on itself (`ssh box NAME=1 …`)."""
    return bool(variable) and any(variable in word for word in command)


def _behind(command: Sequence[str]) -> str | None:
    """The launcher among the words of a program that we do not know: `nsys profile accelerate launch …`,
    `uv run -m torch.distributed.run …`, `bash -c 'deepspeed …'`; None for none."""
    words: list[str] = []
    for place, word in enumerate(command):
        # A shell's whole command is one word.
        words += word.split() if place and re.fullmatch("-[a-z]*c", command[place - 1]) else [word]
    for place, word in enumerate(words[1:], 1):
        name = program_name((word,))
        if word in _MODULES and words[place - 1] in ("-m", "--module"):
            return _MODULES[word]
        if name in _LAUNCHERS and (name != "accelerate" or words[place + 1 : place + 2] == ["launch"]):
            return name
    return None
