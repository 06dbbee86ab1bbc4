"""The escape sequence that notifies the user through the terminal: its bell, and a desktop notification."""

from __future__ import annotations

from gputui.inventory.formatting import printable


def terminal_notification(message: str) -> str:
    """Return BEL and a notification in two forms: OSC 9 (iTerm2, Windows Terminal and others) and OSC 777
    (urxvt, foot and others). A terminal that supports neither shows nothing."""
    text = printable(message)
    return f"\a\x1b]9;gputui: {text}\x1b\\\x1b]777;notify;gputui;{text}\x1b\\"
