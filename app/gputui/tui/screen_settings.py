"""Whether the settings of the screen mean something: its theme, its panels, its keys."""

from __future__ import annotations

from gputui.allocating.settings import ScreenSettings, SettingsError

THEME_NAMES = ("dark", "light", "ansi")
"""The names of the themes; `theme.py`, which imports Textual, has how they look."""


def checked(screen: ScreenSettings) -> ScreenSettings:
    """The settings, with keys by Textual's names. Raises SettingsError for a name that nothing has."""
    if screen.theme is not None and screen.theme not in THEME_NAMES:
        raise SettingsError(f"screen.theme: {screen.theme!r} is none of {', '.join(THEME_NAMES)}")
    if screen.hidden:
        from gputui.tui.panels import PANELS_BY_NAME

        for name in screen.hidden:
            if name not in PANELS_BY_NAME:
                raise SettingsError(f"screen.hidden: {name!r} is none of {', '.join(PANELS_BY_NAME)}")
    if screen.keymap:
        from gputui.tui import keymap

        screen = screen._replace(keymap=keymap.checked(screen.keymap))
    return screen
