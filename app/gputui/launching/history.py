"""The history of launches and the named launches: what to run, and on how many devices.

Values that look like secrets are not kept. `history_file.py` reads and writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gputui.inventory.columns import Column
from gputui.inventory.errors import WrongCallError
from gputui.inventory.formatting import counted, duration, printable, whole_between
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.launching.secrets import is_secret, secret_word
from gputui.launching.shell_words import command_line
from gputui.system.environment import Environ
from gputui.vendors.registry import vendors

MOST = 40
"""The most launches without a name that are kept."""

_LONGEST_NAME = 60


@frozen
class PastLaunch:
    """A past launch.

    count     the number of devices, 0 for CPU only
    when      seconds since the epoch
    where     the directory in which the launch was started, to which its paths are relative; None where that
              is not known
    withheld  the names of its variables whose values are not kept
    """

    options: LaunchOptions
    count: int
    when: float
    name: str | None = None
    where: str | None = None
    withheld: tuple[str, ...] = ()


Launches = tuple[PastLaunch, ...]
"""The history, the last launch first."""


class KeepError(WrongCallError):
    """Launches cannot be saved, or the saved ones cannot be read; the message has cause and remedy."""


def with_launch(
    known: Sequence[PastLaunch], options: LaunchOptions, count: int, when: float, where: str | None = None
) -> Launches:
    """Return the history after a launch, which is the first entry; an earlier equal launch is removed.

    All named launches are kept, and the last `MOST` of the others. The variable with the list of devices is
    not kept: the next time the launch starts on other devices. Raises KeepError for a launch with a secret
    among its words, as it would be another launch without the secret.
    """
    secret = secret_word(options.command)
    if secret is not None:
        raise KeepError(f"this launch is not saved: {secret} looks like a secret")
    withheld = tuple(name for name, value in options.additions if is_secret(name, value))
    left_out = {*withheld, *(name for vendor in vendors() for name in vendor.visibility.names)}
    kept = replace(options, additions=tuple(pair for pair in options.additions if pair[0] not in left_out))
    if where is not None:
        # The launch is the same whether it was started there or elsewhere with --directory.
        where, kept = str(Path(where) / (options.directory or "")), replace(kept, directory=None)
    first = PastLaunch(kept, count, when, None, where, withheld)
    before = next((each for each in known if replace(each, when=when, name=None) == first), None)
    first = replace(first, name=before.name if before else None)
    rest = [each for each in known if each is not before]
    # Named launches are not counted.
    room = MOST - (first.name is None)
    unnamed = [id(each) for each in rest if each.name is None][:room]
    return (first, *(each for each in rest if each.name is not None or id(each) in unnamed))


def working_directory() -> str | None:
    """Return the working directory, None where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def again(each: PastLaunch) -> LaunchOptions:
    """Return the options that start the launch again from here, in its own directory."""
    if each.where is None or each.where == working_directory():
        return each.options
    return replace(each.options, directory=each.where)


def missing(each: PastLaunch, environ: Environ) -> str | None:
    """Return a sentence on withheld variables that are not set now either, None where all are set."""
    names = [name for name in each.withheld if name not in environ]
    return f"without {', '.join(names)}: it looks like a secret and is not saved" if names else None


def named(known: Sequence[PastLaunch], place: int, name: str | None) -> Launches:
    """Return the history with the launch at `place` named, or unnamed (None). Names are unique."""
    return tuple(
        replace(each, name=name)
        if at == place
        else replace(each, name=None)
        if name is not None and each.name == name
        else each
        for at, each in enumerate(known)
    )


def launch_columns(known: Sequence[PastLaunch], now: float) -> tuple[Column[PastLaunch], ...]:
    """The columns of lists of these launches. `now` is seconds since the epoch."""
    numbers = {id(each): str(number) for number, each in enumerate(known, 1)}
    return (
        Column("#", lambda each: numbers[id(each)], "dim", right=True, least=3),
        Column("NAME", lambda each: printable(each.name or ""), "prompt", most=24),
        Column("DEVICES", _devices, "dim", least=8),
        Column("BEGAN", lambda each: f"{duration(max(0.0, now - each.when))} ago", "dim", True, 10),
        Column(
            "LAUNCHER",
            lambda each: printable(each.options.launcher) if each.options.launcher != AUTO else "",
        ),
        Column("COMMAND", lambda each: printable(command_line(each.options.additions, each.options.command))),
    )


def _devices(each: PastLaunch) -> str:
    return counted(each.count, "GPU") if each.count else "CPU only"


def check_name(name: str) -> None:
    """Raises KeepError when no launch can have that name."""
    problem = name_problem("launch", name)
    if problem is None and name.isdigit():
        problem = f"not a valid launch name: {name!r} (a number is a place in the list)"
    if problem is not None:
        raise KeepError(problem)


def name_problem(kind: str, name: str) -> str | None:
    """Why a launch, or a job, cannot have that name; None where it can."""
    if not name.strip() or not name.isprintable() or name.startswith("-"):
        return f"not a valid {kind} name: {name!r} (printable characters only)"
    if len(name) > _LONGEST_NAME:
        return f"the name {name!r} is too long: at most {_LONGEST_NAME} characters"
    return None


def find_launch(known: Sequence[PastLaunch], word: str) -> int | None:
    """Return the index of the launch with that name, or with that number in the list, counted from 1."""
    for place, each in enumerate(known):
        if each.name == word:
            return place
    number = whole_between(word, 1, len(known))
    return None if number is None else number - 1
