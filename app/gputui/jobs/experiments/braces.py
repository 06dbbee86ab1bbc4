"""Expand braces in the words of a command into axes: `--seed {1..8} --lr={0.1,0.01}` is sixteen commands.

Ranges and lists are those of bash (Brace Expansion in bash(1)), with two differences: each combination is a
command of its own, and a group that contains a blank or a quote is not expanded, because it is JSON or the
program's own syntax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gputui.jobs.experiments.axes import Axis, check_number

_MOST_BRACES = 100
"""A word with more opening braces than this is not expanded."""
_NUMBERS = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.(-?[0-9]{1,18}))?")
_LETTERS = re.compile(r"[a-z]\.\.[a-z]|[A-Z]\.\.[A-Z]")
_BRACE = re.compile("[{}]")
_NOT_WITHIN = re.compile(r"""[\s"']""")


def expanded(words: Sequence[str]) -> list[Axis]:
    """Return an axis for each word with braces. Raises AxisError for too many of them.

    Its key is the heading of the word: the option that the word belongs to, or else the word itself.
    """
    every = [alternatives(word) for word in words]
    check_number(math.prod(map(len, every)))
    return [
        Axis("braces", _heading(words, place, each), tuple(each), place)
        for place, each in enumerate(every)
        if len(each) > 1
    ]


def _heading(words: Sequence[str], place: int, values: Sequence[str]) -> str:
    before = words[place - 1] if place else ""
    if before.startswith("-") and "=" not in before and len(alternatives(before)) == 1:
        return before
    option, equals, _ = words[place].partition("=")
    return option if equals and all(each.startswith(f"{option}=") for each in values) else words[place]


def alternatives(word: str) -> list[str]:
    """Expand the braces of a word, in bash's order; a word without braces is returned as it is.

    Raises AxisError for too many of them.
    """
    return [word] if word.count("{") > _MOST_BRACES else _spread(word)


def _spread(text: str) -> list[str]:
    for start, end in sorted(_pairs(text).items()):
        if text[start - 1 : start] == "$" or _NOT_WITHIN.search(text, start, end):
            continue
        group = _group(text[start + 1 : end])
        if group is not None:
            rest = _spread(text[end + 1 :])
            check_number(len(group) * len(rest))
            return [f"{text[:start]}{one}{more}" for one in group for more in rest]
    return [text]


def _pairs(text: str) -> dict[int, int]:
    """Map the index of each opening brace to the index of its closing brace."""
    opened: list[int] = []
    pairs = {}
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            pairs[opened.pop()] = brace.start()
    return pairs


def _group(inner: str) -> list[str] | None:
    """The alternatives of a group, or None if the text is not a group (`{batch}`, `{}`)."""
    values = _split(inner)
    if len(values) > 1:
        found = [each for value in values for each in _spread(value)]
        check_number(len(found))
        return found
    if match := _NUMBERS.fullmatch(inner):
        first, last, step = match.groups("1")
        padded = any(re.match("-?0[0-9]", each) for each in (first, last))
        width = max(len(first), len(last)) if padded else 0
        return [f"{each:0{width}d}" for each in _range(int(first), int(last), abs(int(step)) or 1)]
    if _LETTERS.fullmatch(inner):
        return [chr(each) for each in _range(ord(inner[0]), ord(inner[-1]), 1)]
    return None


def _split(inner: str) -> list[str]:
    """Split at the commas that are outside inner groups."""
    depth, found = 0, [""]
    for sign in inner:
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += sign
    return found


def _range(first: int, last: int, step: int) -> range:
    check_number(abs(last - first) // step + 1)
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
