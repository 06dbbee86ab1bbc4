"""Reading the options that a user gave a launcher, without knowing all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Given:
    """The options of a launcher in a command, and where what it starts begins.

    values   by long name with dashes; the last one counts, as with argparse; "" for a flag
    words    each option with the words that it was given in, in order
    end      the place of the first word that is not the launcher's
    """

    values: Mapping[str, str] = field(default_factory=dict)
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    end: int = 0

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: str = "") -> str:
        """The option's value."""
        return self.values.get(name, default)

    def number(self, name: str) -> int | None:
        """The option's value where it is a whole number."""
        return number(self.values.get(name, ""))

    def without(self, names: Collection[str]) -> tuple[str, ...]:
        """The options' words, those of some left out."""
        return tuple(word for name, words in self.words if name not in names for word in words)


def number(text: str) -> int | None:
    """A whole number, None for anything else. Of one that is too long to be a count, its beginning."""
    return int(text[:12]) if text.isascii() and text.isdigit() else None


def read(
    words: Sequence[str],
    flags: Collection[str],
    aliases: Mapping[str, str] | None = None,
    shortened: Collection[str] = (),
) -> Given:
    """The options at the beginning of `words`.

    flags      those that take no value; every other one takes the next word unless it has a "="
    aliases    other names: {"m": "module"}
    shortened  names of which argparse takes any beginning that is long enough to be plain
    """
    values: dict[str, str] = {}
    found: list[tuple[str, tuple[str, ...]]] = []
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-", "--"):
        begin, word = place, words[place]
        text, equals, value = word.partition("=")
        name = text.lstrip("-").replace("_", "-")
        place += 1
        if not text.startswith("--") and len(name) > 1 and (aliases or {}).get(name[0]) and not equals:
            # "-r3": a short option with its value in the same word.
            name, value, equals = name[0], word[2:], "="
        name = (aliases or {}).get(name, name)
        name = next((whole for whole in shortened if len(name) > 1 and whole.startswith(name)), name)
        if not equals and name not in flags:
            value = words[place] if place < len(words) else ""
            place = min(place + 1, len(words))
        values[name] = value
        found.append((name, tuple(words[begin:place])))
    return Given(values, tuple(found), place)
