"""The intent of a script: what the commands that it starts say, each read like one that was typed.

What a script says literally counts like an option of the line, and cannot be rewritten. What it says only
perhaps, in a branch of which nobody knows whether it is taken, is a default; what cannot be followed is a
warning with file and line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import NotReadError, go_on
from gputui.launching.container_launch import InsideContainer
from gputui.launching.intent import (
    CommandContext,
    DeviceCount,
    Intent,
    NamedDevices,
    beside_each_other,
    list_of,
)
from gputui.launching.launchers import recognised
from gputui.launching.programs import program_of
from gputui.launching.python_command import is_python
from gputui.launching.script_contents.python import read_python_for
from gputui.launching.script_contents.shell import StartedCommand, read_shell
from gputui.launching.script_contents.started import MOST, StartedScript, launcher_words
from gputui.launching.wrappers import unwrap

_NO_DEVICES = re.compile(r"-.*(port|addr|address|[-_]ip|host|endpoint|[-_]rank|rdzv[-_]id|job[-_]id|dir)")
"""Options of launchers that say where the processes meet and what they write, not what they run on."""

_MOST_COMMANDS = 200

_RANKS = (
    *("LOCAL_RANK", "RANK", "GROUP_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"),
    *("MPI_LOCALRANKID", "PMI_RANK", "PMIX_RANK", "SLURM_LOCALID", "SLURM_PROCID"),
    "MV2_COMM_WORLD_LOCAL_RANK",
)
"""What launchers set for each process: torchrun, Open MPI, MPICH, Slurm, MVAPICH."""

_LOCAL_RANKS = tuple(f"${name}" for name in _RANKS if "LOCAL" in name)
"""Those that count the processes of this machine."""

ReadCommand = Callable[[Sequence[str], CommandContext], Intent]
"""Reads the intent of a command that a script starts."""


def shell_intent(script: StartedScript, context: CommandContext, read: ReadCommand) -> Intent:
    """What a shell script says of devices."""

    def sourced(path: str) -> str | None:
        found = context.file_beginning(path)
        return found[0] if found else None

    lists = [visibility.variable for visibility in context.visibilities if visibility.variable]
    ours = dict(context.lists)
    if context.ranks is not None:
        # Each process has its own.
        ours.update((name, f"${name}") for name in _RANKS)
    commands, followed = read_shell(script.text, script.arguments, context.environ, sourced, ours)
    warnings = []
    intents, cpu_only = [], []
    for command in _unlike(commands, lists):
        try:
            go_on()
            intent = _of_command(command, script.name, context, read)
        except NotReadError:
            followed = min(followed or command.line, command.line)
            break
        if _may_use_devices(command.words):
            cpu_only.append(intent.devices if intent.devices and not intent.devices.listed else None)
        intents.append(intent)
    if followed is not None or not script.whole:
        end = "behind its first 128 KiB" if len(script.text) >= MOST else "behind its first NUL"
        warnings.append(
            f"{script.name} cannot be followed {end if followed is None else f'from line {followed} on'}"
        )
    if cpu_only and all(cpu_only):
        return Intent(devices=cpu_only[0], warnings=tuple(warnings))
    # One command on the CPU does not make the whole script CPU only.
    whole = beside_each_other(
        replace(each, devices=None) if each.devices and not each.devices.listed else each for each in intents
    )
    return replace(whole, warnings=(*whole.warnings, *warnings))


def _unlike(commands: Sequence[StartedCommand], lists: Sequence[str]) -> Iterator[StartedCommand]:
    """The commands without those that say the same again, as the turns of a loop do."""
    seen: set[object] = set()
    for command in commands:
        own = launcher_words(command.words)
        # (Of another program, all words may matter; of Python, only which script it is.)
        said = command.words[:own] or (command.words[:4] if is_python(command.words) else command.words)
        listed = tuple((command.variables.get(name), command.not_known.get(name)) for name in lists)
        if (key := (said, listed, command.certain)) not in seen and len(seen) < _MOST_COMMANDS:
            seen.add(key)
            yield command


def _of_command(command: StartedCommand, script: str, context: CommandContext, read: ReadCommand) -> Intent:
    # (The text of `bash -c` is in sight.)
    place = script if script.endswith(" -c") else f"{script}:{command.line}"
    behind = "" if script.endswith(" -c") else f" ({place})"
    context = context.with_variables(command.variables)
    if command.directory is None:
        # Which files it reads there is not known.
        context = replace(context, host_environment=InsideContainer())
    elif command.directory:
        context = replace(context, directory=os.path.join(context.directory or "", command.directory))  # noqa: PTH118
    inner = read(command.words, context).as_it_stands(behind)
    warnings = [*inner.warnings]
    for visibility in context.visibilities:
        name = visibility.variable
        listed, written = command.variables.get(name), command.not_known.get(name)
        # (A launcher's own option counts before the variable.)
        if inner.devices is None and written is not None and context.ranks and written in _LOCAL_RANKS:
            each = ",".join(map(str, range(context.ranks)))
            inner = replace(inner, devices=_named(f"{name}={written}{behind}", each, context))
        elif inner.devices is None and listed is not None:
            entries = list_of(visibility, listed)
            inner = replace(inner, devices=_named(f"{name}={listed}{behind}", entries, context))
        elif written is not None and written != f"${name}":
            warnings.append(f"{place}: gputui cannot tell which devices {name} names there ({written[:60]})")
        elif name in command.variables and listed is None and written is None:
            refused = f"{name} is unset at {place}, and the command sees every device then"
            inner = replace(inner, refused=inner.refused or refused)
    if not command.certain:
        if inner.devices is not None:
            warnings.append(f"{inner.devices.words} may override the selected devices")
        count = inner.count and replace(inner.count, firm=False, certain=False)
        inner = replace(inner, devices=None, count=count, refused=None)
    if inner.count is None and inner.devices is None:
        unknown = _unknown_of_launcher(command, context)
        if unknown is not None:
            warnings.append(f"{place}: gputui cannot tell what {unknown} is: it may say how many devices")
    return replace(inner, warnings=tuple(warnings))


def _named(words: str, listed: str, context: CommandContext) -> NamedDevices:
    """The devices of a variable that a script sets."""
    return NamedDevices(words, listed, rewritable=False, environ=context.environ)


def _unknown_of_launcher(command: StartedCommand, context: CommandContext) -> str | None:
    """What is not known of the words that say what a launcher runs on; None where all that matters is."""
    own = launcher_words(command.words) or (len(command.words) if _is_launcher(command.words) else 0)
    names = [visibility.variable for visibility in context.visibilities if visibility.variable]
    for place, word in enumerate(command.words[:own]):
        # What is counted from the list of visible devices takes what it is given.
        if word in command.unknown and not any(name in word for name in names):
            option, equals, _ = word.partition("=")
            if not equals or not option.startswith("-"):
                option = command.words[place - 1]
            if not _NO_DEVICES.fullmatch(option):
                return word
    return None


def python_intent(script: StartedScript, context: CommandContext) -> Intent:
    """What a Python script says of devices. A list that it sets itself cannot be changed."""
    devices, warnings, needs, trainer = None, [], None, False
    kinds = tuple(
        ((each.visibility.variable,) if each.visibility.variable else (), each.device_type)
        for each in context.vendors
    )
    readings = read_python_for(script.name, script.text, script.whole, kinds)
    for vendor, reading in zip(context.vendors, readings, strict=True):
        variable = vendor.visibility.variable
        own = reading.own_list
        if own is not None and own.text is not None and devices is None:
            listed = ",".join(vendor.visibility.entries(own.text))
            devices = NamedDevices(f"{variable}={own.text} ({own.place})", listed, rewritable=False)
        for each in reading.lists:
            if not each.certain or each.text is None:
                what = f"remove {variable}" if each.text is None else f"set {variable}={each.text}"
                warnings.append(f"{each.place} may {what}, which would override the selected devices")
        for place in reading.unfollowed:
            warnings.append(f"{place} sets {variable} to a value that gputui cannot determine")
        most = reading.most
        if most is not None and (needs is None or most.needs > needs.number):
            needs = DeviceCount(f"{most.written} ({most.place})", most.needs, firm=False)
        trainer |= reading.trainer
        if reading.unread:
            warnings.append(f"{script.name} is not read: {reading.unread}")
    return Intent(devices=devices, needs=needs, trainer=trainer, warnings=tuple(dict.fromkeys(warnings)))


def _may_use_devices(words: Sequence[str]) -> bool:
    inner = unwrap(words)[1]
    return is_python(inner) or _is_launcher(words)


def _is_launcher(words: Sequence[str]) -> bool:
    inner = unwrap(words)[1]
    return recognised(inner).name != "python" or program_of(inner) is not None
