"""Reads the fields of a config.json: bounded numbers, under any name that a field has had, or its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gputui.inventory.typed_json import DocumentError, check, few, form_of, whole
from gputui.planning.model import PlanningError

T = TypeVar("T")

MOST_LAYERS = 4096
MOST_WIDTH = 1 << 32

_YES, _TEXT = form_of(bool), check(str, lambda text: len(text) <= 200, "a text")
_LAYERS, _WORDS = form_of(few(int, MOST_LAYERS)), form_of(few(str, MOST_LAYERS))


class Fields:
    """The fields of one configuration. The methods raise PlanningError, whose message names the field."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self._values, self.source = values, source

    def has(self, *names: str) -> bool:
        return any(self._values.get(name) is not None for name in names)

    def null(self, name: str) -> bool:
        """Whether the field is present and null."""
        return name in self._values and self._values[name] is None

    def _read(self, names: tuple[str, ...], read: Callable[[Any], T], default: T | None) -> T:
        """The value of the first name that is present; `default` where none is, or where all are null."""
        name = next((name for name in names if self.has(name)), None)
        if name is None:
            if default is None:
                raise PlanningError(f"{self.source}: {names[0]} is missing")
            return default
        try:
            return read(self._values[name])
        except DocumentError as error:
            raise PlanningError(f"{self.source}: {error.within(name)}") from None

    def whole(self, *names: str, default: int | None = None, least: int = 1, most: int = MOST_WIDTH) -> int:
        """A number from `least` to `most`."""
        form = whole(least, most, f"a whole number from {least} to {most}")

        def read(value: Any) -> int:
            # 10000.0 is a whole number, too.
            found: int = form.read(int(value) if type(value) is float and value.is_integer() else value)
            return found

        return self._read(names, read, default)

    def layers(self, *names: str, default: int) -> int:
        return self.whole(*names, default=default, most=MOST_LAYERS)

    def yes(self, name: str, default: bool) -> bool:
        return self._read((name,), _YES.read, default)

    def text(self, name: str, default: str = "") -> str:
        return self._read((name,), _TEXT.read, default)

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of layers; empty where it is missing."""
        return self._read((name,), _LAYERS.read, ())

    def words(self, name: str) -> tuple[str, ...]:
        """A list of texts, one for each layer; empty where it is missing."""
        return self._read((name,), _WORDS.read, ())

    @property
    def architecture(self) -> str:
        """The first of `architectures`; "" where there is none."""
        value = self._values.get("architectures")
        if isinstance(value, list) and value and isinstance(value[0], str) and len(value[0]) <= 200:
            return value[0]
        return ""
