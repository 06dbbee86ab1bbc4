"""How the devices of a launch work together. This decides which links matter. Pure."""

from __future__ import annotations

from gputui.inventory.formatting import devices_text, is_digits, whole_between
from gputui.inventory.light_dataclasses import frozen


class GroupingError(ValueError):
    """The text is not a grouping, or the number of devices does not fit it. The message is one line."""


@frozen
class Grouping:
    """How devices work together.

    tensor       devices in a tensor-parallel group; a group has consecutive ranks (Megatron, DeepSpeed)
    pipeline     pipeline stages; a stage has consecutive ranks, and rank i of n sends to i + n / pipeline
    independent  separate processes that do not communicate

    With neither groups nor stages, all devices take part in one all-reduce, as in data-parallel training.
    """

    tensor: int = 1
    pipeline: int = 1
    independent: bool = False

    @property
    def unit(self) -> int:
        """The number of devices must be a multiple of this."""
        return self.tensor * self.pipeline

    def fits(self, count: int) -> bool:
        """Whether `count` devices make whole groups and stages."""
        return count % self.unit == 0

    def misfit(self, count: int) -> str:
        """The error text for a number of devices that does not fit."""
        return f"{devices_text(count)} cannot be divided into groups of {self}"

    @property
    def word(self) -> str:
        """The text that `parse` reads as this grouping."""
        return "none" if self.independent else "all" if self == ALL_REDUCE else str(self)

    def __str__(self) -> str:
        if self.independent:
            return "independent"
        parts = [f"tp={self.tensor}"] if self.tensor > 1 else []
        parts += [f"pp={self.pipeline}"] if self.pipeline > 1 else []
        return ",".join(parts) or "all-reduce"


ALL_REDUCE = Grouping()
MAX_DEVICES = 4096
"""A larger number is taken as a typing mistake."""


def parse(text: str) -> Grouping:
    """Parse "tp=2,pp=2", "tp=4", "pp=2", "none" (independent) or "all". Raises GroupingError."""
    given, text = text, text.lower()
    if text == "all":
        return ALL_REDUCE
    if text == "none":
        return Grouping(independent=True)
    found: dict[str, int] = {}
    for part in text.split(",") if "," in text else text.split() or [text]:
        name, equals, number = part.strip().partition("=")
        if name not in ("tp", "pp") or not equals or name in found:
            raise GroupingError(f"{given!r} is not one of tp=N, pp=N, tp=N,pp=N, all, none")
        size = whole_between(number, 1, MAX_DEVICES)
        if size is None:
            raise GroupingError(f"{given!r}: {name} is a number of devices, 1 or more")
        found[name] = size
    return Grouping(found.get("tp", 1), found.get("pp", 1))


def parse_request(text: str) -> tuple[int, Grouping]:
    """Parse "4", "8 tp=2 pp=2" or "tp=2,pp=2" to a number of devices and a grouping. Raises GroupingError."""
    words = text.replace(",", " ").split()
    number = words.pop(0) if words and is_digits(words[0]) else None
    if any(not word.lower().startswith(("tp=", "pp=")) for word in words) and words not in (
        ["all"],
        ["none"],
    ):
        raise GroupingError("type a number, or a number with tp=N, pp=N")
    grouping = parse(",".join(words)) if words else ALL_REDUCE
    if number is None and grouping.unit == 1:
        raise GroupingError("enter a number of devices: 4, or 8 tp=2 pp=2")
    count = whole_between(str(grouping.unit) if number is None else number, 1, MAX_DEVICES)
    if count is None:
        raise GroupingError(f"enter a number of devices from 1 to {MAX_DEVICES}")
    if not grouping.fits(count):
        raise GroupingError(grouping.misfit(count))
    return count, grouping
