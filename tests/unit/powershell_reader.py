"""PowerShell's rules for the statements that we write, as strict as its documentation.

Sources: about_Quoting_Rules and about_Parsing, and the quote characters of `CharTraits.IsSingleQuote`. A
string in single quotes is verbatim, a quote in it is doubled, and any of five characters is a quote. As an
argument, a bare word may not be a number, and contains no character that begins, ends or splits a token.
Everything else raises an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

QUOTES = "'\u2018\u2019\u201a\u201b"
_BARE = re.compile(r"-{0,2}[A-Za-z_/][A-Za-z0-9_/-]*")
_VERSION = re.compile(
    r"if \(\$PSVersionTable\.PSVersion\.Major \* 100 \+ \$PSVersionTable\.PSVersion\.Minor -lt (\d+)\)"
    r" \{ throw '([^']*)' \}"
)
_VARIABLE = re.compile(r"\$env:([A-Za-z_][A-Za-z0-9_]*) = ")
_SET_LOCATION, _STOP = "Set-Location -LiteralPath ", " -ErrorAction Stop"


@dataclass
class Meant:
    """The effects of a script in PowerShell: variables (None: removed), directory, the program's words."""

    variables: dict[str, str | None] = field(default_factory=dict)
    directory: str | None = None
    argv: list[str] | None = None
    comments: list[str] = field(default_factory=list)
    stops_before: int | None = None


def read(text: str) -> Meant:
    """The effects of the text; AssertionError where it is not one of our statements."""
    meant, place = Meant(), 0
    while place < len(text):
        if text[place] in "\n; ":
            place += 1
        elif text[place] == "#":
            comment = text[place:].partition("\n")[0]
            meant.comments.append(comment)
            place += len(comment)
        else:
            place = _statement(text, place, meant)
            assert place == len(text) or text[place] in "\n;", text[place:]
    return meant


def _statement(text: str, place: int, meant: Meant) -> int:
    """The position after the statement that begins here."""
    if found := _VERSION.match(text, place):
        meant.stops_before = int(found[1])
        return found.end()
    if found := _VARIABLE.match(text, place):
        if text.startswith("$null", found.end()):
            meant.variables[found[1]] = None
            return found.end() + len("$null")
        # This is an expression, in which a bare word would be a command.
        meant.variables[found[1]], place = _string(text, found.end())
        return place
    if text.startswith(_SET_LOCATION, place):
        meant.directory, place = _word(text, place + len(_SET_LOCATION))
        assert text.startswith(_STOP, place)
        return place + len(_STOP)
    assert text.startswith("& ", place) and meant.argv is None, text[place:]
    program, place = _string(text, place + 2)
    meant.argv = [program]
    while text.startswith(" ", place):
        word, place = _word(text, place + 1)
        meant.argv.append(word)
    return place


def _word(text: str, place: int) -> tuple[str, int]:
    if text[place] in QUOTES:
        return _string(text, place)
    found = _BARE.match(text, place)
    assert found, text[place:]
    return found[0], found.end()


def _string(text: str, place: int) -> tuple[str, int]:
    """Parse a string in single quotes, verbatim; of a doubled quote, the first character is kept."""
    assert text[place] in QUOTES, text[place:]
    place, out = place + 1, []
    while True:
        assert place < len(text), "the string has no end"
        if text[place] in QUOTES:
            if place + 1 < len(text) and text[place + 1] in QUOTES:
                out.append(text[place])
                place += 2
                continue
            return "".join(out), place + 1
        out.append(text[place])
        place += 1
