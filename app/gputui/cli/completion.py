"""`gputui completion SHELL`: a completion script, written by shtab from the parsers themselves."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gputui.cli.common import DONE, INTERNAL, Call, Parser, WrongCallError
from gputui.cli.subcommands import SUBCOMMANDS, module_of
from gputui.inventory.errors import GputuiError

if TYPE_CHECKING:
    from gputui.jobs.experiments.request import Kind

SHELLS = ("bash", "zsh", "fish", "tcsh")

_PLAIN = re.compile(r"(?![=-])[\w@%+=:,./-]+")
"""The words that are offered: bash expands all others, and a job that an agent has named `$(…)` would run a
command."""


def parser() -> Parser:
    made = Parser(
        "completion",
        "Print a completion script for a shell.",
        example="gputui completion bash > ~/.local/share/bash-completion/completions/gputui",
    )
    made.add_argument("shell", nargs="?", choices=SHELLS, help="the shell")
    # The scripts ask for these words when a person presses Tab.
    made.add_argument("--list", choices=tuple(LISTS), help=INTERNAL)
    return made


def main(args: Call) -> int:
    if args.list is not None:
        with contextlib.suppress(GputuiError):
            print("\n".join(filter(_PLAIN.fullmatch, LISTS[args.list]())))
        return DONE
    if args.shell is None:
        raise WrongCallError(f"for which shell? There are: {', '.join(SHELLS)}")
    import shtab

    print(shtab.complete(whole_parser(), shell=args.shell))
    return DONE


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with every subcommand; only the completion needs it."""
    from gputui.cli.screen import parser as screen
    from gputui.sources.simulated.boxes import BOXES

    whole = screen()
    under = whole.add_subparsers(dest="subcommand", metavar="", parser_class=argparse.ArgumentParser)
    parsers: list[tuple[str, argparse.ArgumentParser]] = [("", whole)]
    for name, about in SUBCOMMANDS.items():
        own = importlib.import_module(module_of(name)).parser()
        made = under.add_parser(name, help=about, parents=[own], add_help=False, conflict_handler="resolve")
        parsers.append((name, made))
        below = [each for each in made._actions if isinstance(each, argparse._SubParsersAction)]
        parsers += [(name, each) for group in below for each in group.choices.values()]
    names = _variable_names()
    for name, each in parsers:
        for action in each._actions:
            if action.dest in ("id", "ids", "after", "after_ok", *_KINDS):
                action.complete = _listed(_KINDS.get(action.dest, "jobs"))  # type: ignore[attr-defined]
            elif action.dest in ("resume", "show", "forget") and name in ("compare", "each"):
                action.complete = _listed(name)  # type: ignore[attr-defined]
            elif (
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


def _jobs() -> list[str]:
    from gputui.jobs.store import all_jobs

    return [word for job in all_jobs(os.environ) for word in (job.id, job.name) if word]


def _boxes() -> list[str]:
    from gputui.allocating.settings import settings

    return [*settings(os.environ).hosts.boxes, "all"]


def _experiments(kind: Kind) -> list[str]:
    from gputui.jobs.experiments.store import kept

    return [each.id for each in kept(os.environ, None, kind).records]


def _launches() -> list[str]:
    from gputui.launching.history_file import load

    return [each.name for each in load(os.environ) if each.name]


def _pages() -> list[str]:
    from gputui.cli.docs import pages

    return list(pages())


LISTS: dict[str, Callable[[], list[str]]] = {
    "jobs": _jobs,
    "boxes": _boxes,
    "compare": lambda: _experiments("comparison"),
    "each": lambda: _experiments("sweep"),
    "launches": _launches,
    "pages": _pages,
}
"""What a script asks for while a person types, by the word of `--list`."""
_KINDS = {"on": "boxes", "hosts": "boxes", "saved": "launches", "page": "pages"}


def _listed(kind: str) -> dict[str, Any]:
    """Return the completions that a call of `gputui completion --list` prints."""
    words = f"gputui completion --list {kind} 2>/dev/null"
    offer = f'local -a found=("${{(@f)$({words})}}"); compadd -a found'
    return _completions(f"_gputui_{kind}", f'"$({words})"', offer, words)


def _completions(name: str, words: str, zsh: str, fish: str) -> dict[str, Any]:
    """Return completions by a function of the script, whose body for bash offers `words`."""
    return {
        "bash": name,
        "zsh": name,
        "fish": f"({name})",
        "preamble": {
            "bash": f'{name}() {{ compgen -W {words} -- "$1"; }}',
            "zsh": f"{name}() {{ {zsh} }}",
            "fish": f"function {name}\n  {fish}\nend",
        },
    }


def _variable_names() -> dict[str, Any]:
    """Return the completions of `--env`: NAME=value, with its effect where the shell can show that."""
    from gputui.inventory.quoting import fish, posix
    from gputui.launching.environment_hints import hints

    offered = [(f"{hint.name}={hint.value}", hint.about) for hint in hints(None, ())]
    words = posix(" ".join(word for word, _ in offered))
    # `_describe` divides at the first colon that is not escaped.
    described = " ".join(posix(word.replace(":", "\\:") + f":{about}") for word, about in offered)
    columns = " ".join(fish(part) for pair in offered for part in pair)
    offer = f"local -a offered=({described}); _describe variable offered"
    return _completions("_gputui_variables", words, offer, f"printf '%s\\t%s\\n' {columns}")
