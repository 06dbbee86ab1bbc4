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
"""A name with "-on" appended is the style of a cell within the selection; with "-low" or "-high", that of a
low or a high load; with "-quiet", that of numbers which are quieter than their state. "load-peaked" is that
of the end of a mean below a higher peak."""

_LEVELS = ("-low", "-high", "-quiet")

_QUIETER, _BRIGHTER = 0.6, 0.12
"""How far the colour of a low load is from that of its state to that of dim text, and how much lighter
the colour of a high load is; on light, darker."""


def look(name: str, variables: Mapping[str, str], colored: bool = True) -> Style:
    """The style that a name adds to the widget's own, by a theme's variables. Colours have no shades if they
    are the terminal's own, or not `colored`: a high load is bold, and a low one can be read. Without colours,
    no text is fainter than dim text, and who holds a device without using it is bold."""
    level = next((each for each in _LEVELS if name.endswith(each)), "")
    found = LOOKS[name.removesuffix(level)]
    color, background = (
        Color.parse(variables[each]) if each else None for each in (found.color, found.background)
    )
    ground = Color.parse(variables["background"]).brightness
    plain = not colored and found.color not in ("", "rest", "background")
    strong = level == "-high" or (plain and found.color == "idle")
    text = "bold" if strong else variables.get(found.text, found.text)
    if plain:
        shades = (Color.parse(variables[each]) for each in (found.color, "dim"))
        color = max(shades, key=lambda shade: abs(shade.monochrome.brightness - ground))
    elif level and color is not None and color.ansi is None:
        if level != "-high":
            color = color.blend(Color.parse(variables["dim"]), _QUIETER)
        else:
            color = color.lighten(-_BRIGHTER if ground > 0.5 else _BRIGHTER)
    colors = [each and each.rich_color for each in (color, background)]
    return Style(color=colors[0], bgcolor=colors[1]) + Style.parse(text)
