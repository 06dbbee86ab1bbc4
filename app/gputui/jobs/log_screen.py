"""Render a job's log as a terminal would: a progress bar that rewrites its line is one line.

The terminal emulator is pyte. Two of its steps are replaced here: unchanged, pyte needs half a second for
64 KiB.
"""

from __future__ import annotations

import os
import time
import unicodedata
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pyte
from pyte.modes import LNM
from pyte.screens import Char

from gputui.jobs.ansi_sanitizer import AnsiSanitizer
from gputui.system.files import open_own

MOST = 256 * 1024
"""Bytes read at once. Only the end of a longer log is read."""
_ROWS = 50
"""Lines to which the command can still move the cursor; the lines above them are final."""
_KEPT = 5000
_KEPT_CHARACTERS = 512 * 1024
"""Characters that are kept of all lines that have scrolled away: 2 MiB at most."""
_MOST_TIME = 0.03
"""Seconds of CPU time after which only the end of the remaining text is shown: a key press waits for it."""
_MOST_AGAIN = 16 * 1024
"""Bytes that are read from the end of a log that has grown by more than is read at once. Nobody reads that
fast, and each key press would wait for more."""
_AT_ONCE = 2048
"""Characters between two checks of the time."""


class Tail:
    """The end of a log that grows, as lines of text.

    columns   the width at which lines are wrapped
    most      bytes that are read at once; the first lines come from this many bytes
    """

    def __init__(self, path: Path, columns: int = 200, most: int = MOST) -> None:
        self._path, self._columns, self._most = path, max(1, columns), most
        self._place = 0
        self._screen = _Screen(self._columns)
        self._stream = pyte.Stream(self._screen)
        self._sanitizer = AnsiSanitizer(colours=False)

    def feed(self) -> bool:
        """Read the text added since the last call. True where there was any; a missing log has none."""
        try:
            with os.fdopen(open_own(self._path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._place:
                    # Somebody has emptied it.
                    self._place = 0
                    self._reset()
                if size == self._place:
                    return False
                skips = size - self._place > self._most
                if skips:
                    self._place = size - (min(self._most, _MOST_AGAIN) if self._place else self._most)
                    self._reset()
                file.seek(self._place)
                data = file.read(self._most)
        except OSError:
            return False
        self._place += len(data)
        self._show(_from_a_line_on(data) if skips else data)
        return True

    def _show(self, data: bytes) -> None:
        """Write the data to the screen; only the end of text that takes long (accents, endless bars)."""
        end = time.thread_time() + _MOST_TIME
        text = self._sanitizer.feed(data)
        for place in range(0, len(text), _AT_ONCE):
            if len(text) - place > 2 * _AT_ONCE and time.thread_time() > end:
                self._clear()
                rest = text[-_AT_ONCE:]
                self._stream.feed(rest.partition("\n")[2] or rest.partition("\r")[2] or rest)
                return
            self._stream.feed(text[place : place + _AT_ONCE])

    def lines(self, height: int | None = None) -> list[str]:
        """The last `height` lines (None: all kept lines), without blank lines at the end."""
        now = self._screen.rows()
        missing = len(self._screen.past) if height is None else max(0, height - len(now))
        before = list(self._screen.past)[-missing:] if missing else []
        found = [*before, *now]
        return found if height is None else found[max(0, len(found) - height) :]

    def _clear(self) -> None:
        # Reuse the screen: a screen refers to itself, so each discarded one would keep a MiB until the
        # garbage collector runs. Attaching it again ends an unfinished sequence.
        self._stream.detach(self._screen)
        self._screen.clear()
        self._stream.attach(self._screen)

    def _reset(self) -> None:
        self._clear()
        self._sanitizer = AnsiSanitizer(colours=False)


def _from_a_line_on(data: bytes) -> bytes:
    """The data without its first line, which is cut at its beginning. A bar ends with a carriage return."""
    for end in (b"\n", b"\r"):
        _, found, rest = data.partition(end)
        if found and rest:
            return rest
    return data


class _Screen(pyte.Screen):
    """pyte's screen, which keeps lines that scroll away as text and has a fast path for plain text."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns, _ROWS)
        self.past: deque[str] = deque()
        self.clear()

    def clear(self) -> None:
        """Empty the screen, and forget the lines that have scrolled away."""
        self.reset()
        self.set_mode(LNM)
        self.past.clear()
        self._past_characters = 0

    def draw(self, data: str) -> None:
        """Draw as pyte does, which looks up the width of each character and makes a new cell for it."""
        place, row, columns = self.cursor.x, self.buffer[self.cursor.y], self.columns
        for character in data:
            known = _cell(character)
            if known is not None:
                cell, width = known
                if place + width <= columns:
                    row[place] = cell
                    if width == 2:
                        row[place + 1] = _REST_OF_WIDE
                    place += width
                    continue
            self.cursor.x = place
            super().draw(character)
            place, row = self.cursor.x, self.buffer[self.cursor.y]
        self.cursor.x = place

    def index(self) -> None:
        """Scroll as pyte does without margins; pyte would copy every row and mark it as changed."""
        if self.cursor.y < self.lines - 1:
            self.cursor_down()
            return
        line = _text(self.buffer.pop(0, {}))
        self.past.append(line)
        self._past_characters += len(line)
        while len(self.past) > _KEPT or self._past_characters > _KEPT_CHARACTERS:
            self._past_characters -= len(self.past.popleft())
        for number in range(1, self.lines):
            if number in self.buffer:
                self.buffer[number - 1] = self.buffer.pop(number)

    def rows(self) -> list[str]:
        """The lines on the screen, without blank lines at the end."""
        last = max(self.buffer, default=-1)
        found = [_text(self.buffer[number]) if number in self.buffer else "" for number in range(last + 1)]
        while found and not found[-1]:
            found.pop()
        return found


_REST_OF_WIDE = Char("")


@lru_cache(maxsize=4096)
def _cell(character: str) -> tuple[Char, int] | None:
    """The cell and the width of a character, where the width is certain; None leaves it to pyte."""
    if character.isascii():
        return Char(character), 1
    if unicodedata.category(character)[0] in "LNPSZ" and not unicodedata.combining(character):
        return Char(character), 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return None


def _text(row: Mapping[int, Char]) -> str:
    width = max(row, default=-1) + 1
    return "".join(row[place].data if place in row else " " for place in range(width)).rstrip()
