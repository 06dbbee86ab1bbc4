"""Intent: what a command itself says of devices and of how many it needs, as one value.

`read_intent` (read_intent.py) reads it once, before anything is selected. The request, the claims, the launch
line and the screen's preselection all use it. What stands on the command line is the user's word; what a
configuration file or an inherited variable says is a default, which `-n` and `--gpus` override.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TypeVar

from gputui.choosing.grouping import MAX_DEVICES, Grouping
from gputui.choosing.named_devices import NONE
from gputui.inventory.light_dataclasses import dataclass, field, fields, replace
from gputui.launching.host_environment import HostEnvironment
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Visibility


class ContradictionError(ValueError):
    """A call and its command ask for different devices. The message is one line that names both."""


@dataclass(frozen=True, slots=True)
class NamedDevices:
    """Devices that a command names, in order.

    words   where it says so: "--gpu_ids 0,1"
    listed  the devices, as the list of the vendor's variable would name them; "" is CPU only
    firm    whether it is the user's word on the command line, and not a default from a file or the
            environment
    rewritable  whether the command can be rewritten to other devices
    environ     what the program inherits that reads the list: it decides how numbers count
    first       whether they follow from a number, as the first so many, and nobody has named them
    visible     whether the program counts them among the devices that it sees ("--device 1")
    """

    words: str
    listed: str
    firm: bool = True
    rewritable: bool = True
    environ: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    first: bool = field(default=False, compare=False)
    visible: bool = field(default=False, compare=False)

    @property
    def names(self) -> str:
        """The devices as `--gpus` names them."""
        return self.listed or NONE

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.listed.split(",")) if self.listed else 0

    @property
    def first_ones(self) -> DeviceCount | None:
        """How many they are, where they are the first so many by number ("1,0"); None for others."""
        if sorted(self.listed.split(",")) != sorted(map(str, range(self.count))) or not self.count:
            return None
        return DeviceCount(self.words, self.count, self.firm)


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """How many devices a command needs: a process each, or tensor × pipeline × data parallel ones.

    words, firm  as in NamedDevices
    takes_first  whether it takes the first so many of the box, whatever is visible, where it is not rewritten
                 (deepspeed's `--num_gpus`)
    certain      whether it is known that so many are used: neither is the command started in a branch that is
                 perhaps taken, nor is the meaning of its option guessed
    """

    words: str
    number: int
    firm: bool = True
    takes_first: bool = field(default=False, compare=False)
    certain: bool = field(default=True, compare=False)


_Said = TypeVar("_Said", NamedDevices, DeviceCount)


@dataclass(frozen=True, slots=True)
class Intent:
    """All that a command says of devices.

    devices       those that it names, None where it names none
    count         how many it needs, None where it takes as many as it is given
    needs         how many devices must be visible for the highest number that a script names
    group         how they work together (its tensor- and pipeline-parallel sizes), None where it says nothing
    excluded      devices that it leaves out (deepspeed's `--exclude`), None where it leaves out none
    all_devices   where it gives what it starts every device of the box, unless it is rewritten
    leaves        why what it starts sees other devices than those selected, where it is not confined to them
    unclaimed     what in it leaves the lease on the devices (daemonizers.py), None where nothing does
    only_indices  the program that cannot read UUIDs in the vendor's variable, None where each one can
    trainer       whether a Python script that no launcher starts imports the Trainer of transformers
    warnings      what the user should know, however it is started
    doubt         where it may set a list of devices that cannot be told, None where it does not; confined,
                  it cannot use others
    relative      whether it is expected to be confined: devices that cannot be rewritten are then counted
                  among those that are claimed, from 0
    """

    devices: NamedDevices | None = None
    count: DeviceCount | None = None
    group: Grouping | None = None
    needs: DeviceCount | None = None
    excluded: NamedDevices | None = None
    all_devices: str | None = None
    unclaimed: str | None = None
    only_indices: str | None = None
    trainer: bool = False
    warnings: tuple[str, ...] = ()
    doubt: str | None = None
    leaves: str | None = None
    relative: bool = False

    @property
    def counted_inside(self) -> DeviceCount | None:
        """How many devices it needs, where those that it names and that cannot be rewritten are all of the
        first so many (a list of 0,1 in a script), and it is expected to be confined."""
        named = self.devices
        return named.first_ones if self.relative and named is not None and not named.rewritable else None

    def confined(self) -> Intent:
        """The same of a command that can open its own devices only."""
        return replace(self, doubt=None, leaves=None)

    def around(self, inner: Intent) -> Intent:
        """The intent of a command whose wrapper or variables say this, and what it starts says `inner`.

        The user's word counts before a default, and of the same kind what is nearer to the program.
        """
        return replace(
            inner._or(self),
            devices=_firmer(inner.devices, self.devices),
            count=_firmer(inner.count, self.count),
            warnings=(*self.warnings, *inner.warnings),
        )

    def _or(self, other: Intent) -> Intent:
        """The same, and what `other` says where this says nothing."""
        both = ((each.name, getattr(self, each.name), getattr(other, each.name)) for each in fields(Intent))
        said = Intent(**{name: own or others for name, own, others in both})
        return replace(said, warnings=(*self.warnings, *other.warnings))

    def as_it_stands(self, behind: str = "") -> Intent:
        """The intent of a command that cannot be rewritten: what a file or a default says is what it uses.

        `behind` is where it stands (" (train.sh:3)").
        """
        devices, count, needs, leaves = self.devices, self.count, self.needs, self.leaves
        numbers = devices.listed.split(",") if devices is not None and devices.visible else ()
        if devices is not None and numbers and all(map(str.isdigit, numbers)):
            # (Whichever devices it is given, there must be so many.)
            needs = needs or DeviceCount(f"{devices.words}{behind}", max(map(int, numbers)) + 1, firm=False)
            devices = None
        elif devices is not None:
            # (Whoever asks for devices for what runs elsewhere means it.)
            firm = devices.firm or bool(devices.listed)
            devices = replace(devices, words=f"{devices.words}{behind}", firm=firm, rewritable=False)
        if count is not None:
            count = replace(count, words=f"{count.words}{behind}", firm=count.certain)
        if count is not None and count.takes_first and count.certain and devices is None:
            listed = ",".join(map(str, range(min(count.number, MAX_DEVICES))))
            devices = NamedDevices(count.words, listed, rewritable=False, first=True)
        what = self.excluded.words if self.excluded else self.all_devices
        if what is not None and leaves is None:
            leaves = f"{what}{behind} uses devices that are not selected, and gputui cannot rewrite it"
        return replace(
            self,
            devices=devices,
            count=count,
            needs=needs,
            leaves=leaves,
            excluded=None,
            all_devices=None,
        )

    def beside(self, other: Intent) -> Intent:
        """The intent of several commands that are started from one place: a shell script's.

        Devices that any of them names are needed; of two counts the larger one.
        """
        devices = self.devices or other.devices
        if self.devices and other.devices and self.devices.listed != other.devices.listed:
            entries = (*self.devices.listed.split(","), *other.devices.listed.split(","))
            listed = ",".join(dict.fromkeys(entry for entry in entries if entry))
            words = f"{self.devices.words} … {other.devices.words}"
            firm = self.devices.firm or other.devices.firm
            rewritable = self.devices.rewritable and other.devices.rewritable
            devices = NamedDevices(words, listed, firm, rewritable, self.devices.environ)
        counts = [count for count in (self.count, other.count) if count is not None]
        most = max(counts, key=lambda count: count.number, default=None)
        return replace(self._or(other), devices=devices, count=most)


NO_INTENT = Intent()


def list_of(visibility: Visibility, text: str) -> str:
    """A list of devices as far as its reader gets; one that it cannot read at all stays, to be refused."""
    entries = visibility.entries(text)
    if entries or text.strip() in ("", "-1", visibility.none, visibility.none_in_words) or not text.strip():
        return ",".join(entries)
    return "" if text.strip().lower() in _NO_DEVICE else text


_NO_DEVICE = ("none", "void", "nodevfiles")
"""What people write for no device; each is an entry that names none."""


def beside_each_other(intents: Iterable[Intent]) -> Intent:
    """The intent of all of several commands."""
    return reduce(Intent.beside, intents, NO_INTENT)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What an intent depends on besides the command's own words.

    environ           what the command inherits: the environment, and the variables of the line
    typed             the variables of the line: what they say is the user's word
    host_environment  the files that the command reads
    directory         where it is started, None for here
    vendors           whose devices the command may mean, the most likely vendor first
    depth             how many scripts and containers this is within
    ranks             how many processes a launcher starts this command in, 0 where that is not known; None
                      where it is no launcher's
    """

    environ: Mapping[str, str]
    host_environment: HostEnvironment
    vendors: tuple[Vendor, ...]
    directory: str | None = None
    typed: frozenset[str] = frozenset()
    depth: int = 0
    ranks: int | None = None

    @property
    def visibilities(self) -> tuple[Visibility, ...]:
        """The variables of each vendor that name devices."""
        return tuple(vendor.visibility for vendor in self.vendors)

    @property
    def lists(self) -> Mapping[str, str]:
        """The lists of devices that a launch will set, but for those that the line sets: variables, each with
        what stands for its value, which is not known yet."""
        names = (visibility.variable for visibility in self.visibilities)
        return {name: f"${name}" for name in names if name and name not in self.typed}

    @property
    def visibility(self) -> Visibility:
        """By whose rules a list is read that is no variable's."""
        return self.vendors[0].visibility

    def with_variables(self, variables: Mapping[str, str | None]) -> CommandContext:
        """The same for a command behind a wrapper that sets these variables (None: unsets)."""
        changed = {**self.environ, **variables}
        environ = {name: value for name, value in changed.items() if value is not None}
        return replace(self, environ=environ, typed=self.typed | variables.keys())


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call asks for: `-n`, `--gpus` and `--group`; each None where it is not given.

    by_command  the devices are those that the command names, and `names` is its list
    excluded    those that the command leaves out
    """

    count: int | None = None
    names: str | None = None
    group: Grouping | None = None
    by_command: NamedDevices | None = None
    excluded: NamedDevices | None = None

    @property
    def number(self) -> int | None:
        """How many devices it asks for."""
        if self.names is None:
            return self.count
        return 0 if self.names == NONE else len(self.names.split(","))


def settle(asked: Asked, intent: Intent, force: bool = False) -> Asked:
    """What to ask for where call and command are both heard. The call's own words count before a default.

    Raises ContradictionError where they contradict the user's words in the command; with `force` the call
    wins.
    """
    counted = intent.counted_inside
    if counted is not None:
        intent = replace(intent, devices=None, count=intent.count or counted)
    devices, count = intent.devices, intent.count
    group = asked.group or intent.group
    if intent.excluded is not None and asked.names is None:
        if asked.count is None and count is None:
            raise ContradictionError(
                f"{intent.excluded.words} says which devices not to use: say how many (-n)"
            )
        return replace(settle(asked, replace(intent, excluded=None), force), excluded=intent.excluded)
    if asked.count is None and asked.names is None:
        if devices and _counts_before(devices, count):
            return Asked(None, devices.names, _fitting(group, devices.count), devices)
        return Asked(count.number if count else None, None, group)
    if not force or (devices is not None and devices.firm and not devices.rewritable):
        _contradict(asked, intent)
    if devices and devices.firm and devices.count == asked.count:
        return Asked(None, devices.names, group, devices)
    return Asked(asked.count, asked.names, asked.group or _fitting(group, asked.number or 0))


def _contradict(asked: Asked, intent: Intent) -> None:
    """Raises ContradictionError for a count or a list that is not the command's."""
    devices, count = intent.devices, intent.count
    wanted = f"-n {asked.count}" if asked.count is not None else f"--gpus {asked.names}"
    number, names, other = asked.number, _entries(asked.names or ""), None
    if intent.excluded is not None and not set(names).isdisjoint(_entries(intent.excluded.listed)):
        other = intent.excluded.words
    elif devices and devices.firm:
        said = f"{devices.words} (GPU {devices.listed})" if devices.first else devices.words
        theirs = _entries(devices.names)
        # (A UUID may be that of a number.)
        same = names == theirs or asked.names is None or not all(map(str.isdigit, (*names, *theirs)))
        other = None if same and devices.count == number else said
    elif count and count.firm and count.number != number and number:
        # (Without a device, a count is of processes on the CPU.)
        other = count.words
    if other is not None:
        forced = f" (--force lets {wanted} win)" if devices is None or devices.rewritable else ""
        raise ContradictionError(
            f"{wanted} contradicts {other} of the command: leave {wanted} out, or change the command{forced}"
        )
    if asked.group and intent.group and asked.group != intent.group:
        raise ContradictionError(f"--group {asked.group} contradicts {intent.group}, which the command says")


def _counts_before(devices: NamedDevices, count: DeviceCount | None) -> bool:
    """Whether the named devices are the choice, and not the best of that count."""
    return devices.firm or count is None or not count.firm or count.number == devices.count


def _fitting(group: Grouping | None, count: int) -> Grouping | None:
    return group if group is None or group.fits(count) else None


def _entries(names: str) -> list[str]:
    """The entries of a list of devices. (`01` is 1.)"""
    entries = [entry.strip() for entry in names.split(",")]
    return [str(int(entry)) if entry.isascii() and entry.isdigit() else entry for entry in entries]


def _firmer(first: _Said | None, second: _Said | None) -> _Said | None:
    """The user's word before a default; of two that are alike, the first."""
    if first is None or (second is not None and second.firm and not first.firm):
        return second
    return first
