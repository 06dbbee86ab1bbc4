"""The help in two depths: what most calls need, and all options; an option is in the second, or internal."""

from __future__ import annotations

import argparse
import re

import pytest

from gputui.cli.common import INTERNAL, Parser
from gputui.cli.subcommands import SUBCOMMANDS, module_of
from table_tests import each_row
from unit.calling import Call
from unit.test_docs import PARSERS, options_in

NAMES = [name for name in PARSERS if name]


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def _lines(call: Call, *words: str) -> list[str]:
    ended = call(*words)
    assert (ended.status, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= 80
    return ended.out.splitlines()


def test_the_first_help_is_one_page_with_three_examples_and_four_groups(call: Call) -> None:
    lines = _lines(call, "--help")
    assert len(lines) <= 25
    assert sum(line.startswith("  gputui ") for line in lines) == 3
    headings = [line.split()[0] for line in lines if re.match(r"[a-z]+ {2,}[a-z]+", line)]
    assert headings == ["look", "launch", "jobs", "more"]
    assert set(SUBCOMMANDS) <= set(re.findall(r"[\w-]+", "\n".join(lines)))


@each_row("name", NAMES)
def test_the_help_of_a_subcommand_has_few_options_and_an_example(call: Call, name: str) -> None:
    lines = _lines(call, *name.split(), "--help")
    shown = [line for line in lines if re.match(r" {2}-", line)]
    assert len(shown) <= 7
    if " " not in name:
        assert any(line.startswith(("example:", "examples:")) for line in lines)
        assert any(re.match(rf" {{2}}.*\bgputui {name}\b", line) for line in lines)


@each_row("name", PARSERS)
def test_every_option_is_in_the_whole_help_or_internal(call: Call, name: str) -> None:
    text = "\n".join(_lines(call, *name.split(), "--help-all"))
    shown = options_in(f"`{text}`")
    for action in PARSERS[name]._actions:
        if action.help is INTERNAL and action.option_strings != ["--no-confine"]:
            assert not shown & set(action.option_strings) - {"--help-all"}
        elif not isinstance(action, argparse._SubParsersAction):
            assert set(action.option_strings) <= shown
    assert not shown & {"--request", "--held", "--own-directory"}


@each_row("name", SUBCOMMANDS)
def test_an_option_that_is_shown_first_exists(name: str) -> None:
    import importlib

    parser = importlib.import_module(module_of(name)).parser()
    assert isinstance(parser, Parser)
    assert set(parser.common) <= set(parser._option_string_actions)
    assert len(parser.common) == len(set(parser.common)) <= 6


def test_the_whole_help_begins_with_the_same_words(call: Call) -> None:
    short, whole = (_lines(call, "run", depth) for depth in ("--help", "--help-all"))
    assert short[:4] == whole[:4] and len(whole) > 2 * len(short)
