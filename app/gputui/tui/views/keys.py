"""The last line: the keys of the main screen, the same in the same order in every state."""

from __future__ import annotations

from functools import lru_cache

from gputui.allocating.settings import Keymap
from gputui.tui.actions import BY_ID, DOZEN, key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Place, Span, cells_of, hint_line


def impossible(app_state: AppState) -> frozenset[str]:
    """The actions of the line that could now only say why they do nothing: they are dim."""
    devices, selection = bool(app_state.box.devices), app_state.selection
    has = {
        **dict.fromkeys(("select", "best", "wait", "processes", "topology", "device"), devices),
        "copy": selection.decided,
        "later": len(selection) > 1,
    }
    return frozenset(name for name, possible in has.items() if not possible)


def keys(app_state: AppState, width: int) -> tuple[Line, tuple[Place, ...]]:
    """The key line, and which cells a click maps to which action: (from, to, action id)."""
    return _keys(impossible(app_state), tuple(app_state.screen.keymap.items()), width)


@lru_cache(maxsize=4)
def _keys(
    dim: frozenset[str], own: tuple[tuple[str, str], ...], width: int
) -> tuple[Line, tuple[Place, ...]]:
    keymap = dict(own)
    names = {(_key(name, keymap), BY_ID[name].hint): name for name in (*DOZEN, "palette", "help")}
    hints = [*names]
    line = hint_line(hints[:-2], hints[-2:], width)
    spans: list[Span] = []
    places: list[Place] = []
    end = 0
    for (key, look), (hint, grey) in zip(line[::2], line[1::2], strict=False):
        name = names.get((key.strip(), hint.strip()), "help")
        spans += [(key, grey if name in dim else look), (hint, grey)]
        begin, end = end + len(key) - len(key.lstrip()), end + cells_of(key + hint)
        places.append((begin, end, name))
    return tuple(spans), tuple(places)


def _key(name: str, keymap: Keymap) -> str:
    if name == "later":
        return f"{key_of('later', keymap)}/{key_of('earlier', keymap)}"
    # The shorter one of its two keys.
    return "0-9" if name == "select" else key_of(name, keymap)
