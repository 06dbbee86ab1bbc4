"""torchrun: a process a device (torch.distributed.run)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.launching.launchers.base import Completed, is_python, program

_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = frozenset(
    (
        *("standalone", "no-python", "run-path", "m", "module", "virtual-local-rank", "use-agent-store"),
        *("use-env", "h", "help"),
    )
)
"""torchrun's options that take no value; every other one takes the next word unless it has a "="."""


class Torchrun:
    """`torchrun --standalone --nproc-per-node=N train.py`.

    The count is always a number: without CUDA `auto` counts processors, and `gpu` fails. Always
    `--standalone` on one machine: older versions meet on port 29500 and collide.
    """

    name = "torchrun"

    def recognises(self, command: Sequence[str]) -> bool:
        return _prefix(command) > 0

    def complete(self, command: Sequence[str], count: int, environ: Mapping[str, str]) -> Completed:
        prefix = _prefix(command)
        starter = tuple(command[:prefix]) if prefix else ("torchrun",)
        if prefix:
            rest = tuple(command[prefix:])
        else:
            starter, rest = _converted(command)
        given = _given(rest)
        added = []
        if not any(name.startswith(("standalone", "rdzv-", "master-", "node-rank")) for name in given) and (
            given.get("nnodes", "1") in ("1", "1:1")
        ):
            added.append("--standalone")
        if "nproc-per-node" not in given:
            added.append(f"--nproc-per-node={max(1, count)}")
        return Completed((*starter, *added, *rest), _warnings(given, count, environ))


def _warnings(given: Mapping[str, str], count: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    warnings = []
    asked = given.get("nproc-per-node", "")
    if not count and asked in ("auto", "gpu"):
        warnings.append(f"the command asks for --nproc-per-node={asked}, and there is no device to count")
    if count and asked.isdecimal() and asked.lstrip("0") != str(count):
        devices = "1 device" if count == 1 else f"{count} devices"
        warnings.append(f"the command asks for --nproc-per-node={asked} on {devices}")
    overriding = sorted(name for name in environ if name.startswith("PET_"))
    if overriding:
        shown = " ".join(f"{name}={environ[name]}" for name in overriding)
        warnings.append(f"torchrun takes its defaults from {shown} in your environment")
    return tuple(warnings)


def _prefix(command: Sequence[str]) -> int:
    """How many words start torchrun itself: `torchrun`, or `python -m torch.distributed.run`; 0 for none."""
    if program(command) == "torchrun":
        return 1
    module = 3 if list(command[1:2]) == ["-u"] else 2
    if is_python(command) and len(command) > module and command[module - 1] == "-m":
        return module + 1 if command[module] in _MODULES else 0
    return 0


def _converted(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What starts torchrun, and what it is to start, out of a command without it."""
    if not command:
        return ("torchrun",), ()
    if not is_python(command):
        script = command[0].endswith(".py")
        return ("torchrun",), tuple(command) if script else ("--no-python", *command)
    # An interpreter given by its path or version is the one that has the user's torch.
    plain = command[0] in ("python", "python3")
    starter = ("torchrun",) if plain else (command[0], "-m", "torch.distributed.run")
    rest = list(command[1:])
    while rest and rest[0] == "-u":
        # torchrun starts its workers with -u itself.
        rest.pop(0)
    if rest and rest[0].startswith("-") and rest[0] != "-m":
        return starter, ("--no-python", command[0], *command[1:])
    return starter, tuple(rest)


def _given(words: Sequence[str]) -> dict[str, str]:
    """torchrun's options that the user gave, by their name with dashes; those of the script are not ours."""
    given: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        word = words[place]
        name, equals, value = word.partition("=")
        place += 1
        name = name.lstrip("-").replace("_", "-")
        if not equals and name not in _FLAGS:
            value = words[place] if place < len(words) else ""
            place += 1
        # argparse takes any beginning of a long option for it.
        given["nproc-per-node" if "nproc-per-node".startswith(name) and len(name) > 1 else name] = value
    return given
