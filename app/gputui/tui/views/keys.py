"""The last line: the keys that matter now."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.tui.actions import Action
from gputui.tui.views.text import Line, Span, width_of


def keys(actions: Sequence[Action], width: int) -> tuple[Line, list[tuple[int, int, str]]]:
    """The key line, and where a click means which action: (from, to, action id), in cells.

    What does not fit is left out from the end; help, the last one, always stays.
    """
    shown = [action for action in actions if action.hint]
    while True:
        spans: list[Span] = [(" ", "")]
        places: list[tuple[int, int, str]] = []
        for action in shown:
            begin = width_of(tuple(spans))
            spans += [(action.shown, "key"), (f" {action.hint}", "dim")]
            places.append((begin, width_of(tuple(spans)), action.id))
            spans.append(("  ", ""))
        if width_of(tuple(spans[:-1])) <= width or len(shown) <= 1:
            return tuple(spans), places
        shown.pop(-2 if len(shown) > 1 else -1)
