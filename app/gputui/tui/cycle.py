"""The next of several choices, for keys that cycle through them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def following(choices: Iterable[T], now: object) -> T:
    """The choice after `now`; the first after the last, and where `now` is none of them."""
    every: list[T] = [*choices]
    return every[(every.index(now) + 1) % len(every) if now in every else 0]
