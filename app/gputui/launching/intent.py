"""Intent: the devices that a command itself names and the number that it needs, as one value.

`read_intent` (read_intent.py) reads it once, before devices are selected. The request, the claims, the launch
line and the screen's preselection all use it. Options on the command line are explicit ("firm"); a
configuration file or an inherited variable gives a default, which `-n` and `--gpus` override.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TypeVar

from gputui.choosing.grouping import MAX_DEVICES, Grouping
from gputui.choosing.named_devices import NONE
from gputui.inventory.errors import RequestError
from gputui.inventory.formatting import devices_text, is_digits, printable
from gputui.inventory.light_dataclasses import field, fields, frozen, replace
from gputui.launching.host_environment import HostEnvironment
from gputui.system.environment import Environ, Variables
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Visibility, with_changes


class ContradictionError(RequestError):
    """A call and its command ask for different devices. The message is one line that names both."""


@frozen
class NamedDevices:
    """Devices that a command names, in order.

    words   the words that name them: "--gpu_ids 0,1"
    listed  the devices, as the list of the vendor's variable would name them; "" is CPU only
    firm    whether the user named them on the command line, and they are not a default from a file or the
            environment
    rewritable  whether the command can be rewritten to other devices
    environ     the environment of the program that reads the list, which decides how numbers count
    first       whether they follow from a count, as the first devices of the box, and are not named
    visible     whether the numbers are positions among the visible devices of the program ("--device 1")
    """

    words: str
    listed: str
    firm: bool = True
    rewritable: bool = True
    environ: Environ = field(default_factory=dict, compare=False, repr=False)
    first: bool = field(default=False, compare=False)
    visible: bool = field(default=False, compare=False)

    @property
    def names(self) -> str:
        """The devices as `--gpus` names them."""
        return self.listed or NONE

    @property
    def count(self) -> int:
        """The number of devices."""
        return len(self.listed.split(",")) if self.listed else 0

    @property
    def first_ones(self) -> DeviceCount | None:
        """Their count, where the devices are 0 to n-1 in any order ("1,0"); None for others."""
        if sorted(self.listed.split(",")) != sorted(map(str, range(self.count))) or not self.count:
            return None
        return DeviceCount(self.words, self.count, self.firm)


@frozen
class DeviceCount:
    """The number of devices that a command needs: one per process, or tensor × pipeline × data parallel size.

    words, firm  as in NamedDevices
    takes_first  whether the command, unless rewritten, takes the first `number` devices of the box,
                 regardless of the visible ones (deepspeed's `--num_gpus`)
    certain      false where the command is started in a branch that may not be taken, or the meaning of its
                 option is a guess
    """

    words: str
    number: int
    firm: bool = True
    takes_first: bool = field(default=False, compare=False)
    certain: bool = field(default=True, compare=False)

    def beside(self, planned: int) -> tuple[str, ...]:
        """The notice that a plan is for another number of devices; () where it is not, or for a guess."""
        if not self.certain or self.number == planned:
            return ()
        words = printable(self.words[:200])
        return (f"the command is for {devices_text(self.number)} ({words}), and the plan for {planned}",)


_Said = TypeVar("_Said", NamedDevices, DeviceCount)


@frozen
class Intent:
    """All that a command says about devices.

    devices       the devices that it names, None where it names none
    count         how many it needs, None where it takes as many as it is given
    needs         how many devices must be visible for the highest number that a script names
    group         its tensor- and pipeline-parallel sizes, None where it does not set them
    excluded      devices that it excludes (deepspeed's `--exclude`), None where it excludes none
    all_devices   the words that give its program every device of the box, unless they are rewritten
    leaves        why its program sees other devices than the selected ones, unless it is confined to them
    unclaimed     the words that leave the lease on the devices (daemonizers.py), None for none
    trainer       whether a Python script that no launcher starts imports the Trainer of transformers
    warnings      warnings for the user, however the command is started
    doubt         the place that may set a list of devices whose value is not known, None for none; a confined
                  command cannot use other devices
    doubt_if_empty
                  the same, for a place that sets the list only if the command inherits an empty one
    relative      whether the command is expected to be confined: devices that cannot be rewritten are then
                  counted among the claimed ones, from 0
    """

    devices: NamedDevices | None = None
    count: DeviceCount | None = None
    group: Grouping | None = None
    needs: DeviceCount | None = None
    excluded: NamedDevices | None = None
    all_devices: str | None = None
    unclaimed: str | None = None
    trainer: bool = False
    warnings: tuple[str, ...] = ()
    doubt: str | None = None
    doubt_if_empty: str | None = None
    leaves: str | None = None
    relative: bool = False

    @property
    def counted_inside(self) -> DeviceCount | None:
        """The number of devices that it needs, where it is expected to be confined and names devices 0 to n-1
        that cannot be rewritten (a list of 0,1 in a script); otherwise None."""
        named = self.devices
        return named.first_ones if self.relative and named is not None and not named.rewritable else None

    def confined(self) -> Intent:
        """Return the intent of the same command when confined to its own devices."""
        return replace(self, doubt=None, leaves=None)

    def around(self, inner: Intent) -> Intent:
        """Combine this intent, of wrappers or variables, with `inner`, that of the program after them.

        Explicit options win over defaults; within the same kind, the inner intent wins.
        """
        return replace(
            inner._or(self),
            devices=_firmer(inner.devices, self.devices),
            count=_firmer(inner.count, self.count),
            warnings=(*self.warnings, *inner.warnings),
        )

    def _or(self, other: Intent) -> Intent:
        """Return this intent with the values of `other` where this one has none."""
        both = ((each.name, getattr(self, each.name), getattr(other, each.name)) for each in fields(Intent))
        said = Intent(**{name: own or others for name, own, others in both})
        return replace(said, warnings=(*self.warnings, *other.warnings))

    def as_it_stands(self, behind: str = "") -> Intent:
        """Return the intent of a command that cannot be rewritten: its files and defaults apply.

        `behind` is its location (" (train.sh:3)").
        """
        devices, count, needs, leaves = self.devices, self.count, self.needs, self.leaves
        numbers = devices.listed.split(",") if devices is not None and devices.visible else ()
        if devices is not None and numbers and all(map(str.isdigit, numbers)):
            # Whichever devices it is given, that position must exist.
            needs = needs or DeviceCount(f"{devices.words}{behind}", max(map(int, numbers)) + 1, firm=False)
            devices = None
        elif devices is not None:
            # A list of devices for a program that runs elsewhere is explicit.
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
        """Combine the intents of two commands that one shell script starts.

        The result names the devices of both, and has the larger count.
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
    """Return the entries of a list of devices up to the first unreadable one. A list with no readable entry
    is returned as it is, to be refused."""
    entries = visibility.entries(text)
    if entries or text.strip() in ("", "-1", visibility.none, visibility.none_in_words) or not text.strip():
        return ",".join(entries)
    return "" if text.strip().lower() in _NO_DEVICE else text


_NO_DEVICE = ("none", "void", "nodevfiles")
"""Entries that people write for no device."""


def beside_each_other(intents: Iterable[Intent]) -> Intent:
    """Combine the intents of several commands."""
    return reduce(Intent.beside, intents, NO_INTENT)


@frozen
class CommandContext:
    """The input of an intent besides the command's own words.

    environ           the environment of the command: the inherited one, and the variables of the line
    typed             the names of the line's variables, which are explicit
    host_environment  gives access to the files that the command reads
    directory         its working directory, None for the current one
    vendors           the vendors whose devices the command may mean, the most likely one first
    depth             the number of scripts and containers around the command
    ranks             the number of processes in which a launcher starts this command, 0 where that is not
                      known; None where no launcher starts it
    """

    environ: Environ
    host_environment: HostEnvironment
    vendors: tuple[Vendor, ...]
    directory: str | None = None
    typed: frozenset[str] = frozenset()
    depth: int = 0
    ranks: int | None = None

    @property
    def visibilities(self) -> tuple[Visibility, ...]:
        """The visibility rules of each vendor."""
        return tuple(vendor.visibility for vendor in self.vendors)

    @property
    def lists(self) -> Mapping[str, str]:
        """The variables with lists of devices that a launch will set, except those that the line sets. Each
        maps to a placeholder, as its value is not known yet."""
        names = (visibility.variable for visibility in self.visibilities)
        return {name: f"${name}" for name in names if name and name not in self.typed}

    @property
    def visibility(self) -> Visibility:
        """The rules for a list that is not the value of a variable."""
        return self.vendors[0].visibility

    def with_variables(self, variables: Variables) -> CommandContext:
        """Return the context of a command after a wrapper that sets these variables (None: unsets)."""
        environ = with_changes(self.environ, variables.items())
        return replace(self, environ=environ, typed=self.typed | variables.keys())


@frozen
class Asked:
    """The devices that a call requests: `-n`, `--gpus` and `--group`; each None where it is not given.

    by_command  the devices that the command names, where `names` is its list; otherwise None
    excluded    the devices that the command excludes
    """

    count: int | None = None
    names: str | None = None
    group: Grouping | None = None
    by_command: NamedDevices | None = None
    excluded: NamedDevices | None = None

    @property
    def number(self) -> int | None:
        """The number of devices that the call requests."""
        if self.names is None:
            return self.count
        return 0 if self.names == NONE else len(self.names.split(","))


def settle(asked: Asked, intent: Intent, force: bool = False) -> Asked:
    """Combine the options of a call with the intent of its command. The call's options win over defaults.

    Raises ContradictionError where they contradict explicit options of the command; with `force` the call
    wins, except over devices that cannot be rewritten.
    """
    counted = intent.counted_inside
    if counted is not None:
        intent = replace(intent, devices=None, count=intent.count or counted)
    devices, count = intent.devices, intent.count
    group = asked.group or intent.group
    if intent.excluded is not None and asked.names is None:
        if asked.count is None and count is None:
            raise ContradictionError(
                f"{intent.excluded.words} says which devices not to use; give the number of devices with -n"
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
    """Raise ContradictionError where the call's count or list differs from the command's."""
    devices, count = intent.devices, intent.count
    wanted = f"-n {asked.count}" if asked.count is not None else f"--gpus {asked.names}"
    number, names, other = asked.number, _entries(asked.names or ""), None
    if intent.excluded is not None and not set(names).isdisjoint(_entries(intent.excluded.listed)):
        other = intent.excluded.words
    elif devices and devices.firm:
        said = f"{devices.words} (GPU {devices.listed})" if devices.first else devices.words
        theirs = _entries(devices.names)
        # A UUID and a number may name the same device.
        same = names == theirs or asked.names is None or not all(map(str.isdigit, (*names, *theirs)))
        other = None if same and devices.count == number else said
    elif count and count.firm and count.number != number and number:
        # Without a device, the count is the number of processes on the CPU.
        other = count.words
    if other is not None:
        forced = f" (--force makes {wanted} override it)" if devices is None or devices.rewritable else ""
        raise ContradictionError(
            f"{wanted} contradicts {other} in the command; leave {wanted} out, or change the command{forced}"
        )
    if asked.group and intent.group and asked.group != intent.group:
        raise ContradictionError(f"--group {asked.group} contradicts {intent.group} in the command")


def _counts_before(devices: NamedDevices, count: DeviceCount | None) -> bool:
    """Whether the named devices are used, and not the best `count` devices."""
    return devices.firm or count is None or not count.firm or count.number == devices.count


def _fitting(group: Grouping | None, count: int) -> Grouping | None:
    return group if group is None or group.fits(count) else None


def _entries(names: str) -> list[str]:
    """Return the entries of a list of devices; "01" becomes "1"."""
    entries = [entry.strip() for entry in names.split(",")]
    return [str(int(entry)) if is_digits(entry) else entry for entry in entries]


def _firmer(first: _Said | None, second: _Said | None) -> _Said | None:
    """Return the explicit value before a default; of two values of the same kind, the first."""
    if first is None or (second is not None and second.firm and not first.firm):
        return second
    return first
