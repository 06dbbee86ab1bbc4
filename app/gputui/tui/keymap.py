"""The user's own keys: which action has which, checked before they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputui.allocating.settings import SettingsError
from gputui.tui.actions import ACTIONS, BY_ID

_NAMES = {"?": "question_mark", "/": "slash", ",": "comma", "+": "plus", " ": "space", "return": "enter"}
"""Textual's names of keys that people write otherwise."""

_TAKEN = {"escape": "goes back", **{str(digit): "selects a GPU" for digit in range(10)}}


def checked(keymap: Mapping[str, str]) -> dict[str, str]:
    """The keymap in Textual's names of keys.

    Raises SettingsError for an action that does not exist, for a key that two actions would have, and for one
    that has a meaning of its own.
    """
    found: dict[str, str] = {}
    for name, keys in keymap.items():
        if name not in BY_ID:
            raise SettingsError(f"screen.keys.{name}: no such action; the actions are {', '.join(BY_ID)}")
        found[name] = ",".join(_keys_in(name, keys))
    owners: dict[str, str] = {}
    for action in ACTIONS:
        for key in found.get(action.id, action.keys).split(","):
            other = owners.setdefault(key, action.id)
            if other != action.id:
                name = action.id if action.id in found else other
                raise SettingsError(f"screen.keys.{name}: {key!r} is the key of both {other} and {action.id}")
    return found


def _keys_in(name: str, keys: str) -> Iterator[str]:
    for word in [keys] if keys in (",", " ") else keys.split(","):
        key = _NAMES.get(word, _NAMES.get(word.strip(), word.strip()))
        if not key or not key.isprintable() or " " in key:
            raise SettingsError(f"screen.keys.{name}: {keys!r} is not a key")
        if key in _TAKEN:
            raise SettingsError(f"screen.keys.{name}: {key!r} {_TAKEN[key]} and cannot be changed")
        yield key
