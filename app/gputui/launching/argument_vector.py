"""The one reader of argument vectors: options, their values, and where the operands begin.

An `OptionTable` describes a program; `read_options` parses its words into `Arguments`, from which options are
read and removed by name. Words that are not removed are written back unchanged. "Option", "operand" and "--"
are as in the Utility Syntax Guidelines of POSIX (XBD 12.2); clusters, glued values and abbreviations are as
argparse and getopt_long parse them. The module of each launcher, wrapper, shell and container engine defines
the table of its program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from gputui.inventory.formatting import is_digits
from gputui.inventory.light_dataclasses import frozen, replace

Split = tuple[tuple[str, ...], tuple[str, ...]]
"""The words of a command, or words about it, in two parts."""


class OptionTable:
    """The options of a program: lists of their names, without dashes and with "-" for "_". An option with
    several names is written "module|m".

    flags           options without a value; `--flag=v` has a value all the same
    valued          options with one value: `--x v`, `--x=v`, `-x v`, `-xv`, `-x=v`
    pairs           options with two words as their value (`--mca NAME VALUE`), or one (`-genv NAME=VALUE`)
    last            options with a value that end the options (`python -m MODULE`)
    unlisted        whether an option that is not listed is a flag or has a value
    abbreviations   whether a prefix of a long name stands for that name where the prefix is unambiguous
    letters         whether one dash begins a cluster of letters (`-abc`); otherwise one dash equals two
    signs           the characters that begin an option ("-+" for shells)
    """

    def __init__(
        self,
        *,
        flags: str = "",
        valued: str = "",
        pairs: str = "",
        last: str = "",
        unlisted: Literal["flag", "value"] = "flag",
        abbreviations: bool = False,
        letters: bool = True,
        signs: str = "-",
    ) -> None:
        self.aliases: dict[str, str] = {}
        """The listed names by the others: {"m": "module"}."""
        self.flags, self.valued, self.pairs, self.last = map(self._names, (flags, valued, pairs, last))
        self.unlisted, self.abbreviations, self.letters, self.signs = unlisted, abbreviations, letters, signs

    def _names(self, text: str) -> frozenset[str]:
        found = [each.split("|") for each in text.split()]
        self.aliases.update((other, name) for name, *others in found for other in others)
        return frozenset(name for name, *_ in found)

    def letter(self, name: str) -> str:
        """Return the listed name that the letter of a cluster stands for; otherwise the letter."""
        return self.aliases.get(name, name)

    def long_name(self, name: str) -> str:
        """Return the listed name for a long name, an alias or an abbreviation; otherwise the name."""
        name = name.replace("_", "-")
        if self.abbreviations:
            listed = self.flags | self.valued | self.pairs | self.last | self.aliases.keys()
            like = [name] if name in listed else [each for each in listed if each.startswith(name)]
            name = like[0] if len(like) == 1 else name
        return self.aliases.get(name, name)

    def begins_option(self, word: str) -> bool:
        """Whether a word before the operands is an option. A lone "-" is an option only where it is
        listed."""
        if word == "-":
            return word in self.aliases
        return len(word) > 1 and word[0] in self.signs and word != "--"

    def value_count(self, name: str, following: Sequence[str]) -> int:
        """Return how many of the following words are the value of the option with that listed name."""
        if name in self.pairs:
            return 1 if following and "=" in following[0] else min(2, len(following))
        listed = name in self.valued or name in self.last
        takes = listed or (self.unlisted == "value" and name not in self.flags)
        return min(1, len(following)) if takes else 0


@frozen
class Option:
    """An option as it was given.

    name      its listed name
    spelling  the option as it was written, with its dashes and without its value: "--nproc", "-r"
    values    empty for a flag, and where the words ended before the value
    glue      the text between spelling and value in the same word ("=" or ""); None where the values are
              separate words
    place     the index of its word among the words that were read; the letters of a cluster share it
    """

    name: str
    spelling: str
    values: tuple[str, ...]
    glue: str | None
    place: int

    @property
    def value(self) -> str:
        """The values joined with spaces; "" where there are none."""
        return " ".join(self.values)

    @property
    def words(self) -> tuple[str, ...]:
        """The option as words."""
        if self.glue is None:
            return (self.spelling, *self.values)
        return (f"{self.spelling}{self.glue}{self.value}",)


@frozen
class Arguments:
    """The parsed words of a program. `rest` holds the words after the options, including a leading "--"."""

    options: tuple[Option, ...]
    rest: tuple[str, ...]
    table: OptionTable

    def __contains__(self, name: str) -> bool:
        return any(option.name == name for option in self.options)

    def get(self, name: str, default: str = "") -> str:
        """Return the option's value. The last occurrence counts, as with argparse and getopt."""
        return next((option.value for option in reversed(self.options) if option.name == name), default)

    def number(self, name: str) -> int | None:
        """Return the option's value where it is a whole number; otherwise None."""
        return whole_number(self.get(name))

    def named(self, names: Collection[str]) -> tuple[Option, ...]:
        """Return the options with these names, in the order in which they were given."""
        return tuple(option for option in self.options if option.name in names)

    def text(self, *names: str) -> str:
        """Return the options with these names as they were typed; "" for none."""
        return " ".join(write_options(self.named(names)))

    def without(self, names: Collection[str]) -> Arguments:
        """Return the same arguments without any occurrence of these options."""
        return replace(self, options=tuple(option for option in self.options if option.name not in names))

    @property
    def operands(self) -> tuple[str, ...]:
        """The words after the options, without the "--" that ends them."""
        return self.rest[1:] if self.rest[:1] == ("--",) else self.rest

    @property
    def option_words(self) -> tuple[str, ...]:
        return write_options(self.options)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.option_words, *self.rest)


