"""Splitting a typed line into words and joining words to a line. Nothing is expanded as a shell would."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELL_WORDS = frozenset(("|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "|&"))


class WordsError(ValueError):
    """The line cannot be split: a quote is not closed. The message is for the person who types."""


def split(line: str) -> tuple[str, ...]:
    """The words of a line; quotes and backslashes mean what they mean to a shell. Raises WordsError."""
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise WordsError(f"{str(error).lower()} in the command") from None


def assignments(words: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The `NAME=value` words before the command, and the command: ((("A", "1"),), ("python", "x.py"))."""
    found: list[tuple[str, str]] = []
    for place, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return tuple(found), tuple(words[place:])
        found.append((match[1], match[2]))
    return tuple(found), ()


def shell_syntax(words: Sequence[str]) -> str | None:
    """A word that is syntax to a shell (a pipe, a redirection) and a plain argument here; None for none."""
    return next((word for word in words if word in _SHELL_WORDS), None)


def command_line(additions: Sequence[tuple[str, str]], command: Sequence[str]) -> str:
    """Variables and a command as one line that can be edited; `split` and `assignments` read it back."""
    words = [f"{name}={shlex.quote(value)}" for name, value in additions]
    return " ".join([*words, *([shlex.join(command)] if command else [])])
