"""What a program is: one row of the table of programs, from which its commands are recognised and read.

A program that has its own launcher (torchrun, accelerate, deepspeed, mpirun) is described there; a row is
for every other one that says of itself how many devices it needs, or which.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from math import prod
from typing import Literal

from gputui.choosing.grouping import MAX_DEVICES, Grouping
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.inventory.others_files import NotReadError, not_read
from gputui.launching.argument_vector import OptionTable, program_name, read_options, whole_number
from gputui.launching.configuration_text import read_values
from gputui.launching.intent import CommandContext, DeviceCount, Intent, NamedDevices
from gputui.launching.python_command import Started, is_python, started_program
from gputui.vendors.vendor import Vendor

Dimension = Literal["tp", "pp", "cp", "dp", "dp here", "dp inside", "machines", "processes"]
"""What a size counts: the devices of a tensor-parallel group, pipeline stages, parts of a context,
data-parallel replicas (of all machines, of this one, or inside a tensor-parallel group), machines, or
processes with a device each."""

Sizes = Mapping[Dimension, int]
"""The sizes that a command says, by dimension; one that it does not say is not there."""


def product_of_sizes(sizes: Sizes) -> int:
    """The usual number of devices: the product of all sizes."""
    return prod(sizes.values())


def groups_only(_sizes: Sizes) -> int:
    """Of a program whose sizes say how devices work together, and not how many there are."""
    return 0


@dataclass(frozen=True, slots=True)
class Size:
    """An option whose value is a size: `Size("tensor-parallel-size|tp", "tp")`.

    options  its names without dashes, "_" written as "-", separated by "|"; a single letter is a short option
    inside   the option in whose value it stands (`--model_args a=b,tensor_parallel_size=2`), "" for none
    flag     whether it has no value, and counts as 1
    """

    options: str
    dimension: Dimension
    inside: str = ""
    flag: bool = False


TORCH_DEVICE = "[a-z]+:"
"""What torch writes before the number of a device, as a pattern."""


@dataclass(frozen=True, slots=True)
class DeviceOption:
    """An option that names devices: `DeviceOption("device", counted="visible")`.

    counted   "all": by the index in the whole box; "visible": by the position among the visible devices;
              "either": by either, as the version is, so that it must name the same in both ways
    prefix    a pattern of what stands before the list or before each entry, "" for nothing
    whole     values that name no device of their own: those that are visible ("all", "auto", "-1")
    cpu       values that mean the CPU
    number    whether a plain number is a count ("--devices 2"), and only a list with a comma names devices
    one       whether it takes one device only
    firm      whether what it says is the user's word; else it is a default, as nobody knows what the program
              does with it: the first device is then any one ("--device 0"), which most programs mean
    """

    options: str
    counted: Literal["all", "visible", "either"]
    prefix: str = ""
    whole: tuple[str, ...] = ("all", "auto", "-1", "")
    cpu: tuple[str, ...] = ("cpu",)
    number: bool = False
    one: bool = False
    firm: bool = True

    def listing(self, like: str, listed: str) -> str:
        """Another list of devices in the form of a given value: with its prefix where that has it."""
        if self.one:
            listed = listed.partition(",")[0]
        if not listed:
            # (A plain number is a count: one process, on the CPU.)
            return "1" if self.number else next(iter(self.cpu), "")
        around = re.fullmatch(r"([\s\[('\"]*)(.*?)([\s\])'\"]*)", like, re.DOTALL)
        if around is not None and (around[1] or around[3]):
            return f"{around[1]}{replace(self, number=False).listing(around[2], listed)}{around[3]}"
        if self.number and "," not in listed:
            # Without the comma it would be a count.
            return f"{listed},"
        prefixes = [match[0] for entry in like.split(",") if (match := re.match(self.prefix, entry))]
        if like in self.cpu and self.prefix.isalnum():
            prefixes = [self.prefix]
        elif len(prefixes) < len(like.split(",")):
            return (prefixes[0] if prefixes else "") + listed
        return ",".join(prefixes[0] + number for number in listed.split(","))

    def entries(self, value: str) -> list[str]:
        """The entries of a list, without their prefixes."""
        return [re.sub(f"^(?:{self.prefix})", "", entry) for entry in value.split(",") if entry]


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A YAML or JSON file whose keys give sizes, which are defaults.

    options    that name it, as in `Size`; "" for the first argument that is the name of such a file
    keys       dotted, and the dimension that each one gives
    variables  the key below which it has environment variables, "" for none
    """

    options: str
    keys: Mapping[str, Dimension] = field(default_factory=dict)
    variables: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRange:
    """Two options that name devices: the first one's position among the visible devices, and a step."""

    first: str
    step: str


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    name          for people
    starts        how its command begins: "vllm serve", "tune run"; the first word is a program
    modules       the modules that `python -m` starts it as: "swift.cli.main sft"
    any_python    whether every command that starts Python, or a file NAME.py, is its own (for what many
                  scripts have in common)
    before        its options, where they stand before what it starts; None where they stand anywhere
    sizes         the options that say how many devices
    devices       the options that name devices
    positions     the options that name devices by a first one and a step
    variables     environment variables that say how many processes ("NPROC_PER_NODE")
    hosts         the options that name machines: the sizes are of all of them together
    files         configuration files that it reads
    total         how many devices the sizes make; 0 where they do not say that
    usual         what it takes where nothing says how many, None for all that are visible
    asks          what makes it use more than one device ("--tp={count}", "device={devices}"), where it uses
                  only the first one without; it is added to a command that says nothing
    tells         what tells it how many devices there are ("--num-gpus={count}"), where it would count by
                  itself; it is added to a command that says nothing
    key_value     whether its arguments are `key=value` words, and not options with dashes (yolo, Hydra)
    abbreviations whether the beginning of a long option stands for it, as argparse takes it
    only_indices  whether it cannot read UUIDs in the list of visible devices
    elsewhere     where what it starts runs, which then gets none of the devices; "" for here
    elsewhere_by  the options with which that is so, "" for always
    images        the names of images (without registry, tag and digest) that start it of themselves, as
                  the first of `starts`
    warning       a warning about it, which is read after its name
    warned_without  the option that makes the warning unnecessary; "" for always
    launches      the launcher command that it builds from its arguments; () where it starts none
    behind_dashes whether the options for that launcher follow a "--"
    source        where upstream says so: a file of a version, a page of the documentation
    """

    name: str
    starts: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    any_python: bool = False
    before: OptionTable | None = None
    sizes: tuple[Size, ...] = ()
    devices: tuple[DeviceOption, ...] = ()
    positions: DeviceRange | None = None
    variables: tuple[str, ...] = ()
    hosts: str = ""
    files: tuple[ConfigurationFile, ...] = ()
    total: Callable[[Sizes], int] = product_of_sizes
    usual: Callable[[Sequence[str]], DeviceCount | None] | None = None
    asks: str = ""
    tells: str = ""
    key_value: bool = False
    abbreviations: bool = False
    only_indices: bool = False
    elsewhere: str = ""
    elsewhere_by: str = ""
    images: tuple[str, ...] = ()
    warning: str = ""
    warned_without: str = ""
    launches: Callable[[Sequence[str]], tuple[str, ...]] | None = None
    behind_dashes: bool = False
    source: str = field(default="", compare=False)

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        """What the command says: its options count before its variables, and these before its files."""
        arguments = self._arguments(command)
        if self._is_elsewhere(arguments):
            # (It needs nothing of this machine; whoever gives -n all the same means it.)
            return Intent(devices=NamedDevices(f"{self.name}: {self.elsewhere}", "", firm=False))
        sizes, count = self._count(arguments, context)
        group = Grouping(sizes.get("tp", 1), sizes.get("pp", 1))
        named = self._devices_given(arguments, context) or self._devices_from(arguments, count, context)
        if isinstance(named, DeviceCount):
            named, count = None, named
        # (A group that spans several machines is not a group of this one's devices.)
        whole = group.unit > 1 and (count is None or group.fits(count.number))
        return Intent(
            devices=named or self._devices_of_files(arguments, context),
            count=count,
            group=group if whole else None,
            only_indices=self.name if self.only_indices else None,
            warnings=(f"{program_name(command)} {self.warning}",) if self._warns(arguments) else (),
        )

    def runs_elsewhere(self, command: Sequence[str]) -> bool:
        """Whether what it starts runs elsewhere, where our variables and devices have no effect."""
        return self._is_elsewhere(self._arguments(command))

    def started(self, command: Sequence[str]) -> tuple[str, ...]:
        """The launcher command that it starts, with the options meant for the launcher; () for none."""
        return (
            self.launches(command[self.own(command, started_program(command)) :])
            if self.launches is not None
            else ()
        )

    def with_launcher_options(self, command: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
        """The command with more options for the launcher that it starts."""
        dashes = ("--",) if options and self.behind_dashes and "--" not in command else ()
        return (*command, *dashes, *options)

    def on_devices(
        self, command: Sequence[str], devices: Sequence[Device], context: CommandContext
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The command for these devices, and what was changed: options that name devices are rewritten, and
        what makes it use several is added where it gives no number."""
        own = self.own(command, started_program(command))
        words, remarks = list(command[own:]), []
        if self._is_elsewhere(self._arguments(command)):
            return tuple(command), (f"{self.name}: {self.elsewhere}",)
        places, indices = [*range(len(devices))], [device.index for device in devices]
        either = indices if _by_index(devices, context.vendors[0]) else places
        listed = {"visible": places, "all": indices, "either": either}
        numbers = {counted: ",".join(map(str, each)) for counted, each in listed.items()}
        for option, given in self._device_options(self._arguments(command)):
            if given.value in option.whole or self._said(option, given) is None:
                continue
            if isinstance(self._said(option, given), DeviceCount) and option.number:
                continue
            value = option.listing(given.value, numbers[option.counted])
            if _plain(given.value) != _plain(value):
                words[given.place : given.place + given.length] = given.written(value)
                remarks.append(_rewritten(given, value, numbers[option.counted] == numbers["visible"]))
        if self.positions is not None and devices:
            for names, value in ((self.positions.first, "0"), (self.positions.step, "1")):
                for given in self._options(words, names):
                    if given.value != value:
                        words[given.place : given.place + given.length] = given.written(value)
                        remarks.append(_rewritten(given, value, True))
        arguments = self._arguments(command)
        if self.asks and devices and not self._says_how_many(arguments) and not self.started(command):
            sizes, count = self._count(arguments, context)
            takes, machines = count.number if count is not None else 1, self._machines(arguments)
            # (A file may give more sizes than the one that is asked for.)
            others = takes // sizes.get("tp", 1) if sizes else 1
            if machines and takes != len(devices) and len(devices) % others == 0:
                asked = len(devices) // others * machines
                added = self.asks.format(count=asked, devices=numbers["either"])
                words = [*words, added] if self.key_value else [added, *words]
                remarks.append(f"{added}: {self.name} would use {takes} by default")
        if self.tells and not self._says_how_many(arguments):
            words.append(self.tells.format(count=len(devices)))
            remarks.append(f"{words[-1]}: {self.name} would count by itself")
        if self._machines(arguments) != 1:
            named = next(self._options(arguments, self.hosts)).spelling
            remarks.append(f"{named}: processes on other machines get other devices, by their own indices")
        return (*command[:own], *words), tuple(remarks)

    def names_beside_no_list(self, command: Sequence[str], devices: Sequence[Device], vendor: Vendor) -> bool:
        """Whether its command names the devices, and must not have a list of them besides: each number would
        be a position in that, too, and mean another device."""
        indices = [device.index for device in devices]
        moved = sorted(indices) == list(range(len(indices))) != indices and _by_index(devices, vendor)
        given = self._device_options(self._arguments(command))
        return moved and any(option.counted == "either" for option, _ in given)

    def changed_variables(
        self, command: Sequence[str], devices: int, context: CommandContext
    ) -> tuple[tuple[str, str], ...]:
        """The variable that makes it start one process per device, where the environment or a file gives
        another number. The command's own options stay as they are."""
        arguments = self._arguments(command)
        if not self.variables or not devices or any(self._sizes_given(arguments)):
            return ()
        _, count = self._count(arguments, context)
        if count is None or count.number == devices:
            return ()
        return ((self.variables[0], str(devices)),)

    def own(self, command: Sequence[str], started: Started) -> int:
        """The number of words at the beginning that say which program it is; 0 for another program's.

        `started` is what the command starts, the same for every row.
        """
        if self.any_python:
            return started.words if is_python(command) or (started.name or "").endswith(".py") else 0
        begins = self.starts if started.module is None else self.modules
        # (`uvx vllm@0.11 serve` names a version.)
        name = started.module or (started.name or "").partition("@")[0]
        for begin in begins:
            program, *following = begin.split()
            end = started.words + len(following)
            if program == name and list(command[started.words : end]) == following:
                return end
        return 0

    def _arguments(self, command: Sequence[str]) -> tuple[str, ...]:
        """The words in which its options stand."""
        arguments = tuple(command[self.own(command, started_program(command)) :])
        return arguments if self.before is None else read_options(arguments, self.before).option_words

    def _is_elsewhere(self, arguments: Sequence[str]) -> bool:
        by = self.elsewhere_by
        return bool(self.elsewhere) and (not by or any(self._options(arguments, by)))

    def _warns(self, arguments: Sequence[str]) -> bool:
        spared = bool(self.warned_without) and self.warned_without in map(_name_of, arguments)
        return bool(self.warning) and not spared

    def _machines(self, arguments: Sequence[str]) -> int:
        """How many machines take part; 0 where only a file gives the number."""
        named = [*self._options(arguments, self.hosts)] if self.hosts else []
        if any("file" in given.spelling for given in named):
            return 0
        hosts = {host.partition(":")[0] for given in named for host in given.value.split(",")}
        return max(1, len(hosts - _THIS_MACHINE) + bool(hosts & _THIS_MACHINE))

    def _says_how_many(self, arguments: Sequence[str]) -> bool:
        """Whether any option for the number of devices, or for devices, is given, whatever its value."""
        given = [*self._device_options(arguments)]
        return bool(given) or any(any(self._given_of(arguments, size)) for size in self.sizes)

    def _count(
        self, arguments: Sequence[str], context: CommandContext
    ) -> tuple[dict[Dimension, int], DeviceCount | None]:
        """The sizes, and the number of devices that they make; None where they say none."""
        typed = _by_dimension(self._sizes_given(arguments))
        firm = bool(typed)
        if not typed:
            typed = _by_dimension(self._variables_given(context))
            firm = any(name in context.typed for name in self.variables)
        # What the line does not say, a file may.
        given = _by_dimension(self._sizes_of_files(arguments, context)) | typed
        sizes = {dimension: number for dimension, (number, _) in given.items()}
        machines = self._machines(arguments)
        total = self.total(sizes) if sizes and machines else 0
        total = total // machines if machines and total % machines == 0 else 0
        if total > 0:
            return sizes, DeviceCount(" ".join(words for _, words in given.values()), total, firm)
        usual = (
            self.usual(arguments) if self.usual is not None and not self._says_how_many(arguments) else None
        )
        return sizes, usual

    def _given_of(self, arguments: Sequence[str], size: Size) -> Iterator[tuple[int | None, str]]:
        """Each place that gives a size: its number, None where that is none ("auto"), and its words."""
        if size.flag:
            names = size.options.split("|")
            yield from ((1, word) for word in arguments if _name_of(word) in names and word.startswith("--"))
        elif size.inside:
            for given in self._options(arguments, size.inside):
                # `a=1,b=2`, or followed by more words of that kind, or JSON.
                values = " ".join((given.value, *_operands(arguments[given.place + given.length :])))
                for name in size.options.split("|"):
                    pattern = rf"(?:^|[\s,{{\"])({name.replace('-', '[-_]')}\"?\s*[=:]\s*([0-9]+))"
                    for match in re.finditer(pattern, values):
                        yield whole_number(match[2]), match[1]
        else:
            for given in self._options(arguments, size.options):
                yield whole_number(given.value), given.text

    def _sizes_given(self, arguments: Sequence[str]) -> Iterator[tuple[Dimension, int, str]]:
        """The sizes of the command line: dimension, number, words. The last of an option counts."""
        for size in self.sizes:
            for number, words in [*self._given_of(arguments, size)][-1:]:
                if number:
                    yield size.dimension, number, words

    def _variables_given(self, context: CommandContext) -> Iterator[tuple[Dimension, int, str]]:
        for name in self.variables:
            number = whole_number(context.environ.get(name, ""))
            if number:
                yield "processes", number, f"{name}={number}"

    def _read_files(
        self, arguments: Sequence[str], context: CommandContext
    ) -> Iterator[tuple[ConfigurationFile, str, Mapping[str, object]]]:
        """Its configuration files: the row, the name as given, what it says."""
        for file in self.files:
            names = [given.value for given in self._options(arguments, file.options)] if file.options else []
            if not file.options:
                names = [word for word in arguments if re.fullmatch(r"[^-].*\.(ya?ml|json)", word)][:1]
            for name in names[-1:]:
                path = os.path.join(context.directory or "", name)  # noqa: PTH118
                yield file, name, read_mapping(path, context)

    def _sizes_of_files(
        self, arguments: Sequence[str], context: CommandContext
    ) -> Iterator[tuple[Dimension, int, str]]:
        for file, name, values in self._read_files(arguments, context):
            for key, dimension in file.keys.items():
                number = _inner(values, key)
                if isinstance(number, int) and not isinstance(number, bool) and number > 0:
                    yield dimension, number, f"{key} {number} of {name}"
            for variable in self.variables if file.variables else ():
                number = whole_number(str(_inner(values, f"{file.variables}.{variable}")))
                if number and variable not in context.environ:
                    yield "processes", number, f"{variable} {number} of {name}"

    def _devices_of_files(self, arguments: Sequence[str], context: CommandContext) -> NamedDevices | None:
        """The list of devices among the variables of a configuration file: a default."""
        variable = context.visibility.variable
        for file, name, values in self._read_files(arguments, context):
            listed = _inner(values, f"{file.variables}.{variable}") if file.variables and variable else None
            if listed is not None and variable not in context.environ:
                entries = context.visibility.entries(str(listed))
                return NamedDevices(f"{variable} {listed} of {name}", ",".join(entries), firm=False)
        return None

    def _devices_given(
        self, arguments: Sequence[str], context: CommandContext
    ) -> NamedDevices | DeviceCount | None:
        """The devices that the last of its options names, or the number of them."""
        found: NamedDevices | DeviceCount | None = None
        for option, given in self._device_options(arguments):
            said = self._said(option, given)
            if said is not None and isinstance(said, NamedDevices) and option.counted != "all":
                said = replace(_among_visible(said, context), visible=option.counted == "visible")
            found = said if said is not None else found
        return found

    def _said(self, option: DeviceOption, given: Given) -> NamedDevices | DeviceCount | None:
        """What an option says by itself."""
        value = _plain(given.value)
        if value in option.cpu:
            return NamedDevices(given.text, "", option.firm)
        entries = option.entries(value)
        if value in option.whole or not entries:
            return None
        if all(entry in option.whole for entry in entries):
            # `device=-1,-1`: two devices, whichever they are.
            return DeviceCount(given.text, len(entries), option.firm, certain=option.firm)
        if not option.firm and entries == ["0"]:
            return DeviceCount(given.text, 1, firm=False, certain=False)
        if option.number and "," not in value and not given.value.startswith("["):
            number = whole_number(value)
            return DeviceCount(given.text, number, option.firm, certain=option.firm) if number else None
        if all(whole_number(entry) is not None or _UUID.fullmatch(entry) for entry in entries):
            return NamedDevices(given.text, ",".join(entries), option.firm)
        return None

    def _devices_from(
        self, arguments: Sequence[str], count: DeviceCount | None, context: CommandContext
    ) -> NamedDevices | None:
        """The devices that a first position and a step name."""
        if self.positions is None:
            return None
        first = [*self._options(arguments, self.positions.first)][-1:]
        step = [*self._options(arguments, self.positions.step)][-1:]
        if not first and not step:
            return None
        begin = whole_number(first[0].value) if first else 0
        by = whole_number(step[0].value) if step else 1
        if begin is None or not by:
            return None
        number = count.number if count is not None else 1
        if number > MAX_DEVICES:
            return None
        words = " ".join(given.text for given in (*first, *step))
        listed = ",".join(str(begin + place * by) for place in range(number))
        return _among_visible(NamedDevices(words, listed), context)

    def _device_options(self, arguments: Sequence[str]) -> Iterator[tuple[DeviceOption, Given]]:
        for option in self.devices:
            for given in self._options(arguments, option.options):
                yield option, given

    def _options(self, arguments: Sequence[str], names: str) -> Iterator[Given]:
        known = [name for each in self._all_options() for name in each.split("|")]
        if self.behind_dashes:
            # (Its launcher's options stand there.)
            arguments = ["" if word == "--" else word for word in arguments]
        yield from given_options(arguments, names.split("|"), known, self.key_value, self.abbreviations)

    def _all_options(self) -> Iterator[str]:
        yield from (size.inside or size.options for size in self.sizes)
        yield from (option.options for option in self.devices)
        yield from (file.options for file in self.files if file.options)
        yield from (names for names in (self.hosts, self.elsewhere_by) if names)
        if self.positions is not None:
            yield from (self.positions.first, self.positions.step)


