"""Braces in a command as tasks: bash's ranges and lists, compared with bash itself if it is installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.choosing.sharing import tasks_that_fit
from gputui.jobs.experiments.axes import MOST_TASKS, AxisError
from gputui.jobs.experiments.braces import alternatives, expanded
from gputui.jobs.experiments.request import ExperimentRequest, Variant, variants_of
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from table_tests import each_row

AS_BASH = [
    "{1..8}",
    "{8..1}",
    "{1..10..3}",
    "{10..1..3}",
    "{1..10..-3}",
    "{01..10}",
    "{-2..2}",
    "{a..e}",
    "{e..a}",
    "{C..A}",
    "{0.1,0.01}",
    "--lr={0.1,0.01}",
    "{a,b}{1,2}",
    "x{a,{1..3},b}y",
    "{a,{b,c{d,e}}}",
    "{a,}",
    "{,}x",
    "{batch}",
    "{}",
    "{1..}",
    "{1.5..2}",
    "a{b",
    "a}b",
    "}{",
    "{{1,2}",
    "{x{1,2}}",
    "{1..3",
    "{1..1}",
    "{1..3..0}",
]
"""Words that bash expands as we do."""


@each_row("word", AS_BASH)
def test_a_word_is_expanded_as_by_bash(word: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    done = subprocess.run(
        [bash, "-c", f"printf '%s\\n' ''{word}"], capture_output=True, text=True, check=True
    )
    assert alternatives(word) == done.stdout.removesuffix("\n").split("\n")


@each_row(
    "word",
    ['{"lr": 0.1, "wd": 0}', '{"a":1,"b":2}', "{'a':1,'b':2}", "{a, b}", "${HOME,,}", "{a..5}", "{" * 200],
)
def test_json_and_what_is_no_group_stays_as_it_is(word: str) -> None:
    assert alternatives(word) == [word]


def tasks(*command: str) -> tuple[Variant, ...]:
    return variants_of(ExperimentRequest("sweep", LaunchRequest(LaunchOptions(command))))[1]


def test_several_groups_are_every_combination_and_labels_tell_them_apart() -> None:
    found = tasks("python", "t.py", "--seed", "{1..2}", "--lr={0.1,0.01}", "{x}")
    assert [each.words[3:5] for each in found] == [
        ("1", "--lr=0.1"),
        ("1", "--lr=0.01"),
        ("2", "--lr=0.1"),
        ("2", "--lr=0.01"),
    ]
    assert found[0].label == "--seed 1 --lr=0.1" and len({each.label for each in found}) == 4
    assert [each.words for each in tasks("true", "{x}")] == [("true", "{x}")]


@each_row("word", ["{1..100000}", "{1..99999999999999999}", "{1..999}{1..999}", "{{1..9999},a,b}"])
def test_too_many_tasks_are_refused_before_they_are_made(word: str) -> None:
    with pytest.raises(AxisError):
        expanded(("true", word))
    with pytest.raises(AxisError):
        expanded(("true", "{1..200}", "{1..200}"))


@given(st.text(st.sampled_from('{},.19a-$" '), max_size=60))
def test_any_word_has_alternatives_or_is_refused(word: str) -> None:
    try:
        found = alternatives(word)
    except AxisError:
        return
    assert 1 <= len(found) <= MOST_TASKS


def test_tasks_fit_by_what_was_said_and_by_what_is_free() -> None:
    assert tasks_that_fit(20, 80, 80, 0) == 4
    # Two tasks have started, and use no memory yet.
    assert tasks_that_fit(20, 80, 80, 2) == 2
    # One task uses more than declared.
    assert tasks_that_fit(20, 80, 30, 1) == 1
    assert tasks_that_fit(20, 80, 10, 1) == 0
    assert tasks_that_fit(20, 80, 80, 5) == 0
    assert (
        tasks_that_fit(20, None, 80, 0) == tasks_that_fit(20, 80, None, 0) == tasks_that_fit(0, 8, 8, 0) == 0
    )
