"""Conversion between a line that a person types and the words of a command, without a shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.quoting import posix
from gputui.launching.shell_words import (
    WordsError,
    assignments,
    for_a_shell,
    one_line,
    one_word_for_several,
    shell_expansion,
    shell_syntax,
    split,
)
from table_tests import each_row


@each_row(
    ("line", "words"),
    [
        ("", ()),
        ("   ", ()),
        ("python train.py", ("python", "train.py")),
        ("python 'a b' \"c d\" e\\ f", ("python", "a b", "c d", "e f")),
        ("echo $HOME `x` *", ("echo", "$HOME", "`x`", "*")),
        ("a ''", ("a", "")),
        ("python x.py # no comment", ("python", "x.py", "#", "no", "comment")),
    ],
)
def test_quotes_count_and_nothing_is_expanded(line: str, words: tuple[str, ...]) -> None:
    assert split(line) == words


@each_row("line", ["'open", 'a "b', "ends\\"])
def test_a_quote_that_is_not_closed_is_said(line: str) -> None:
    with pytest.raises(WordsError, match="in the command"):
        split(line)


@given(st.text(alphabet="ab '\"\\\t\r\n$#\v\xa0", max_size=12))
@settings(max_examples=120, deadline=None)
def test_the_words_are_those_that_the_standard_library_finds(line: str) -> None:
    try:
        found = tuple(shlex.split(line))
    except ValueError:
        with pytest.raises(WordsError):
            split(line)
    else:
        assert split(line) == found


@given(st.lists(st.text(max_size=8), max_size=5))
@settings(max_examples=60, deadline=None)
def test_quoted_words_are_split_into_themselves(words: list[str]) -> None:
    assert split(" ".join(posix(word) for word in words)) == tuple(words)


@each_row(
    ("words", "found", "command"),
    [
        (("python", "x.py"), (), ("python", "x.py")),
        (("A=1", "B=", "python", "C=3"), (("A", "1"), ("B", "")), ("python", "C=3")),
        (("A=b=c", "x"), (("A", "b=c"),), ("x",)),
        (("A=1",), (("A", "1"),), ()),
        (("1A=1", "x"), (), ("1A=1", "x")),
        (("A-B=1", "x"), (), ("A-B=1", "x")),
        (("A=two\nlines", "x"), (("A", "two\nlines"),), ("x",)),
        ((), (), ()),
    ],
)
def test_variables_before_the_command_are_told_from_it(
    words: tuple[str, ...], found: tuple[tuple[str, str], ...], command: tuple[str, ...]
) -> None:
    assert assignments(words) == (found, command)


@each_row(
    ("line", "found"),
    [
        ("rm -r out; python victim.py", ";"),
        ("python x.py&", "&"),
        ("a && b", "&&"),
        ("a || b", "||"),
        ("a|b", "|"),
        ("a 2>&1", ">"),
        ("a >> log", ">>"),
        ("a x<y", "<"),
        ("a <<END", "<<"),
        ("a $(date)", "$("),
        ('a "$(date)"', "$("),
        ("a `date`", "`"),
        ('a "`date`"', "`"),
        ("a $'x'", "$'"),
        ("a # why", "#"),
        ("a\nb", "a second line"),
        ("cd ~; python x.py", ";"),
        ("cd ~ada&& python x.py", "&&"),
        ("a {b;c,d}", ";"),
        ('a "b; $(c)"', "$("),
        ("a \"b|'`c`", "`"),
        ("python x.py", None),
        ("", None),
        ("a 'b;c' \"d|e\" f\\;g 'h\ni' '`j`' '$(k)'", None),
        ("a '# b' c#d \\# ''#", None),
        ("a \"it's; b\" '\"; c'", None),
        ('a "b\\"; c"', None),
        ("a $HOME ~ * {b,c}", None),
        ('a ${b:-c;d} "${e|f}"', None),
    ],
)
def test_what_only_a_shell_would_act_on_is_found(line: str, found: str | None) -> None:
    assert shell_syntax(line) == found


@each_row(
    ("line", "found"),
    [
        ("a $HOME/b", "$HOME"),
        ('a "${B}c"', "${B}"),
        ("a ~/b", "~"),
        ("~ada/b", "~ada"),
        ("a *.yaml", "*"),
        ("a b?", "?"),
        ("a b=[1,2]", "[1,2]"),
        ("a --seed={1..8}", "{1..8}"),
        ("a {b,c}", "{b,c}"),
        ("a '$HOME' '~' '*' \"*\" \\* '{a,b}' \\$HOME b~c {d} $ 1e-4", None),
    ],
)
def test_what_only_a_shell_would_replace_is_found(line: str, found: str | None) -> None:
    assert shell_expansion(line) == found


@given(st.lists(st.text(max_size=8), max_size=5))
@settings(max_examples=60, deadline=None)
def test_quoted_words_need_no_shell(words: list[str]) -> None:
    line = " ".join(posix(word) for word in words)
    assert shell_syntax(line) is None and shell_expansion(line) is None


@given(st.text(alphabet="a 'b\"\\\n;|&<>$()`#~*{},", max_size=20))
@settings(max_examples=80, deadline=None)
def test_a_line_for_a_shell_is_three_words(line: str) -> None:
    made = for_a_shell(line)
    assert split(made) == ("bash", "-c", line)
    assert shell_syntax(made) is None and shell_expansion(made) is None


def test_what_needs_no_shell_has_the_words_that_a_shell_makes_of_it(tmp_path: Path) -> None:
    for line in ("a 'b;c' \"d|e\" f\\;g", "a 'b\nc' \"it's\"", 'a "b\\"c" d\\ e'):
        shown = subprocess.run(
            ["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert shell_syntax(line) is None and tuple(shown.stdout.split("\0")[:-1]) == split(line)


@each_row(
    ("pasted", "line"),
    [
        ("python x.py \\\n  --lr 3\n", "python x.py   --lr 3"),
        ("python x.py \\\r\n--lr 3\r\n", "python x.py --lr 3"),
        ('a "b\\\nc"', 'a "bc"'),
        ("a 'b\\\nc'", "a 'b\\\nc'"),
        ("a\nb\n", "a\nb"),
        ("a \\ \nb", "a \\ \nb"),
    ],
)
def test_lines_that_end_with_a_backslash_are_one(pasted: str, line: str) -> None:
    assert one_line(pasted) == line


@each_row(
    ("program", "said"),
    [
        ("python", ""),
        ("my program", "my program"),
        ("python x.py --lr 3", "python x.py --lr 3"),
        ("rm -r out; python x.py", "bash -c 'rm -r out; python x.py'"),
        ("it's open", "bash -c"),
    ],
)
def test_a_line_in_one_word_is_told_how_to_write_it(program: str, said: str) -> None:
    told = one_word_for_several(program)
    assert said in told and bool(told) == bool(said)
