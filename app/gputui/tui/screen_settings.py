"""Checks the settings of the screen: its theme, its panels, its keys."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.allocating.settings import ScreenSettings, SettingsError

THEME_NAMES = ("dark", "light", "ansi")
"""The names of the themes; their looks are in `theme.py`, which imports Textual."""


def checked(screen: ScreenSettings) -> ScreenSettings:
    """The settings, with keys by Textual's names. Raises SettingsError for an unknown name."""
    if screen.theme is not None:
        _check("theme", (screen.theme,), THEME_NAMES)
    # The known names are imported only where a setting is present: the first frame waits for this.
    if screen.hidden:
        from gputui.tui.panels import PANELS_BY_NAME

        _check("hidden", screen.hidden, PANELS_BY_NAME)
    if screen.columns:
        from gputui.tui.views.columns import BY_ID

        _check("columns", screen.columns, BY_ID)
    if screen.sort is not None:
        from gputui.tui.device_rows import SORTS

        _check("sort", (screen.sort,), SORTS)
    if screen.keymap:
        from gputui.tui import user_keys

        screen = screen._replace(keymap=user_keys.checked(screen.keymap))
    return screen


def _check(key: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = tuple(known)
    for name in given:
        if name not in names:
            raise SettingsError(f"[screen] {key}: {name!r} is not one of {', '.join(names)}")
