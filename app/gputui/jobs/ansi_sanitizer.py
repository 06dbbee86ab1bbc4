"""Sanitize a command's output for a terminal: progress bars and colours pass, all else is dropped.

A log may contain any sequence: it may set the title, fill the clipboard, make the terminal type an answer
(ECMA-48; xterm's ctlseqs), hide text, or overwrite text outside the log. A sequence not known to be harmless
is dropped.
"""

from __future__ import annotations

import codecs
import re

from gputui.inventory.piled_marks import PiledMarks

_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[(?P<numbers>[0-9;:]*)(?P<final>[@-~])"
    r"|\[[0-?]*[ -/]*[@-~]"
    r"|[PX^_\]][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\|(?=\x1b[^\\]))"
    r"|[ -/]+[0-~]"
    r"|[0-OQ-WYZ\\`-~]"
    r")"
)
"""Control sequences, control strings (title, clipboard, DCS …) up to their end, and short escapes.

A string ends at the end of its line or after 4096 characters, so that it hides little of the text after it.
"""
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[PX^_\]][^\x07\x1b\n]*\x1b?|[ -/]*)")
_NOT_PLAIN = re.compile(r"[^\x20-\x7e\n\r\t\x08]+")
_JOINER = "\u200d"
"""The zero-width joiner between two emoji that are shown as one; it has no other effect."""
_UP, _MOVES = "AF", "BCDGK"
_MOVED = "\n\r\t\x08"
_HIDDEN = re.compile(
    r"((?:^|;)[345]8;(?:5|2;[0-9]*;[0-9]*);[0-9]*)"  # a colour, whose last number may be 8
    r"|(?:^|(?<=;))0*8(?::[0-9:]*)?(?=;|$)"
)
"""The number that hides text (SGR 8): a user who copies a line would copy text that is not visible."""
_SHOWN = "28"
_LONGEST = 4096
"""Characters up to which an unfinished sequence is kept until the rest arrives."""


class AnsiSanitizer:
    """Turns bytes, in pieces of any size, into text that is safe for a terminal. It emulates no terminal."""

    def __init__(self, colours: bool = True) -> None:
        self._colours = colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._below = 0
        """Lines that the cursor may move up and still be in the log's own text."""
        self._marks = PiledMarks()

    def feed(self, data: bytes, final: bool = False) -> str:
        """The text that may be written. With `final`, an unfinished sequence is not kept for the next
        call."""
        text = self._rest + self._decoder.decode(data, final)
        self._rest = ""
        done: list[str] = []
        place = 0
        while (escape := text.find("\x1b", place)) >= 0:
            done.append(self._plain(text[place:escape]))
            match = _SEQUENCE.match(text, escape)
            if match is not None:
                done.append(self._sanitized(match))
                place = match.end()
                continue
            begun = _BEGUN.match(text, escape)
            if begun and begun.end() == len(text) and len(text) - escape <= _LONGEST and not final:
                self._rest = text[escape:]
                return "".join(done)
            place = escape + 1
        done.append(self._plain(text[place:]))
        return "".join(done)

    def _plain(self, text: str) -> str:
        self._below += text.count("\n")
        shown = _NOT_PLAIN.sub(self._shown, text)
        if text:
            self._is_after(text[-1])
        return shown

    def _shown(self, match: re.Match[str]) -> str:
        """The replacement of non-ASCII text: bidirectional marks become visible, control characters are
        dropped."""
        if match.start():
            self._is_after(match.string[match.start() - 1])
        fits = self._marks.fits
        return "".join(
            c if (c.isprintable() or c == _JOINER) and fits(c) else " " if c.isspace() else "·"
            for c in match[0]
            if c >= "\xa0"
        )

    def _is_after(self, character: str) -> None:
        if character in _MOVED:
            self._marks.begin()
        elif " " <= character <= "~":
            self._marks.fits(character)

    def _sanitized(self, match: re.Match[str]) -> str:
        """The sequence where it is known to be harmless, else ""."""
        numbers, final = match["numbers"], match["final"]
        if numbers is None:
            return ""
        if final == "m":
            return f"\x1b[{_HIDDEN.sub(_without_hiding, numbers)}m" if self._colours else ""
        self._marks.begin()
        if len(numbers) > 4 or not (numbers.isdigit() or not numbers):
            return ""
        if final in _UP:
            rows = min(int(numbers or 1) or 1, self._below)
            self._below -= rows
            return f"\x1b[{rows}{final}" if rows else ""
        return match[0] if final in _MOVES or (final == "J" and not int(numbers or 0)) else ""


def _without_hiding(match: re.Match[str]) -> str:
    return match[1] or _SHOWN
