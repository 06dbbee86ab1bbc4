"""What reading a Python script gives: the lists of devices that it sets for itself, and those it names."""

from __future__ import annotations

from gputui.inventory.light_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, counted from 1. `file` is the name as a person gave it ("train.sh", "sh -c")."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """Something that matters for the devices and cannot be told without running the script.

    place     where it comes from
    written   as it is written there
    why       the reason, to be read behind "cannot be followed: "
    variable  the variable that gets the value
    """

    place: Place
    written: str
    why: str
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class OwnList:
    """A list of visible devices that a Python script sets for itself.

    text     None where it takes the list away: all devices are visible then
    certain  whether it is set whenever the script runs: not in a function or a branch
    """

    place: Place
    text: str | None
    certain: bool


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The devices that a Python script names: `indices` of the visible ones, or only how many (`count`)."""

    place: Place
    written: str
    indices: tuple[int, ...] = ()
    count: int | None = None

    @property
    def needs(self) -> int:
        """How many devices must be visible for this."""
        return self.count if self.count is not None else max(self.indices, default=-1) + 1


@dataclass(frozen=True, slots=True)
class PythonReading:
    """What a Python script says of devices, in the order of its lines.

    `trainer`: whether it imports the Trainer of transformers. Of what is not read as Python (Python 2, a
    mistake, a long one) only lines that set the list by themselves are looked for in the first MiB; none of
    them is certain.
    """

    lists: tuple[OwnList, ...] = ()
    uses: tuple[DeviceUse, ...] = ()
    unfollowed: tuple[Unfollowed, ...] = ()
    trainer: bool = False

    @property
    def own_list(self) -> OwnList | None:
        """The list that certainly holds at the end of the script's own lines; None for none."""
        return next((each for each in reversed(self.lists) if each.certain), None)

    @property
    def most(self) -> DeviceUse | None:
        """The use that needs most devices; None where no device is named."""
        return max(self.uses, key=lambda use: use.needs, default=None)
