"""Find the words of a launch that look like secrets: they are shown and run, but not written to a file.

Other users can read only the program and the script of a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from gputui.launching.argument_vector import Split, likely_options, program_name
from gputui.launching.launchers import recognised
from gputui.launching.python_command import read_python
from gputui.launching.secret_table import (
    BEGINNINGS,
    PROGRAMS,
    SHAPES,
    TOKEN,
    Program,
    is_named_secret,
    is_reference,
    token_name,
)
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import unwrap
from gputui.vendors.visibility import Changes

MARK = "***"
"""The text that replaces a secret."""

_ASSIGNED = re.compile(r"[+~]*([A-Za-z_][\w.@/-]*)\+?=(.+)", re.DOTALL)
"""A variable, and an override of Hydra's (`++hub.token=x`, `db@src.password=x`)."""
_OPTIONS = re.compile(r"[A-Za-z_]\w*\+?=(?=-)")
"""`ARGS="--token x"` begins the text of a call's options."""
_NAME = r"(?<![\w-])-{0,2}([A-Za-z_][\w.-]{0,99})"
_NAMED_WITHIN = re.compile(rf"""{_NAME}['"]?\]?\+?=""")
_VALUE_PATTERN = r"""'[^']*'?|"[^"]*"?|\$\([^)]*\)|`[^`]*`?|[^\s'";&|]+"""
_VALUE = re.compile(_VALUE_PATTERN)
_LONGEST_JUDGED = 512
_KEY = re.compile(
    r"""(?:(?<![\w-])|(?<=%2[27]))-{0,2}(?P<name>[A-Za-z_][\w.-]{0,99})(?P<closed>\\?['"]|%2[27])?\]?(?P<blank>\s{0,9})"""
    r"""(?P<sign>:\s\w{1,20}\s?=(?!=)|:=|=>|\+?=(?!=)|[:,>]|%3[ADad])\s{0,9}"""
)
"""A name with the sign between it and its value, as configurations and programs write them: `"token": `,
`token = `, `environ["TOKEN"] = `, `token: str = `, `<token>`, `("TOKEN", `, `%22token%22%3A`."""
_OPENING = re.compile(
    r"""[|>][+-]?\d?[^\S\n]*\n(?P<block>[^\S\n]+)|(?:!!\w{1,20}\s)?(?:(?P<bracket>[(\[{])|[rRbBuUfF]{0,2}(?P<quote>\\?(?:\'{3}|"{3}|['"])|%2[27]))"""
)
"""The beginning of a value: a block of YAML, a bracket, or a quote with the letters of a Python string."""
_BARE = re.compile(r"""(?=(?P<bare>[^\s,;&|'"`<>()\[\]{}]{1,4096}))(?P=bare)(?![(\[{\w])""")
"""A value without quotes that is not a call."""
_BLOCK = re.compile(r"[^\n]*(?:\n[^\S\n]+[^\n]*)*")
_ENDS = {'"': re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL), "'": re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)}
_BRACKET = re.compile(r"([(\[{])|[)\]}]")
_PAIR_WITHIN = re.compile(
    r"""(?<!\w)(?:name|key)\\?['"]?\s?[:=]\s?\\?['"]?([A-Za-z_]\w{0,99})\\?['"]?,\s?\\?['"]?[\w.\[\]]{0,99}?value\\?['"]?\s?[:=]\s?(\\?['"][^'"]+|[^\s,}\]'"]+)"""
)
"""`{"name": "TOKEN", "value": "x"}` of Kubernetes and AWS, `env[0].name=TOKEN,env[0].value=x` of Helm."""
_VALUE_BEFORE = re.compile(
    r"""(?<!\w)value['"]?\s?[:=]\s?['"]?([^'",\n]{1,200})['"]?,\s?['"]?(?:name|key)['"]?\s?[:=]\s?['"]?([A-Za-z_]\w{0,99})"""
)
"""The same with the value first."""
_SAID_WITHIN = re.compile(
    rf"{_NAME}\s{{0,3}}:\s{{0,3}}(?:(?:Bearer|Basic|Token)\s+)?(?!(?:Bearer|Basic|Token)\s)(?=([\w.+/=~-]{{6,999}})(?![\w.+/=~(-]))",
    re.IGNORECASE,
)
"""`X-Api-Key: xxxxxx`, `{token: xxxxxx}`."""
_SET_WITHIN = re.compile(
    rf"""(?<![\w-])(?:(?:setenv|set(?:\s+-{{1,2}}\w{{1,9}})+)\s+([A-Za-z_]\w{{0,99}})\s+|([A-Za-z_]\w{{0,99}})\s*<<<\s*)({_VALUE_PATTERN})"""
)
"""`set -x TOKEN x` of fish, `setenv TOKEN x` of csh, `read TOKEN <<< x`."""
_SEVERAL = re.compile(r"(?:token|passw(?:or)?d|phrase|secret|key)s\Z", re.IGNORECASE)
"""The end of an option that takes several values."""
_SETS = re.compile(
    r"setenv|-{1,2}(?:set(?:-?env)?|g?env|kv|opts?|options?|overrides?|param(?:eter)?s?|var|[Dosv])"
)
"""Options and commands that take a name and a value as two words."""
_HEADER_OPTION = re.compile("-H|--(?:proxy-)?header")
_WHOLE_HEADER = re.compile(
    r"(?:-H|--(?:proxy-)?header=)?([A-Za-z_][\w.-]{0,99}):\s*(?:(?:Bearer|Basic|Token)\s+)?(.+)",
    re.IGNORECASE | re.DOTALL,
)
"""A header that is a whole word: its value may have any characters."""

