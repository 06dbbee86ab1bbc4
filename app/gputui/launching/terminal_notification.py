"""The sequence that calls a person through the terminal: its bell, and a desktop notification."""

from __future__ import annotations

from gputui.inventory.formatting import printable


def terminal_notification(message: str) -> str:
    """BEL, then a notification as iTerm2, Windows Terminal and others show it (OSC 9), and as urxvt, foot and
    others do (OSC 777). A terminal that knows neither shows nothing."""
    text = printable(message)
    return f"\a\x1b]9;gputui: {text}\x1b\\\x1b]777;notify;gputui;{text}\x1b\\"
