"""Writes the man page, docs/gputui.1, from the program's own parsers, after every change of an option."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from gputui.cli.common import INTERNAL, Parser
from gputui.cli.screen import parser as screen_parser
from gputui.cli.subcommands import SUBCOMMANDS, module_of

PAGE = Path(__file__).parents[1] / "docs" / "gputui.1"
_OF_THE_MACHINE = "variables to try with --env"
"""A group whose text depends on the machine."""
_STATUS = (
    ("0", "done"),
    ("2", "the call is wrong, and nothing was started"),
    ("3", "there is no driver, no library, or no such box"),
    ("4", "there are not enough devices, or a named one is not available"),
    ("5", "a check failed"),
    ("124", "the time for waiting is over"),
)
_FILES = (
    ("~/.config/gputui/config.toml", "your settings; `gputui config --write` writes one"),
    ("/etc/gputui.toml", "the administrator's settings"),
    ("~/.local/state/gputui", "jobs, launches and readings"),
)
_ENVIRONMENT = (
    ("CUDA_VISIBLE_DEVICES", "if it is set, only its devices can be selected"),
    ("GPUTUI_CLAIMS", "another folder for the claims"),
    ("NO_COLOR, FORCE_COLOR", "no colours; colours also in files and pipes"),
)


def page() -> str:
    """The man page, as man(7) describes its format."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    screen = screen_parser()
    yield '.\\" Made by release/make_man.py.'
    yield '.TH GPUTUI 1 "" gputui "User Commands"'
    yield from (".SH NAME", "gputui \\- see which GPUs are free, and start a command on exactly those")
    yield ".SH SYNOPSIS"
    yield from (".nf", *map(_text, (screen.usage or "").replace("       ", "").splitlines()), ".fi")
    yield from (".SH DESCRIPTION", _text(screen.description or ""))
    yield from _examples(screen)
    yield ".SH OPTIONS OF THE SCREEN"
    yield from _options(screen)
    yield ".SH SUBCOMMANDS"
    for name in SUBCOMMANDS:
        parser = importlib.import_module(module_of(name)).parser()
        yield from (f".SS gputui {name}", *_paragraphs(parser.description or ""))
        yield from _options(parser)
        yield from _examples(parser)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    yield from (f".SS gputui {name} {word}", *_paragraphs(inner.description or ""))
                    yield from _options(inner)
    for title, rows in (("EXIT STATUS", _STATUS), ("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        yield f".SH {title}"
        for term, about in rows:
            yield from (".TP", f".B {_text(term)}", _text(about))
    yield from (".SH SEE ALSO", "gputui docs: the pages of documentation")


def _options(parser: Parser) -> Iterator[str]:
    form = parser._get_formatter()
    for group in parser._action_groups:
        shown = [each for each in group._group_actions if each.help is not INTERNAL and not _is_help(each)]
        if not shown or group.title == _OF_THE_MACHINE:
            continue
        if group.title not in ("options", "arguments"):
            yield from (".P", f".I {_text(group.title or '')}")
        for action in shown:
            # (Python 3.13 has changed how argparse itself writes this.)
            value = "" if action.nargs == 0 else form._format_args(action, action.dest.upper())
            yield from (
                ".TP",
                f".B {_text(' '.join(filter(None, (', '.join(action.option_strings), value))))}",
            )
            yield _text(form._expand_help(action) if action.help else "")


def _is_help(action: argparse.Action) -> bool:
    return "--help" in action.option_strings or "--help-all" in action.option_strings


def _examples(parser: Parser) -> Iterator[str]:
    lines = (parser.epilog or "").splitlines()
    if lines:
        yield from (
            ".P",
            "For example:",
            ".P",
            ".nf",
            *(_text(f"    {line.strip()}") for line in lines),
            ".fi",
        )


def _paragraphs(text: str) -> Iterator[str]:
    for part in text.strip("\n").split("\n\n"):
        raw = part[:1] == " "
        yield from (
            ".P",
            *((".nf",) if raw else ()),
            *map(_text, part.splitlines()),
            *((".fi",) if raw else ()),
        )


def _text(text: str) -> str:
    """A line as text: no character of it is a request or an escape of roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
