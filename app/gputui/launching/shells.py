"""What a shell is started with: a command in its words (`bash -euc '…'`), or a script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gputui.launching.launchers.payload import program

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
_TAKE_A_VALUE = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file", "--init-command", "-C")


class Shell(NamedTuple):
    """The command in the words, or the script; each None where there is none."""

    command: str | None = None
    script: str | None = None


def shell_of(words: Sequence[str]) -> Shell | None:
    """What the shell runs that the words start; None where they start another program."""
    if program(words) not in _SHELLS:
        return None
    place, takes_command = 1, False
    while place < len(words) and words[place].startswith(("-", "+")) and words[place] not in ("-", "--"):
        word = words[place]
        if word.startswith("--command="):
            return Shell(command=word.partition("=")[2])
        # (The command is the first word behind all options: `bash -c -e 'COMMAND'`.)
        takes_command = (
            takes_command or word == "--command" or bool(re.fullmatch("-[A-Za-z]*c[A-Za-z]*", word))
        )
        place += 2 if word in _TAKE_A_VALUE or re.fullmatch("-[A-Za-z]*o", word) else 1
    if place < len(words) and words[place] == "--":
        place += 1
    following = words[place] if place < len(words) else None
    return Shell(command=following or "") if takes_command else Shell(script=following)
