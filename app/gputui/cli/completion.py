"""`gputui completion SHELL`: a completion script, written by shtab from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from gputui.cli.common import DONE, Parser, starting_nothing
from gputui.cli.dispatch import SUBCOMMANDS

SHELLS = ("bash", "zsh", "fish", "tcsh")


def parser() -> Parser:
    made = Parser(
        "completion",
        "Print a completion script for a shell.",
        example="gputui completion bash > ~/.local/share/bash-completion/completions/gputui",
    )
    made.add_argument("shell", choices=SHELLS)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = starting_nothing(parser(), words, command)
    import shtab

    print(shtab.complete(whole_parser(), shell=args.shell))
    return DONE


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with every subcommand; only the completion needs it."""
    from gputui.cli.screen import parser as screen
    from gputui.sources.simulated.boxes import BOXES

    whole = screen()
    under = whole.add_subparsers(dest="subcommand", metavar="", parser_class=argparse.ArgumentParser)
    parsers: list[argparse.ArgumentParser] = [whole]
    for name, about in SUBCOMMANDS.items():
        own = importlib.import_module(f"gputui.cli.{name}").parser()
        parsers.append(
            under.add_parser(name, help=about, parents=[own], add_help=False, conflict_handler="resolve")
        )
    names = _variable_names()
    for each in parsers:
        for action in each._actions:
            if (
                action.dest in ("recording", "file", "from_file", "model", "measured", "output")
                or action.metavar == "MODEL"
            ):
                action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files"}  # type: ignore[attr-defined]
            elif action.dest in ("root", "folder"):
                action.complete = {"bash": "_shtab_compgen_dirs", "zsh": "_files -/"}  # type: ignore[attr-defined]
            elif action.dest == "demo":
                action.choices = tuple(BOXES)
            elif action.dest == "env":
                action.complete = names  # type: ignore[attr-defined]
    return whole


_VARIABLES = "_gputui_variables"


def _variable_names() -> dict[str, Any]:
    """Return the completions of `--env`: NAME=value, with its effect where the shell can show that."""
    from gputui.launching.environment_hints import hints
    from gputui.launching.quoting import fish, posix

    offered = [(f"{hint.name}={hint.value}", hint.about) for hint in hints(None, ())]
    words = posix(" ".join(word for word, _ in offered))
    # `_describe` divides at the first colon that is not escaped.
    described = " ".join(posix(word.replace(":", "\\:") + f":{about}") for word, about in offered)
    columns = " ".join(fish(part) for pair in offered for part in pair)
    return {
        "bash": _VARIABLES,
        "zsh": _VARIABLES,
        "fish": f"({_VARIABLES})",
        "preamble": {
            "bash": f'{_VARIABLES}() {{ compgen -W {words} -- "$1"; }}',
            "zsh": f"{_VARIABLES}() {{ local -a offered=({described}); _describe variable offered }}",
            "fish": f"function {_VARIABLES}\n  printf '%s\\t%s\\n' {columns}\nend",
        },
    }