_ANY_PROGRAM = "|".join(program.called for program in PROGRAMS)
_ENGINES = frozenset(("docker", "podman", "nerdctl"))
_STARTS = frozenset(("run", "create"))
_PORTS = re.compile(r"[\d.]*:?[\d-]{1,11}:[\d-]{1,11}(?:/[a-z]{1,4})?")
"""`docker run --name mysql -p3306:3306` publishes a port."""

_PIECE = re.compile(
    r"""'(?P<single>[^']*)'?|"(?P<double>(?:[^"\\]|\\.)*)"?|(?P<redirection>(?:\d+|&)?[<>]+[&|]?)|(?P<blank>(?:[^\S\n]|\\\n)+)|(?P<comment>(?<![^\s;&|(){])#[^\n]*)"""
    r"""|(?P<plain>[^\s'"\\;&|()<>`]+)|\\(?P<escaped>.)|(?P<end>[\n;&|()`])|\\""",
    re.DOTALL,
)
"""The tokens of a shell's text. An unclosed quote extends to the end."""
_LEVELS = 6
"""The deepest nesting of quoted shell texts that is read."""

_TOKEN = re.compile(rf"{BEGINNINGS}[-_.0-9A-Za-z]{{6,}}|(?=\w*\d)(?=\w*[A-Za-z])[\w-]{{24,}}")
"""Words that other users must not read: tokens, and any long mixture of letters and digits without a dot."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks as if it holds a secret."""
    return bool(value) and secret_word((f"{name}={value}",)) is not None


class _Found(NamedTuple):
    """A secret: its description, the index of its word, and its position in the word."""

    name: str
    place: int
    start: int
    end: int


def secret_changes(changes: Changes) -> Changes:
    """Return the environment changes with `MARK` for the values that look like secrets."""
    return tuple((name, MARK if value and is_secret(name, value) else value) for name, value in changes)


def secret_word(command: Sequence[str]) -> str | None:
    """Return the option or variable of a command that seems to have a secret, None where there is none."""
    return next((each.name for each in _found(command)), None)


def secret_in(command: Sequence[str], changes: Changes) -> str | None:
    """Return the same for a command and the changes to its environment."""
    return secret_word(command) or next(
        (name for name, value in changes if value and is_secret(name, value)), None
    )


def without_secrets(command: Sequence[str]) -> Split:
    """Return the command with `MARK` for each apparent secret, and the secrets' descriptions, each once."""
    found = _found(command)
    words = list(command)
    for place, own in groupby(found, key=lambda each: each.place):
        kept, at = "", 0
        for _, _, start, end in own:
            if start >= at:
                kept += words[place][at:start] + MARK
            at = max(at, end)
        words[place] = kept + words[place][at:]
    return tuple(words), tuple(dict.fromkeys(each.name for each in found))


