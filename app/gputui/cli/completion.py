"""`gputui completion SHELL`: a completion script, written by shtab from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from gputui.cli.common import DONE, Parser, WrongCallError
from gputui.cli.dispatch import SUBCOMMANDS

SHELLS = ("bash", "zsh", "fish", "tcsh")


def parser() -> Parser:
    made = Parser(
        "completion",
        "A completion script for a shell.",
        epilog="gputui completion bash > ~/.local/share/bash-completion/completions/gputui",
    )
    made.add_argument("shell", choices=SHELLS)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    if command is not None:
        raise WrongCallError("completion starts nothing")
    import shtab

    print(shtab.complete(whole_parser(), shell=args.shell))
    return DONE


def whole_parser() -> argparse.ArgumentParser:
    """Every subcommand under one parser, which the program itself never needs."""
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
    for each in parsers:
        for action in each._actions:
            if action.dest in ("recording", "file"):
                action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files"}  # type: ignore[attr-defined]
            elif action.dest == "demo":
                action.choices = tuple(BOXES)
    return whole
