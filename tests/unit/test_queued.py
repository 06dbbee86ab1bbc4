"""Jobs that wait in line: the words of the call that waits say all that the plan said."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.job import ALL_REDUCE, Job
from gputui.cli.launching import plan_of
from gputui.cli.run import parser
from gputui.launching.jobs.queued import words_of
from gputui.launching.launchers import LAUNCHERS
from gputui.launching.plan import AUTO, Plan

WORD = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
ODD = st.sampled_from(["-n", "--wait", "=", "-", "a b", "'", "--env", "none", "\n", "--=--"])
WORD_OF_COMMAND = WORD | ODD | st.just("--")
VALUE = (WORD | ODD).filter(lambda text: text != "--")
"""(Before Python 3.12 argparse takes a value that is "--" out; nobody has a folder of that name.)"""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan that the screen can come to: a command that starts with a program, not with a variable."""
    nodes = draw(st.sampled_from([1, 1, 2, 64]))
    rendezvous = draw(VALUE) if nodes > 1 else draw(st.none() | VALUE)
    return Plan(
        command=("python", *draw(st.lists(WORD_OF_COMMAND, max_size=4))),
        launcher="torchrun" if nodes > 1 else draw(st.sampled_from([AUTO, *LAUNCHERS])),
        ids=draw(st.sampled_from(["index", "uuid"])),
        directory=draw(st.none() | VALUE),
        additions=tuple(draw(st.dictionaries(NAMES, WORD_OF_COMMAND, max_size=3)).items()),
        python=draw(st.none() | VALUE | st.just("venv/bin/python")),
        processes=draw(st.none() | st.integers(1, 99)),
        logs=draw(st.none() | VALUE),
        numa=draw(st.booleans()),
        nodes=nodes,
        rendezvous=rendezvous or "host" if nodes > 1 else rendezvous,
    )


SHAPES = st.builds(Job, st.integers(1, 4), st.integers(1, 4)) | st.just(Job(independent=True))


@given(plans(), st.integers(1, 64), SHAPES)
@settings(max_examples=50, deadline=None)
def test_every_word_of_a_plan_comes_through(plan: Plan, count: int, shape: Job) -> None:
    words = words_of(plan, count, shape)
    place = words.index("--")
    args = parser().parse_args(words[:place])
    again = plan_of(args, words[place + 1 :])
    for field in fields(Plan):
        before, after = getattr(plan, field.name), getattr(again, field.name)
        if field.name == "python" and plan.directory is not None and "/" in (plan.python or ""):
            # On the screen it is from where the command starts; the call is told where that is.
            assert os.path.abspath(os.path.join(plan.directory, before)) == after  # noqa: PTH100, PTH118
        else:
            assert before == after, field.name
    assert (args.n, args.group or ALL_REDUCE) == (count, shape)
    assert args.wait == float("inf") and not args.detach and not args.force and args.gpus is None


@pytest.mark.parametrize("shape", [ALL_REDUCE, Job(tensor=2, pipeline=2), Job(independent=True)])
def test_the_shape_is_said_only_where_it_matters(shape: Job) -> None:
    words = words_of(Plan(("true",)), 4, shape)
    assert words[:3] == ("--wait", "-n", "4") and words[-2:] == ("--", "true")
    assert ("--group" in words) == (shape != ALL_REDUCE)
