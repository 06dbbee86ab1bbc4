"""Split a typed line into words, and join words to a line, without a shell's expansions.

This module also finds the syntax that a shell would act on (`;`, `|`, `$(…)`) in every line that users write:
it would be a plain argument here, and `rm -r out; python x.py` would remove x.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gputui.inventory.quoting import posix, quote
from gputui.system.environment import Assignments

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_HARMLESS = r"""[^"\\`$]*(?:(?:\\.|\$(?!\())[^"\\`$]*)*"""
"""Within double quotes."""
_SYNTAX = re.compile(rf"""\$\(|\$['"]|"{_HARMLESS}(\$\(|`)|`|\n|&&?|\|\|?|>>?|<<?|;|\#(?<!\S\#)""", re.DOTALL)
"""Unquoted syntax that a shell acts on; `$(` and a backtick also count in double quotes. Each alternative
begins with a different character, at which a search begins."""
_WITHOUT_SYNTAX = re.compile(
    rf"""'(?<!\$')[^']*'|"(?<!\$"){_HARMLESS}"|\\.|\$\{{[^}}]{{0,200}}\}}""", re.DOTALL
)
_MAY_ACT = re.compile(r"[$`\n&|><;#]")
_EXPANSION = re.compile(
    r"\$(\{[^}]{0,200}\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])"
    r"|\{[^\s{}]{0,99}(,|\.\.)[^\s{}]{0,200}\}|\*|\?|\[[^\s\]]{1,200}\]"
)
"""Unquoted syntax that a shell replaces; the first alternative also counts in double quotes. Every repetition
is bounded, so that no line takes long."""
_HOME = re.compile(r"~[^\s/]*")
_PLAIN = re.compile(r"[^\\'\"]+")
_BARE = re.compile(r"[^ \t\r\n]+")
_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]+|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.)+|['"\\]""", re.DOTALL)
"""A word with its quotes; a quote alone is an unclosed quote."""
_QUOTED = re.compile(r"""'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.DOTALL)
_MARKS = re.compile(r"['\"\\]")
_MAY_EXPAND = re.compile(r"[${*?\[~]")


class WordsError(ValueError):
    """The line cannot be split: a quote is not closed. The message is for the user."""


def split(line: str) -> tuple[str, ...]:
    """Split a line into words; quotes and backslashes mean the same as in a shell. Raises WordsError.

    The result equals that of `shlex.split`, which takes seconds for a list of many tasks, as it reads single
    characters.
    """
    if not _MARKS.search(line):
        return tuple(_BARE.findall(line))
    words = _WORD.findall(line)
    return tuple(_unquoted(word) if _MARKS.search(word) else word for word in words)


def _unquoted(word: str) -> str:
    if word in ("'", '"'):
        raise WordsError("no closing quotation in the command")
    if word == "\\":
        raise WordsError("no escaped character in the command")
    # Each unquoted part is followed by the three groups of a match.
    parts = _QUOTED.split(word)
    if "\\" in word:
        parts[2::4] = [part and _without_backslashes(part) for part in parts[2::4]]
    return "".join(filter(None, parts))


def _without_backslashes(text: str) -> str:
    """Unescape the content of double quotes: a backslash escapes only a quote or another backslash."""
    return "\\".join(part.replace('\\"', '"') for part in text.split("\\\\"))


def assignments(words: Sequence[str]) -> tuple[Assignments, tuple[str, ...]]:
    """Split `NAME=value` words from the command after them: ((("A", "1"),), ("python", "x.py"))."""
    found: list[tuple[str, str]] = []
    for place, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return tuple(found), tuple(words[place:])
        found.append((match[1], match[2]))
    return tuple(found), ()


def shell_syntax(line: str) -> str | None:
    """Return the first syntax of a line that a shell would act on (a pipe, `;`, a second line, a comment) and
    that is a plain argument here; None for none."""
    if not _MAY_ACT.search(line):
        return None
    found = _SYNTAX.search(_WITHOUT_SYNTAX.sub("_", line))
    syntax = found and (found[1] or found[0])
    return "a second line" if syntax == "\n" else syntax


def shell_expansion(line: str) -> str | None:
    """Return the first expansion of a line that a shell would replace (`$HOME`, `~`, `*`, `{a,b}`) and that
    stays unchanged here; None for none."""
    before = " "
    for part, kind in _quoted_parts(line):
        for place in (match.start() for match in _MAY_EXPAND.finditer(part) if kind in ("", '"')):
            before = part[place - 1] if place else before
            found = _EXPANSION.match(part, place)
            if found and (not kind or part[place] == "$"):
                return found[0]
            home = _HOME.match(part, place) if before.isspace() and not kind else None
            if home:
                return home[0]
        before = part[-1:] if kind in ("", '"') else "'"
    return None


def for_a_shell(line: str) -> str:
    """Return the command that passes the line to a shell."""
    return f"bash -c {posix(line)}"


def one_line(text: str) -> str:
    """Join the lines of a pasted text that end with a backslash, as a shell does; other line ends stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    # A shell, too, keeps a backslash and a line end in single quotes.
    return "".join(part if kind == "'" else part.replace("\\\n", "") for part, kind in _quoted_parts(text))


def one_word_for_several(program: str) -> str:
    """Return a hint for a program that is a whole command line in one word; "" for another program."""
    if len(program.split()) < 2:
        return ""
    try:
        plain = shell_syntax(program) is None and bool(split(program))
    except WordsError:
        plain = False
    return (
        f"; as several words it is: {' '.join(map(quote, split(program)))}"
        if plain
        else f"; for a shell it is: bash -c {quote(program)}"
    )


def _quoted_parts(line: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line, with the quoting of each: "'", '"', a backslash, or none ("")."""
    plain, kind, place = "", "", 0
    while place < len(line):
        if (run := _PLAIN.match(line, place)) is not None:
            plain, place = plain + run[0], run.end()
            continue
        character = line[place]
        if character == "\\" and kind != "'":
            yield plain, kind
            yield line[place : place + 2], "\\"
            plain, place = "", place + 2
            continue
        if character in "'\"" and kind in ("", character):
            # With `$` before it, the quote begins a shell's `$'…'` or `$"…"`.
            own = not kind and plain.endswith("$")
            yield (plain + character if own else plain), kind
            if not own:
                yield character, "\\"
            plain, kind = "", "" if kind else character
        else:
            plain += character
        place += 1
    yield plain, kind


def command_line(additions: Sequence[tuple[str, str]], command: Sequence[str]) -> str:
    """Return variables and a command as one line for editing; `split` and `assignments` parse it back."""
    return " ".join([*(f"{name}={posix(value)}" for name, value in additions), *map(posix, command)])
