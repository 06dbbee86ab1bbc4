"""The request for an experiment: the launch that is varied, what varies, and how its runs are made.

The command line parses it, also for the screen. A record keeps it without secrets, for `--resume` and for the
rerun of a job; a job that runs an experiment receives it complete. `words` are the equivalent options; they
are only for a person to type, and no program parses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.quoting import quote
from gputui.inventory.typed_json import Record
from gputui.jobs.experiments.axes import (
    JOIN,
    OFF,
    ON,
    Axis,
    AxisError,
    Setting,
    check_number,
    left_out,
    variants,
    varied_command,
)
from gputui.jobs.experiments.braces import expanded
from gputui.launching import secrets
from gputui.launching.environment_hints import THREADS
from gputui.launching.launch_options import OptionError, number_of, table, with_value
from gputui.launching.secrets import MARK, secret_word
from gputui.launching.shell_words import assignments
from gputui.requesting.launch_request import NEAR, LaunchRequest, python_in_launch

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Positive, WordList, Words
    from gputui.jobs.experiments.record import Experiment

Kind = Literal["comparison", "sweep"]
SUBCOMMANDS: Mapping[Kind, str] = {"comparison": "compare", "sweep": "each"}
"""The subcommand that makes experiments of each kind."""
NAMES: Mapping[Kind, str] = {"comparison": "comparison", "sweep": "each"}
"""What people read for each kind; the JSON has the kind itself."""

_THREADS = "threads"
_NOT_VARIED = ("nodes", "rendezvous")
"""Options of a launch on several machines. It waits for the other machines, which would have to vary these
options too."""


def axis_options() -> dict[str, str]:
    """Map the names that an axis has for launch options to their fields."""
    names = {each.flag.lstrip("-"): name for name, each in table().items() if name not in _NOT_VARIED}
    return {**names, _THREADS: _THREADS}


@frozen
class ExperimentRequest:
    """An experiment as it was asked for.

    launch    its command has the braces and the variables before it as they were typed
    tasks     the commands of a file, which replace that of `launch`
    left_out  the values of `--except`
    repeat    runs of each variant
    metric    a regular expression that finds the number to compare by; `less`: less of it is better
    jobs      the most runs at the same time; None for no limit but the devices
    memory    bytes that a run needs on each device, if runs may share devices; else None
    retry     how many times a failed run is started again
    stop_on_failure   whether no further run starts after one has failed for good
    timeout   the most seconds of a run, None for no limit
    warm_up   whether the first variant runs once before, uncounted, to fill the caches of files and kernels
    before    a shell command that runs before each run, "" for none
    """

    kind: Kind
    launch: LaunchRequest
    tasks: tuple[WordList, ...] = ()
    axes: tuple[Axis, ...] = ()
    left_out: WordList = ()
    repeat: Positive = 1
    metric: Words | None = None
    less: bool = False
    jobs: int | None = None
    memory: int | None = None
    retry: int = 0
    stop_on_failure: bool = False
    timeout: float | None = None
    warm_up: bool = False
    before: Words = ""

    @property
    def options(self) -> list[str]:
        """The options of its subcommand that ask for the same experiment, without `tasks` and the model."""
        found = self.launch.words[: -len(self.launch.options.command) - 1]
        found += [f"--vary={axis.text}" for axis in self.axes]
        found += [f"--except={text}" for text in self.left_out]
        default = ExperimentRequest(self.kind, self.launch)
        for name in OPTIONS:
            value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            if value != getattr(default, name):
                text = f"{value / 1024:.15g}K" if name == "memory" else value
                found.append(flag if value is True else f"{flag}={text}")
        return found

    @property
    def words(self) -> tuple[str, ...]:
        """The equivalent call of gputui."""
        command = self.launch.options.command
        return ("gputui", SUBCOMMANDS[self.kind], *self.options, *(("--", *command) if command else ()))


OPTIONS = (
    *("repeat", "metric", "less", "jobs", "memory", "retry", "stop_on_failure", "timeout", "warm_up"),
    "before",
)
"""The fields that are options of the subcommands, by their names there."""
REQUEST = Record(ExperimentRequest)


Comparisons = Callable[[str, LaunchRequest], tuple[ExperimentRequest, "Experiment"]]
"""Makes the comparison of a launch that the words of a line ask for, which is not recorded yet; raises
GputuiError where they, or a variant, are wrong. The command line passes it when it starts the screen."""


def without_secrets(request: ExperimentRequest) -> tuple[ExperimentRequest, tuple[str, ...]]:
    """The request without its secrets, as a record keeps it, and the names of what is withheld."""
    withheld = list[str]()

    def known(words: Sequence[str]) -> tuple[str, ...]:
        found, names = secrets.without_secrets(words)
        withheld.extend(names)
        return found

    axes = tuple(
        replace(axis, values=tuple(shown(axis, value) for value in axis.values)) for axis in request.axes
    )
    withheld += [axis.name for axis, given in zip(axes, request.axes, strict=True) if axis != given]
    options = request.launch.options
    variables = (known((f"{name}={value}",))[0].partition("=") for name, value in options.additions)
    additions = tuple((name, value) for name, _, value in variables)
    options = replace(options, command=known(options.command), additions=additions)
    found = replace(
        request,
        launch=replace(request.launch, options=options),
        tasks=tuple(map(known, request.tasks)),
        axes=axes,
        left_out=tuple(known((text,))[0] for text in request.left_out),
        before=known((request.before,))[0],
    )
    return found, tuple(dict.fromkeys(withheld))


def shown(axis: Axis, value: str) -> str:
    """Return a value for records and tables. A value that looks like a secret is replaced by its number on
    the axis."""
    words = (axis.key, value) if axis.key[:1] == "-" else (f"{axis.key}={value}",)
    secret = axis.kind in ("env", "arg") and secret_word(words) is not None
    return f"{MARK}{axis.values.index(value) + 1}" if secret else axis.told(value)


class Variant(NamedTuple):
    """A combination of settings and a task: its label, its value of each axis and the words of its command
    without secrets, and its launch request."""

    settings: tuple[Setting, ...]
    label: str
    values: tuple[str, ...]
    words: tuple[str, ...]
    launch: LaunchRequest


def variants_of(request: ExperimentRequest) -> tuple[tuple[tuple[str, str], ...], tuple[Variant, ...]]:
    """Return the axes by name and heading, those of braces last, and the variants of an experiment. Raises
    AxisError."""
    command = request.launch.options.command
    axes = (*request.axes, *([] if request.tasks else expanded(command)))
    names = tuple((axis.name, axis.key) for axis in axes)
    pairs = list(itertools.product(variants(axes), request.tasks or (command,)))
    check_number(len(pairs))
    without = left_out(request.left_out, [settings for settings, _ in pairs])
    found = tuple(_variant(request, *pair) for number, pair in enumerate(pairs) if number not in without)
    if not found:
        raise AxisError("--except leaves every combination out")
    return names, found


def _variant(request: ExperimentRequest, settings: tuple[Setting, ...], task: tuple[str, ...]) -> Variant:
    values, words = tuple(shown(*setting) for setting in settings), varied_command(task, settings)
    if request.axes:
        # "launcher=torchrun --bf16=on"
        name = " ".join(f"{axis.key}={value}" for (axis, _), value in zip(settings, values, strict=True))
    else:
        # A value is meaningless without its option. Without braces, the task is a line of a file.
        own = list[str]()
        for axis, value in settings:
            before = task[axis.place - 1 : axis.place]
            own += [*(before if before == (axis.key,) else ()), value]
        known = secrets.without_secrets(own or task)[0]
        name = " ".join(known if own else map(quote, known))
    asked = _varied(request.launch, words, settings)
    if not asked.options.command:
        raise AxisError(f"{name}: no command after the variables")
    return Variant(settings, name, values, secrets.without_secrets(words)[0], asked)


def _varied(launch: LaunchRequest, words: Sequence[str], settings: Sequence[Setting]) -> LaunchRequest:
    """The launch request with this command and these settings. Raises AxisError."""
    before, command = assignments(words)
    options, additions = launch.options, dict((*before, *launch.options.additions))
    for axis, value in settings:
        try:
            if axis.kind == "env" and value:
                additions[axis.key] = value
            elif axis.kind == "n":
                launch = replace(launch, devices=replace(launch.devices, count=number_of(value)))
            elif axis.kind == "gpus":
                names = value.replace(JOIN, ",")
                launch = replace(launch, devices=replace(launch.devices, names=names))
            elif axis.kind == "option" and axis.key == _THREADS:
                launch = replace(launch, near=value == NEAR)
                additions |= {} if launch.near else {THREADS: str(number_of(value))}
            elif axis.kind == "option":
                name = axis_options()[axis.key]
                options = with_value(options, name, _typed(name, value))
        except OptionError as error:
            raise AxisError(f"{axis.name}: {error}") from None
    python = python_in_launch(options.python, options.directory)
    options = replace(options, command=command, additions=tuple(additions.items()), python=python)
    return replace(launch, options=options)


def _typed(name: str, text: str) -> object:
    """The value of a launch option. Raises OptionError."""
    option = table()[name]
    if option.kind != "switch":
        return option.typed(text)
    if text not in (ON, OFF):
        raise OptionError(f"{text!r} is neither {ON} nor {OFF}")
    return text == ON
