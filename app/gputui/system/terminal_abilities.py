"""What an output can show: colours, and characters beyond ASCII. The command line and the screen ask here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_utf8(stream: Any) -> bool:
    """Whether a text stream is encoded in UTF-8; a stream without an encoding is no terminal, and is not."""
    return (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def can_draw(environ: Mapping[str, str]) -> bool:
    """Whether the terminal can move its cursor; one without a name, or a "dumb" one, cannot."""
    return environ.get("TERM", "dumb") not in ("dumb", "unknown")


def ascii_only(stream: Any, environ: Mapping[str, str]) -> bool:
    """Whether to write ASCII to a stream: it is not UTF-8, or it is a terminal whose font has little more."""
    return not is_utf8(stream) or (is_terminal(stream) and environ.get("TERM") in _FEW_GLYPHS)


_FEW_GLYPHS = ("dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "ansi", "cons25")


def is_terminal(stream: Any) -> bool:
    """Whether a stream is open and a terminal."""
    return stream is not None and bool(stream.isatty())


def coloured(stream: Any, environ: Mapping[str, str]) -> bool:
    """Whether to colour what is written to a stream.

    `NO_COLOR` means never (no-color.org), `FORCE_COLOR` always (force-color.org), unless it is empty, and
    the latter unless it is "0"; else a terminal is coloured if it can draw.
    """
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) and can_draw(environ)


def plain(text: str) -> str:
    """The text in ASCII: each glyph of the program as a letter or sign that looks like it, "?" for others."""
    return text if text.isascii() else text.translate(_ASCII).encode("ascii", "replace").decode()


_ASCII = str.maketrans(
    {
        "○": "o",
        "●": "*",
        "◐": "%",
        "✕": "x",
        "▶": ">",
        "▸": ">",
        "◌": "~",
        "…": "...",
        "·": "-",
        "–": "-",
        "—": "-",
        "−": "-",
        "×": "x",
        "→": "->",
        "←": "<-",
        "↑": "^",
        "↓": "v",
        "⏎": "Enter",
        "°": " ",
        "│": "|",
        "─": "-",
        "├": "|",
        "└": "`",
        "┌": ",",
        "┐": ".",
        "┘": "'",
        "≥": ">=",
        "≤": "<=",
        "±": "+-",
        "■": "#",
        "█": "#",
        "░": ".",
    }
)