def _found(command: Sequence[str]) -> list[_Found]:
    found: set[_Found] = set()
    calls = [[_Word(place, word, range(len(word)), (0, len(word))) for place, word in enumerate(command)]]
    for level in range(_LEVELS):
        for call in calls:
            found.update(_in_call(call))
            found.update(_given_to_programs(call, within=level > 0))
        # Any word with blanks may be the text of a shell: of `sh -c`, `su -c`, `ssh HOST`, `sbatch --wrap`.
        texts = [word for call in calls for word in call if len(word.text.split(None, 1)) > 1]
        texts += [word.behind(match.end()) for word in texts if (match := _OPTIONS.match(word.text))]
        calls = [call for text in texts for call in _calls_in(text)]
    return sorted(found, key=lambda each: (each.place, each.start, -each.end))


class _Word(NamedTuple):
    """A word of a command, or a word within a shell's text that is itself a word of the command.

    place  the index of the command's word
    text   the word as the program reads it, without quotes
    at     the position of each of its characters in the command's word
    span   its span in the command's word, with its quotes
    """

    place: int
    text: str
    at: Sequence[int]
    span: tuple[int, int]

    def behind(self, start: int) -> _Word:
        """Return the part that begins at this character."""
        return _Word(self.place, self.text[start:], self.at[start:], self.span)

    def secret(self, name: str, start: int, end: int | None = None) -> Iterator[_Found]:
        """Yield a secret for these characters, by default to the end; for the whole word where quotes are in
        between."""
        end = len(self.text) if end is None else end
        if start < end and not is_reference(self.text[start:end]):
            first, last = self.at[start], self.at[end - 1] + 1
            yield _Found(name, self.place, *((first, last) if last - first == end - start else self.span))


def _in_call(call: Sequence[_Word]) -> Iterator[_Found]:
    """Yield the secrets that the words of one call reveal by name or shape."""
    for option in likely_options([word.text for word in call]):
        if option.value and is_named_secret(option.spelling, option.value):
            glued = option.glue is not None
            place, start = (option.place, len(option.spelling) + 1) if glued else (option.place + 1, 0)
            yield from call[place].secret(option.spelling, start)
            if _SEVERAL.search(option.spelling) and not glued:
                for word in takewhile(lambda each: not each.text.startswith("-"), call[place + 1 :]):
                    yield from word.secret(option.spelling, 0)
    before = ""
    # `docker run --env TOKEN IMAGE` passes a variable on; `printf -v TOKEN %s x` has a format.
    sets = _ENGINES.isdisjoint(word.text for word in call)
    for index, word in enumerate(call):
        if sets and _SETS.fullmatch(before):
            values = (each for each in call[index + 1 :] if not each.text.startswith("%"))
            value = next(values, None)
            if value and not value.text.startswith("-") and is_named_secret(word.text, value.text):
                yield from value.secret(word.text, 0)
        for name, span in (*_assignments(word.text), *_within(word.text)):
            yield from word.secret(name, *span)
        if _HEADER_OPTION.fullmatch(before) or _HEADER_OPTION.match(word.text):
            header = _WHOLE_HEADER.fullmatch(word.text)
            if header and is_named_secret(header[1], header[2]):
                yield from word.secret(header[1], header.start(2))
        before = word.text


def _given_to_programs(call: Sequence[_Word], within: bool) -> Iterator[_Found]:
    """Yield the secrets that a program of the call takes without a revealing name; `within`: the call is part
    of a shell's text."""
    names = [_program_of(word.text) for word in call]
    if within and call:
        # `--wrap=curl` begins the text of another program's option.
        names[0] = names[0].rpartition("=")[2]
    if any(re.fullmatch(_ANY_PROGRAM, name) for name in names):
        for program in PROGRAMS:
            yield from _given_to(program, call, names)


def _program_of(text: str) -> str:
    return "" if "://" in text else text.rpartition("/")[2]


