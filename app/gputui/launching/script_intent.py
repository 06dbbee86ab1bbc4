"""The intent of a script: each command that it starts is read like a typed one.

Literal values in a script count like options of the line, and cannot be rewritten. Values in a branch or a
function may not apply, and are defaults. A list of devices whose value is not known is a doubt, with file and
line, unless the kernel confines the command to its devices (confine.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import NotReadError, go_on, not_read
from gputui.launching.host_environment import HostEnvironment, below
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
from gputui.launching.python_script import read_python, without_documentation
from gputui.launching.shell_script import StartedCommand, read_shell
from gputui.launching.started_script import StartedScript, launcher_words
from gputui.launching.wrappers import unwrap

_NO_DEVICES = re.compile(r"-.*(port|addr|address|[-_]ip|host|endpoint|[-_]rank|rdzv[-_]id|job[-_]id|dir)")
"""Options of launchers for rendezvous, ranks and output, which do not affect the devices."""

_MOST_COMMANDS, _MOST_PLACES = 200, 20

_SHELL = (
    r"(?:^|[;&|(\s])(?:NAME=|set(?:env)?[ \t]+(?:-\w+[ \t]+)*NAME[ \t]+)(\S*)",
    r"(?:\[|\btest\b)[^;&|\n]{0,80}NAME",
)
"""Patterns for a script that sets the list NAME, with its value, and for a script that tests the list. A
script with a test sets the list only where it inherits none, and a launch sets one."""
_SHELL_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_PYTHON = (
    r"""(?:putenv\(\s*['"]NAME['"]\s*,|environ\[\s*['"]NAME['"]\s*\]\s*=(?!=)"""
    r"""|environ\.update\([^\n]{0,80}?\bNAME['"]?\s*[:=])([^\n]*)"""
    r"""|(?:del\s+(?:os\.)?environ\[|environ\.pop\(|unsetenv\()\s*['"]NAME""",
    r"\bnot\b[^\n]{0,60}NAME|NAME[^\n]{0,20}?(?:==|\bis\b|\bnot\b)",
)

ReadCommand = Callable[[Sequence[str], CommandContext], Intent]
"""Reads the intent of a command that a script starts."""


def shell_intent(script: StartedScript, context: CommandContext, read: ReadCommand) -> Intent:
    """Return the intent of a shell script."""
    lists = [visibility.variable for visibility in context.visibilities if visibility.variable]
    commands, whole = read_shell(script.text, script.arguments, context.environ, context.lists)
    intents, cpu_only = [], []
    try:
        for command in _unlike(commands, lists):
            intent = _of_command(command, script.name, context, read)
            if _may_use_devices(command.words):
                cpu_only.append(intent.devices if intent.devices and not intent.devices.listed else None)
            intents.append(intent)
    except NotReadError:
        whole = False
    if not (whole and script.whole):
        not_read(script.name, "it is too long, or ends within a word")
    if cpu_only and all(cpu_only):
        return Intent(devices=cpu_only[0])
    # A single command on the CPU does not make the whole script CPU only.
    intent = beside_each_other(
        replace(each, devices=None) if each.devices and not each.devices.listed else each for each in intents
    )
    return _with_doubt(intent, script, lists, partial(_SHELL_COMMENT.sub, ""), *_SHELL)


def _with_doubt(
    intent: Intent,
    script: StartedScript,
    lists: Sequence[str],
    without_comments: Callable[[str], str],
    sets: str,
    tests: str,
) -> Intent:
    """Return the intent of a script with the place where it may set a list that the parser did not follow.

    An empty list, and a list derived from the inherited one, name no other devices. A script that tests the
    list sets it only if it inherits an empty one.
    """
    mentioned = [name for name in lists if name in script.text]
    if not mentioned or intent.devices is not None or intent.leaves is not None:
        return intent
    text = without_comments(script.text)
    for name in mentioned:
        tested = re.search(tests.replace("NAME", name), text) is not None
        for match in islice(re.finditer(sets.replace("NAME", name), text, re.MULTILINE), _MOST_PLACES):
            value = "removed" if match[1] is None else match[1].strip(" \t'\")}")
            if value in ("", "-1") or "environ" in value or (name in value and ":" not in value):
                continue
            variables = {*re.findall(r"[A-Za-z_]\w*", value[:60])} - {name}
            if not any(re.search(rf"\b{each}\s*=[^\n]{{0,80}}{name}", text) for each in variables):
                place = f"{script.name}:{text.count(chr(10), 0, match.end()) + 1}"
                doubt = f"{place} may set {name} to other devices ({value[:60]})"
                if tested or name in value:
                    return replace(intent, doubt_if_empty=doubt)
                return replace(intent, doubt=doubt)
    return intent


def _unlike(commands: Sequence[StartedCommand], lists: Sequence[str]) -> Iterator[StartedCommand]:
    """Yield the commands without repetitions of the same intent, as in the iterations of a loop. Raises
    NotReadError."""
    seen: set[object] = set()
    for command in commands:
        go_on()
        own = launcher_words(command.words)
        # For Python, only the script matters; for another program, all words may matter.
        said = command.words[:own] or (command.words[:4] if is_python(command.words) else command.words)
        listed = tuple((command.variables.get(name), command.not_known.get(name)) for name in lists)
        if (key := (said, listed, command.certain)) not in seen and len(seen) < _MOST_COMMANDS:
            seen.add(key)
            yield command


def _of_command(command: StartedCommand, script: str, context: CommandContext, read: ReadCommand) -> Intent:
    # The text of `bash -c` needs no location: the user sees it in the command.
    place = script if script.endswith(" -c") else f"{script}:{command.line}"
    behind = "" if script.endswith(" -c") else f" ({place})"
    context = context_of(command, context)
    inner = read(command.words, context).as_it_stands(behind)
    for visibility in context.visibilities:
        name = visibility.variable
        listed = command.variables.get(name)
        # A launcher's own option wins over the variable.
        if inner.devices is None and listed is not None:
            named = NamedDevices(
                f"{name}={listed}{behind}",
                list_of(visibility, listed),
                rewritable=False,
                environ=context.environ,
            )
            inner = replace(inner, devices=named)
        elif name in command.variables and listed is None and name not in command.not_known:
            leaves = f"{name} is unset at {place}, so the command sees every device"
            inner = replace(inner, leaves=inner.leaves or leaves)
    if not command.certain:
        count = inner.count and replace(inner.count, firm=False, certain=False)
        inner = replace(inner, devices=None, count=count, leaves=None)
    if inner.count is None and inner.devices is None:
        unknown = _unknown_of_launcher(command, context)
        if unknown is not None:
            text = (
                f"{place}: gputui cannot tell what {unknown} is, which may be the number of"
                " devices (give it with -n)"
            )
            inner = replace(inner, warnings=(*inner.warnings, text))
    return inner


def context_of(command: StartedCommand, context: CommandContext) -> CommandContext:
    """Return the context of a command that a script with this context starts."""
    context = context.with_variables(command.variables)
    if command.directory is None:
        # The directory is not known, so its files cannot be read.
        return replace(context, host_environment=HostEnvironment())
    if not command.directory:
        return context
    return replace(context, directory=below(context.directory, command.directory))


def _unknown_of_launcher(command: StartedCommand, context: CommandContext) -> str | None:
    """Return the unknown word of a launcher that may affect its devices; None where there is none."""
    own = launcher_words(command.words) or (len(command.words) if _is_launcher(command.words) else 0)
    names = [visibility.variable for visibility in context.visibilities if visibility.variable]
    for place, word in enumerate(command.words[:own]):
        # A count that is computed from the list of visible devices fits any selection.
        if word in command.unknown and not any(name in word for name in names):
            option, equals, _ = word.partition("=")
            if not equals or not option.startswith("-"):
                option = command.words[place - 1]
            if not _NO_DEVICES.fullmatch(option):
                return word
    return None


def python_intent(script: StartedScript, context: CommandContext) -> Intent:
    """Return the intent of a Python script. A list that it sets itself cannot be rewritten."""
    devices, needs, trainer = None, None, False
    for vendor in context.vendors:
        variable = vendor.visibility.variable
        reading = read_python(script.text, variable, vendor.device_type)
        trainer |= reading.trainer
        for line, text in reading.lists:
            listed = ",".join(vendor.visibility.entries(text))
            devices = NamedDevices(f"{variable}={text} ({script.name}:{line})", listed, rewritable=False)
        most = max(reading.uses, key=lambda use: use.needs, default=None)
        if most is not None and (needs is None or most.needs > needs.number):
            needs = DeviceCount(f"{most.written} ({script.name}:{most.line})", most.needs, firm=False)
    if not script.whole:
        not_read(script.name, "it has NUL bytes, or more than 128 KiB")
    intent = Intent(devices=devices, needs=needs, trainer=trainer)
    lists = [vendor.visibility.variable for vendor in context.vendors if vendor.visibility.variable]
    return _with_doubt(intent, script, lists, without_documentation, *_PYTHON)


def _may_use_devices(words: Sequence[str]) -> bool:
    inner = unwrap(words)[1]
    return is_python(inner) or _is_launcher(words)


def _is_launcher(words: Sequence[str]) -> bool:
    inner = unwrap(words)[1]
    return recognised(inner).name != "python" or program_of(inner) is not None
