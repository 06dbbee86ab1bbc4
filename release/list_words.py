"""Lists every text of the program that a user can meet, by file: the place to read them all in one sitting.

    python release/list_words.py [FOLDER…] > words.txt

A text is a string of several words that is no docstring and no code: a message, a help, an error, a line of a
page; of labels and headings also single words. {…} stands for what is filled in. Folders are those of
app/gputui (cli, tui/views).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

APP = Path(__file__).parents[1] / "app" / "gputui"
_WORDS = re.compile(r"[A-Za-z’']{2,}[,;:]? \(?[A-Za-z{`\"-]")
_CODE = re.compile(r"\\[sdwb(]|\(\?|^\s*(import|from|def|SELECT) |^#!|[;{]\n|^/|%\(")
_SPEAKS = {"say", "Option", "option", "Action", "Column", "shown", "Row", "Field", "Hint"}
"""Calls whose single words are seen, too: keys, headings, labels."""


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each text in a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    hidden = set(map(id, _docstrings(tree)))
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else ()
        hidden.update(map(id, parts))
        hidden.update(
            id(each) for part in parts if isinstance(part, ast.FormattedValue) for each in ast.walk(part)
        )
    loud = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func) in _SPEAKS
        for value in (*node.args, *(each.value for each in node.keywords))
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        text = _text(node)
        if text is None or _CODE.search(text):
            continue
        if _WORDS.search(text) if id(node) not in loud else re.search("[a-z]{3}", text):
            yield getattr(node, "lineno", 0), " ".join(text.split())


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
    return None


def _name(function: ast.AST) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def main(folders: list[str]) -> None:
    """Print the listing."""
    for file in sorted(APP.rglob("*.py")):
        name = file.relative_to(APP).as_posix()
        found = sorted(texts(file)) if not folders or name.startswith(tuple(folders)) else ()
        if found:
            print(f"\n{name}")
        for line, text in found:
            print(f"{line:>5}  {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
