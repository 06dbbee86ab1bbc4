"""A test of a table fails if one of its rows does, and its rows do not share what each has of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from table_tests import each_row, quick_first


def test_all_rows_are_tried_and_those_that_fail_are_named() -> None:
    tried: list[int] = []

    @each_row(("number", "word"), [(1, "one"), (2, "two"), (3, "three")])
    def table(number: int, word: str) -> None:
        tried.append(number)
        assert word == "two"

    with pytest.raises(AssertionError) as failure:
        table()
    assert tried == [1, 2, 3]
    said = str(failure.value)
    assert "1, 'one'" in said and "3, 'three'" in said and "2, 'two'" not in said


def test_tables_can_be_combined() -> None:
    tried: list[tuple[int, str]] = []

    @each_row("number", [1, 2])
    @each_row("word", ["a", "b"])
    def table(number: int, word: str) -> None:
        tried.append((number, word))

    table()
    assert tried == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_a_row_that_is_skipped_is_reported_and_hides_no_failure() -> None:
    @each_row("number", [0, 1, 2])
    def table(number: int, worst: int) -> None:
        if number == 0:
            pytest.skip("a program is missing")
        assert number < worst

    with pytest.raises(pytest.skip.Exception):
        table(worst=3)
    with pytest.raises(AssertionError):
        table(worst=2)


def test_a_table_without_rows_fails() -> None:
    @each_row("number", [])
    def table(number: int) -> None: ...

    with pytest.raises(AssertionError):
        table()


@each_row("number", [1, 2, 3])
def test_each_row_has_an_environment_and_a_folder_of_its_own(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "ROW" not in os.environ and list(tmp_path.iterdir()) == []
    monkeypatch.setenv("ROW", str(number))
    (tmp_path / "file").touch()


@each_row("number", [1, 2])
def test_each_row_has_an_output_of_its_own(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert capsys.readouterr().out == ""
    print(number)


def test_the_first_rows_are_quick_and_the_others_thorough() -> None:
    first, second = quick_first(["a", "b"])
    assert first == "a"
    assert second.values == ("b",) and [mark.name for mark in second.marks] == ["thorough"]
