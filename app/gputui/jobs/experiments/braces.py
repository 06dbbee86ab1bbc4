"""Braces in the words of a command as tasks: `--seed {1..8} --lr={0.1,0.01}` is sixteen commands.

Ranges and lists are bash's (Brace Expansion in bash(1)), but each combination is a command of its own, and
a group with a blank or a quote in it stays as it is: that is JSON, or a program's own text.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

MOST_TASKS = 10_000
_MOST_BRACES = 100
"""Opening braces of one word in which groups are looked for."""
_NUMBERS = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.(-?[0-9]{1,18}))?")
_LETTERS = re.compile(r"([a-z])\.\.([a-z])|([A-Z])\.\.([A-Z])")
_NOT_WITHIN = re.compile(r"""[\s"']""")


class TooManyTasksError(ValueError):
    """The braces of a command are more tasks than a sweep can have."""

    def __init__(self) -> None:
        super().__init__(f"more than {MOST_TASKS} tasks")


class Expansion(NamedTuple):
    """One task: the words of its command, those that tell it from the others, and its value of each axis."""

    words: tuple[str, ...]
    label: str
    values: tuple[str, ...] = ()


def expanded(words: Sequence[str]) -> list[Expansion]:
    """A command for every combination of what its braces have, the last group changing first.

    One command where there is nothing to expand. Raises TooManyTasksError.
    """
    every = [alternatives(word) for word in words]
    if math.prod(map(len, every)) > MOST_TASKS:
        raise TooManyTasksError
    varied = [place for place, each in enumerate(every) if len(each) > 1]
    headings = [_heading(words, place, every[place]) for place in varied]
    found = []
    for combination in itertools.product(*every):
        shown: list[str] = []
        for place, heading in zip(varied, headings, strict=True):
            # (A value alone says nothing without its option.)
            shown += [words[place - 1]] if place and heading == words[place - 1] else []
            shown.append(combination[place])
        values = tuple(
            combination[place].removeprefix(f"{heading}=")
            for place, heading in zip(varied, headings, strict=True)
        )
        found.append(Expansion(combination, " ".join(shown), values))
    return found


def brace_axes(words: Sequence[str]) -> list[str]:
    """The headings of what the braces vary: the option that a word belongs to, else the word itself."""
    every = [alternatives(word) for word in words]
    return [_heading(words, place, each) for place, each in enumerate(every) if len(each) > 1]


def _heading(words: Sequence[str], place: int, values: Sequence[str]) -> str:
    before = words[place - 1] if place else ""
    if before.startswith("-") and "=" not in before and len(alternatives(before)) == 1:
        return before
    option, equals, _ = words[place].partition("=")
    return option if equals and all(each.startswith(f"{option}=") for each in values) else words[place]


def alternatives(word: str) -> list[str]:
    """What the braces of a word stand for, in bash's order; the word itself without any.

    Raises TooManyTasksError.
    """
    if word.count("{") > _MOST_BRACES:
        return [word]
    return _spread(word)


def _spread(text: str) -> list[str]:
    ends = _pairs(text)
    unfit = [match.start() for match in _NOT_WITHIN.finditer(text)]
    parts: list[list[str]] = []
    literal, place = "", 0
    while place < len(text):
        end = ends.get(place)
        if end is not None and not _any_between(unfit, place, end) and text[place - 1 : place] != "$":
            group = _group(text[place + 1 : end])
            if group is not None:
                parts += [[literal], group]
                literal, place = "", end + 1
                continue
        literal += text[place]
        place += 1
    if math.prod(map(len, parts)) > MOST_TASKS:
        raise TooManyTasksError
    return ["".join(each) for each in itertools.product(*parts, [literal])]


def _pairs(text: str) -> dict[int, int]:
    """Where each brace that is closed is closed."""
    opened: list[int] = []
    pairs = {}
    for place, sign in enumerate(text):
        if sign == "{":
            opened.append(place)
        elif sign == "}" and opened:
            pairs[opened.pop()] = place
    return pairs


def _any_between(places: Sequence[int], start: int, end: int) -> bool:
    at = bisect_left(places, start)
    return at < len(places) and places[at] < end


def _group(inner: str) -> list[str] | None:
    """What a group stands for; None where it is none (`{batch}`, `{}`)."""
    values = _split(inner)
    if len(values) > 1:
        found = [each for value in values for each in _spread(value)]
        if len(found) > MOST_TASKS:
            raise TooManyTasksError
        return found
    if match := _NUMBERS.fullmatch(inner):
        return _numbers(match[1], match[2], match[3])
    if match := _LETTERS.fullmatch(inner):
        first, last = (ord(sign) for sign in match.groups() if sign)
        return [chr(each) for each in _range(first, last, 1)]
    return None


def _split(inner: str) -> list[str]:
    """At the commas that are in no inner group."""
    depth, found = 0, [""]
    for sign in inner:
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += sign
    return found


def _numbers(first: str, last: str, step: str | None) -> list[str]:
    padded = any(re.match("-?0[0-9]", each) for each in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{each:0{width}d}" for each in _range(int(first), int(last), abs(int(step or 1)) or 1)]


def _range(first: int, last: int, step: int) -> range:
    found = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if (abs(last - first) // step) >= MOST_TASKS:
        raise TooManyTasksError
    return found
