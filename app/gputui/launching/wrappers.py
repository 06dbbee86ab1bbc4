"""Wrappers, which precede a command and start it: `uv run`, `nice -n 5`, `env A=1`, `numactl -N 0`.

The launcher after them is recognised and completed. Options with a value are listed; any other option counts
as a flag.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence

from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.others_files import go_on
from gputui.launching.argument_vector import (
    Option,
    OptionTable,
    Split,
    program_name,
    read_options,
)
from gputui.launching.shell_words import assignments
from gputui.system.environment import Assignments, Environ, Variables
from gputui.vendors.visibility import Change, Changes, with_changes


@frozen
class _Wrapper:
    """The rules of a wrapper.

    operands     the number of its own words before the command (`timeout 60 …`)
    verbs        the subcommands that run a command (`uv tool run`)
    assigns      whether `NAME=value` words may precede the command
    itself       the options with which it starts an interpreter or a shell's line itself, and no command
    environment  whether it chooses the Python environment of the command, which is not looked up in our PATH
    sets         the option that sets variables of the command
    drops        the options with which it may not pass our variables on, or may replace them
    always       whether it may do so without an option
    inside       the prefixes of variables that it passes to the command without the prefix
    never        the options with which it starts no command
    """

    options: OptionTable
    operands: int = 0
    verbs: tuple[str, ...] = ()
    assigns: bool = False
    itself: tuple[str, ...] = ()
    environment: bool = False
    sets: str | None = None
    drops: tuple[str, ...] = ()
    always: bool = False
    inside: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


_UV_STARTS_PYTHON = ("module", "script", "gui-script")
"""Options of `uv run` with which uv itself starts the interpreter: no command follows."""

_UV = OptionTable(
    flags="module|m script|s gui-script",
    valued="extra no-extra group no-group only-group no-editable-package env-file with|w with-editable"
    " with-requirements package python|p python-platform index default-index index-url|i extra-index-url"
    " find-links|f upgrade-package|P upgrade-group reinstall-package refresh-package index-strategy"
    " keyring-provider resolution prerelease prerelease-package fork-strategy"
    " config-setting|config-settings|C config-settings-package no-build-isolation-package exclude-newer"
    " exclude-newer-package no-sources-package link-mode no-build-package no-binary-package color directory"
    " project config-file cache-dir allow-insecure-host",
)
"""Source: `uv run --help` of 0.13."""

_UVX = OptionTable(
    valued="from with|w with-editable with-requirements constraints|constraint|c build-constraints|b"
    " overrides env-file python-platform torch-backend index default-index index-url|i extra-index-url"
    " find-links|f index-strategy keyring-provider upgrade-package|P upgrade-group resolution prerelease"
    " prerelease-package fork-strategy exclude-newer exclude-newer-package no-sources-package"
    " reinstall-package link-mode config-setting|config-settings|C config-settings-package"
    " no-build-isolation-package no-build-package no-binary-package cache-dir refresh-package python|p"
    " color allow-insecure-host directory project config-file",
)
"""Source: `uvx --help` of 0.13."""

_ENV = OptionTable(flags="ignore-environment|i|-", valued="unset|u chdir|C", last="split-string|S")

_APPTAINER = OptionTable(
    flags="cleanenv|e contain|c containall|C compat nv rocm fakeroot|f pid|p no-pid ipc|i net|n uts userns|u"
    " writable|w",
    valued="app bind|B mount home|H overlay|o scratch|S workdir|W shell|s cwd pwd hostname network"
    " network-args dns security apply-cgroups containlibs fusemount add-caps drop-caps env no-env env-file"
    " no-mount dmtcp-launch dmtcp-restart blkio-weight blkio-weight-device cpu-shares cpus cpuset-cpus"
    " cpuset-mems memory memory-reservation memory-swap pids-limit runscript-timeout netns-path device"
    " cdi-dirs tmpdir config",
)
"""Source: cmd/internal/cli/action_flags.go of Apptainer 1.4; SingularityCE has the same options."""

_NSYS = OptionTable(
    flags="help|h", valued="inherit-environment|n env-var|e output|o trace|t", unlisted="value"
)
"""Every option of `nsys profile` has a value (User Guide, "CLI Profile Command Switch Options")."""

_NCU = OptionTable(
    flags="help|h version|v nvtx call-stack csv force-overwrite|f verbose quiet list-sets list-sections"
    " list-rules list-metrics list-chips query-metrics print-details-all disable-extra-suffixes fp",
    unlisted="value",
)
"""Source: Nsight Compute CLI, "Command Line Options"."""

_ENVIRONMENTS = {
    "poetry": "directory|C project|P",
    "pdm": "project|p venv",
    "pipenv": "",
    "rye": "",
    "pipx": "spec python index-url|i pip-args",
    **dict.fromkeys(("conda", "mamba", "micromamba"), "name|n prefix|p cwd log-level"),
}
"""Programs whose `run` starts a command in a separate Python environment, with their valued options."""

_PLAIN = {
    "compute-sanitizer": "tool log-file save read leak-check error-exitcode print-limit print-level"
    " target-processes target-processes-filter filter kernel-name kernel-regex kernel-name-exclude"
    " launch-count launch-skip max-connections mode port prefix injection-path language xml-file",
    "valgrind": "",
    "xvfb-run": "server-args|s server-num|n auth-file|f error-file|e wait|w",
    "nice": "adjustment|n",
    "ionice": "class|c classdata|n",
    "nohup": "",
    "setsid": "",
    "stdbuf": "input|i output|o error|e",
    "time": "format|f output|o",
    "numactl": "interleave|i weighted-interleave|w preferred|p preferred-many|P membind|m cpunodebind|N"
    " physcpubind|C",
    "unbuffer": "",
    "watch": "interval|n equexit|q",
    # Task spooler: a job runs in the process that queued it, with its variables.
    **dict.fromkeys(("ts", "tsp"), "L N D W O g gpus|G"),
}
"""Programs whose options are followed by the command, each with its options that have a value."""

_ONE_OPERAND = {
    "flock": "timeout|wait|w conflict-exit-code|E",
    "chrt": "sched-runtime|T sched-period|P sched-deadline|D",
    "timeout": "kill-after|k signal|s",
    "taskset": "",
}
"""The same for programs with one operand before the command."""

WRAPPERS: dict[str, _Wrapper] = {
    **{
        name: _Wrapper(OptionTable(valued=valued), verbs=("run",), environment=True)
        for name, valued in _ENVIRONMENTS.items()
    },
    **{name: _Wrapper(OptionTable(valued=valued)) for name, valued in _PLAIN.items()},
    **{name: _Wrapper(OptionTable(valued=valued), operands=1) for name, valued in _ONE_OPERAND.items()},
    "uv": _Wrapper(_UV, verbs=("run", "tool run"), itself=_UV_STARTS_PYTHON, environment=True),
    "uvx": _Wrapper(_UVX, environment=True),
    "pyenv": _Wrapper(OptionTable(), verbs=("exec",), environment=True),
    "hatch": _Wrapper(
        OptionTable(valued="env|e project|p data-dir cache-dir config"),
        verbs=("run", "env run"),
        environment=True,
    ),
    "tox": _Wrapper(
        OptionTable(
            valued="e conf|c workdir root override|x skip-env result-json hash-seed discover installpkg"
            " runner",
            letters=False,
        ),
        verbs=("exec", "e"),
        environment=True,
        # It passes on only the variables in its `pass_env`: by default not the list of devices.
        always=True,
    ),
    "pixi": _Wrapper(
        OptionTable(
            valued="environment|e manifest-path|m platform|p config-file auth-file concurrent-downloads"
            " concurrent-solves pinning-strategy pypi-keyring-provider tls-root-certs color",
        ),
        verbs=("run", "r"),
        environment=True,
        drops=("clean-env",),
    ),
    "env": _Wrapper(
        _ENV,
        assigns=True,
        # An option that remains could not be split into the words of the command.
        itself=("split-string",),
        drops=("ignore-environment",),
    ),
    "sudo": _Wrapper(
        OptionTable(
            flags="preserve-env|E",
            valued="user|u group|g host|h prompt|p close-from|C role|r type|t command-timeout|T other-user|U"
            " chdir|D chroot|R",
        ),
        assigns=True,
        always=True,
    ),
    "doas": _Wrapper(OptionTable(valued="u C"), always=True),
    "systemd-run": _Wrapper(
        OptionTable(
            flags="scope version help",
            valued="property|p unit|u slice setenv|E host|H machine|M description uid gid nice"
            " working-directory service-type",
        ),
        sets="setenv",
        # The service manager starts the command.
        always=True,
    ),
    **dict.fromkeys(
        ("apptainer", "singularity"),
        _Wrapper(
            _APPTAINER,
            operands=1,
            verbs=("exec", "run"),
            environment=True,
            sets="env",
            drops=("cleanenv", "containall", "compat"),
            inside=("SINGULARITYENV_", "APPTAINERENV_"),
        ),
    ),
    "nsys": _Wrapper(_NSYS, verbs=("profile", "launch"), sets="env-var", drops=("inherit-environment",)),
    "ncu": _Wrapper(_NCU),
    "strace": _Wrapper(
        OptionTable(valued="trace|e output|o env|E user|u string-limit|s a b I O P S U X"), sets="env"
    ),
    "perf": _Wrapper(
        OptionTable(
            valued="event|e output|o freq|F count|c call-graph cpu|C repeat|r delay|D interval-print|I"
        ),
        verbs=("stat", "record", "trace"),
    ),
    "py-spy": _Wrapper(OptionTable(valued="output|o format|f duration|d rate|r"), verbs=("record", "top")),
    "dotenv": _Wrapper(OptionTable(valued="file|f quote|q export|e"), verbs=("run",), always=True),
    "direnv": _Wrapper(OptionTable(), operands=1, verbs=("exec",), always=True),
    "setpriv": _Wrapper(
        OptionTable(
            valued="ruid euid reuid rgid egid regid groups inh-caps ambient-caps bounding-set securebits"
            " pdeathsig ptracer selinux-label apparmor-profile landlock-access landlock-rule seccomp-filter"
        ),
        drops=("reset-env",),
    ),
    "screen": _Wrapper(OptionTable(valued="S c e h p s t T Logfile"), never=("r", "x", "X", "R", "ls")),
}


@frozen
class WrapperCall:
    """A wrapper before a command.

    words        all of its words, beginning with its name
    options      its options, before and after its subcommand
    assignments  its `NAME=value` words before the command
    itself       whether it starts the interpreter, or a shell's line, itself: no command follows
    """

    name: str
    words: tuple[str, ...]
    options: tuple[Option, ...]
    assignments: Assignments = ()
    itself: bool = False

    def has(self, name: str) -> bool:
        return any(option.name == name for option in self.options)


def unwrap(command: Sequence[str]) -> Split:
    """Split off the words before the command: (("uv", "run"), ("torchrun", "train.py")).

    A wrapper that starts nothing (`uv pip …`, `env` alone) is the command itself.
    """
    before, rest = tuple[str, ...](), _split_by_env(command)
    for call in wrappers(command):
        if len(call.words) >= len(rest):
            break
        before, rest = (*before, *call.words), _split_by_env(rest[len(call.words) :])
    return before, rest


def wrappers(prefix: Sequence[str]) -> Iterator[WrapperCall]:
    """Yield the wrappers at the beginning of the words, outermost first."""
    rest = _split_by_env(prefix)
    while (call := _read(rest)) is not None and not call.itself:
        go_on()
        yield call
        rest = _split_by_env(rest[len(call.words) :])


def _split_by_env(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words, with the value of `env -S` split, unless `env` would also expand it."""
    given = read_options(words[1:], _ENV) if program_name(words) == "env" else None
    if given is None or "split-string" not in given or re.search(r"[\\$#]", given.get("split-string")):
        return tuple(words)
    try:
        inner = shlex.split(given.get("split-string"))
    except ValueError:
        return tuple(words)
    return (words[0], *given.without(("split-string",)).option_words, *inner, *given.rest)


