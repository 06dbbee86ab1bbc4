"""Jobs that wait in line: the words of the call that waits say all that the options said."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.cli.launch_call import options_of
from gputui.cli.run import parser
from gputui.jobs.queued import words_of
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.launching.launchers import LAUNCHERS

WORD = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
ODD = st.sampled_from(["-n", "--wait", "=", "-", "a b", "'", "--env", "none", "\n", "--=--"])
WORD_OF_COMMAND = WORD | ODD | st.just("--")
VALUE = (WORD | ODD).filter(lambda text: text != "--")
"""(Before Python 3.12 argparse takes a value that is "--" out; nobody has a folder of that name.)"""


@st.composite
def all_options(draw: st.DrawFn) -> LaunchOptions:
    """Any options that the screen can come to: a command that starts with a program, not with a variable."""
    nodes = draw(st.sampled_from([1, 1, 2, 64]))
    host = st.sampled_from(["node0", "10.0.0.1:29400", "[fe80::1]:1", "-odd"])
    rendezvous = draw(host if nodes > 1 else st.none() | host)
    return LaunchOptions(
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
        rendezvous=rendezvous,
    )


SHAPES = st.builds(Grouping, st.integers(1, 4), st.integers(1, 4)) | st.just(Grouping(independent=True))


@given(all_options(), st.integers(1, 64), SHAPES)
@settings(max_examples=50, deadline=None)
def test_every_word_of_a_plan_comes_through(options: LaunchOptions, count: int, shape: Grouping) -> None:
    words = words_of(options, count, shape)
    place = words.index("--")
    args = parser().parse_args(words[:place])
    again = options_of(args, words[place + 1 :])
    for field in fields(LaunchOptions):
        before, after = getattr(options, field.name), getattr(again, field.name)
        if field.name == "python" and options.directory is not None and "/" in (options.python or ""):
            # On the screen it is from where the command starts; the call is told where that is.
            assert os.path.abspath(os.path.join(options.directory, before)) == after  # noqa: PTH100, PTH118
        else:
            assert before == after, field.name
    assert (args.n, args.group or ALL_REDUCE) == (count, shape)
    assert args.wait == float("inf") and not args.detach and not args.force and args.gpus is None


@pytest.mark.parametrize("shape", [ALL_REDUCE, Grouping(tensor=2, pipeline=2), Grouping(independent=True)])
def test_the_shape_is_said_only_where_it_matters(shape: Grouping) -> None:
    words = words_of(LaunchOptions(("true",)), 4, shape)
    assert words[:3] == ("--wait", "-n", "4") and words[-2:] == ("--", "true")
    assert ("--group" in words) == (shape != ALL_REDUCE)
