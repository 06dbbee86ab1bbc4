"""`gputui docs`: the pages of documentation, which are part of the installation: no network is needed."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import gputui
from gputui.cli.common import DONE, Call, Parser, WrongCallError, add_json_option, print_json, print_lines
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import Document, View
from gputui.system.terminal_abilities import can_draw, is_terminal

PAGES = Document("pages", pages=View(None, "page title", page=str, title=str).list)
PAGE = Document("page text", page=str, text=str)


def parser() -> Parser:
    made = Parser(
        "docs",
        "List the pages of documentation, or show one: in a pager on a terminal, else as Markdown on stdout.",
        example="gputui docs\ngputui docs keys",
    )
    made.add_argument("page", nargs="?", metavar="PAGE", help="the page to show, by its name in the list")
    add_json_option(made, "print the list, or the page, as JSON")
    return made


def main(args: Call) -> int:
    found = pages()
    if not found:
        raise WrongCallError("this copy of gputui has no documentation pages; an installed gputui has them")
    if args.page is None:
        rows = [{"page": name, "title": _title(file)} for name, file in found.items()]
        if args.json:
            print_json(PAGES.write(pages=rows))
        else:
            print_lines(aligned([tuple(row.values()) for row in rows]))
        return DONE
    if args.page not in found:
        raise WrongCallError(f"no page is called {args.page!r}; there are: {', '.join(found)}")
    text = found[args.page].read_text(encoding="utf-8")
    if args.json:
        print_json(PAGE.write(page=args.page, text=text))
    else:
        if is_terminal(sys.stdout) and can_draw(os.environ):
            _become_pager(found[args.page])
        print(text, end="")
    return DONE


def pages() -> dict[str, Path]:
    """The pages by name: in the package, or beside it in a working copy."""
    package = Path(gputui.__file__).parent
    for folder in (package / "docs", package.parents[1] / "docs"):
        if (folder / "command-line.md").is_file():
            return {file.stem: file for file in sorted(folder.glob("*.md")) if file.stem != "README"}
    return {}


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip("\n")


def _become_pager(file: Path) -> None:
    """Become the user's pager, which reads the page from stdin; return where there is none to start."""
    import shlex

    from gputui.launching.launch import Launch
    from gputui.launching.start import StartError, replace_process
    from gputui.system.trust import program

    # (ValueError: a quotation mark in PAGER has no second one.)
    with contextlib.suppress(ValueError, StartError):
        name, *options = shlex.split(os.environ.get("PAGER", "")) or ["less"]
        place = program(name, os.environ.get("PATH"))
        if place is not None:
            os.dup2(os.open(file, os.O_RDONLY), 0)
            replace_process(Launch((place, *options)), os.environ)