def assigned(prefix: Sequence[str]) -> Changes:
    """Return the variables that the wrappers before a command set (None: unset)."""
    found: list[Change] = []
    for call in wrappers(prefix):
        found += handed_in(call.words, with_changes({}, found)).items()
        for option in call.options:
            if call.name == "env" and option.name == "unset":
                found.append((option.value, None))
            elif option.name == WRAPPERS[call.name].sets:
                found += assignments(_listed_assignments(option.value))[0]
        found += call.assignments
    return tuple(found)


def handed_in(prefix: Sequence[str], environ: Environ) -> dict[str, str]:
    """Return the variables that wrappers pass to the command under other names: Apptainer's APPTAINERENV_NAME
    becomes NAME."""
    return {
        name.removeprefix(start): value
        for call in wrappers(prefix)
        for start in WRAPPERS[call.name].inside
        for name, value in environ.items()
        if name.startswith(start)
    }


def _listed_assignments(value: str) -> tuple[str, ...]:
    """Return the assignments in one value: `A=1`, `A=1,B=2` (pflag's StringToString: where there is only one
    "=", a comma is part of the value)."""
    if value.count("=") < 2:
        return (value.strip('"'),)
    return tuple(each.strip('"') for each in re.split(r",(?=[A-Za-z_\"][A-Za-z0-9_]*=)", value))


