"""What an output can show: colours, and characters beyond ASCII, for the command line and the screen."""

from __future__ import annotations

from typing import Any

from gputui.system.environment import Environ


def is_utf8(stream: Any) -> bool:
    """Whether a text stream is encoded in UTF-8; a stream without an encoding is no terminal, and is not."""
    return (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def can_draw(environ: Environ) -> bool:
    """Whether the terminal can move its cursor; one without a name, or a "dumb" one, cannot."""
    return environ.get("TERM", "dumb") not in ("dumb", "unknown")


def ascii_only(stream: Any, environ: Environ) -> bool:
    """Whether to write ASCII to a stream: it is not UTF-8, or it is a terminal whose font has little more."""
    return not is_utf8(stream) or (is_terminal(stream) and environ.get("TERM") in _FEW_GLYPHS)


_FEW_GLYPHS = ("dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "ansi", "cons25")


def is_terminal(stream: Any) -> bool:
    """Whether a stream is open and a terminal."""
    return stream is not None and bool(stream.isatty())


def coloured(stream: Any, environ: Environ) -> bool:
    """Whether to colour what is written to a stream.

    `NO_COLOR` means never (no-color.org), `FORCE_COLOR` always (force-color.org), unless it is empty, and
    the latter unless it is "0"; else a terminal is coloured if it can draw.
    """
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) and can_draw(environ)


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Handle characters that an output cannot encode (codecs.register_error): each of the program's glyphs
    becomes a sign of the same width, other characters are escaped, so that no letter of a name is lost."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_ASCII)
    return lacking.encode("ascii", "backslashreplace").decode(), error.end


_GLYPHS = (
    "○o●*◐%◔&◆$◌~✕x✗x✓+★*▶>▸>◷@▲^▼v▾v…~·-–-—-−-×x→>←<↑^↓v↗^↔~⏎E°'²2µuΣS±~≥>≤<«<»>“\"”\"‘'’'"
    "│|─-━=┈.├|└`┌,┐.┘'╵'╲\\■#█#▉#▊#▋#▌=▍=▎-▏-▕|░.▒:▓#▁_▂_▃.▄-▅=▆+▇*"
)
"""The glyphs of the program, each before the sign in its place."""
_ASCII = dict(zip(map(ord, _GLYPHS[::2]), _GLYPHS[1::2], strict=True))