def read_options(words: Sequence[str], table: OptionTable) -> Arguments:
    """Parse the options at the beginning of `words`; `words` begin after the program's own name."""
    options: list[Option] = []
    place = 0
    while place < len(words) and table.begins_option(words[place]):
        word, following = words[place], words[place + 1 :]
        if table.letters and word != "-" and not word.startswith("--"):
            found = _cluster(word, following, table, place)
        else:
            found = [_long(word, following, table, place)]
        options += found
        place += 1 + sum(len(option.values) for option in found if option.glue is None)
        if found[-1].name in table.last:
            break
    return Arguments(tuple(options), tuple(words[place:]), table)


def write_options(options: Sequence[Option]) -> tuple[str, ...]:
    """Return the options as words. Letters that came from one cluster form one cluster again."""
    words: list[str] = []
    for _, group in groupby(options, key=lambda option: option.place):
        first, *others = group
        joined = list(first.words)
        for option in others:
            own = option.words
            joined = [joined[0] + own[0][1:], *joined[1:], *own[1:]]
        words += joined
    return tuple(words)


def likely_options(words: Sequence[str]) -> Iterator[Option]:
    """Yield every word of an unknown program that begins with a dash, as an option.

    The next word is taken for its value unless that word begins with a dash too. A negative number is a
    value.
    """

    def is_option(word: str) -> bool:
        return word.startswith("-") and not re.fullmatch(r"-[0-9]*\.?[0-9]+", word)

    for place, word in enumerate(words):
        if not is_option(word):
            continue
        spelling, equals, value = word.partition("=")
        following = [each for each in words[place + 1 : place + 2] if not is_option(each)]
        values = (value,) if equals else tuple(following)
        yield Option(spelling.lstrip("-"), spelling, values, "=" if equals else None, place)


def program_name(command: Sequence[str]) -> str:
    """Return the name of the program that a command starts: "torchrun" for "/opt/venv/bin/torchrun"."""
    return command[0].rsplit("/", 1)[-1] if command else ""


def machines_of(hosts: Iterable[str], names: Collection[str]) -> int:
    """Return how many machines `hosts` name, at least one; `names` are the names of this machine."""
    found = set(hosts)
    return len(found.difference(names)) + bool(found.intersection(names)) or 1


def whole_number(text: str) -> int | None:
    """Return a whole number, None for anything else. Only the first 12 digits of a longer number are read."""
    return int(text[:12]) if is_digits(text) else None


def _long(word: str, following: Sequence[str], table: OptionTable, place: int) -> Option:
    spelling, equals, value = word.partition("=")
    name = table.long_name(spelling.lstrip(table.signs) or spelling)
    if equals:
        return Option(name, spelling, (value,), "=", place)
    return Option(name, spelling, tuple(following[: table.value_count(name, following)]), None, place)


def _cluster(word: str, following: Sequence[str], table: OptionTable, place: int) -> list[Option]:
    """Parse a word with one dash: "-r3", "-r=3", "-qm"."""
    sign, text = word[0], word[1:]
    options: list[Option] = []
    while text:
        letter, text = text[0], text[1:]
        name, spelling = table.letter(letter), f"{sign}{letter}"
        # A character that is not alphanumeric ends the cluster: the "=" of "-q=1".
        if text and (not text[0].isalnum() or table.value_count(name, (text,))):
            glue = "=" if text[0] == "=" else ""
            options.append(Option(name, spelling, (text.removeprefix("="),), glue, place))
            break
        values = () if text else tuple(following[: table.value_count(name, following)])
        options.append(Option(name, spelling, values, None, place))
    return options
