"""Reads the fields of a config.json: bounded numbers, under each name that a field had, or its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputui.inventory.formatting import printable
from gputui.planning.model import PlanningError

MOST_LAYERS = 4096
MOST_WIDTH = 1 << 32


class Fields:
    """The fields of one configuration. Reads raise PlanningError, whose message names the field."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self._values, self.source = values, source

    def has(self, *names: str) -> bool:
        return any(self._values.get(name) is not None for name in names)

    def null(self, name: str) -> bool:
        """Whether the field is there, and null."""
        return name in self._values and self._values[name] is None

    def _value(self, names: tuple[str, ...]) -> tuple[str, Any]:
        """The first of the names that is there, and its value; None for null and for none of them."""
        for name in names:
            if self._values.get(name) is not None:
                return name, self._values[name]
        return names[0], None

    def _wrong(self, name: str, want: str, value: Any) -> PlanningError:
        shown = "something else"
        if isinstance(value, (int, float, str, bool)):
            shown = printable(repr(value) if isinstance(value, str) else str(value))
        shown = shown if len(shown) <= 40 else shown[:37] + "…"
        return PlanningError(f"{self.source}: {name} is {shown}, {want} expected")

    def whole(self, *names: str, default: int | None = None, least: int = 1, most: int = MOST_WIDTH) -> int:
        """A number from `least` to `most`; `default` where there is none, or where it is null."""
        name, value = self._value(names)
        if value is None:
            if default is None:
                raise PlanningError(f"{self.source}: {name} is missing")
            return default
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(name, f"a whole number from {least} to {most}", value)
        return value

    def layers(self, *names: str, default: int) -> int:
        return self.whole(*names, default=default, most=MOST_LAYERS)

    def yes(self, name: str, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 200:
            raise self._wrong(name, "a text", value)
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of layers; none where it is missing."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > MOST_LAYERS or any(type(n) is not int for n in value):
            raise self._wrong(name, "a list of layers", value)
        return tuple(value)

    def first_text(self, name: str) -> str:
        """The first of a list of texts, "" where there is none."""
        value = self._values.get(name)
        if isinstance(value, list) and value and isinstance(value[0], str) and len(value[0]) <= 200:
            return value[0]
        return ""
