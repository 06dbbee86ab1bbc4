"""The help: every key by subject, and the meaning of the signs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from gputui.allocating.settings import Keymap
from gputui.choosing.verdict import GLYPHS, Shown
from gputui.tui.actions import ACTIONS, BY_ID, DOZEN, Action, key_of, written
from gputui.tui.views.columns import SHARED, SHARED_SHORT
from gputui.tui.views.selection import MOVED
from gputui.tui.views.table import OWN_JOB
from gputui.tui.views.text import Hints, Line, clip, fit, padded, title, width_of, wrap

MEANINGS: dict[Shown, str] = {
    "free": "nobody uses it",
    "busy": "in use; the row says by whom",
    "idle": "somebody has it and does not use it",
    "held": "memory in use, no visible process",
    "claimed": "a job has it, but does not use it yet",
    "cooling": "free, but not for long enough yet",
    "unknown": "unreadable",
    "lost": "gone from the driver, or needs a reset",
}

_TWO_COLUMNS = 120
KEYS = 15
"""Cells for the keys of an action."""

_START = (*DOZEN[:8], "device", "palette")
"""The actions that a newcomer needs."""

_EVERYTHING_ELSE = "everything else: `:` and a word, or `gputui docs keys`"


def help_lines(
    keymap: Keymap, words: str, width: int, of_page: Hints = (), there: Collection[str] | None = None
) -> list[Line]:
    """The sections with a row that contains all of `words`, in two columns where they fit.

    of_page  the keys of a page and their effects: the first section
    there    the actions of the main screen (ids) that are possible on that page. None: this is the main
             screen's help
    """
    columns = 2 if width >= _TWO_COLUMNS else 1
    room = width // columns - (columns - 1)
    wanted = words.lower().split()
    lines: list[Line] = []
    ends: list[int] = []
    for name, rows in _sections(keymap, of_page, there):
        found = [row for row in rows if _has(row, name, wanted)]
        if found:
            lines += [title(name, room), *(line for row in found for line in _whole(row, room))]
            ends.append(len(lines))
    lines.append(clip(((f"  {_EVERYTHING_ELSE}", "dim"),), room))
    if columns == 1:
        return lines
    cut = min(ends, key=lambda end: max(end, len(lines) - end), default=0)
    left, right = lines[:cut], lines[cut:]
    return [(*padded(one, room), ("  ", ""), *other) for one, other in zip_longest(left, right, fillvalue=())]


def _sections(
    keymap: Keymap, of_page: Hints, there: Collection[str] | None
) -> Iterator[tuple[str, list[Line]]]:
    with_key = [each for each in ACTIONS if each.keys or each.shown or each.id in keymap]
    signs = [
        *((glyph, state, f"{state:<8} {MEANINGS[state]}") for state, glyph in GLYPHS.items()),
        (OWN_JOB, "mine", "yours    your job runs on it"),
    ]
    of_states = "Symbols for GPUs", _of(signs)
    if there is None:
        yield "Start here", [_row(BY_ID[name], keymap) for name in _START]
        yield of_states
        yield "Other keys", [_row(each, keymap) for each in with_key if each.id not in _START]
    else:
        yield (
            "This page",
            [((f"  {fit(keys, KEYS)}", "key"), (meaning, "strong")) for keys, meaning in of_page],
        )
        taken = {key for keys, _ in of_page for key in keys.split()}
        named = {meaning for _, meaning in of_page}
        rows = [
            _row(each, keymap, taken) for each in with_key if each.id in there and each.title not in named
        ]
        yield "As on the main screen", rows
        yield of_states
    later, earlier = (key_of(name, keymap) for name in ("later", "earlier"))
    others = [
        ("[1]", "slot", "selected: the first GPU of the command"),
        ("▸", "cursor", "the cursor"),
        (MOVED, "cursor", f"the selected GPU that {later} and {earlier} move"),
        (f"{SHARED_SHORT}{SHARED}", "", "memory of the host, too: all its RAM in use"),
    ]
    yield "Other symbols", _of(others)


def _of(signs: Sequence[tuple[str, str, str]]) -> list[Line]:
    """A row for each sign, its style and its meaning."""
    return [
        (("  ", ""), (sign, style), (" " * (KEYS - len(sign)), ""), (meaning, ""))
        for sign, style, meaning in signs
    ]


def _has(row: Line, section: str, words: Sequence[str]) -> bool:
    """Whether all these words are in a row or in the name of its section."""
    text = "".join(text for text, _ in (*row, (section, ""))).lower()
    return all(word in text for word in words)


def _row(action: Action, keymap: Keymap, taken: Collection[str] = ()) -> Line:
    """The keys of an action without those that are `taken`, its title, and its description."""
    keys = " ".join(key for key in _keys(action, keymap).split(" ") if key not in taken)
    return row(keys, action.title, action.about)


def row(keys: str, name: str, about: str, cells: int = KEYS) -> Line:
    """Keys in so many cells, a name, and a description."""
    return (f"  {fit(keys, cells)}", "key"), (name, "strong"), (f"  {about}", "dim")


def _whole(row: Line, width: int) -> list[Line]:
    """A row in as many lines as it needs."""
    if width_of(row) <= width:
        return [row]
    *head, (text, style) = row
    if len(head) != 2:
        return [clip(row, width)]
    keys, (name, strong) = head
    first, *rest = wrap(name + text, width - KEYS - 4)
    line: Line = (keys, (first[: len(name)], strong), (first[len(name) :], style))
    return [line, *(((" " * (KEYS + 4), ""), (piece, style)) for piece in rest)]


def _keys(action: Action, keymap: Keymap) -> str:
    """All keys of an action, the displayed one first."""
    if action.id in keymap:
        return " ".join(written(key) for key in keymap[action.id].split(","))
    shown = key_of(action.id, keymap)
    every = [written(key) for key in filter(None, action.keys.split(","))]
    return " ".join([shown, *(key for key in every if key not in (shown, *re.split("[ /]", shown)))])
