"""Colours and glyphs appear where they can be shown: one module decides, for the screen too."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from gputui.choosing.verdict import GLYPHS
from gputui.system import terminal_abilities
from gputui.system.terminal_abilities import ascii_only, coloured, in_ascii
from table_tests import each_row

APP = Path(terminal_abilities.__file__).parents[1]
LS = [sys.executable, "-m", "gputui", "ls", "--demo"]
_NOT_SHOWN = set("é\ufeff\xa0\u1160\u11ff\u200d\u201a\u201b\ud7b0\ud7ff\ud800\udfff")
"""Characters that gputui looks for in the texts of others, and does not print itself."""


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Pipe(Terminal):
    """A stream that is none."""

    def isatty(self) -> bool:
        return False


@each_row(
    ("stream", "environ", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Pipe(), {"TERM": "xterm"}, False),
        (Pipe(), {"FORCE_COLOR": "1"}, True),
        (Pipe(), {"FORCE_COLOR": "0"}, False),
        (Pipe(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (None, {"TERM": "xterm"}, False),
    ],
)
def test_who_gets_colours(stream: Terminal | None, environ: dict[str, str], expected: bool) -> None:
    assert coloured(stream, environ) is expected


def test_who_gets_ascii_only() -> None:
    latin = Terminal()
    latin.encoding = "iso-8859-1"
    assert ascii_only(latin, {"TERM": "xterm"}) and ascii_only(Terminal(), {"TERM": "vt100"})
    assert not ascii_only(Terminal(), {"TERM": "xterm"}) and not ascii_only(Pipe(), {"TERM": "dumb"})


def _glyphs() -> set[str]:
    """Every character beyond ASCII in a string of the program that is no docstring."""
    found = set[str]()
    for text in (file.read_text() for file in APP.rglob("*.py")):
        nodes = [] if text.isascii() else [*ast.walk(ast.parse(text))]
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in documentation:
                found.update(each for each in str(node.value) if not each.isascii())
    return found


def test_every_glyph_of_the_program_has_a_sign_of_its_width() -> None:
    assert _glyphs() - _NOT_SHOWN <= {chr(code) for code in terminal_abilities._ASCII}
    assert all(len(sign) == 1 and sign.isascii() for sign in terminal_abilities._ASCII.values())


def test_states_differ_in_ascii_too() -> None:
    signs = [glyph.translate(terminal_abilities._ASCII) for glyph in GLYPHS.values()]
    assert len(set(signs)) == len(signs)


def test_a_letter_that_cannot_be_encoded_is_escaped() -> None:
    error = UnicodeEncodeError("ascii", "○ é", 0, 3, "")
    assert in_ascii(error) == ("o \\xe9", 3)


def test_a_table_in_another_encoding_is_ascii_and_aligned() -> None:
    shown = {}
    for encoding in ("utf-8", "ascii"):
        environ = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(LS, capture_output=True, env=environ, timeout=60, check=True)
        shown[encoding] = done.stdout.decode().splitlines()
    assert "".join(shown["ascii"]).isascii() and not "".join(shown["utf-8"]).isascii()
    assert [*map(len, shown["ascii"])] == [*map(len, shown["utf-8"])]


@pytest.mark.parametrize("term", ["vt100", "xterm"])
def test_a_terminal_without_glyphs_gets_ascii(term: str) -> None:
    environ = {**os.environ, "TERM": term}
    shown = pexpect.run(" ".join(LS), env=environ, timeout=60)
    assert shown.isascii() is (term == "vt100") and b"free" in shown


HIDDEN = """
import sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
from gputui.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@each_row(
    ("words", "status"),
    [
        (["--version"], 0),
        (["docs"], 0),
        (["topo", "--demo"], 0),
        (["--demo"], 3),
        (["ls", "--demo"], 3),
        ([], 3),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_where_python_has_no_modules_of_unix_a_call_says_what_works(words: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done
    if status:
        assert len(done.stderr.splitlines()) == 1 and "gputui --version" in done.stderr
