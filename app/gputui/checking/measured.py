"""What was measured between devices. Immutable; GB/s are 10^9 bytes a second, one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gputui.inventory.untrusted_json import Node

_MOST = 1024 * 1024
_LATENCY_SIZE = 64 * 1024
"""Bytes up to which a copy tells how long it takes to begin, not how much passes."""


@dataclass(frozen=True, slots=True)
class Point:
    """`size` bytes in `seconds`."""

    size: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        return self.size / self.seconds / 1e9


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies from one device to another, by their `Device.key`.

    peer      whether the target can read the source's memory itself
    verified  whether what arrived is what was sent
    """

    source: str
    target: str
    points: tuple[Point, ...]
    peer: bool
    verified: bool

    @property
    def gb_per_s(self) -> float | None:
        """The best of the sizes: what the link carries. None where only latency was measured."""
        return max((each.gb_per_s for each in self.points if each.size > _LATENCY_SIZE), default=None)

    @property
    def latency(self) -> float | None:
        """Seconds of the smallest copy."""
        return next((each.seconds for each in self.points if each.size <= _LATENCY_SIZE), None)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """An all-reduce over `ranks` processes, in the chosen order; the time of a size is the slowest rank's."""

    backend: str
    ranks: int
    points: tuple[Point, ...]
    verified: bool

    @property
    def best(self) -> Point | None:
        """The size at which the most passed."""
        return max(self.points, key=lambda point: point.gb_per_s, default=None)

    @property
    def algorithm(self) -> float | None:
        """GB/s as the program has it: size by time."""
        return self.best.gb_per_s if self.best else None

    @property
    def bus(self) -> float | None:
        """GB/s as the links have it: 2 (n - 1) / n as much (nccl-tests, doc/PERFORMANCE.md)."""
        return self.best.gb_per_s * 2 * (self.ranks - 1) / self.ranks if self.best else None


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was measured, and what was not.

    devices   keys of those that were measured, in the chosen order
    skipped   (key, why) of those that were left alone
    remarks   why there is less than one would expect, though nothing failed
    problems  what failed
    """

    devices: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    all_reduce: AllReduce | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def pairs(self) -> Mapping[tuple[str, str], float]:
        """GB/s by (source, target), those that are known."""
        found = {(c.source, c.target): c.gb_per_s for c in self.copies}
        return MappingProxyType({pair: speed for pair, speed in found.items() if speed is not None})

    @property
    def verified(self) -> bool:
        """Whether all that was begun was measured, and all data arrived as it was sent."""
        parts = [copy.verified for copy in self.copies]
        parts += [self.all_reduce.verified] if self.all_reduce else []
        return not self.problems and all(parts)

    def to_document(self) -> dict[str, Any]:
        """JSON-ready values: bytes, seconds, GB/s."""
        reduced = self.all_reduce
        return {
            "devices": list(self.devices),
            "copies": [
                {
                    "source": each.source,
                    "target": each.target,
                    "gb_per_s": _rounded(each.gb_per_s),
                    "latency_s": each.latency,
                    "peer_access": each.peer,
                    "verified": each.verified,
                    "sizes": _points(each.points),
                }
                for each in self.copies
            ],
            "all_reduce": reduced
            and {
                "backend": reduced.backend,
                "processes": reduced.ranks,
                "algorithm_gb_per_s": _rounded(reduced.algorithm),
                "bus_gb_per_s": _rounded(reduced.bus),
                "verified": reduced.verified,
                "sizes": _points(reduced.points),
            },
            "skipped": [{"device": key, "why": why} for key, why in self.skipped],
            "remarks": list(self.remarks),
            "problems": list(self.problems),
        }


def _rounded(speed: float | None) -> float | None:
    return None if speed is None else round(speed, 3)


def _points(points: tuple[Point, ...]) -> list[dict[str, Any]]:
    return [{"bytes": each.size, "seconds": each.seconds} for each in points]


def read_copies(node: Node, keys: Mapping[int, str]) -> tuple[Copy, ...]:
    """The copies of an answer; `keys` are the devices by their n of `cuda:n`. Raises DocumentError."""
    return tuple(
        Copy(
            source=_key(each["source"], keys),
            target=_key(each["target"], keys),
            points=_read_points(each["points"]),
            peer=each["peer"].yes(),
            verified=each["verified"].yes(),
        )
        for each in node.items(_MOST)
    )


def read_all_reduce(node: Node) -> AllReduce:
    """The all-reduce of an answer. Raises DocumentError."""
    return AllReduce(
        backend=node["backend"].text(),
        ranks=node["ranks"].whole(least=2),
        points=_read_points(node["points"]),
        verified=node["verified"].yes(),
    )


def _key(node: Node, keys: Mapping[int, str]) -> str:
    number = node.whole()
    if number not in keys:
        raise node.wrong("a device that was to be measured")
    return keys[number]


def _read_points(node: Node) -> tuple[Point, ...]:
    points = []
    for each in node.items(64):
        size, seconds = each.items(2)
        points.append(Point(size.whole(least=1), seconds.number()))
        if not points[-1].seconds:
            raise seconds.wrong("a time")
    return tuple(points)
