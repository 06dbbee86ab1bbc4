"""Wrappers, which stand before a command and start it: `uv run`, `nice -n 5`, `env A=1`, `numactl -N 0`.

The launcher is recognised behind them, and completed there. Options with a value are listed; an option that
is not listed is taken for a flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputui.launching.argument_vector import Option, OptionTable, option_table, program_name, read_options
from gputui.launching.shell_words import assignments


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """`operands` words of its own stand before the command (`timeout 60 …`); `verb` is the subcommand that
    runs one; `assigns`: `NAME=value` words may stand before the command; `itself` are options with which it
    starts no command of ours; `environment`: it chooses the Python environment of what it starts."""

    options: OptionTable
    operands: int = 0
    verb: str | None = None
    assigns: bool = False
    itself: tuple[str, ...] = ()
    environment: bool = False


_UV_STARTS_PYTHON = ("module", "script", "gui-script")
"""Options of `uv run` with which uv itself starts the interpreter: what follows is not a command."""

_UV = option_table(
    flags="module|m script|s gui-script",
    valued="extra no-extra group no-group only-group no-editable-package env-file with|w with-editable"
    " with-requirements package python|p python-platform index default-index index-url|i extra-index-url"
    " find-links|f upgrade-package|P upgrade-group reinstall-package refresh-package index-strategy"
    " keyring-provider resolution prerelease prerelease-package fork-strategy"
    " config-setting|config-settings|C config-settings-package no-build-isolation-package exclude-newer"
    " exclude-newer-package no-sources-package link-mode no-build-package no-binary-package color directory"
    " project config-file cache-dir allow-insecure-host",
)
"""`uv run --help` of 0.13."""

_CONDA = option_table(valued="name|n prefix|p cwd log-level")

_ENV = option_table(flags="ignore-environment|i|-", valued="unset|u chdir|C", last="split-string|S")

_WRAPPERS: dict[str, _Wrapper] = {
    "uv": _Wrapper(_UV, verb="run", itself=_UV_STARTS_PYTHON, environment=True),
    "poetry": _Wrapper(option_table(valued="directory|C project|P"), verb="run", environment=True),
    "pdm": _Wrapper(option_table(valued="project|p venv"), verb="run", environment=True),
    "pipenv": _Wrapper(option_table(), verb="run", environment=True),
    "rye": _Wrapper(option_table(), verb="run", environment=True),
    "pixi": _Wrapper(option_table(valued="environment|e manifest-path"), verb="run", environment=True),
    "conda": _Wrapper(_CONDA, verb="run", environment=True),
    "mamba": _Wrapper(_CONDA, verb="run", environment=True),
    "micromamba": _Wrapper(_CONDA, verb="run", environment=True),
    "env": _Wrapper(
        _ENV,
        assigns=True,
        # Its value is the command itself, in one word.
        itself=("split-string",),
    ),
    "sudo": _Wrapper(
        option_table(
            flags="preserve-env|E",
            valued="user|u group|g host|h prompt|p close-from|C role|r type|t command-timeout|T other-user|U"
            " chdir|D chroot|R",
        ),
        assigns=True,
    ),
    "doas": _Wrapper(option_table(valued="u C")),
    "systemd-run": _Wrapper(
        option_table(
            flags="scope",
            valued="property|p unit|u slice setenv|E host|H machine|M description uid gid nice"
            " working-directory service-type",
        )
    ),
    "flock": _Wrapper(option_table(valued="timeout|wait|w conflict-exit-code|E"), operands=1),
    "nice": _Wrapper(option_table(valued="adjustment|n")),
    "ionice": _Wrapper(option_table(valued="class|c classdata|n")),
    "chrt": _Wrapper(option_table(valued="sched-runtime|T sched-period|P sched-deadline|D"), operands=1),
    "nohup": _Wrapper(option_table()),
    "setsid": _Wrapper(option_table()),
    "stdbuf": _Wrapper(option_table(valued="input|i output|o error|e")),
    "time": _Wrapper(option_table(valued="format|f output|o")),
    "timeout": _Wrapper(option_table(valued="kill-after|k signal|s"), operands=1),
    "taskset": _Wrapper(option_table(), operands=1),
    "numactl": _Wrapper(
        option_table(
            valued="interleave|i weighted-interleave|w preferred|p preferred-many|P membind|m cpunodebind|N"
            " physcpubind|C"
        )
    ),
    "unbuffer": _Wrapper(option_table()),
}


@dataclass(frozen=True, slots=True)
class WrapperCall:
    """One wrapper before a command.

    words        all of its words, its own name in front
    options      its options, those before and behind its subcommand
    assignments  the `NAME=value` words that it has before the command
    itself       whether it starts the interpreter, or a shell's line, itself: no command follows
    """

    name: str
    words: tuple[str, ...]
    options: tuple[Option, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    itself: bool = False

    def has(self, name: str) -> bool:
        """Whether the option is given."""
        return any(option.name == name for option in self.options)

    @property
    def chooses_environment(self) -> bool:
        """Whether a bare program behind it is one of an environment of its own, not one of our PATH."""
        return _WRAPPERS[self.name].environment


def unwrap(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands before the command, and the command: (("uv", "run"), ("torchrun", "train.py")).

    A wrapper that starts nothing (`uv pip …`, `env` alone) is the command itself.
    """
    place = 0
    for call in wrappers(command):
        if place + len(call.words) >= len(command):
            break
        place += len(call.words)
    return tuple(command[:place]), tuple(command[place:])