def _given_to(program: Program, call: Sequence[_Word], names: Sequence[str]) -> Iterator[_Found]:
    """Yield the secrets of a program anywhere among the words: wrappers may precede it."""
    place, reads, publishes = 0, False, not _ENGINES.isdisjoint(names) and not _STARTS.isdisjoint(names)
    while place < len(call):
        word, here = call[place], place
        place += 1
        if reads:
            option = re.fullmatch(program.option, word.text)
            if option:
                start = option.start("value")
                if not option["value"]:
                    taken = call[place : place + 1] if program.next else []
                    if not taken or (program.next != "-" and taken[0].text.startswith("-")):
                        continue
                    word, start, place = taken[0], 0, place + 1
                if program.before:
                    at = word.text.find(program.before, start)
                    start = at + len(program.before) if at >= 0 else len(word.text)
                if not (publishes and not program.before and _PORTS.fullmatch(word.text, start)):
                    yield from word.secret(program.name, start)
                continue
            if re.fullmatch(program.valued, word.text):
                place += 1
                continue
            if program.operand and not word.text.startswith("-"):
                if program.operand == "secret":
                    yield from word.secret(program.name, 0)
                reads = False
                continue
        if re.fullmatch(program.called, names[here]):
            verbs = tuple(each.text for each in call[place : place + len(program.verbs)])
            if verbs == program.verbs:
                reads, place = True, place + len(verbs)


def _calls_in(text: _Word) -> list[list[_Word]]:
    """Return the words of each call in a shell's text."""
    calls: list[list[_Word]] = [[]]
    pieces: list[tuple[int, int]] = []
    start = end = 0
    to_file = False

    def end_word() -> None:
        nonlocal to_file
        if pieces and not to_file:
            at = [each for first, last in pieces for each in text.at[first:last]]
            own = "".join(text.text[first:last] for first, last in pieces)
            calls[-1].append(_Word(text.place, own, at, (text.at[start], text.at[end - 1] + 1)))
        to_file = to_file and not pieces
        pieces.clear()

    def apart(start: int, end: int) -> list[_Word]:
        """Return a part that is later read as a separate text, where it has blanks."""
        own, at = text.text[start:end], text.at[start:end]
        return [_Word(text.place, own, at, (at[0], at[-1] + 1))] if own else []

    if "<<" in text.text and "\n" in text.text:
        # An apostrophe in a here-document is not a quote.
        calls += [apart(*match.span()) for match in re.finditer(r"[^\n]+", text.text)] + [[]]
    for match in _PIECE.finditer(text.text):
        kind = match.lastgroup
        if kind == "comment":
            end_word()
            calls += [apart(match.start() + 1, match.end()), []]
            continue
        if kind in ("blank", "end", "redirection"):
            end_word()
            to_file = kind == "redirection" or (to_file and kind == "blank")
            if kind == "end":
                calls.append([])
            continue
        if not pieces:
            start = match.start()
        end = match.end()
        pieces.append(match.span(kind or 0))
    end_word()
    return calls


def _assignments(word: str) -> Iterator[tuple[str, tuple[int, int]]]:
    whole = _ASSIGNED.fullmatch(word)
    # `TOKEN=$TOKEN python x.py` is a shell's text.
    begins = whole and _VALUE.match(word, whole.start(2))
    if (
        whole
        and is_named_secret(whole[1], whole[2])
        and not (begins and is_reference(begins[0].strip("'\"")))
    ):
        yield whole[1], whole.span(2)
        return
    # A word with blanks may be a shell's text; a word without blanks may have several assignments:
    # `A=1,TOKEN=x`.
    at = 0
    while match := _NAMED_WITHIN.search(word, at):
        at = match.end()
        # The value is judged by its beginning: values may be long, and begin at every second character.
        value = _VALUE.match(word, at, at + _LONGEST_JUDGED)
        if value and is_named_secret(match[1], value[0].strip("'\"")):
            value = _VALUE.match(word, at) or value
            at = value.end()
            yield match[1], value.span()