def _by_index(devices: Sequence[Device], vendor: Vendor) -> bool:
    """Whether a program that counts either way is told indices: what it reads besides is CUDA's list."""
    return vendor.runtime == "CUDA" and not any(device.parent for device in devices)


def _rewritten(given: Given, value: str, within: bool) -> str:
    """That an option names the selected devices now."""
    how = " (numbered within the selection)" if within else ""
    return f"{given.text} rewritten to {' '.join(given.written(value))}{how}"


def _by_dimension(said: Iterator[tuple[Dimension, int, str]]) -> dict[Dimension, tuple[int, str]]:
    return {dimension: (number, words) for dimension, number, words in said}


_THIS_MACHINE = {"localhost", "127.0.0.1"}
_UUID = re.compile(r"[A-Z]+-[0-9A-Za-z/-]+")


def _among_visible(named: NamedDevices, context: CommandContext) -> NamedDevices:
    """Positions among the devices that the environment's list makes visible, as that list names them.

    An entry that is no such position stays: a program takes it for a name in the list (ultralytics), or
    refuses it.
    """
    variable = context.visibility.variable
    visible = context.visibility.entries(context.environ.get(variable, "")) if variable else ()
    places = [whole_number(entry) for entry in named.listed.split(",") if entry]
    if not visible or any(place is None or place >= len(visible) for place in places):
        return named
    return replace(named, listed=",".join(visible[place] for place in places if place is not None))


