"""Reading the options that a user gave a launcher, as argparse reads them, without knowing what they mean."""

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

    def behind(self, words: Sequence[str]) -> tuple[str, ...]:
        """What stands behind the options of `words`: the script and its arguments.

        argparse takes a "--" in front of them away, and so must whoever gives them to another launcher.
        """
        rest = tuple(words[self.end :])
        return rest[1:] if rest[:1] == ("--",) else rest


def words(text: str) -> frozenset[str]:
    """The words of a text: a long table of options."""
    return frozenset(text.split())


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
    shortened  names of which argparse takes a beginning that only one of them has (`--nproc`)
    """
    values: dict[str, str] = {}
    found: list[tuple[str, tuple[str, ...]]] = []
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-", "--"):
        begin, word = place, words[place]
        place += 1
        if word.startswith("--"):
            text, equals, value = word[2:].partition("=")
            group = [_whole(text.replace("_", "-"), flags, aliases or {}, shortened)]
        else:
            group, equals, value = _letters(word[1:], flags, aliases or {})
        name = group[-1]
        if not equals and name not in flags:
            value = words[place] if place < len(words) else ""
            place = min(place + 1, len(words))
        if len(group) == 1:
            found.append((name, tuple(words[begin:place])))
        else:
            # "-qm" is "-q -m": each for itself, so that one of them can be left out.
            letters = word[1 : len(group)]
            found += [(each, (f"-{letter}",)) for each, letter in zip(group[:-1], letters, strict=True)]
            found.append((name, (f"-{word[len(group) :]}", *words[begin + 1 : place])))
        values.update(dict.fromkeys(group[:-1], ""))
        values[name] = value
    return Given(values, tuple(found), place)


def _whole(name: str, flags: Collection[str], aliases: Mapping[str, str], shortened: Collection[str]) -> str:
    """The option that a name, or a beginning of one, means; as it is where that is not plain."""
    if name not in flags and name not in aliases and name not in shortened:
        like = [whole for whole in shortened if whole.startswith(name)]
        name = like[0] if len(like) == 1 else name
    return aliases.get(name, name)


def _letters(text: str, flags: Collection[str], aliases: Mapping[str, str]) -> tuple[list[str], str, str]:
    """The options of a word with one dash ("r3", "r=3", "qm"), an "=" where the last has its value in it."""
    group: list[str] = []
    while text:
        group.append(aliases.get(text[0], text[0]))
        text = text[1:]
        if group[-1] not in flags:
            return group, "=" if text else "", text.removeprefix("=")
    return group, "", ""
