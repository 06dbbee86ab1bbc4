"""Quote words for shells: the shell reads exactly that word, and all of its characters are visible."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from itertools import groupby

Quoting = Callable[[str], str]

_NAMES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
_NO_PROGRAM = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*\+?=.*|time|if|then|elif|else|fi|for|foreach|end|while|until|repeat|do|done|case|esac"
    r"|select|function|coproc|nocorrect"
)
"""Words that a shell reads as its own syntax at the beginning of a command; zsh also after a `NAME=…`."""

_READABLE = re.compile("""[^$`\\\\!"\\n]*'[^$`\\\\!"\\n]*""")
"""Words with single quotes that every shell, fish and csh too, reads unchanged in double quotes."""

_FISH_PLAIN = re.compile(r"[A-Za-z0-9_@+:,./-][A-Za-z0-9_@%+=:,./-]*")
_POWERSHELL_PLAIN = re.compile(r"(?:--?)?[A-Za-z_/][A-Za-z0-9_/-]*")
_POWERSHELL_QUOTES = re.compile("['\u2018\u2019\u201a\u201b]")
"""Every one of these opens, and closes, a single-quoted string (PowerShell's `CharTraits.IsSingleQuote`)."""


def quote(word: str) -> str:
    """Quote for bash and zsh. Newlines, bidirectional marks and other invisible bytes become `$'\\x…'`.

    They are written byte by byte, so that the line means the same in every locale.
    """
    if word.isprintable():
        return posix(word)
    return "$'" + "".join(_escaped(c) for c in word) + "'"


def posix(word: str) -> str:
    """Quote for any POSIX shell: in single quotes, or in double quotes where the word has single ones and
    nothing that a shell replaces. Everything inside is unchanged."""
    if _READABLE.fullmatch(word):
        return f'"{word}"'
    # An unquoted "=ls" is the path of ls in zsh.
    return f"'{word}'" if word.startswith("=") and "'" not in word else shlex.quote(word)


def fish(word: str) -> str:
    """Quote for fish: as `posix` does, but in single quotes a quote and a backslash are escaped.

    Invisible characters are written outside the quotes, byte by byte (`\\X0a`), so that they can be seen.
    """
    if _FISH_PLAIN.fullmatch(word):
        return word
    parts = []
    for visible, run in groupby(word, str.isprintable):
        text = "".join(run)
        if visible and _READABLE.fullmatch(text):
            parts.append(f'"{text}"')
        elif visible:
            parts.append("'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'")
        else:
            parts += [f"\\X{byte:02x}" for byte in text.encode(errors="surrogateescape")]
    return "".join(parts) or "''"


def powershell(word: str) -> str:
    """Quote for any version of PowerShell: in single quotes, with quotes doubled and all else literal.

    PowerShell treats typographic quotes as quotes, too. Numbers, dots and colons are always quoted: `-x.y`
    and `-x:y` would become two arguments.
    """
    if _POWERSHELL_PLAIN.fullmatch(word):
        return word
    return "'" + _POWERSHELL_QUOTES.sub(lambda found: found[0] * 2, word) + "'"


def assignment(name: str, value: str, form: Quoting) -> str:
    """Return `NAME=value`; an empty value is not quoted, which `env $(gputui pick --format env)` needs."""
    return f"{name}={form(value) if value else ''}"


def change_directory(directory: str, form: Quoting) -> str:
    """Return the `cd` to a directory. A path that does not begin with "/" could mean the last directory ("-")
    or one of CDPATH."""
    return f"cd -- {form(directory if directory.startswith('/') else f'./{directory}')}"


def quote_program(word: str, form: Quoting) -> str:
    """Quote the first word of a command: `NAME=…` must not become an assignment, nor `time` a keyword."""
    quoted = form(word)
    if quoted == word and _NO_PROGRAM.fullmatch(word):
        return f"'{word}'"
    return quoted


def _escaped(character: str) -> str:
    if character in _NAMES:
        return _NAMES[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
