"""Between a line that a person types and the words of a command, without a shell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.quoting import posix
from gputui.launching.shell_words import WordsError, assignments, shell_syntax, split


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("line", ["'open", 'a "b', "ends\\"])
def test_a_quote_that_is_not_closed_is_said(line: str) -> None:
    with pytest.raises(WordsError, match="in the command"):
        split(line)


@given(st.lists(st.text(max_size=8), max_size=5))
@settings(max_examples=200, deadline=None)
def test_quoted_words_are_split_into_themselves(words: list[str]) -> None:
    assert split(" ".join(posix(word) for word in words)) == tuple(words)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("word", ["|", "&&", ";", ">", "2>&1"])
def test_a_word_that_only_a_shell_would_understand_is_found(word: str) -> None:
    assert shell_syntax(("python", "x.py", word, "y")) == word


@pytest.mark.parametrize("words", [("python", "x.py"), ("a|b",), ("--a=>",), ()])
def test_a_plain_command_has_no_such_word(words: tuple[str, ...]) -> None:
    assert shell_syntax(words) is None
