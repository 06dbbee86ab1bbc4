"""A program: one row of the table, by which its commands are recognised and parsed.

Programs with a launcher of their own (torchrun, accelerate, deepspeed, mpirun) are described there; a row is
for every other program whose command says how many devices it needs, or which.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from math import prod
from typing import Literal

from gputui.choosing.grouping import MAX_DEVICES, Grouping
from gputui.inventory.device import Device, has_instances
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.others_files import NotReadError, not_read
from gputui.launching.argument_vector import (
    Option,
    OptionTable,
    Split,
    machines_of,
    program_name,
    read_options,
    whole_number,
    write_options,
)
from gputui.launching.configuration_text import read_values
from gputui.launching.host_environment import below
from gputui.launching.intent import CommandContext, DeviceCount, Intent, NamedDevices
from gputui.launching.python_command import Started, is_python, started_program, words_of_start
from gputui.system.environment import Assignments
from gputui.vendors.vendor import Vendor

Dimension = Literal["tp", "pp", "cp", "dp", "dp here", "dp inside", "machines", "processes"]
"""What a size counts: the devices of a tensor-parallel group, pipeline stages, parts of a context,
data-parallel replicas (on all machines, on this one, or inside a tensor-parallel group), machines, or
processes with a device each."""

Sizes = Mapping[Dimension, int]
"""The sizes that a command gives, by dimension; a dimension without a size is missing."""


def product_of_sizes(sizes: Sizes) -> int:
    """Return the usual number of devices: the product of all sizes."""
    return prod(sizes.values())


def groups_only(_sizes: Sizes) -> int:
    """The total of a program whose sizes say how devices work together, and not how many there are."""
    return 0


@frozen
class Size:
    """An option whose value is a size: `Size("tensor-parallel-size|tp", "tp")`.

    options  its names without dashes, "_" written as "-", separated by "|"; a single letter is a short option
    inside   the option whose value contains it (`--model_args a=b,tensor_parallel_size=2`), "" for none
    flag     whether it has no value, and counts as 1
    """

    options: str
    dimension: Dimension
    inside: str = ""
    flag: bool = False


TORCH_DEVICE = "[a-z]+:"
"""The text that torch writes before the number of a device, as a pattern."""


@frozen
class DeviceOption:
    """An option that names devices: `DeviceOption("device", counted="visible")`.

    counted   "all": by the index in the whole box; "visible": by the position among the visible devices;
              "either": depending on the version, so that the value must name the same devices in both ways
    prefix    a pattern for the text before the list or before each entry, "" for none
    whole     values that name no particular device: all visible devices ("all", "auto", "-1")
    cpu       values that mean the CPU
    number    whether a plain number is a count ("--devices 2"), and only a list with a comma names devices
    one       whether it takes one device only
    firm      whether its value is the user's explicit choice; otherwise it is a default, because it is not
              known what the program does with it: the first device then means any one ("--device 0"), as in
              most programs
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
        """Return another list of devices in the form of a given value, with its prefix where that has one."""
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

    def said(self, given: Option) -> NamedDevices | DeviceCount | None:
        """Return what the option alone says."""
        value, text = _plain(given.value), " ".join(given.words)
        if value in self.cpu:
            return NamedDevices(text, "", self.firm)
        entries = [re.sub(f"^(?:{self.prefix})", "", entry) for entry in value.split(",") if entry]
        if value in self.whole or not entries:
            return None
        if all(entry in self.whole for entry in entries):
            # `device=-1,-1`: any two devices.
            return DeviceCount(text, len(entries), self.firm, certain=self.firm)
        if not self.firm and entries == ["0"]:
            return DeviceCount(text, 1, firm=False, certain=False)
        if self.number and "," not in value and not given.value.startswith("["):
            number = whole_number(value)
            return DeviceCount(text, number, self.firm, certain=self.firm) if number else None
        if all(whole_number(entry) is not None or _UUID.fullmatch(entry) for entry in entries):
            return NamedDevices(text, ",".join(entries), self.firm)
        return None


@frozen
class ConfigurationFile:
    """A YAML or JSON file whose keys give sizes, which are defaults.

    options    the options that name it, as in `Size`; "" for the first argument that is the name of such a
               file
    keys       its keys, dotted, each with the dimension that it gives; without any, they are the names of the
               options
    variables  the key below which it has environment variables, "" for none
    """

    options: str
    keys: Mapping[str, Dimension] = field(default_factory=dict)
    variables: str = ""


@frozen
class DeviceRange:
    """Two options that name devices: the position of the first one among the visible devices, and a step."""

    first: str
    step: str


