"""Scan a shell script for the commands that it starts: line by line, without running a shell.

The result answers how many devices the script needs, or which devices it names. A variable is known where its
value is written above ("N=8", "${N:-8}", "$1", an array, a list of `for`). Values that a branch, a function
or a program decides are not known, and neither are values that depend on them. The scan is not a security
measure: a confined command opens its own devices only, whatever its script sets (confine.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.others_files import NotReadError, go_on
from gputui.launching.shell_words import WordsError, assignments, split
from gputui.system.environment import Environ, Variables

_MOST_COMMANDS = 2_000
"""The most commands that are followed, counting each iteration of a loop."""
_DEEPEST = 8
"""The deepest nesting of loops."""
_LONGEST = 1 << 14
"""The most characters of an expanded command."""

_NESTED = r"[^()]*"
for _ in range(4):
    _NESTED = rf"(?:[^()]|\({_NESTED}\))*"
_COMPUTED = rf"\$\({_NESTED}\)|`[^`]*`"
_BRACED = r"\$\{(?:[^{}]|\$\{[^{}]*\})*\}"
_QUOTED = rf"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|{_COMPUTED}"""
_TOKEN = re.compile(
    rf"""(?P<blank>[ \t\r]+|\\\n|\#[^\n]*)
    |(?P<redirect>[0-9]*(?:&>>?|<<<|<<-?|[<>]&|>\||>>?|<)[ \t]*)
    |(?P<array>[A-Za-z_]\w*\+?=\((?:[^()'"#\\`$]|{_QUOTED}|(?<![\s(])\#|(?<=[\s(])\#[^\n]*\n|\$(?!\())*\))
    |(?P<end>;;?&?|&&|\|\||\|&?|&|[()\n])
    |(?P<word>(?:{_QUOTED}|{_BRACED}|\$(?![({{])|[^\s;&|()<>'"\\`$])+)""",
    re.VERBOSE | re.DOTALL,
)
"""Within a repetition, no two alternatives begin alike: unclosed text is then read once, without backtracking
over all its divisions."""
_EXPANSION = re.compile(
    rf"(?P<literal>'[^']*'|\\.)|(?P<computed>{_COMPUTED})|\$(?P<plain>[A-Za-z_]\w*|[0-9@*#])"
    r"|(?P<all>\"\$\{\w+\[@\]\}\"|\"\$(?:@|\{@\})\"|\$\{\w+\[[@*]\]\})"
    rf"|\$\{{(?P<name>\w+)(?::?(?P<default>[-=])(?P<word>(?:[^{{}}]|\$\{{[^{{}}]*\}})*))?\}}|(?P<other>{_BRACED})",
    re.DOTALL,
)
_PLACE = re.compile("\0([0-9]+)\0")
"""The placeholder for an unknown value in a line while the line is split."""
_OF_RANKS = re.compile(r"RANK|LOCALID|^SLURM_|^OMPI_|^PMI")
"""Variables that a launcher sets for each process: where the script runs, if not here."""
_SEQUENCE = re.compile(r"\{([0-9]{1,3})\.\.([0-9]{1,3})\}")

_OPENING = ("if", "while", "until", "case", "select", "for", "function", "{")
_CLOSING = ("fi", "done", "esac", "}")
_KEYWORDS = (*_OPENING, *_CLOSING, "then", "else", "elif", "do", "!", "time", "exec", "command")
_DECLARING = ("export", "declare", "typeset", "local", "readonly")
_READING = ("read", "mapfile", "readarray", "getopts")
_TESTS = ("[", "[[", "test")
_NO_PROGRAMS = frozenset(
    "echo printf mkdir true false : wait sleep date ls rm cp mv cat ulimit trap chmod touch return".split()  # noqa: SIM905
)
"""Commands that start no other program."""


class Value(NamedTuple):
    """A text; where its value is not `known`, the text as written in the script."""

    text: str
    known: bool = True


