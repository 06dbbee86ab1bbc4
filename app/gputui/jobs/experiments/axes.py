"""The axes of an experiment, parsed from the values of `--vary`, and the variants that they span."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

from gputui.allocating.errors import RequestError
from gputui.inventory.light_dataclasses import frozen
from gputui.launching.launch_options import VARIABLE
from gputui.launching.shell_words import split

if TYPE_CHECKING:
    from gputui.inventory.typed_json import WordList, Words

Kind = Literal["option", "env", "arg", "switch", "word", "n", "gpus", "braces"]
"""option   a launch option of `gputui run` ("launcher"), with a value that the option accepts
env      an environment variable; "" leaves it unchanged
arg      an option of the command, or a word NAME=VALUE of it; "" leaves it out
switch   an option of the command without a value: ON or OFF
word     the replacement for {NAME} in the command
n        the number of devices: the first n of those that are held
gpus     the names of devices, joined by "+"
braces   a word of the command with braces, which has these alternatives
"""

ON, OFF = "on", "off"
JOIN = "+"
"""Separates the devices of one value of "gpus", as a comma separates the values."""

MOST_TASKS = 10_000
_MOST_TEXT = 10_000
_PREFIXES: tuple[Kind, ...] = ("env", "arg", "word")
_WRITE = "write NAME=VALUE,VALUE"


class AxisError(RequestError, ValueError):
    """The typed text names nothing that can be varied; the message is one line with the reason."""


def check_number(tasks: int) -> None:
    """Raise AxisError for more variants than an experiment can have."""
    if tasks > MOST_TASKS:
        raise AxisError(f"more than {MOST_TASKS} tasks")


@frozen
class Axis:
    """One varied thing: `key` is its name within its kind, and its heading in a table; `values` are in the
    order in which they were typed. `place` is the index of a word with braces in the command."""

    kind: Kind
    key: Words
    values: WordList
    place: int = 0

    @property
    def name(self) -> str:
        """The name of the axis in `--vary`."""
        kind = "arg" if self.kind == "switch" else self.kind
        return f"{kind}:{self.key}" if kind in _PREFIXES else self.key

    @property
    def text(self) -> str:
        """The value of `--vary` that `read_axis` parses into this axis."""
        values = ",".join(value.replace(",", "\\,") for value in self.values)
        return self.name if self.kind == "switch" else f"{self.name}={values}"

    def told(self, value: str) -> str:
        """A value in a table: that of a word with braces without its option."""
        return value.removeprefix(f"{self.key}=") if self.kind == "braces" else value


Setting = tuple[Axis, str]
"""An axis and its value."""


def read_axis(text: str, options: Collection[str]) -> Axis:
    """Parse a value of `--vary`; `options` are the names of the launch options.

    What begins with "-" is an option of the command, as with "arg:" in front. A comma within a value is
    written "\\,". Raises AxisError.
    """
    if len(text) > _MOST_TEXT or "\0" in text:
        raise AxisError("--vary is too long or contains a NUL byte")
    prefix, colon, rest = text.partition(":")
    kind = next((each for each in _PREFIXES if colon and each == prefix), None)
    if kind is None:
        rest = text
    key, equals, values = rest.partition("=")
    if kind is None and key.startswith("-"):
        kind = "arg"
    if kind == "arg" and not equals and re.match("--?[A-Za-z]", key):
        return Axis("switch", key, (OFF, ON))
    if not equals or not key:
        raise AxisError(f"{text!r} does not say what to vary, or gives no values: {_WRITE}")
    if kind is None:
        kind = _plain(key, options)
    if kind == "env" and not VARIABLE.fullmatch(key):
        raise AxisError(f"{text!r}: {key!r} is not the name of a variable")
    found = tuple(_values(values))
    repeated = next((value for value in found if found.count(value) > 1), None)
    if repeated is not None:
        raise AxisError(f"{text!r} has the value {repeated!r} twice")
    if kind not in ("env", "arg", "word") and "" in found:
        raise AxisError(f"{text!r} has an empty value")
    return Axis(kind, key, found)


def _plain(key: str, options: Collection[str]) -> Kind:
    """The kind of a name without a prefix. Raises AxisError."""
    if key in ("n", "gpus"):
        return "n" if key == "n" else "gpus"
    if key in options:
        return "option"
    known = ", ".join((*options, "n", "gpus"))
    raise AxisError(
        f"{key!r} is no launch option; write arg:--{key}=A,B for an option of the command, arg:{key}=A,B"
        f" for its word {key}=…, env:{key}=A,B for a variable, or one of {known}"
    )


def _values(text: str) -> list[str]:
    return [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]


def variants(axes: Sequence[Axis]) -> list[tuple[Setting, ...]]:
    """Return every combination; the last axis changes first. Raises AxisError for an axis given twice and for
    too many variants."""
    names = ["n" if axis.kind == "gpus" else axis.name for axis in axes if axis.kind != "braces"]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise AxisError(f"{'the devices are' if twice == 'n' else f'{twice} is'} varied twice")
    check_number(math.prod(len(axis.values) for axis in axes))
    return [
        tuple(zip(axes, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))
    ]


NOTHING_VARIED = f"nothing is varied; for example: --vary launcher=python,torchrun ({_WRITE})"


def left_out(texts: Sequence[str], combinations: Sequence[tuple[Setting, ...]]) -> set[int]:
    """Return the indices of the combinations that the `--except` options leave out: those that have all the
    values of one of the texts ("launcher=python env:X=1"), by names or headings. Raises AxisError."""
    found = set[int]()
    beginnings = [
        (f"{name}=", place)
        for place, (axis, _) in enumerate(combinations[0])
        for name in (axis.name, axis.key)
    ]
    for text in texts:
        wanted: dict[int, str] = {}
        for word in split(text):
            name, place = next((each for each in beginnings if word.startswith(each[0])), ("", -1))
            if not name:
                raise AxisError(f"--except {text!r}: {word!r} is not NAME=VALUE of what is varied")
            if place in wanted:
                raise AxisError(f"--except {text!r} names {name.rstrip('=')} twice")
            wanted[place] = word.removeprefix(name)
        alike = {
            number
            for number, settings in enumerate(combinations)
            if all(settings[place][0].told(settings[place][1]) == value for place, value in wanted.items())
        }
        if not wanted or not alike:
            raise AxisError(f"--except {text!r} leaves nothing out: there is no such combination")
        found |= alike
    return found


def varied_command(command: Sequence[str], settings: Sequence[Setting]) -> tuple[str, ...]:
    """Apply the settings to the words of the command. Raises AxisError if the command has no such {NAME}."""
    words = list(command)
    for axis, value in settings:
        if axis.kind == "braces":
            words[axis.place] = value
    for axis, value in settings:
        if axis.kind == "word":
            words = _filled(words, axis.key, value)
    for axis, value in settings:
        if axis.kind == "arg":
            words = _with_argument(words, axis.key, value)
        elif axis.kind == "switch":
            words = [word for word in words if word != axis.key] + ([axis.key] if value == ON else [])
    return tuple(words)


def _filled(words: Sequence[str], name: str, value: str) -> list[str]:
    """Replace each {NAME} by the value; a word that is only {NAME} is left out when the value is empty."""
    place = f"{{{name}}}"
    if not any(place in word for word in words):
        raise AxisError(f"word:{name} needs {place} in the command")
    return [word.replace(place, value) for word in words if value or word != place]


def _with_argument(words: Sequence[str], name: str, value: str) -> list[str]:
    """Set the value of an option of the command (`--lr 1`, `--lr=1`) or of a word NAME=VALUE (`lr=1`).

    The last occurrence is changed, as most programs use that one. Without an occurrence, the option or word
    is added at the end.
    """
    option = name.startswith("-")
    changed = list(words)
    for place in range(len(words) - 1, -1, -1):
        if option and words[place] == name:
            has_value = words[place + 1 : place + 2] and not words[place + 1].startswith("--")
            changed[place : place + 1 + bool(has_value)] = [name, value] if value else []
            return changed
        if words[place].startswith(f"{name}="):
            changed[place : place + 1] = [f"{name}={value}"] if value else []
            return changed
    if value:
        changed += [name, value] if option else [f"{name}={value}"]
    return changed
