"""Reading JSON from an untrusted source: each value knows its place in the document, for error messages."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any, cast

MOST_TEXT = 128 * 1024
"""Linux's limit on one argument (MAX_ARG_STRLEN)."""
MOST_NUMBER = 2**63 - 1
MOST_WATTS = 1e9
LAST_MOMENT = 253_402_214_400
"""The last day of the year 9999: in every time zone a date that can be written."""

_REQUIRED: Any = object()


class DocumentError(ValueError):
    """The JSON is not a snapshot; the message is one line that names the place and what is wrong."""


class JsonValue:
    """A value of a JSON document and where it stands ("devices[3].uuid"). Reads raise DocumentError."""

    __slots__ = ("_inside", "_name", "value")

    def __init__(self, value: Any, name: str | int, inside: JsonValue | None = None) -> None:
        """`name` is its key or its place in the list that it stands `inside` of, or what the document is."""
        self.value, self._name, self._inside = value, name, inside

    @property
    def place(self) -> str:
        """Where it stands. (Made when it is asked for: of thousands of values none is wrong, mostly.)"""
        if self._inside is None:
            return str(self._name)
        above = self._inside.place
        if isinstance(self._name, int):
            return f"{above}[{self._name}]"
        return f"{above}.{self._name}" if above != "file" else self._name

    def wrong(self, want: str) -> DocumentError:
        if isinstance(self.value, (dict, list)):
            # Not what is inside: it may be nested too deep to be shown.
            return DocumentError(f"{self.place}: {want} expected, found a list or an object")
        shown = json.dumps(self.value)
        shown = shown if len(shown) <= 40 else shown[:37] + "…"
        return DocumentError(f"{self.place}: {want} expected, found {shown}")

    def __getitem__(self, key: str) -> JsonValue:
        return self.get(key, _REQUIRED)

    def get(self, key: str, default: Any) -> JsonValue:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        value = self.value.get(key, default)
        if value is _REQUIRED:
            raise DocumentError(f"{self.place}: '{key}' is missing")
        return JsonValue(value, key, self)

    def items(self, most: int) -> list[JsonValue]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        if len(self.value) > most:
            raise DocumentError(f"{self.place}: {len(self.value)} entries, at most {most} are read")
        return [JsonValue(value, place, self) for place, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or len(self.value) > MOST_TEXT:
            raise self.wrong("a text")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            raise DocumentError(f"{self.place}: not valid Unicode") from None
        return self.value

    def whole(self, least: int = 0) -> int:
        if type(self.value) is not int or not least <= self.value <= MOST_NUMBER:
            raise self.wrong("a whole number")
        return self.value

    def number(self, most: float = MOST_WATTS) -> float:
        if type(self.value) not in (int, float) or not 0 <= self.value <= most:
            raise self.wrong("a number")
        return float(self.value)

    def yes(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def moment(self) -> float:
        try:
            moment = datetime.fromisoformat(self.text().replace("Z", "+00:00"))
            # A time without an offset would mean another moment on every machine that reads it.
            seconds = moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
        except (ValueError, OverflowError):
            raise self.wrong("a time (ISO 8601)") from None
        if not 0 <= seconds <= LAST_MOMENT:
            raise self.wrong("a time from 1970 to 9999")
        return seconds

    def word(self, words: tuple[str, ...]) -> str:
        if self.value not in words:
            raise self.wrong(" or ".join(words))
        return cast(str, self.value)

    @property
    def known(self) -> bool:
        return self.value is not None
