"""The call that a wrong call probably means: its parser takes it, so that it works when it is copied."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
from collections.abc import Iterator, Sequence

from gputui.cli.common import Parser, WrongCallError
from gputui.cli.subcommands import STARTING, SUBCOMMANDS, module_of
from gputui.inventory.formatting import is_digits, printable
from gputui.inventory.quoting import quote

_SAME = {
    "free": "ls",
    "list": "ls",
    "status": "ls",
    "top": "ls",
    "idle": "people",
    "users": "people",
    "who": "people",
    "ps": "jobs",
    "history": "launches",
    "kill": "stop",
    "cancel": "stop",
    "logs": "log",
    "--n": "-n",
    "-g": "--gpus",
    "--gpu": "--gpus",
    "-v": "--version",
    "-V": "--version",
}
"""Words of other programs for our own ones."""
_OF_A_MODEL = ("--model", "--parameters")
"""Options of several subcommands, which alone ask for a plan."""
_ALIKE = 0.75
"""The least similarity of a word and the option that was probably meant (difflib's ratio)."""
_NEAR = 0.65
"""The same for a subcommand: "rum" is 0.67 of "run", but "nvitop" is 0.6 of "topo"."""


def corrected(words: Sequence[str], name: str | None, command: Sequence[str] | None) -> str | None:
    """The remedy of a wrong call: the corrected call as a line for a shell, or a sentence where it could do
    something else than was meant; None where none is found.

    `words` are those before `--`, without the subcommand `name`. A `name` of None: `words` begin with a word
    that is not a subcommand.
    """
    for call in _candidates(list(words), name):
        before, own = (call[: call.index("--")], call[call.index("--") :]) if "--" in call else (call, [])
        if command is not None and (own or call[0] in SUBCOMMANDS.keys() - STARTING):
            continue
        if not _parses(before):
            continue
        # Behind `--`, the command would get `--dry-run`, and run.
        known = _parser(before[0])._option_string_actions if own else {}
        either = [word for word in own[1:] if {word.partition("=")[0], word[:2]} & known.keys()]
        if either:
            options = ", ".join(f"`{printable(word)}`" for word in either)
            theirs = "it belongs" if len(either) == 1 else "they belong"
            return f"put {options} and then `--` before the command, unless {theirs} to the command"
        if command is not None:
            own = ["--", *command]
        return f"try: {' '.join(map(quote, ('gputui', *before, *own)))}"
    return None


def _candidates(words: list[str], name: str | None) -> Iterator[list[str]]:
    """Yield calls that may have been meant, with the subcommand first."""
    if name is None:
        meant, rest = _SAME.get(words[0], words[0]), words[1:]
        if meant in _actions(_parser("jobs")):
            yield ["jobs", meant, *rest]
            if meant == "wait":
                yield ["run", "--wait", *rest]
            yield ["jobs"]
            return
        close = [meant] if meant in SUBCOMMANDS else difflib.get_close_matches(meant, SUBCOMMANDS, 1, _NEAR)
        if close:
            yield [*close, *rest]
            yield from _candidates(rest, close[0])
        if rest or not meant.isalpha():
            yield ["run", "--", *_command(words)]
        return
    own = [name] if name else []
    parser = _parser(name)
    fixed = list(_with_known_words(parser, words))
    unknown: list[str] = []
    # The nearest option may lack a value where the word is one of the command.
    for tried in (fixed, words):
        try:
            _, unknown = parser.parse_known_args(_without_help(tried))  # type: ignore[no-untyped-call]
            break
        except WrongCallError:
            continue
    first = next((word for word in unknown if not word.startswith("-")), None)
    place = len(words) if first is None else tried.index(first)
    if first is not None and is_digits(first):
        yield [*own, *fixed[:place], "-n", *fixed[place:]]
        if name in STARTING:
            yield [*own, *fixed[:place], "-n", first, "--", *words[place + 1 :]]
    if fixed != words:
        yield [*own, *fixed]
        if name == "jobs":
            yield [*own, *fixed, "ID"]
    if first is not None and (name in STARTING or not name):
        # What follows belongs to the command, even if some of it looks like our options.
        yield [*own, *fixed[:place], "--", *_command(words[place:])]
    if unknown and not name:
        # `gputui -n 2 -- python train.py`: only subcommands have the option.
        yield ["plan" if unknown[0].startswith(_OF_A_MODEL) else "run", *words]
        yield from _candidates(words, "run")


def _command(words: list[str]) -> list[str]:
    """The words as a command: a script that is not executable needs its interpreter."""
    return ["python"] * (words[0].endswith(".py") and not os.access(words[0], os.X_OK)) + words


def _with_known_words(parser: Parser, words: Sequence[str]) -> Iterator[str]:
    """Yield the words, with the nearest option or choice in place of an unknown one."""
    known = parser._option_string_actions
    choices = {option: list(action.choices or ()) for option, action in known.items()}
    choices[""] = _actions(parser)
    before = ""
    for word in words:
        word = _SAME[word] if _SAME.get(word) in known else word
        option, equals, value = word.partition("=")
        if option.startswith("--") and option not in known:
            close = difflib.get_close_matches(option, known, 1, _ALIKE)
            option = close[0] if close else option
            yield option + equals + value
        elif equals and choices.get(option):
            yield f"{option}={_nearest(value, choices[option])}"
        else:
            yield _nearest(word, choices.get(before, [])) if not word.startswith("-") else word
        before = word if word in known else ""


def _actions(parser: Parser) -> list[str]:
    """The actions of a subcommand, as `stop` of `gputui jobs`."""
    under = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return list(under[0].choices) if under else []


def _nearest(word: str, among: Sequence[str]) -> str:
    word = _SAME[word] if _SAME.get(word) in among else word
    close = difflib.get_close_matches(word, among, 1) if word not in among else ()
    return close[0] if close else word


def _without_help(words: Sequence[str]) -> list[str]:
    """The words without those on which a parser prints something and exits."""
    return [word for word in words if word not in ("-h", "--help", "--help-all", "--version")]


def _parses(call: Sequence[str]) -> bool:
    name = call[0] if call and call[0] in SUBCOMMANDS else ""
    try:
        _parser(name).parse_args(_without_help(call[1:] if name else call))
    except WrongCallError:
        return False
    return True


def _parser(name: str) -> Parser:
    made: Parser = importlib.import_module(module_of(name)).parser()
    return made
