"""Splitting a typed line into words and joining words to a line. Nothing is expanded as a shell would.

What a shell would act on (`;`, `|`, `$(…)`) is found here, for every line that people write: it would be a
plain argument, and `rm -r out; python x.py` would remove x.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from gputui.launching.quoting import quote

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_HARMLESS = r"""[^"\\`$]*(?:(?:\\.|\$(?!\())[^"\\`$]*)*"""
"""Within double quotes."""
_SYNTAX = re.compile(rf"""\$\(|\$['"]|"{_HARMLESS}(\$\(|`)|`|\n|&&?|\|\|?|>>?|<<?|;|\#(?<!\S\#)""", re.DOTALL)
"""What a shell acts on where it is not quoted; of these, `$(` and a backtick also in double quotes. (Each
begins with a character of its own, at which a search begins.)"""
_WITHOUT_SYNTAX = re.compile(
    rf"""'(?<!\$')[^']*'|"(?<!\$"){_HARMLESS}"|\\.|\$\{{[^}}]{{0,200}}\}}""", re.DOTALL
)
_MAY_ACT = re.compile(r"[$`\n&|><;#]")
_EXPANSION = re.compile(
    r"\$(\{[^}]{0,200}\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])"
    r"|\{[^\s{}]{0,99}(,|\.\.)[^\s{}]{0,200}\}|\*|\?|\[[^\s\]]{1,200}\]"
)
"""What a shell replaces where it is not quoted; of these, the first also in double quotes. (No repetition is
without an end: no line takes long.)"""
_HOME = re.compile(r"~[^\s/]*")
_PLAIN = re.compile(r"[^\\'\"]+")
_BARE = re.compile(r"[^ \t\r\n]+")
_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]+|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.)+|['"\\]""", re.DOTALL)
"""A word with its quotes; a quote alone is one that is not closed."""
_QUOTED = re.compile(r"""'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.DOTALL)
_MARKS = re.compile(r"['\"\\]")
_MAY_EXPAND = re.compile(r"[${*?\[~]")


class WordsError(ValueError):
    """The line cannot be split: a quote is not closed. The message is for the person who types."""


def split(line: str) -> tuple[str, ...]:
    """The words of a line; quotes and backslashes mean what they mean to a shell. Raises WordsError.

    They are those of `shlex.split`, which takes seconds for a list of many tasks: it reads by characters.
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
    # (Each match is followed by its three groups.)
    parts = _QUOTED.split(word)
    if "\\" in word:
        parts[2::4] = [part and _without_backslashes(part) for part in parts[2::4]]
    return "".join(filter(None, parts))


def _without_backslashes(text: str) -> str:
    """What double quotes quote: a backslash is one unless a quote or another backslash follows."""
    return "\\".join(part.replace('\\"', '"') for part in text.split("\\\\"))


def assignments(words: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The `NAME=value` words before the command, and the command: ((("A", "1"),), ("python", "x.py"))."""
    found: list[tuple[str, str]] = []
    for place, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return tuple(found), tuple(words[place:])
        found.append((match[1], match[2]))
    return tuple(found), ()


def shell_syntax(line: str) -> str | None:
    """The first of a line that a shell would act on (a pipe, `;`, a second line, a comment), and that is a
    plain argument here; None for none."""
    if not _MAY_ACT.search(line):
        return None
    found = _SYNTAX.search(_WITHOUT_SYNTAX.sub("_", line))
    syntax = found and (found[1] or found[0])
    return "a second line" if syntax == "\n" else syntax


def shell_expansion(line: str) -> str | None:
    """The first of a line that a shell would replace (`$HOME`, `~`, `*`, `{a,b}`), and that stays as it is
    here; None for none."""
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
    """The command that has a shell read the line."""
    return f"bash -c {shlex.quote(line)}"


def one_line(text: str) -> str:
    """What is pasted as one line, as a shell joins lines that end with a backslash; other ends stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    # (In single quotes a shell keeps them, too.)
    return "".join(part if kind == "'" else part.replace("\\\n", "") for part, kind in _quoted_parts(text))


def one_word_for_several(program: str) -> str:
    """What to write in place of a program that is a whole line in one word; "" where it is none."""
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
    """A line in parts, with how each is quoted: by "'", by '"', by a backslash, or not at all ("")."""
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
            # (With `$` before it, it is a shell's own way of quoting.)
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
    """Variables and a command as one line that can be edited; `split` and `assignments` read it back."""
    words = [f"{name}={shlex.quote(value)}" for name, value in additions]
    return " ".join([*words, *([shlex.join(command)] if command else [])])
