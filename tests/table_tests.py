"""Tests of tables: `each_row` tries all rows in one test, because a separate test costs more than its row."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

Test: TypeAlias = Callable[..., None]
Ids: TypeAlias = Iterable[object] | Callable[[Any], object] | None


def each_row(names: str | Sequence[str], table: Iterable[Any], *, ids: Ids = None) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but in one test, which tries all rows and names each that fails.

    Each row has a `monkeypatch` and a `tmp_path` of its own, and a `capsys` without the output of the row
    before. The rows share the other fixtures, the home too. If a row is skipped, the others are tried, and
    the test is reported as skipped.
    """
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(row) if len(fields) > 1 else (row,) for row in table]
    labels = list(ids) if ids is not None and not callable(ids) else None

    def label(number: int) -> str:
        if labels is not None:
            return str(labels[number])
        return ", ".join(str(ids(value)) if callable(ids) else repr(value) for value in rows[number])

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def all_rows(**fixtures: Any) -> None:
            assert rows, "a table without rows tests nothing"
            failed: list[tuple[str, BaseException]] = []
            skipped: list[BaseException] = []
            for number, row in enumerate(rows):
                try:
                    with ExitStack() as stack:
                        test(**_fresh(fixtures, number, stack), **dict(zip(fields, row, strict=True)))
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (as pytest does)
                    failed.append((label(number), error))
            if failed:
                said = "\n".join(f"{row}: {type(error).__name__}: {error}" for row, error in failed)
                raise AssertionError(f"{len(failed)} of {len(rows)} rows fail\n{said}") from failed[0][1]
            if skipped:
                raise skipped[0]

        others = [each for name, each in signature.parameters.items() if name not in fields]
        all_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_rows

    return decorate


def _fresh(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    """Return the fixtures for the row of this number."""
    fresh = dict(fixtures)
    if "capsys" in fixtures:
        fixtures["capsys"].readouterr()
    if "monkeypatch" in fixtures:
        fresh["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
    if "tmp_path" in fixtures:
        fresh["tmp_path"] = fixtures["tmp_path"] / f"row{number}"
        fresh["tmp_path"].mkdir()
    return fresh


def quick_first(rows: Iterable[Any], quick: int = 1) -> list[Any]:
    """Return the rows for `pytest.mark.parametrize`, of which all but the first ones are marked `thorough`.

    This is for rows of one value that show what the first ones show, at one more size or on one more box.
    """
    given = list(rows)
    return [*given[:quick], *(pytest.param(row, marks=pytest.mark.thorough) for row in given[quick:])]