@frozen
class StartedCommand:
    """A program that a script starts.

    words      the words as the program gets them; unknown values are as written in the script
    unknown    the words that contain an unknown value
    variables  the environment variables that the script sets; None: unset, or not known
    not_known  the variables among them whose value is not known, with the value as written
    certain    whether it is started whenever the script reaches its line
    directory  its working directory, relative to the script's; "" for the same one, None where that is not
               known
    line       the line of the script, from 1
    """

    words: tuple[str, ...]
    unknown: tuple[str, ...]
    variables: Variables
    not_known: Mapping[str, str]
    certain: bool
    line: int
    directory: str | None = ""


class _Simple(NamedTuple):
    """A command as written: its words, and its terminator ("" where the rest cannot be read)."""

    words: tuple[str, ...]
    end: str
    line: int


def read_shell(
    text: str, arguments: Sequence[str], environ: Environ, given: Mapping[str, str] = {}
) -> tuple[tuple[StartedCommand, ...], bool]:
    """Return the commands that a script starts, in order, and whether the whole script was read.

    `arguments` are $1, $2, …; `environ` is the environment of the script; `given` maps inherited variables
    whose value is not known yet, but is not empty, to placeholders.
    """
    commands = list[_Simple]()
    script, whole = _Script(arguments, environ, given), True
    try:
        for each in _simple_commands(text):
            go_on()
            if not each.end or len(commands) >= _MOST_COMMANDS:
                whole = False
                break
            if each.words or each.end in ("(", ")"):
                commands.append(each)
        script.follow(commands)
    except NotReadError:
        whole = False
    return tuple(script.commands), whole


def _simple_commands(text: str) -> Iterator[_Simple]:
    """Yield the commands of a text, without comments, redirections and here-documents."""
    words, ends_of_documents, skips = list[str](), list[str](), ""
    place, line, depth = 0, 1, 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            yield _Simple((), "", line)
            return
        kind, found, begun = token.lastgroup, token[0], line
        place, line = token.end(), line + token[0].count("\n")
        if kind == "redirect":
            skips = found.strip()
        elif kind in ("word", "array"):
            if not skips and len(words) < _MOST_COMMANDS:
                words.append(found)
            elif not skips:
                break
            elif skips.endswith(("<<", "<<-")):
                ends_of_documents.append(found.strip("'\"\\"))
            skips = ""
        elif kind == "end":
            # Without a "(" before it, a ")" ends a pattern of `case`.
            pattern = found == ")" and not depth
            yield _Simple(tuple(words if not pattern else words[:1] if "case" in words else ()), found, begun)
            depth = max(0, depth + {"(": 1, ")": -1}.get(found, 0))
            words, skips = [], ""
            while found == "\n" and ends_of_documents:
                go_on()
                end = re.compile(rf"^\t*{re.escape(ends_of_documents.pop(0))}$", re.MULTILINE)
                close = end.search(text, place)
                behind = close.end() if close else len(text)
                place, line = behind, line + text.count("\n", place, behind)
    yield _Simple(tuple(words), "\n" if place >= len(text) else "", line)


