"""What stands before a command and starts it: `uv run`, `nice -n 5`, `env A=1`, `numactl -N 0`, …

The launcher is recognised behind them, and completed there. What takes a value is listed a wrapper; an option
that is not listed is taken for one without, unless it has a "=".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from gputui.launching.shell_words import assignments


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """`takes` are options with a value in the next word; `arguments` words of its own stand before the
    command (`timeout 60 …`); `verb` is the subcommand that runs one; `assigns`: `NAME=value` words may stand
    before the command."""

    takes: frozenset[str] = field(default_factory=frozenset)
    arguments: int = 0
    verb: str | None = None
    assigns: bool = False


def _options(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UV = _options(
    "--extra --no-extra --group --no-group --only-group --no-editable-package --env-file --with -w"
    " --with-editable --with-requirements --package --python -p --python-platform --index --default-index"
    " --index-url -i --extra-index-url --find-links -f --upgrade-package -P --upgrade-group"
    " --reinstall-package --refresh-package --index-strategy --keyring-provider --resolution --prerelease"
    " --prerelease-package --fork-strategy --config-setting --config-settings -C --config-settings-package"
    " --no-build-isolation-package --exclude-newer --exclude-newer-package --no-sources-package --link-mode"
    " --no-build-package --no-binary-package --color --directory --project --config-file --cache-dir"
    " --allow-insecure-host"
)
"""`uv run --help` of 0.13."""

_CONDA = _options("-n --name -p --prefix --cwd --log-level")

_WRAPPERS: dict[str, _Wrapper] = {
    "uv": _Wrapper(_UV, verb="run"),
    "poetry": _Wrapper(_options("-C --directory -P --project"), verb="run"),
    "pdm": _Wrapper(_options("-p --project --venv"), verb="run"),
    "pipenv": _Wrapper(verb="run"),
    "rye": _Wrapper(verb="run"),
    "pixi": _Wrapper(_options("-e --environment --manifest-path"), verb="run"),
    "conda": _Wrapper(_CONDA, verb="run"),
    "mamba": _Wrapper(_CONDA, verb="run"),
    "micromamba": _Wrapper(_CONDA, verb="run"),
    "env": _Wrapper(_options("-u --unset -C --chdir -S --split-string"), assigns=True),
    "sudo": _Wrapper(
        _options(
            "-u --user -g --group -h --host -p --prompt -C --close-from -r --role -t --type -T"
            " --command-timeout -U --other-user -D --chdir -R --chroot"
        ),
        assigns=True,
    ),
    "doas": _Wrapper(_options("-u -C")),
    "systemd-run": _Wrapper(
        _options(
            "-p --property -u --unit --slice -E --setenv -H --host -M --machine --description --uid --gid"
            " --nice --working-directory --service-type"
        )
    ),
    "flock": _Wrapper(_options("-w --wait --timeout -E --conflict-exit-code"), arguments=1),
    "nice": _Wrapper(_options("-n --adjustment")),
    "ionice": _Wrapper(_options("-c --class -n --classdata")),
    "chrt": _Wrapper(arguments=1),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper(_options("-i --input -o --output -e --error")),
    "time": _Wrapper(_options("-f --format -o --output")),
    "timeout": _Wrapper(_options("-k --kill-after -s --signal"), arguments=1),
    "taskset": _Wrapper(arguments=1),
    "numactl": _Wrapper(
        _options(
            "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -m --membind"
            " -N --cpunodebind -C --physcpubind"
        )
    ),
    "unbuffer": _Wrapper(),
}


def unwrap(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands before the command, and the command: (("uv", "run"), ("torchrun", "train.py")).

    A wrapper that starts nothing (`uv pip …`, `env` alone) is the command itself.
    """
    place = 0
    while place < len(command):
        end = _end(command, place)
        if end is None or end >= len(command):
            break
        place = end
    return tuple(command[:place]), tuple(command[place:])


