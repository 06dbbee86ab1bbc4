"""The last line: the keys that matter now."""

from __future__ import annotations

from gputui.tui.actions import BY_ID, KEY_LINE
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Span, width_of


def keys(app_state: AppState, width: int) -> tuple[Line, list[tuple[int, int, str]]]:
    """The key line, and where a click means which action: (from, to, action id), in cells.

    What does not fit is left out from the end; help, the last one, always stays.
    """
    shown = list(KEY_LINE)
    while True:
        spans: list[Span] = [(" ", "")]
        places: list[tuple[int, int, str]] = []
        for name, key in shown:
            begin = width_of(tuple(spans))
            spans += [(key, "key"), (f" {BY_ID[name].hint}", "dim")]
            places.append((begin, width_of(tuple(spans)), name))
            spans.append(("  ", ""))
        if width_of(tuple(spans[:-1])) <= width or len(shown) <= 1:
            return tuple(spans), places
        shown.pop(-2 if len(shown) > 1 else -1)
