"""Finds the subcommand of a call, runs it, and turns every ending into an exit status."""

from __future__ import annotations

import importlib

from gputui.cli.common import NO_SOURCE, NOT_ENOUGH, WRONG_CALL, NotEnoughError, WrongCallError, say
from gputui.sources.source import NoSourceError

SUBCOMMANDS: dict[str, str] = {
    "ls": "the box as a table, or as JSON",
    "pick": "the best free devices, in order",
    "run": "pick devices and become the command on them",
    "export": "the launch in another form",
    "record": "write a snapshot to a file, for a bug report or for --from",
    "completion": "a completion script for bash, zsh, fish or tcsh",
}
"""Every subcommand, with its line in `gputui --help`; each lives in the file of its name."""

_SCREEN = "screen"
_TAKE_A_VALUE = ("--from", "--interval")


def dispatch(words: list[str]) -> int:
    """Run one call and return its exit status."""
    name = ""
    try:
        before, command = _split(words)
        before = _settle_demo(before)
        name, rest = _subcommand(before)
        module = importlib.import_module(f"gputui.cli.{name or _SCREEN}")
        status: int = module.main(rest, command)
        return status
    except WrongCallError as error:
        say(f"{error} (see `gputui {name + ' ' if name else ''}--help`)")
        return WRONG_CALL
    except NotEnoughError as error:
        say(str(error))
        return NOT_ENOUGH
    except NoSourceError as error:
        say(str(error))
        return NO_SOURCE
    except KeyboardInterrupt:
        return 130


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """What is for gputui, and the command after the first `--`; None when there is no `--`."""
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _settle_demo(words: list[str]) -> list[str]:
    """`--demo ls` is the default box and a subcommand, `--demo laptop ls` names one: make both plain."""
    if "--demo" not in words:
        return words
    from gputui.sources.simulated.boxes import BOXES, DEFAULT

    place = words.index("--demo")
    following = words[place + 1 : place + 2]
    if following and following[0] in BOXES:
        return [*words[:place], f"--demo={following[0]}", *words[place + 2 :]]
    return [*words[:place], f"--demo={DEFAULT}", *words[place + 1 :]]


def _subcommand(words: list[str]) -> tuple[str, list[str]]:
    """The subcommand's name ("" for the screen) and the other words."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] not in _TAKE_A_VALUE and not words[place].startswith("--demo="):
            break
        place += 2 if words[place] in _TAKE_A_VALUE else 1
    if place >= len(words) or words[place].startswith("-"):
        return "", words
    name = words[place]
    if name in SUBCOMMANDS:
        return name, words[:place] + words[place + 1 :]
    if any(word.startswith("--demo=") for word in words[:place]):
        from gputui.sources.simulated.boxes import BOXES

        raise WrongCallError(f"there is no demo box {name!r}; there are: {', '.join(BOXES)}")
    raise WrongCallError(
        f"there is no subcommand {name!r}; a command to start goes after --: gputui -- {name} …"
    )
