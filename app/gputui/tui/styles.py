"""LOOKS: the look of each named style of a span. Glyphs and words carry the meaning; colour only helps.

They are no component styles of Textual: each of those costs 25 KiB in every widget, and time at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rich.style import Style
from textual.color import Color


class Look(NamedTuple):
    """The names of a theme's variables, "" to keep the widget's; `text` is a text style or a variable."""

    color: str = ""
    background: str = ""
    text: str = ""


LOOKS: dict[str, Look] = {
    "brand": Look("background", "primary", "bold"),
    "busy": Look("busy"),
    "busy-numbers": Look("busy-numbers"),
    "claimed": Look("secondary"),
    "cooling": Look("memory"),
    "cursor": Look("accent", text="bold"),
    "dim": Look("dim"),
    "free": Look("free"),
    "held": Look("warning"),
    "here": Look("background", "accent", "bold"),
    "idle": Look("idle"),
    "key": Look("accent", text="bold"),
    "link-host": Look("memory"),
    "link-near": Look("primary"),
    "link-node": Look("warning"),
    "link-nv": Look("success"),
    "link-sys": Look("error"),
    "lit": Look(background="lit", text="lit-style"),
    "load": Look("load"),
    "load-past": Look("past"),
    "load-peaked": Look("load", "rest"),
    "lost": Look("error", text="bold"),
    "memory": Look("memory"),
    "mine": Look("mine"),
    "on": Look(background="selected", text="bold"),
    "prompt": Look("accent", text="bold"),
    "rest": Look("rest"),
    "rule": Look("rest"),
    "slot": Look("background", "accent", "bold"),
    "strong": Look("foreground", text="bold"),
    "title": Look("primary", text="bold"),
    "unknown": Look("warning", text="italic"),
    "warn": Look("warning"),
}
"""A name with "-on" appended is the style of a cell within the selection."""


def look(name: str, variables: Mapping[str, str]) -> Style:
    """The style that a name adds to the widget's own, by a theme's variables."""
    found = LOOKS[name]
    color, background = (
        Color.parse(variables[each]).rich_color if each else None for each in (found.color, found.background)
    )
    return Style(color=color, bgcolor=background) + Style.parse(variables.get(found.text, found.text))