def with_variables(
    prefix: Sequence[str], changes: Changes, environ: Environ
) -> tuple[tuple[str, ...], Changes]:
    """Return the wrappers changed so that the command gets these changes to `environ` (None: the variable
    must not be set), and the replaced assignments.

    An assignment of `env` is replaced in place. After any other wrapper that sets one of these variables, may
    set it from a file, or does not pass our variables on, `env` sets them again.
    """
    wanted = dict(changes)
    before = [*handed_in(prefix, environ).items(), *assigned(prefix)]
    replaced = tuple((name, value) for name, value in before if name in wanted and value != wanted[name])
    written = _with_assignments(prefix, wanted)
    left = {**handed_in(written, environ), **dict(assigned(written))}
    if any(left[name] != wanted[name] for name in wanted.keys() & left.keys()) or (
        wanted and any(_hides(call, wanted.keys() - left.keys()) for call in wrappers(written))
    ):
        unset = [word for name, value in changes if value is None for word in ("-u", name)]
        again = ["env", *unset, *(f"{name}={value}" for name, value in changes if value is not None)]
        written = (*_with_assignments(prefix, dict.fromkeys(wanted)), *again)
    return written, replaced


def _with_assignments(prefix: Sequence[str], values: Variables) -> tuple[str, ...]:
    """Return the wrappers with these values in their assignments; assignments with None are removed."""
    words = list[str]()
    for call in wrappers(prefix):
        kept = [(name, values.get(name, value)) for name, value in call.assignments]
        words += call.words[: len(call.words) - len(kept)]
        words += (f"{name}={value}" for name, value in kept if value is not None)
    return tuple(words)


