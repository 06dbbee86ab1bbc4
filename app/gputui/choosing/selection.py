"""The selection: the chosen devices in their order, kept by UUID. Immutable; its n-th is a program's n-th."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """`keys` are `Device.key`s in the chosen order, each once. `cpu_only`: no device, on purpose."""

    keys: tuple[str, ...] = ()
    cpu_only: bool = False

    def __post_init__(self) -> None:
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("a device is selected twice")
        if self.cpu_only and self.keys:
            raise ValueError("CPU only, and devices")

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    @property
    def decided(self) -> bool:
        """Whether there is anything to launch on: devices, or none on purpose."""
        return bool(self.keys) or self.cpu_only

    def rank(self, key: str) -> int | None:
        """The number that a program gives the device, None for a device that is not chosen."""
        return self.keys.index(key) if key in self.keys else None

    def toggle(self, key: str) -> Selection:
        """Take the device as the last one, or leave it out."""
        if key in self.keys:
            return Selection(tuple(k for k in self.keys if k != key))
        return Selection((*self.keys, key))

    def move(self, key: str, by: int) -> Selection:
        """The device `by` places later (earlier when negative), stopping at the ends."""
        if key not in self.keys:
            return self
        rest = [k for k in self.keys if k != key]
        place = min(max(self.keys.index(key) + by, 0), len(rest))
        return Selection((*rest[:place], key, *rest[place:]))

    def clear(self) -> Selection:
        """Nothing chosen, nothing decided."""
        return Selection()

    def none(self) -> Selection:
        """No device, on purpose: a run on the CPU. Asked again, undecided again."""
        return Selection(cpu_only=not self.cpu_only)

    def prune(self, present: Iterable[str]) -> Selection:
        """Without the devices that are not `present` any more; the others keep their order."""
        there = set(present)
        if all(key in there for key in self.keys):
            return self
        return Selection(tuple(key for key in self.keys if key in there))