def _within(word: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the secrets that are found anywhere in a word."""
    for match in re.finditer(TOKEN, word):
        yield token_name(match[1]), match.span(1)
    for name, shape in SHAPES:
        for match in re.finditer(shape, word):
            yield name, match.span(1)
    for match in _VALUE_BEFORE.finditer(word):
        if is_named_secret(match[2], match[1]):
            yield match[2], match.span(1)
    yield from _named_values(word)
    for pattern in (_PAIR_WITHIN, _SAID_WITHIN, _SET_WITHIN):
        for match in pattern.finditer(word):
            name = match[1] or match[2]
            if is_named_secret(name, match[match.re.groups].strip("'\"")):
                yield name, match.span(match.re.groups)


def _named_values(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the values that follow a secret's name in a text, each to its end."""
    at = 0
    while key := _KEY.search(text, at):
        at = key.end()
        opening = _OPENING.match(text, at)
        start = opening.end() if opening else at
        # The value is judged by its beginning: its end may be far away.
        end = _end_of_value(text, key, opening, start + _LONGEST_JUDGED)
        if end > start and is_named_secret(key["name"], text[start:end]):
            at = _end_of_value(text, key, opening, len(text))
            yield key["name"], (start, at)


def _end_of_value(text: str, key: re.Match[str], opening: re.Match[str] | None, most: int) -> int:
    """Return where the value of a key ends, 0 where none follows; an unclosed value extends to the end.

    At most `most` characters of the text are read.
    """
    most = min(most, len(text))
    sign, start = key["sign"], opening.end() if opening else key.end()
    if sign == ">":
        return max(0, text.find("<", start, most)) if text[key.start() - 1 : key.start()] == "<" else 0
    if sign == "," and not (key["closed"] and (key["name"].isupper() or key[0].startswith("-"))):
        return 0
    if opening is None:
        # `TOKEN= python t.py` of a shell has no value; _assignments() and _SAID_WITHIN find the others.
        bare = sign in (":=", "=>") or (sign == "=" and key["blank"]) or (sign == ":" and key["closed"])
        found = _BARE.match(text, start, most) if bare else None
        return found.end() if found else 0
    if opening["block"]:
        return _BLOCK.match(text, start, most).end()  # type: ignore[union-attr]
    if quote := opening["quote"]:
        if quote in _ENDS:
            return _ENDS[quote].match(text, start, most).end()  # type: ignore[union-attr]
        end = text.find(quote, start, most)
        return most if end < 0 else end
    depth = 1
    for bracket in _BRACKET.finditer(text, start, most):
        depth += 1 if bracket[1] else -1
        if not depth:
            return bracket.start()
    return most


_SCRIPT = re.compile(r"[\w.@%+-]{1,80}\.(?:py|pyc|pyz|sh|bash|zsh|ksh|fish)")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_PROGRAM = re.compile(r"[\w.@%+][\w.@%+-]{0,79}")


def program_and_script(command: Sequence[str]) -> str:
    """Return the words of a command that other users may read: its program, and its script or module.

    Examples: "torchrun train.py", "python -m pkg.train". Options, arguments and variables are left out, as
    any of them may be a secret. The result is "" where the program has no plain name.
    """
    prefix, inner = unwrap(command)
    launcher = recognised(inner)
    if launcher.name != "python":
        entrypoint = launcher.entrypoint(inner)
        name = (*entrypoint.words, "")[0]
        what = _module(name) if entrypoint.kind == "module" else _script(name)
        return " ".join(filter(None, (launcher.name, what)))
    name, shell, python = program_name(inner), shell_of(inner), read_python(inner)
    if python is not None:
        script = _module(python.module or "") or _script(python.script or "")
    else:
        script = _script((shell.script if shell else None) or "")
        if prefix and not shell and not _script(name):
            # An option that is missing from the table may have a value, which then looks like the program.
            name = program_name(prefix)
    if not _PROGRAM.fullmatch(name) or _TOKEN.fullmatch(name):
        return ""
    return " ".join(filter(None, (name, script)))


def _script(word: str) -> str:
    """Return the name of the file, "" where the word does not look like a script."""
    name = word.rsplit("/", 1)[-1]
    return name if _SCRIPT.fullmatch(name) and not _TOKEN.fullmatch(name) else ""


def _module(word: str) -> str:
    """Return "-m" and the module, "" where the word does not look like a module's name."""
    return f"-m {word}" if len(word) <= 80 and _MODULE.fullmatch(word) and not _TOKEN.fullmatch(word) else ""