@frozen
class Program:
    """One program.

    name          its name for users
    starts        the beginnings of its commands: "tune run", "vllm bench latency|throughput" (either word);
                  the first word is a program
    modules       the modules by which `python -m` starts it: "swift.cli.main pt|sft"
    any_python    whether every command that starts Python, or a file NAME.py, is its own (for options that
                  many scripts share)
    before        its options, where they precede the command that it starts; None where they may be anywhere
    sizes         the options that say how many devices
    devices       the options that name devices
    positions     the options that name devices by a first one and a step
    variables     environment variables that say how many processes ("NPROC_PER_NODE")
    hosts         the options that name machines: the sizes are those of all machines together
    files         configuration files that it reads
    total         the number of devices that the sizes make; 0 where they do not say that
    usual         the number of devices by default, None for all visible ones
    asks          the word that makes it use more than one device ("--tp={count}", "device={devices}"), where
                  it uses only the first one by default; it is added to a command that says nothing
    tells         the word that tells it how many devices there are ("--num-gpus={count}"), where it would
                  count by itself; it is added to a command that says nothing
    key_value     whether its arguments are `key=value` words, and not options with dashes (yolo, Hydra)
    abbreviations whether a prefix of a long option stands for it, as with argparse
    only_indices  whether it cannot read UUIDs in the list of visible devices
    elsewhere     where the started command runs, if it gets none of the devices; "" for here
    elsewhere_by  the options with which it runs there, "" for always
    images        the names of images (without registry, tag and digest) that start it by default, as the
                  first of `starts`
    warning       a warning about it, which follows its name
    warned_without  the option that makes the warning unnecessary; "" for always
    launches      the launcher command that it builds from its arguments; () where it starts none
    behind_dashes whether the options for that launcher follow a "--"
    source        the upstream source of these facts: a file of a version, a page of the documentation
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
        """Return what the command says: its options count before its variables, and these before its
        files."""
        call = self._call(command)
        if call.is_elsewhere:
            # (It needs no device of this machine; a given -n is the user's choice all the same.)
            return Intent(devices=NamedDevices(f"{self.name}: {self.elsewhere}", "", firm=False))
        sizes, count = call.count(context)
        group = Grouping(sizes.get("tp", 1), sizes.get("pp", 1))
        named = call.devices_given(context) or call.devices_from(count, context)
        if isinstance(named, DeviceCount):
            named, count = None, named
        # (A group that spans several machines is not a group of this machine's devices.)
        whole = group.unit > 1 and (count is None or group.fits(count.number))
        spared = self.warned_without and self.warned_without in map(_name_of, call.arguments)
        return Intent(
            devices=named or call.devices_of_files(context),
            count=count,
            group=group if whole else None,
            warnings=(f"{program_name(command)} {self.warning}",) if self.warning and not spared else (),
        )

    def runs_elsewhere(self, command: Sequence[str]) -> bool:
        """Whether the command that it starts runs elsewhere, where our variables and devices have no
        effect."""
        return self._call(command).is_elsewhere

    def started(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return the launcher command that it starts, with the options meant for the launcher; () for
        none."""
        if self.launches is None:
            return ()
        return self.launches(command[self.own(command, started_program(command)) :])

    def with_launcher_options(self, command: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
        """Return the command with more options for the launcher that it starts."""
        dashes = ("--",) if options and self.behind_dashes and "--" not in command else ()
        return (*command, *dashes, *options)

    def on_devices(self, command: Sequence[str], devices: Sequence[Device], context: CommandContext) -> Split:
        """Return the command for these devices, and remarks on the changes: options that name devices are
        rewritten, and the word that makes it use several is added where it gives no number."""
        call = self._call(command)
        if call.is_elsewhere:
            return tuple(command), (f"{self.name}: {self.elsewhere}",)
        own = self.own(command, started_program(command))
        words, remarks = list(command[own:]), list[str]()

        def rewrite(given: Option, value: str, within: bool) -> None:
            new = replace(given, values=(value,)).words
            words[given.place : given.place + len(new)] = new
            how = " (numbered within the selection)" if within else ""
            remarks.append(f"{' '.join(given.words)} rewritten to {' '.join(new)}{how}")

        places, indices = [*range(len(devices))], [device.index for device in devices]
        either = indices if _by_index(devices, context.vendors[0]) else places
        listed = {"visible": places, "all": indices, "either": either}
        numbers = {counted: ",".join(map(str, each)) for counted, each in listed.items()}
        for option, given in call.device_options():
            said = option.said(given)
            if said is None or (isinstance(said, DeviceCount) and option.number):
                continue
            value = option.listing(given.value, numbers[option.counted])
            if _plain(given.value) != _plain(value):
                rewrite(given, value, numbers[option.counted] == numbers["visible"])
        if self.positions is not None and devices:
            for names, value in ((self.positions.first, "0"), (self.positions.step, "1")):
                for given in call.options(names):
                    if given.value != value:
                        rewrite(given, value, True)
        if self.asks and devices and not call.says_how_many() and not self.started(command):
            sizes, count = call.count(context)
            takes, machines = count.number if count is not None else 1, call.machines
            # (A file may give more sizes than the one that is asked for.)
            others = takes // sizes.get("tp", 1) if sizes else 1
            if machines and takes != len(devices) and len(devices) % others == 0:
                asked = len(devices) // others * machines
                added = self.asks.format(count=asked, devices=numbers["either"])
                words = [*words, added] if self.key_value else [added, *words]
                remarks.append(f"{added}: {self.name} would use {takes} by default")
        if self.tells and not call.says_how_many():
            words.append(self.tells.format(count=len(devices)))
            remarks.append(f"{words[-1]}: {self.name} would count by itself")
        if call.machines != 1:
            named = next(call.options(self.hosts)).spelling
            remarks.append(f"{named}: processes on other machines get other devices, by their own indices")
        return (*command[:own], *words), tuple(remarks)

    def names_beside_no_list(self, command: Sequence[str], devices: Sequence[Device], vendor: Vendor) -> bool:
        """Whether its command names the devices, and must not have a list of them besides: each number would
        then be a position in that list, and mean another device."""
        indices = [device.index for device in devices]
        moved = sorted(indices) == list(range(len(indices))) != indices and _by_index(devices, vendor)
        return moved and any(option.counted == "either" for option, _ in self._call(command).device_options())

    def changed_variables(self, command: Sequence[str], devices: int, context: CommandContext) -> Assignments:
        """Return the variable that makes it start one process per device, where the environment or a file
        gives another number. The command's own options stay as they are."""
        call = self._call(command)
        if not self.variables or not devices or call.sizes():
            return ()
        _, count = call.count(context)
        if count is None or count.number == devices:
            return ()
        return ((self.variables[0], str(devices)),)

    def own(self, command: Sequence[str], started: Started) -> int:
        """Return how many words at the beginning identify the program; 0 for another program.

        `started` is the program that the command starts, the same for every row.
        """
        if self.any_python:
            return started.words if is_python(command) or (started.name or "").endswith(".py") else 0
        return words_of_start(command, started, self.starts, self.modules)

    def _call(self, command: Sequence[str]) -> _Call:
        arguments = tuple(command[self.own(command, started_program(command)) :])
        if self.before is not None:
            arguments = read_options(arguments, self.before).option_words
        return _Call(self, arguments)


Said = dict[Dimension, tuple[int, str]]
"""Given sizes: the number, and the words that give it."""


@frozen
class _Call:
    """A command of a program; `arguments` are the words that may contain its options."""

    program: Program
    arguments: tuple[str, ...]

    @property
    def is_elsewhere(self) -> bool:
        by = self.program.elsewhere_by
        return bool(self.program.elsewhere) and (not by or any(self.options(by)))

    @property
    def machines(self) -> int:
        """The number of machines that take part; 0 where only a file gives it."""
        named = [*self.options(self.program.hosts)] if self.program.hosts else []
        if any("file" in given.spelling for given in named):
            return 0
        hosts = (host.partition(":")[0] for given in named for host in given.value.split(","))
        return machines_of(hosts, ("localhost", "127.0.0.1"))

    def says_how_many(self) -> bool:
        """Whether an option for devices or their number is given, with any value."""
        return any(self.device_options()) or any(any(self._given_of(size)) for size in self.program.sizes)

    def count(self, context: CommandContext) -> tuple[dict[Dimension, int], DeviceCount | None]:
        """Return the sizes, and the number of devices that they make; None where there are none."""
        program, typed = self.program, self.sizes()
        firm = bool(typed)
        for name in program.variables if not typed else ():
            if number := whole_number(context.environ.get(name, "")):
                typed["processes"] = number, f"{name}={number}"
                firm = name in context.typed
        # A file may give sizes that the line leaves open.
        given = self._sizes_of_files(context) | typed
        sizes = {dimension: number for dimension, (number, _) in given.items()}
        machines = self.machines
        total = program.total(sizes) if sizes and machines else 0
        if total > 0 and total % machines == 0:
            return sizes, DeviceCount(" ".join(words for _, words in given.values()), total // machines, firm)
        if program.usual is None or self.says_how_many():
            return sizes, None
        return sizes, program.usual(self.arguments)

    def sizes(self) -> Said:
        """Return the sizes on the command line. The last occurrence of an option counts."""
        found: Said = {}
        for size in self.program.sizes:
            for number, words in [*self._given_of(size)][-1:]:
                if number:
                    found[size.dimension] = number, words
        return found

    def _given_of(self, size: Size) -> Iterator[tuple[int | None, str]]:
        """Yield each place that gives a size: its number, None where it is not a number ("auto"), and its
        words."""
        names = size.options.split("|")
        if size.flag:
            yield from (
                (1, word) for word in self.arguments if _name_of(word) in names and word.startswith("--")
            )
        for given in self.options(size.inside or size.options) if not size.flag else ():
            if not size.inside:
                yield whole_number(given.value), " ".join(given.words)
                continue
            # `a=1,b=2`, or followed by more words of that kind, or JSON.
            following = takewhile(
                lambda word: not word.startswith("-"), self.arguments[given.place + len(given.words) :]
            )
            values = " ".join((given.value, *following))
            for name in names:
                pattern = rf"(?:^|[\s,{{\"])({name.replace('-', '[-_]')}\"?\s*[=:]\s*([0-9]+))"
                for match in re.finditer(pattern, values):
                    yield whole_number(match[2]), match[1]

    def _read_files(
        self, context: CommandContext
    ) -> Iterator[tuple[ConfigurationFile, str, Mapping[str, object]]]:
        """Yield its configuration files: the row, the name as given, the values."""
        for file in self.program.files:
            if file.options:
                names = [given.value for given in self.options(file.options)]
            else:
                names = [word for word in self.arguments if re.fullmatch(r"[^-].*\.(ya?ml|json)", word)][:1]
            for name in names[-1:]:
                yield file, name, read_mapping(below(context.directory, name), context)

    def _sizes_of_files(self, context: CommandContext) -> Said:
        found: Said = {}
        names = {name: size.dimension for size in self.program.sizes for name in size.options.split("|")}
        for file, name, values in self._read_files(context):
            for key, dimension in (file.keys or names).items():
                number = _inner(values, key)
                if type(number) is int and number > 0:
                    found[dimension] = number, f"{key} {number} of {name}"
            for variable in self.program.variables if file.variables else ():
                number = whole_number(str(_inner(values, f"{file.variables}.{variable}")))
                if number and variable not in context.environ:
                    found["processes"] = number, f"{variable} {number} of {name}"
        return found

    def devices_of_files(self, context: CommandContext) -> NamedDevices | None:
        """Return the list of devices among the variables of a configuration file, which is a default."""
        variable = context.visibility.variable
        for file, name, values in self._read_files(context):
            listed = _inner(values, f"{file.variables}.{variable}") if file.variables and variable else None
            if listed is not None and variable not in context.environ:
                entries = context.visibility.entries(str(listed))
                return NamedDevices(f"{variable} {listed} of {name}", ",".join(entries), firm=False)
        return None

    def devices_given(self, context: CommandContext) -> NamedDevices | DeviceCount | None:
        """Return the devices that the last of its options names, or their number."""
        found: NamedDevices | DeviceCount | None = None
        for option, given in self.device_options():
            said = option.said(given)
            if isinstance(said, NamedDevices) and option.counted != "all":
                said = replace(_among_visible(said, context), visible=option.counted == "visible")
            found = said or found
        return found

    def devices_from(self, count: DeviceCount | None, context: CommandContext) -> NamedDevices | None:
        """Return the devices that a first position and a step name."""
        positions = self.program.positions
        if positions is None:
            return None
        first, step = ([*self.options(names)][-1:] for names in (positions.first, positions.step))
        begin = whole_number(first[0].value) if first else 0
        by = whole_number(step[0].value) if step else 1
        number = count.number if count is not None else 1
        if not (first or step) or begin is None or not by or number > MAX_DEVICES:
            return None
        words = " ".join(write_options((*first, *step)))
        listed = ",".join(str(begin + place * by) for place in range(number))
        return _among_visible(NamedDevices(words, listed), context)

    def device_options(self) -> Iterator[tuple[DeviceOption, Option]]:
        for option in self.program.devices:
            for given in self.options(option.options):
                yield option, given

    def options(self, names: str) -> Iterator[Option]:
        """Return the options with these names, in their order."""
        program, arguments = self.program, self.arguments
        if program.behind_dashes:
            # (The options for its launcher are there.)
            arguments = tuple("" if word == "--" else word for word in arguments)
        known = [name for each in self._all_options() for name in each.split("|")]
        return given_options(arguments, names.split("|"), known, program.key_value, program.abbreviations)

    def _all_options(self) -> Iterator[str]:
        program = self.program
        yield from (size.inside or size.options for size in program.sizes)
        yield from (option.options for option in program.devices)
        yield from (file.options for file in program.files if file.options)
        yield from filter(None, (program.hosts, program.elsewhere_by))
        if program.positions is not None:
            yield from (program.positions.first, program.positions.step)


def _by_index(devices: Sequence[Device], vendor: Vendor) -> bool:
    """Whether a program that counts either way gets indices: it reads CUDA's list besides."""
    return vendor.runtime == "CUDA" and not has_instances(devices)


_UUID = re.compile(r"[A-Z]+-[0-9A-Za-z/-]+")


def _among_visible(named: NamedDevices, context: CommandContext) -> NamedDevices:
    """Return positions among the devices that the environment's list makes visible, as that list names them.

    An entry that is not such a position stays: a program takes it for a name in the list (ultralytics), or
    refuses it.
    """
    variable = context.visibility.variable
    visible = context.visibility.entries(context.environ.get(variable, "")) if variable else ()
    places = [whole_number(entry) for entry in named.listed.split(",") if entry]
    if not visible or any(place is None or place >= len(visible) for place in places):
        return named
    return replace(named, listed=",".join(visible[place] for place in places if place is not None))


def _plain(value: str) -> str:
    """Return a list without brackets and spaces: "[0, 1]" is "0,1"."""
    return re.sub(r"[\s\[\]()'\"]", "", value)


def given_options(
    arguments: Sequence[str],
    names: Sequence[str],
    known: Sequence[str] = (),
    key_value: bool = False,
    abbreviations: bool = False,
) -> Iterator[Option]:
    """Return the options of these names, anywhere among the arguments, as argparse would find them.

    Only words before a "--" are searched. `known` are all names that the program has, which decide about
    abbreviations.
    """
    for place, word in enumerate(arguments):
        if word == "--":
            return
        spelling, equals, value = word.partition("=")
        name = _name_of(word)
        if abbreviations and name not in names and word.startswith("--"):
            like = [each for each in known if each.startswith(name)]
            name = like[0] if len(like) == 1 else name
        # (Hydra's keys are dotted: `hardware.num_gpus=4`.)
        key = spelling.lstrip("-+").replace("_", "-")
        if key_value and equals and (key in names or (len(key) > 1 and key.rpartition(".")[2] in names)):
            yield Option(key, spelling, (value,), "=", place)
        elif not word.startswith("-") or word == "-":
            continue
        elif name in names and not (equals and key_value):
            if equals:
                yield Option(name, spelling, (value,), "=", place)
            elif place + 1 < len(arguments):
                yield Option(name, spelling, (arguments[place + 1],), None, place)
        elif not word.startswith("--") and word[1] in names and word[2:].isdigit():
            # A short option with its value attached: -n4.
            yield Option(word[1], word[:2], (word[2:],), "", place)


def _name_of(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("_", "-")


def read_mapping(path: str, context: CommandContext) -> Mapping[str, object]:
    """Return the values of a YAML or JSON file; empty where there is none, or it is anything else."""
    text = context.host_environment.text(path)
    return {} if text is None else mapping_in(os.path.basename(path), text)  # noqa: PTH119 - a text


def mapping_in(name: str, text: str, *, only_settings: bool = False) -> Mapping[str, object]:
    """Return the values of YAML or JSON with this name; empty where it is anything else.

    With `only_settings`, what has no keys is reported: it can be no data of a script.
    """
    try:
        found = read_values(text, "YAML")
    except NotReadError as error:
        not_read(name, error)
        return {}
    except ValueError:
        # A file of another name may have another form (TOML, Python).
        if name.endswith((".json", ".yaml", ".yml")) or text.startswith("{"):
            not_read(name, "it is neither YAML nor JSON")
        return {}
    if isinstance(found, dict):
        return found
    if only_settings:
        not_read(name, "it is not an object of settings")
    return {}


def _inner(values: object, dotted: str) -> object:
    """Return the value of "a.b" in nested mappings; "-" and "_" in a key are the same."""
    for part in dotted.split("."):
        if not isinstance(values, Mapping):
            return None
        values = next(
            (v for k, v in values.items() if str(k).replace("-", "_") == part.replace("-", "_")), None
        )
    return values
