"""`gputui ls --format`: one line of figures for a status bar (tmux, Waybar)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NoReturn

from gputui.choosing.verdict import State, Verdicts
from gputui.cli.common import WrongCallError
from gputui.inventory.formatting import GIB, UNKNOWN, printable
from gputui.inventory.snapshot import Snapshot


class Figures:
    """The figures of a box for a status bar.

    offered  the devices that a program can use, without divided GPUs and devices that are apart
    gpus     the devices with a load of their own, as MIG instances share that of their GPU
    """

    def __init__(self, box: Snapshot, judged: Verdicts) -> None:
        self.box, self.judged = box, judged
        there = [device for device in box.devices if device.apart is None]
        self.offered = [device for device in there if not box.instances(device)]
        self.gpus = [device for device in there if device.parent is None]

    def count(self, state: State) -> str:
        return str(sum(self.judged[device.key].state == state for device in self.offered))

    def free_ids(self) -> str:
        return ",".join(self.box.label(d) for d in self.offered if self.judged[d.key].free)

    def memory(self, place: int) -> str:
        return _sum((self.box.memory(device)[place] for device in self.gpus), GIB)

    def utilization(self) -> str:
        known = [device.utilization for device in self.gpus if device.utilization is not None]
        return f"{sum(known) / len(known):.0f}" if known else UNKNOWN

    def temperature(self) -> str:
        known = [device.temperature for device in self.gpus if device.temperature is not None]
        return str(max(known)) if known else UNKNOWN


def _sum(values: Iterable[float | None], unit: float = 1.0) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / unit:.0f}" if known else UNKNOWN


_COUNTED: tuple[State, ...] = ("free", "busy", "held", "claimed", "unknown", "lost")

FIELDS: Mapping[str, Callable[[Figures], str]] = {
    **{state: partial(Figures.count, state=state) for state in _COUNTED},
    "total": lambda of: str(len(of.offered)),
    "free_ids": Figures.free_ids,
    "waiters": lambda of: str(len(of.box.waiters)),
    "utilization": Figures.utilization,
    "memory_used": lambda of: of.memory(0),
    "memory_total": lambda of: of.memory(1),
    "temperature": Figures.temperature,
    "power": lambda of: _sum(device.power for device in of.gpus),
    "host": lambda of: printable(of.box.host.name or UNKNOWN),
    "models": lambda of: printable(of.box.models),
}
"""Every field of a format, by its name."""

_PART = re.compile(r"\{\{|\}\}|\{(?P<name>[a-z_]*)\}|(?P<wrong>[{}])|[^{}]+")


def fields_of(text: str) -> frozenset[str]:
    """Return the fields of a format: only names in braces, so that a format can neither read an attribute nor
    set a width. Raises WrongCallError for any other field, or a lone brace."""
    found = set()
    for part in _PART.finditer(text):
        name = part["name"]
        if part["wrong"] is not None or (name is not None and name not in FIELDS):
            _refuse(text[part.start() :])
        if name is not None:
            found.add(name)
    return frozenset(found)


def _refuse(rest: str) -> NoReturn:
    end = rest.find("}") + 1
    raise WrongCallError(
        f"--format: {rest[: end or 40]!r} is not a field; there are: {', '.join(FIELDS)}"
        " ({free} is one; {{ and }} are braces)"
    )


def status_line(text: str, snapshot: Snapshot, judged: Verdicts) -> str:
    """Return the format with its fields replaced by the figures. Raises WrongCallError."""
    figures = Figures(snapshot, judged)
    return text.format(**{name: FIELDS[name](figures) for name in fields_of(text)})
