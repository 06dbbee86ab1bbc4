"""Finds characters that are drawn over the text around them: many combining marks on one letter, or one on no
letter; and those that terminals draw wider than Unicode's tables say."""

from __future__ import annotations

from unicodedata import category

_MOST = 3
"""The most marks on one letter, as in Hebrew and Tibetan."""
_WIDER = frozenset("\u115f\u3164\uffa0") | {chr(tone) for tone in range(0x1F3FB, 0x1F400)}
"""Korean fillers, which nobody sees, and skin tones: no cell by the tables, one or two in terminals."""


class PiledMarks:
    """Looks at the characters of a text, one after another."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The next character is next to no letter of the text: it begins, or the cursor has moved."""
        self._marks = _MOST

    def fits(self, character: str) -> bool:
        """Whether the next character is no such one."""
        if character in _WIDER:
            return False
        self._marks = self._marks + 1 if _is_mark(character) else 0
        return self._marks <= _MOST


def _is_mark(character: str) -> bool:
    # Terminals put the vowels and final consonants of Korean, which are letters, into the cell before them.
    return (
        category(character)[0] == "M"
        or "\u1160" <= character <= "\u11ff"
        or "\ud7b0" <= character <= "\ud7ff"
        or character == "\u200d"
    )
