"""Reads a Makefile for what `make` would start: the recipes of its goals, with make's variables expanded.

What is read is a shell script with the same lines: recipes that are not executed are empty lines in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import NotReadError, go_on, not_read
from gputui.launching.argument_vector import option_table, read_options
from gputui.launching.intent import CommandContext
from gputui.launching.script_contents.started import MOST, StartedScript
from gputui.launching.shell_words import assignments

MAKE = ("make", "gmake")

_OPTIONS = option_table(
    flags="always-make|B environment-overrides|e ignore-errors|i keep-going|k dry-run|n silent|s touch|t",
    valued="directory|C file|makefile|f include-dir|I jobs|j load-average|l old-file|o what-if|W",
)
"""make(1) of GNU make 4.4."""

_NAMES = ("GNUmakefile", "makefile", "Makefile")
_ASSIGNMENT = re.compile(r"(?:export\s+|override\s+)*([A-Za-z_][\w.-]*)\s*(\?=|:{1,3}=|\+=|=)\s*(.*)")
_RULE = re.compile(r"([^\s:=#][^:=#]*):(?!=)([^=]*)(?:;.*)?")
_CONDITIONAL = re.compile(r"\s*(ifeq|ifneq|ifdef|ifndef|else|endif)\b")
_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_][\w.-]*)\)|\{([A-Za-z_][\w.-]*)\}|([A-Za-z@<^]))")
_DEEPEST = 10
"""Variables in variables, and goals that need others."""


def make_script(
    command: Sequence[str], context: CommandContext
) -> tuple[StartedScript, CommandContext] | None:
    """What a command of `MAKE` executes as a shell script, and with which variables; None without a
    Makefile."""
    given = read_options(command[1:], _OPTIONS)
    words = (*given.operands,)
    named = [pair for word in words for pair in assignments((word,))[0]]
    goals = [word for word in words if not assignments((word,))[0]]
    if "directory" in given:
        context = replace(context, directory=_joined(context.directory, given.get("directory")))
    for name in [given.get("file")] if "file" in given else _NAMES:
        found = context.file_beginning(name)
        if found is not None:
            # ("$$" is a "$" of the shell's.)
            inherited = {**context.environ, **{name: f"${said}" for name, said in context.lists.items()}}
            try:
                text = _recipes(found[0], goals, dict(named), inherited)
            except NotReadError as error:
                not_read(name, error)
                return None
            # Variables of make's own line are exported to what it starts.
            return StartedScript("shell", name, text, found[1]), context.with_variables(dict(named))
    return None


def _joined(directory: str | None, path: str) -> str:
    return path if directory is None or path.startswith("/") else f"{directory}/{path}"


def _recipes(text: str, goals: Sequence[str], given: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """The recipes of the goals (the first one of the file where none is given), each on its own line."""
    variables: dict[str, str] = dict(given)
    needed: dict[str, list[str]] = {}
    recipes: dict[str, list[int]] = {}
    lines = _whole_lines(text)
    targets: list[str] = []
    depth = 0
    for number, line in enumerate(lines):
        go_on()
        conditional = _CONDITIONAL.match(line)
        if conditional is not None:
            depth += {"endif": -1, "else": 0}.get(conditional[1], 1)
        elif line.startswith("\t"):
            for target in targets:
                recipes[target].append(number)
        elif (assignment := _ASSIGNMENT.fullmatch(line.partition("#")[0].strip())) is not None:
            _assign(assignment, variables, given, environ, known=depth == 0)
        elif (rule := _RULE.fullmatch(line.partition("#")[0].rstrip())) is not None:
            targets = _expanded(rule[1], variables).split()
            for target in targets:
                recipes.setdefault(target, [])
                needed.setdefault(target, []).extend(_expanded(rule[2], variables).split())
    first = next((target for target in recipes if not target.startswith(".")), None)
    reached: dict[str, None] = {}
    _reach(goals or ([first] if first else []), needed, reached, 0)
    out = [""] * len(lines)
    length = 0
    for target in reached:
        for number in recipes.get(target, ()):
            go_on()
            recipe = _expanded(lines[number].strip().lstrip("@-+ "), {**variables, "@": target})
            # Each is executed by a shell of its own.
            out[number] = f"( {recipe.rstrip('; ')} ; )" if recipe else ""
            length += len(recipe)
            if length > MOST:
                raise NotReadError(f"its recipes have more than {MOST >> 10} KiB")
    return "\n".join(out)


def _whole_lines(text: str) -> list[str]:
    """The lines, those that are continued joined in the first of them; the others are empty then."""
    lines: list[str] = []
    waiting = 0
    for line in text.splitlines():
        if waiting:
            lines[-waiting] += " " + line.strip().rstrip("\\")
            lines.append("")
            waiting += 1
        else:
            lines.append(line.rstrip("\\"))
            waiting = 1
        waiting = waiting if line.endswith("\\") else 0
    return lines


def _assign(
    assignment: re.Match[str],
    variables: dict[str, str],
    given: Mapping[str, str],
    environ: Mapping[str, str],
    known: bool,
) -> None:
    name, how, value = assignment[1], assignment[2], assignment[3]
    if name in given or (how == "?=" and (name in variables or name in environ)):
        # The command line counts before the file; `?=` only where nothing is set.
        variables.setdefault(name, environ.get(name, ""))
    elif not known:
        # In a branch: no shell finds a value for it either.
        variables[name] = f"$(make-variable {name})"
    elif how == "+=":
        variables[name] = f"{variables.get(name, '')} {value}".strip()
    else:
        variables[name] = value
    for other, value in environ.items():
        variables.setdefault(other, value)


def _expanded(text: str, variables: Mapping[str, str], depth: int = 0) -> str:
    """The text with `$(NAME)` replaced. Functions (`$(shell …)`) stay: a shell does not know them either."""

    length = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal length
        go_on()
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2] or match[3]
        value = variables.get(name, "")
        value = value if depth >= _DEEPEST else _expanded(value, variables, depth + 1)
        length += len(value)
        if length > MOST:
            raise NotReadError(f"a variable has more than {MOST >> 10} KiB")
        return value

    return _REFERENCE.sub(replaced, text)


def _reach(
    goals: Sequence[str], needed: Mapping[str, Sequence[str]], reached: dict[str, None], depth: int
) -> None:
    """The goals, each behind what it needs."""
    for goal in goals:
        if goal not in reached and depth < _DEEPEST:
            _reach(needed.get(goal, ()), needed, reached, depth + 1)
            reached[goal] = None