def assigned(prefix: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """The variables that `env`, `sudo` or `systemd-run` sets (or unsets: None) among the words before the
    command."""
    found: list[tuple[str, str | None]] = []
    for name, words in _each(prefix):
        if name == "systemd-run":
            for word, following in zip(words, (*words[1:], ""), strict=True):
                if word in ("-E", "--setenv") or word.startswith("--setenv="):
                    found += assignments((word.partition("=")[2] or following,))[0]
            continue
        if not _WRAPPERS[name].assigns:
            continue
        place = 0
        while place < len(words):
            word = words[place]
            if name == "env" and word in ("-u", "--unset"):
                found += [(unset, None) for unset in words[place + 1 : place + 2]]
            elif name == "env" and word.startswith(("--unset=", "-u")):
                found.append((word.removeprefix("--unset=").removeprefix("-u"), None))
            else:
                found += assignments((word,))[0]
            place += 2 if word in _WRAPPERS[name].takes else 1
    return tuple(found)


def losing(prefix: Sequence[str], variable: str) -> str | None:
    """The wrapper that does not give the command our variables (`env -i`, `sudo`); None where none is.

    `variable` is the one of ours that counts: sudo may be told to preserve it by name.
    """
    for name, words in _each(prefix):
        if name == "env" and any(_empties(word) for word in words):
            return "env -i"
        if (name == "sudo" and not _preserves(words, variable)) or name == "doas":
            return name
        if name == "systemd-run" and "--scope" not in words:
            return "systemd-run without --scope"
    return None


def _preserves(words: Sequence[str], variable: str) -> bool:
    """Whether sudo is told to hand our variables on: -E, -HE, --preserve-env, or a list with ours."""
    place = 0
    while place < len(words) and words[place] != "--":
        word = words[place]
        name, equals, listed = word.partition("=")
        if name == "--preserve-env" and (not equals or variable in listed.split(",")):
            return True
        # Of "-uE" the "E" is a user.
        if re.fullmatch(r"-[AbBeHikKlnNPsSvV]*E.*", word):
            return True
        place += 2 if word in _WRAPPERS["sudo"].takes else 1
    return False


def _empties(word: str) -> bool:
    """Whether a word of `env` takes all variables away: -, -i, -iv, --ignore-environment."""
    short = word.startswith("-") and not word.startswith(("--", "-u", "-C", "-S")) and "i" in word
    return short or word in ("-", "--ignore-environment")


def _each(prefix: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The wrappers before a command by name, each with its own words."""
    place = 0
    while place < len(prefix):
        end = _end(prefix, place)
        if end is None:
            return
        yield prefix[place].rsplit("/", 1)[-1], prefix[place + 1 : end]
        place = end


def _end(command: Sequence[str], place: int) -> int | None:
    """The place behind the wrapper that begins at `place`, None where none begins."""
    name = command[place].rsplit("/", 1)[-1]
    wrapper = _WRAPPERS.get(name)
    if wrapper is None:
        return None
    begin = place
    own = takewhile(lambda word: word.startswith("-") or "=" in word, command[place + 1 :])
    if name == "env" and any(word.startswith(("-S", "--split-string")) for word in own):
        # Its value is the command itself, in one word.
        return None
    place = _behind_options(command, place + 1, wrapper)
    if wrapper.verb is not None:
        if list(command[place : place + 1]) != [wrapper.verb]:
            return None
        place = _behind_options(command, place + 1, wrapper)
        if name == "uv" and {"-m", "--module", "-s", "--script", "--gui-script"} & set(command[begin:place]):
            # uv itself starts the interpreter: what follows is not a command.
            return None
    if name == "env" and list(command[place : place + 1]) == ["-"]:
        place += 1
    if wrapper.assigns:
        while place < len(command) and assignments(command[place : place + 1])[0]:
            place += 1
    return place + wrapper.arguments


def _behind_options(command: Sequence[str], place: int, wrapper: _Wrapper) -> int:
    while place < len(command) and command[place].startswith("-") and command[place] != "-":
        word = command[place]
        place += 1
        if word == "--":
            break
        if word in wrapper.takes:
            place += 1
    return place