def wrappers(prefix: Sequence[str]) -> Iterator[WrapperCall]:
    """The wrappers that the words begin with, outermost first."""
    rest = tuple(prefix)
    while (call := _read(rest)) is not None and not call.itself:
        yield call
        rest = rest[len(call.words) :]


def assigned(prefix: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """The variables that the wrappers before a command set (or unset: None)."""
    found: list[tuple[str, str | None]] = []
    for call in wrappers(prefix):
        for option in call.options:
            if call.name == "env" and option.name == "unset":
                found.append((option.value, None))
            elif call.name == "systemd-run" and option.name == "setenv":
                found += assignments((option.value,))[0]
        found += call.assignments
    return tuple(found)


def losing(prefix: Sequence[str], variable: str) -> str | None:
    """The wrapper that does not give the command our variables (`env -i`, `sudo`); None where none is.

    `variable` is the one of ours that counts: sudo may be told to preserve it by name.
    """
    for call in wrappers(prefix):
        if call.name == "env" and call.has("ignore-environment"):
            return "env -i"
        if (call.name == "sudo" and not _preserves(call, variable)) or call.name == "doas":
            return call.name
        if call.name == "systemd-run" and not call.has("scope"):
            return "systemd-run without --scope"
    return None


def uv_starting_python(command: Sequence[str]) -> tuple[tuple[str, ...], bool] | None:
    """Of `uv run -m package` and `uv run --script file`, where uv itself starts the interpreter: what to
    write before `python`, and whether a script is started; None for another command."""
    call = _read(command)
    if call is None or call.name != "uv" or not call.itself:
        return None
    outer = read_options(command[1:], _UV)
    inner = read_options(outer.operands[1:], _UV)
    words = (command[0], *outer.option_words, "run", *inner.without(_UV_STARTS_PYTHON).option_words)
    return words, not call.has("module")


def behind_env(words: Sequence[str]) -> tuple[str, ...]:
    """The command of `env`, also where it is told to split it (-S), as in the first line of a script."""
    given = read_options(words[1:], _ENV)
    if "split-string" in given:
        return behind_env((*words[:1], *given.get("split-string").split(), *given.rest))
    return assignments(given.operands)[1]


def _preserves(call: WrapperCall, variable: str) -> bool:
    """Whether sudo is told to hand our variables on: -E, -HE, --preserve-env, or a list with ours."""
    return any(
        option.name == "preserve-env" and (option.glue is None or variable in option.value.split(","))
        for option in call.options
    )


def _read(command: Sequence[str]) -> WrapperCall | None:
    """The wrapper that the words begin with; None where they begin with another program."""
    name = program_name(command)
    wrapper = _WRAPPERS.get(name)
    if wrapper is None:
        return None
    given = read_options(command[1:], wrapper.options)
    options = given.options
    if wrapper.verb is not None:
        if given.operands[:1] != (wrapper.verb,):
            return None
        given = read_options(given.operands[1:], wrapper.options)
        options = (*options, *given.options)
    rest = given.operands
    assigned_words: tuple[tuple[str, str], ...] = ()
    if wrapper.assigns:
        assigned_words, rest = assignments(rest)
    rest = rest[wrapper.operands :]
    words = tuple(command[: len(command) - len(rest)])
    itself = any(option.name in wrapper.itself for option in options)
    return WrapperCall(name, words, options, assigned_words, itself)