class _Script:
    """The state at one line of a script, and the commands that it has started so far."""

    def __init__(self, arguments: Sequence[str], environ: Environ, given: Mapping[str, str]) -> None:
        self.commands: list[StartedCommand] = []
        self.line = 1
        self._arguments: tuple[str, ...] | None = tuple(arguments)
        self._values = {name: Value(value) for name, value in environ.items()}
        self._values.update((name, Value(written, known=False)) for name, written in given.items())
        self._inherited = {*environ, *given}
        self._exported = {*self._inherited}
        self._own = set(given)
        """The variables that the script, or the launch, sets: they differ from the inherited ones."""
        self._open: list[str] = []
        self._directory: str | None = ""
        self._turns = self._loops = 0

    def follow(self, commands: Sequence[_Simple], perhaps: bool = False) -> None:
        """Follow the commands. Raises NotReadError where there are too many, or they are too long."""
        place, joined = 0, ""
        while place < len(commands):
            go_on()
            command = commands[place]
            self.line = command.line
            place += 1
            words, ends = [*command.words], False
            doubtful = perhaps or joined in ("||", "[&&")
            while words and words[0] in _KEYWORDS:
                keyword = words.pop(0)
                ends |= keyword == "exec"
                if keyword == "for" and words[1:2] == ["in"]:
                    body = self._body(commands, place)
                    self._loop(words[0], words[2:], commands[place:body], doubtful)
                    place, words = body, []
                    # Its `done` follows.
                    self._open.append(keyword)
                elif keyword in _OPENING:
                    self._open.append(keyword)
                    words = words if keyword == "if" else []
                elif keyword in _CLOSING and self._open:
                    self._open.pop()
            self._turns += bool(words)
            if self._turns > _MOST_COMMANDS:
                raise NotReadError("it starts too many commands")
            unsure = doubtful or bool(self._open)
            if words and words[0] not in _TESTS:
                self._execute(words, unsure)
                ends |= words[0] == "exit"
            if words and ends and not unsure:
                return
            is_test = command.words[:1] and command.words[0] in _TESTS
            joined = f"[{command.end}" if is_test and command.end == "&&" else command.end
            if command.end == "(":
                self._open.append("(")
            elif command.end == ")" and self._open[-1:] == ["("]:
                self._open.pop()

    @staticmethod
    def _body(commands: Sequence[_Simple], place: int) -> int:
        """Return the index at which the loop whose header precedes `place` ends."""
        depth = 1
        for end in range(place, len(commands)):
            words = [word for word in commands[end].words if word in ("do", "done")]
            depth += sum(1 if word == "do" else -1 for word in words)
            if depth <= 1 and "done" in words:
                return end
        return len(commands)

    def _loop(self, name: str, listed: Sequence[str], body: Sequence[_Simple], perhaps: bool) -> None:
        """Follow a loop once for each value where all values are known; otherwise once."""
        values = [value for word in listed for value in self._words(word)]
        known = bool(values) and all(value.known for value in values)
        self._loops += 1
        if self._loops > _DEEPEST:
            raise NotReadError("it has too many nested loops")
        for value in values if known else [Value(f"${name}", known=False)]:
            self._values[name] = value
            self.follow(body, perhaps or not known)
        if perhaps or self._open:
            # The loop may not have run.
            self._values[name] = Value(f"${name}", known=False)
        self._loops -= 1

    def _execute(self, raw: Sequence[str], unsure: bool) -> None:
        """Process a command: set its variables, or record the program that it starts."""
        given = [value for word in raw for value in self._words(word)]
        set_before = list[tuple[str, Value]]()
        while given and (pairs := assignments((given[0].text,))[0]):
            set_before.append((pairs[0][0], Value(pairs[0][1], given[0].known)))
            del given[0]
        program = given[0].text if given else ""
        if program in _DECLARING:
            for each in given[1:]:
                pairs = assignments((each.text,))[0]
                set_before += [(name, Value(value, each.known)) for name, value in pairs]
                if program == "export" or given[1].text.startswith("-x"):
                    self._exported.add(each.text.partition("=")[0])
        if not given or program in _DECLARING:
            for name, value in set_before:
                self._set(name, value, unsure)
        elif program == "unset":
            for each in given[1:]:
                self._set(each.text, Value(f"${each.text}", known=not unsure), unsure)
                if not unsure:
                    del self._values[each.text]
                    self._exported.discard(each.text)
        elif program == "shift" or (program == "set" and _sets_arguments(given[1:])):
            self._arguments = None
        elif program == "cd":
            place = given[1] if len(given) == 2 and not unsure else Value("", False)
            inside = place.known and self._directory is not None and place.text[:1] not in ("-", "~")
            here = f"{self._directory}/" if self._directory and not place.text.startswith("/") else ""
            self._directory = f"{here}{place.text}" if inside else None
        elif program in _READING:
            for each in given[1:]:
                self._set(each.text, Value(f"${each.text}", known=False), unsure)
        elif program not in _NO_PROGRAMS and program != "exit":
            self._start(given, dict(set_before), unsure)

    def _set(self, name: str, value: Value, unsure: bool) -> None:
        """Set a variable; where it is not certain that its value changes, the value becomes unknown."""
        if unsure and self._values.get(name) != value:
            value = Value(f"${name}", known=False)
        self._values[name] = value
        self._own.add(name)

    def _start(self, words: Sequence[Value], before: Mapping[str, Value], unsure: bool) -> None:
        values: dict[str, Value | None] = {
            name: self._values.get(name) if name in self._exported else None
            for name in self._own & (self._exported | self._inherited)
        }
        values.update(before)
        self.commands.append(
            StartedCommand(
                tuple(each.text for each in words),
                tuple(each.text for each in words if not each.known),
                {name: value.text if value and value.known else None for name, value in values.items()},
                {name: value.text for name, value in values.items() if value and not value.known},
                not unsure,
                self.line,
                self._directory,
            )
        )

    def _words(self, raw: str) -> list[Value]:
        """Expand a word. Variables are replaced by their values, and the result is split again; quoted text
        stays one word."""
        go_on()
        unknown: list[str] = []
        array = re.match(r"(\w+)(\+?)=\(", raw)
        if array is not None:
            before = self._values.get(array[1]) if array[2] else None
            inner = re.sub(r"(?<!\S)#[^\n]*", "", raw[array.end() : -1])
            value = " ".join(filter(None, (before.text if before else "", self._expanded(inner, unknown))))
            if len(value) > _LONGEST:
                raise NotReadError("it has lists that are too long")
            self._values[array[1]] = Value(
                _with(value, unknown), not unknown and (before is None or before.known)
            )
            return []
        braces = _SEQUENCE.fullmatch(raw)
        if braces is not None:
            return [Value(str(number)) for number in range(int(braces[1]), int(braces[2]) + 1)]
        line = self._expanded(raw.replace("\\\n", ""), unknown)
        if len(line) > _LONGEST:
            raise NotReadError("it has commands that are too long")
        try:
            return [Value(_with(word, unknown), "\0" not in word) for word in split(line)]
        except WordsError:
            return [Value(raw, known=False)]

    def _expanded(self, raw: str, unknown: list[str]) -> str:
        """Return a text with the values of its variables, and placeholders for unknown values, which are
        appended to `unknown`. Raises NotReadError before the result is longer than a command may be."""
        left = _LONGEST

        def written(match: re.Match[str]) -> str:
            nonlocal left
            value = self._value(match)
            text = value.text if value is not None else match[0]
            left -= len(text)
            if left < 0:
                raise NotReadError("it has commands that are too long")
            if value is not None and value.known:
                return text
            unknown.append(text)
            return f"\0{len(unknown) - 1}\0"

        return _EXPANSION.sub(written, raw)

    def _value(self, match: re.Match[str]) -> Value | None:
        """Return the value of an expansion; None where that is not known."""
        if match["literal"] is not None:
            return Value(match[0])
        if match["computed"] is not None or match["other"] is not None:
            return None
        name = match["plain"] or match["name"] or match["all"].strip('"${[@]}*') or "@"
        listed = None if "{" in self._open or "function" in self._open else self._arguments
        if name.isdigit() or name in ("@", "*", "#"):
            if listed is None or name == "0":
                return None
            place = int(name[:4]) if name.isdigit() else 0
            text = str(len(listed)) if name == "#" else shlex.join(listed) if not place else ""
            value = Value(listed[place - 1] if 0 < place <= len(listed) else text)
        else:
            value = self._values.get(name) or Value("", not _OF_RANKS.search(name))
        if match["default"] and value == Value(""):
            words = self._words(match["word"])
            value = Value(" ".join(each.text for each in words), all(each.known for each in words))
            if match["default"] == "=":
                self._values[name] = value
        return value if value.known or value.text else None


def _sets_arguments(words: Sequence[Value]) -> bool:
    """Whether these words of `set` set $1, $2, …"""
    return any(word.text == "--" for word in words) or (bool(words) and words[0].text[:1] not in ("-", "+"))


def _with(text: str, unknown: Sequence[str]) -> str:
    """Replace the placeholders in the text by the unknown values as written."""
    return _PLACE.sub(lambda match: unknown[int(match[1])], text)
