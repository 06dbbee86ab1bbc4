"""The launch options: everything about a launch except its devices, in one table.

A field of `LaunchOptions` that is made by `option` is an option of `gputui run`, `export` and `check`, a row
of the launch page, part of every launch in the history, and part of the line that starts the other machines
of a launch. No other module lists the options: to add one, add a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from gputui.inventory.formatting import read_duration, whole_between
from gputui.inventory.light_dataclasses import field, fields, frozen, replace
from gputui.inventory.typed_json import Form, Record, WordList, Words, check, form_of, wrong
from gputui.system.environment import Assignments
from gputui.vendors.visibility import CONFINE, Confine, Ids

AUTO = "auto"
"""Means the launcher that the command itself starts with."""

LAUNCHER_NAMES = ("python", "torchrun", "accelerate", "deepspeed", "mpirun")
"""The names of `launchers.LAUNCHERS`, in the order in which the screen cycles through them. They are repeated
here because the launchers take 15 ms to import, and the first frame needs none."""

NEVER = "none"
"""The value of `--idle-release` against the settings."""

MOST = 10_000
"""Most processes or machines: a larger number is a typing error."""

Kind = Literal["choice", "switch", "number", "path", "text"]


class OptionError(ValueError):
    """The typed text is not a value of the option; the message gives the reason."""


class Option(NamedTuple):
    """One launch option. A dataclass with that number of fields would take 3 ms to define before the first
    frame.

    name         the field of LaunchOptions
    flag         the flag on the command line: "--launcher"
    help         the help text on the command line
    label        the label of its row on the launch page
    about        the text next to its value on the launch page
    about_given  that text where the user has given a value
    unset        the text on the page in place of the default. "{launcher}" is the recognised launcher and
                 "{started}" the number of processes; in `about`, "{processes}" explains that number
    kind         choice: one of `choices`; switch: on or off; number: 1 to MOST; path: a file's path, in which
                 the launch page expands `~` as a shell does; text: text that `read` accepts
    metavar      the placeholder of its value in `--help`
    applies      whether the launch page shows it, given the other launch options
    read         parses a typed text into the value. Raises OptionError
    bare         the choice that the flag without a value means; "--no-…" then means the last choice
    """

    default: Any
    flag: str
    help: str
    label: str
    about: str
    unset: str
    kind: Kind = "text"
    metavar: str | None = None
    choices: Callable[[], tuple[str, ...]] = tuple
    applies: Callable[[LaunchOptions], bool] = lambda options: True
    read: Callable[[str], object] = str
    about_given: str | None = None
    bare: str | None = None
    name: str = ""

    def typed(self, text: str) -> Any:
        """Parse the text that a person has typed. Raises OptionError."""
        if self.kind == "number":
            return number_of(text)
        if self.kind == "choice" and text not in self.choices():
            raise OptionError(f"{text!r} is not one of {', '.join(self.choices())}")
        return self.read(text)

    def accepts(self, value: Any) -> bool:
        """Whether the option can have this value, which was read from a file."""
        if value is None or self.kind == "switch":
            return value is self.default or isinstance(value, bool)
        if self.kind == "number":
            return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST
        try:
            self.typed(form_of(Words).read(value))
        except ValueError:
            return False
        return True

    @property
    def form(self) -> Form:
        """The form that reads its values from JSON."""

        def read(value: Any) -> Any:
            if not self.accepts(value):
                raise wrong(value, f"a value of {self.flag}")
            return value

        return Form(read)

    def words(self, value: object) -> tuple[str, ...]:
        """The arguments of `gputui run` that give it this value; () for its default."""
        if value == self.default:
            return ()
        if self.kind == "switch":
            return (self.flag,)
        text = str(value)
        # argparse takes a separate word with a leading dash as another option.
        return (f"{self.flag}={text}",) if self.bare or text.startswith("-") else (self.flag, text)


def option(facts: Option) -> Any:
    """Define a field of LaunchOptions that is a launch option; its name is that of the field."""
    return field(default=facts.default, metadata={"option": facts})


def number_of(text: str) -> int:
    """Parse a number of processes, machines, threads or devices. Raises OptionError."""
    number = whole_between(text, 1, MOST)
    if number is None:
        raise OptionError(f"{text!r} is not a number from 1 to {MOST}")
    return number


def with_home(text: str) -> str:
    """Expand the `~` of a path that a person has typed outside a shell. Raises OptionError."""
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise OptionError(f"there is no user {text.partition('/')[0][1:]!r}") from None


def _rendezvous(text: str) -> str:
    match = re.fullmatch(r"(\[[^\s\[\]]+\]|[^\s:\[\]]+)(?::([0-9]{1,5}))?", text)
    known = (match and 1 <= int(match[2] or 1) <= 65535) or _is_ipv6(text)
    if known and text.isprintable():
        return text
    raise OptionError(f"{text!r} is not HOST or HOST:PORT")


def _time(text: str) -> str:
    try:
        read_duration(text, 1)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return text


def _idle_release(text: str) -> str:
    return text if text == NEVER else _time(text)


def _is_ipv6(text: str) -> bool:
    """Whether the text is an IPv6 address without brackets and port."""
    import ipaddress

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


class Meeting(NamedTuple):
    """The agreement of the machines of one launch that are started together.

    It is valid for that launch only, and is not a launch option.

    id       the id of their rendezvous, unique to the launch
    first    whether the rendezvous is on this machine
    address  the address by which the others reach this machine, None where it is not known
    rank     the number of this machine, from 0
    """

    id: str
    first: bool
    address: str | None = None
    rank: int = 0


@frozen
class LaunchOptions:
    """The command and its launch options, without the devices.

    command     the words that the user typed, without the variables before them
    additions   environment variables that the user wrote before the command (`FOO=1 python train.py`) or
                asked for
    python      Python interpreter to start it with, None for the command's own
    processes   the number of processes, None for one per device
    logs        a directory for one log per rank
    numa        bind processes to the CPUs near their devices
    nodes       the number of machines
    rendezvous  HOST[:PORT] of the first of several machines
    time        how long the command may run, as typed: "4h"
    """

    command: tuple[str, ...] = ()
    launcher: str = option(
        Option(
            AUTO,
            "--launcher",
            help="auto (default) recognises it from the command",
            label="launcher",
            about="{recognised}",
            about_given="selected here; x: as the command says",
            unset="{launcher}",
            kind="choice",
            choices=lambda: (AUTO, *LAUNCHER_NAMES),
        )
    )
    processes: int | None = option(
        Option(
            None,
            "--processes",
            help="number of processes (default: one per device)",
            label="processes",
            about="{processes}",
            unset="{started}",
            kind="number",
            metavar="N",
        )
    )
    python: str | None = option(
        Option(
            None,
            "--python",
            help="Python interpreter to start it with",
            label="Python",
            about="the interpreter that runs the script",
            unset="the command's own",
            kind="path",
            metavar="PY",
        )
    )
    directory: str | None = option(
        Option(
            None,
            "--directory",
            help="directory to start it in",
            label="directory",
            about="where the command starts",
            unset="here",
            kind="path",
            metavar="DIR",
        )
    )
    ids: Ids = option(
        Option(
            "index",
            "--ids",
            help="name the devices by index (default) or UUID",
            label="devices by",
            about="index or UUID; a UUID never changes",
            unset="index",
            kind="choice",
            choices=lambda: ("index", "uuid"),
        )
    )
    logs: str | None = option(
        Option(
            None,
            "--logs",
            help="write one log per rank to DIR, if the launcher can",
            label="logs",
            about="a folder for a log of each process",
            unset="none",
            kind="path",
            metavar="DIR",
        )
    )
    numa: bool = option(
        Option(
            False,
            "--numa-binding",
            help="bind processes to the CPUs near their devices (torchrun)",
            label="NUMA binding",
            about="each process on the CPUs near its device",
            unset="off",
            kind="switch",
        )
    )
    nodes: int = option(
        Option(
            1,
            "--nodes",
            help="number of machines (torchrun)",
            label="machines",
            about="how many run it together; torchrun only",
            unset="1",
            kind="number",
            metavar="N",
        )
    )
    rendezvous: str | None = option(
        Option(
            None,
            "--rendezvous",
            help="the first of several machines (default port 29400)",
            label="first machine",
            about="its HOST[:PORT], where all of them meet",
            unset="HOST",
            metavar="HOST[:PORT]",
            applies=lambda options: options.nodes > 1,
            read=_rendezvous,
        )
    )
    confine: Confine | None = option(
        Option(
            None,
            "--confine",
            help="keep the command from opening other devices: always (without HOW), auto (if that is proved"
            " to work here) or never (--no-confine); default: the setting `confine`",
            label="confined",
            about="whether it can open only its own devices",
            unset="{confine} (:settings)",
            kind="choice",
            metavar="HOW",
            choices=lambda: CONFINE,
            bare="always",
        )
    )
    time: str | None = option(
        Option(
            None,
            "--time",
            help="end the command after this time (90, 30m, 4h): SIGTERM, and SIGKILL ten seconds later",
            label="time limit",
            about="ends the command after so long: 30m, 4h",
            unset="none",
            metavar="TIME",
            read=_time,
        )
    )
    idle_release: str | None = option(
        Option(
            None,
            "--idle-release",
            help="stop the job, after a warning, when its devices have been idle for this time (30m, 2h);"
            " none: never; default: the setting `idle_release`",
            label="stop if idle",
            about="stops a job idle for so long: 30m, 2h",
            unset="{idle_release} (:settings)",
            metavar="TIME",
            read=_idle_release,
        )
    )
    additions: Assignments = ()

    @property
    def time_limit(self) -> float | None:
        """`time` in seconds."""
        return None if self.time is None else read_duration(self.time)


@cache
def table() -> Mapping[str, Option]:
    """Every launch option by the name of its field, in the order of the launch page."""
    return {
        each.name: each.metadata["option"]._replace(name=each.name)
        for each in fields(LaunchOptions)
        if "option" in each.metadata
    }


VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""The name of an environment variable that a shell can set."""
_VARIABLE = Annotated[str, check(Words, VARIABLE.fullmatch, "a variable's name")]

_FORMS: dict[str, Any] = {name: Annotated[Any, each.form] for name, each in table().items()}
OPTIONS = Record(
    LaunchOptions,
    command=WordList,
    additions=tuple[tuple[_VARIABLE, Words], ...],
    **_FORMS,
)


def words_of(options: LaunchOptions) -> tuple[str, ...]:
    """The arguments of `gputui run` that give these options, without the devices and the command."""
    words = [word for name, each in table().items() for word in each.words(getattr(options, name))]
    return (*words, *(f"--env={name}={value}" for name, value in options.additions))


def with_value(options: LaunchOptions, name: str, value: Any) -> LaunchOptions:
    """The options with another value for the option of that name."""
    return replace(options, **{name: value})
