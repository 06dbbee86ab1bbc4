"""The user's own keys: the keys of each action, checked before they are used."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from gputui.allocating.settings import Keymap, SettingsError
from gputui.tui.actions import ACTIONS, BY_ID

_NAMES = {
    "?": "question_mark",
    "/": "slash",
    ",": "comma",
    ":": "colon",
    "+": "plus",
    " ": "space",
    "return": "enter",
    "esc": "escape",
    "del": "delete",
    "pgup": "pageup",
    "pgdn": "pagedown",
}
"""Textual's names of keys that users, and our own help, write differently."""

_MODIFIERS = ("ctrl", "shift", "alt", "meta", "super", "hyper")

_TAKEN = {
    "escape": "goes back",
    "ctrl+c": "leaves gputui",
    "ctrl+q": "leaves gputui",
    **{str(digit): "selects a GPU" for digit in range(10)},
}
_STOPS = "ctrl+z"
"""The key that returns to the shell; a keymap cannot change that."""


def checked(keymap: Keymap) -> dict[str, str]:
    """The keymap in Textual's names of keys.

    Raises SettingsError for an action that does not exist, for a key that would belong to two actions, and
    for a key with a fixed meaning.
    """
    found: dict[str, str] = {}
    for name, keys in keymap.items():
        if name not in BY_ID:
            raise SettingsError(f"[screen] keys.{name}: no such action; the actions are {', '.join(BY_ID)}")
        found[name] = ",".join(_keys_in(name, keys))
    owners: dict[str, str] = {}
    for action in ACTIONS:
        for key in filter(None, found.get(action.id, action.keys).split(",")):
            other = owners.setdefault(key, action.id)
            if other != action.id:
                name = action.id if action.id in found else other
                raise SettingsError(
                    f"[screen] keys.{name}: {key!r} is the key of both {other} and {action.id}"
                )
    return found


def _keys_in(name: str, keys: str) -> Iterator[str]:
    for word in [keys] if keys in (",", " ") else keys.split(","):
        key = _key(word)
        if key is None:
            raise SettingsError(f"[screen] keys.{name}: {keys!r} is not a key")
        if key == _STOPS and name != "stop":
            raise SettingsError(f"[screen] keys.{name}: {key!r} gives the shell back and cannot be changed")
        if key in _TAKEN:
            raise SettingsError(f"[screen] keys.{name}: {key!r} {_TAKEN[key]} and cannot be changed")
        yield key


def _key(word: str) -> str | None:
    """Textual's name of a key, None where no key has that name: "x", "é", "f5", "ctrl+x", "minus"."""
    word = word if word in _NAMES else word.strip()
    if len(word) == 1 or word in _NAMES:
        return _NAMES.get(word, word if word.isprintable() and word != " " else None)
    *modifiers, name = word.lower().split("+")
    name = _NAMES.get(name, name)
    if any(modifier not in _MODIFIERS for modifier in modifiers) or not _is_key(name):
        return None
    if modifiers == ["shift"] and len(name) == 1 and name.isalpha():
        return name.upper()  # as a terminal sends it
    return "+".join([*modifiers, name])


def _is_key(name: str) -> bool:
    """Whether Textual has a key of this name: a character, a Unicode character name, or another key."""
    # Imported only where the user has a keymap.
    from textual.keys import Keys

    if len(name) == 1 or name in {key.value for key in Keys}:
        return name.isprintable() and name != " "
    try:
        return bool(unicodedata.lookup(name.replace("_", " ")))
    except KeyError:
        # Textual has its own names for a few characters.
        return name in ("slash", "minus", "plus", "comma", "at", "full_stop", "underscore")
