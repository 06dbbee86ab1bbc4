"""Parse a command that starts a shell: the text of its `-c`, or its script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gputui.launching.argument_vector import OptionTable, program_name, read_options

_BASH = OptionTable(flags="c", valued="o O rcfile init-file", signs="-+")
_FISH = OptionTable(
    valued="command|c init-command|C debug|d debug-output|o profile profile-startup features|f"
)
_SHELLS = {**dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh"), _BASH), "fish": _FISH}


class Shell(NamedTuple):
    """The command in one word, or the script; each None where there is none.

    arguments  the words after it
    """

    command: str | None = None
    script: str | None = None
    arguments: tuple[str, ...] = ()


def shell_of(words: Sequence[str]) -> Shell | None:
    """Parse the words that start a shell; None where they start another program."""
    table = _SHELLS.get(program_name(words))
    if table is None:
        return None
    given = read_options(words[1:], table)
    if "command" in given:
        return Shell(command=given.get("command"), arguments=given.operands)
    following, arguments = next(iter(given.operands), None), given.operands[1:]
    # The command is the first word after all options: `bash -c -e 'COMMAND'`.
    if "c" in given:
        return Shell(following or "", None, arguments)
    # With -s, the shell reads standard input, and all words are arguments.
    return Shell(None, None, given.operands) if "s" in given else Shell(None, following, arguments)