def _plain(value: str) -> str:
    """A list without brackets and spaces: "[0, 1]" is "0,1"."""
    return re.sub(r"[\s\[\]()'\"]", "", value)


def _operands(words: Sequence[str]) -> Iterator[str]:
    """The words up to the next option."""
    return takewhile(lambda word: not word.startswith("-"), words)


@dataclass(frozen=True, slots=True)
class Given:
    """An option among the arguments: `length` words from `place` on.

    before  what stands before the value in its word ("--tp=", "-n", "device="); "" where the value is a word
            of its own, behind the spelling
    """

    spelling: str
    value: str
    place: int
    length: int
    before: str

    @property
    def text(self) -> str:
        """As it was typed."""
        return " ".join(self.written(self.value))

    def written(self, value: str) -> tuple[str, ...]:
        """Its words with another value."""
        return (f"{self.before}{value}",) if self.length == 1 else (self.spelling, value)


def given_options(
    arguments: Sequence[str],
    names: Sequence[str],
    known: Sequence[str] = (),
    key_value: bool = False,
    abbreviations: bool = False,
) -> Iterator[Given]:
    """The options of these names, wherever they stand among the arguments, as argparse would find them.

    Only up to a "--". `known` are all names that the program has, by which abbreviations are told apart.
    """
    for place, word in enumerate(arguments):
        if word == "--":
            return
        if key_value:
            key, equals, value = word.lstrip("-+").partition("=")
            plain = key.replace("_", "-")
            # (Hydra's keys are dotted: `hardware.num_gpus=4`.)
            if equals and (plain in names or (len(plain) > 1 and plain.rpartition(".")[2] in names)):
                yield Given(key, value, place, 1, word[: len(word) - len(value)])
                continue
        if not word.startswith("-") or word == "-":
            continue
        spelling, equals, value = word.partition("=")
        name = _listed_name(spelling, names, known, abbreviations)
        if name is not None and not (equals and key_value):
            if equals:
                yield Given(spelling, value, place, 1, f"{spelling}=")
            elif place + 1 < len(arguments):
                yield Given(spelling, arguments[place + 1], place, 2, "")
        elif not word.startswith("--") and len(word) > 2 and word[1] in names and word[2:].isdigit():
            # A short option with its value glued to it: -n4.
            yield Given(word[:2], word[2:], place, 1, word[:2])


def _name_of(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("_", "-")


def _listed_name(
    spelling: str, names: Sequence[str], known: Sequence[str], abbreviations: bool
) -> str | None:
    name = _name_of(spelling)
    if name in names:
        return name
    if abbreviations and spelling.startswith("--"):
        like = [each for each in known if each.startswith(name)]
        if len(like) == 1 and like[0] in names:
            return like[0]
    return None


def read_mapping(path: str, context: CommandContext) -> Mapping[str, object]:
    """A YAML or JSON file of settings; empty where there is none, or it is anything else."""
    text = context.host_environment.text(path)
    if text is None:
        return {}
    try:
        found = read_values(text, "YAML")
    except NotReadError as error:
        not_read(os.path.basename(path), error)  # noqa: PTH119 - a text
        return {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _inner(values: object, dotted: str) -> object:
    """The value of "a.b" in nested mappings; "-" and "_" in a key are the same."""
    for part in dotted.split("."):
        if not isinstance(values, Mapping):
            return None
        values = next(
            (v for k, v in values.items() if str(k).replace("-", "_") == part.replace("-", "_")), None
        )
    return values