def _hides(call: WrapperCall, names: Collection[str]) -> bool:
    """Whether a wrapper may fail to pass these variables of ours on."""
    wrapper = WRAPPERS[call.name]
    return bool(names) and (wrapper.always or any(map(call.has, wrapper.drops)))


def uv_starting_python(command: Sequence[str]) -> tuple[tuple[str, ...], bool] | None:
    """Return the words to put before `python`, and whether a script is started, for `uv run -m package` and
    `uv run --script file`, where uv itself starts the interpreter; None for another command."""
    call = _read(command)
    if call is None or call.name != "uv" or not call.itself:
        return None
    outer = read_options(command[1:], _UV)
    inner = read_options(outer.operands[1:], _UV)
    words = (command[0], *outer.option_words, "run", *inner.without(_UV_STARTS_PYTHON).option_words)
    return words, not call.has("module")


def uv_starting_module(command: Sequence[str]) -> tuple[str, int] | None:
    """Return the module of `uv run -m package ARGUMENT…`, and how many words name it; None for none."""
    call = _read(command)
    if call is None or call.name != "uv" or not call.has("module") or len(command) <= len(call.words):
        return None
    return command[len(call.words)], len(call.words) + 1


def behind_env(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command of `env`, also with `-S`, as in the first line of a script."""
    given = read_options(words[1:], _ENV)
    if "split-string" in given:
        return behind_env((*words[:1], *given.get("split-string").split(), *given.rest))
    return assignments(given.operands)[1]


def _read(command: Sequence[str]) -> WrapperCall | None:
    """Return the wrapper that the words begin with; None where they begin with another program."""
    name = program_name(command)
    wrapper = WRAPPERS.get(name)
    if wrapper is None:
        return None
    given = read_options(command[1:], wrapper.options)
    options = given.options
    if wrapper.verbs:
        begun = [verb.split() for verb in wrapper.verbs]
        verb = next((each for each in begun if given.operands[: len(each)] == tuple(each)), None)
        if verb is None:
            return None
        table = _UVX if verb == ["tool", "run"] else wrapper.options
        given = read_options(given.operands[len(verb) :], table)
        options = (*options, *given.options)
    rest = given.operands
    assigned_words: Assignments = ()
    if wrapper.assigns:
        assigned_words, rest = assignments(rest)
    rest = rest[wrapper.operands :]
    if any(option.name in wrapper.never for option in options) or (name == "flock" and rest[:1] == ("-c",)):
        return None
    if name == "screen" and not any(option.name == "m" for option in options):
        # Within a session, the server would start the command.
        return None
    words = tuple(command[: len(command) - len(rest)])
    itself = any(option.name in wrapper.itself for option in options)
    return WrapperCall(name, words, options, assigned_words, itself)
