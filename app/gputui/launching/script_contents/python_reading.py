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
    """Devices that a Python script names: `needs` must be visible for that."""

    place: Place
    written: str
    needs: int


@dataclass(frozen=True, slots=True)
class PythonReading:
    """What a Python script says of devices, in the order of its lines.

    `unfollowed` is where it sets a list to what cannot be told without running it; `trainer`: whether it
    imports the Trainer of transformers. Of what is not read as Python (Python 2, a mistake, a long one) only
    lines that set the list by themselves are looked for; none of them is certain. `unread` says why it is not
    read, where it is Python all the same.
    """

    lists: tuple[OwnList, ...] = ()
    uses: tuple[DeviceUse, ...] = ()
    unfollowed: tuple[Place, ...] = ()
    trainer: bool = False
    unread: str = ""

    @property
    def own_list(self) -> OwnList | None:
        """The list that certainly holds at the end of the script's own lines; None for none."""
        return next((each for each in reversed(self.lists) if each.certain), None)

    @property
    def most(self) -> DeviceUse | None:
        """The use that needs most devices; None where no device is named."""
        return max(self.uses, key=lambda use: use.needs, default=None)
