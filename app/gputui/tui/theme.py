"""The themes: dark, light, and `ansi`, which uses the terminal's own colours and background."""

from __future__ import annotations

from textual.theme import BUILTIN_THEMES, Theme

from gputui.system.environment import Environ

DARK = Theme(
    name="dark",
    primary="#7aa2f7",
    secondary="#bb9af7",
    accent="#7dcfff",
    success="#9ece6a",
    warning="#e0af68",
    error="#f7768e",
    foreground="#c8d0e8",
    background="#14161f",
    surface="#1a1d29",
    panel="#222636",
    dark=True,
    variables={
        "dim": "#7f88a8",
        "rest": "#3b4261",
        "load": "#8a96c8",
        # The states of a row differ in luminance, and in hues that every eye can tell apart (Okabe and Ito).
        "free": "#52d6ac",
        "mine": "#56a5e9",
        "busy": "#cf651a",
        "idle": "#ffe57a",
        "memory": "#73c8b6",
        "lit": "#272c40",
        "selected": "#31395a",
        "lit-style": "bold",
    },
)

LIGHT = Theme(
    name="light",
    primary="#2f5bb7",
    secondary="#7a3fb0",
    accent="#00639b",
    success="#2d7a22",
    warning="#8a5a00",
    error="#b3203f",
    foreground="#22252e",
    background="#fafafa",
    surface="#f0f0f2",
    panel="#e6e8ee",
    dark=False,
    variables={
        "dim": "#666c7a",
        "rest": "#c3c8d4",
        "load": "#5b69a0",
        # A yellow that can be read on white is brown: the colour of who uses nothing must be seen, too.
        "free": "#004d38",
        "mine": "#07558b",
        "busy": "#bd4e00",
        "idle": "#b61280",
        "memory": "#0f7b6c",
        "lit": "#dde4f3",
        "selected": "#c9d6f2",
        "lit-style": "bold",
    },
)

ANSI = Theme(
    name="ansi",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_magenta",
    accent="ansi_cyan",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    # Textual's own styles expect these variables of every theme with the terminal's colours.
    variables=BUILTIN_THEMES["ansi-dark"].variables
    | {
        "dim": "ansi_default",
        "rest": "ansi_bright_black",
        "load": "ansi_default",
        "free": "ansi_green",
        "mine": "ansi_cyan",
        "busy": "ansi_magenta",
        "idle": "ansi_yellow",
        "memory": "ansi_magenta",
        # Any fixed background is unreadable on some palette: the cursor's sign and bold are enough.
        "lit": "ansi_default",
        "selected": "ansi_default",
        "lit-style": "bold",
    },
)

THEMES: tuple[Theme, ...] = (DARK, LIGHT, ANSI)


def default_theme(environ: Environ) -> str:
    """The name `dark` where the terminal has at least 256 colours, else `ansi`, its own sixteen.

    SSH drops COLORTERM, so that TERM decides; a name without a number has eight or sixteen colours.
    """
    term = environ.get("TERM", "")
    rich = "256" in term or "direct" in term or "kitty" in term or "ghostty" in term or "alacritty" in term
    return "dark" if rich or environ.get("COLORTERM") in ("truecolor", "24bit") else "ansi"
