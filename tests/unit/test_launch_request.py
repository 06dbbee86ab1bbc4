"""A launch request stays the same after it has been written: as JSON, and as the words of a call."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.grouping import Grouping
from gputui.cli.launch_call import as_given, launch_request
from gputui.cli.run import parser
from gputui.inventory.typed_json import DocumentError
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.launching.launchers import LAUNCHERS
from gputui.requesting.launch_request import LaunchRequest, ModelRequest, received, sent
from table_tests import each_row
from unit.calling import Call

WORD = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
ODD = st.sampled_from(["-n", "--wait", "=", "-", "a b", "'", "--env", "none", "\n", "--=--"])
WORD_OF_COMMAND = WORD | ODD | st.just("--") | st.just("\udcff")
VALUE = (WORD | ODD).filter(lambda text: text != "--")
"""Before Python 3.12 argparse removes a value that is "--"; no folder has that name in practice."""
DEVICES_NAMED = st.lists(st.sampled_from(["0", "3", "GPU-1f", "MIG-aa"]), max_size=3, unique=True).map(tuple)
SHAPES = st.builds(Grouping, st.integers(1, 4), st.integers(1, 4)) | st.just(Grouping(independent=True))
SECONDS = st.sampled_from([0.0, 2.5, 90.0, 86400.0])


@st.composite
def all_options(draw: st.DrawFn) -> LaunchOptions:
    """Any options that the screen can produce: the command starts with a program, not with a variable."""
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
        confine=draw(st.sampled_from([None, "always", "auto", "never"])),
    )


@st.composite
def all_devices(draw: st.DrawFn) -> DeviceRequest:
    """Any device request of a call of `run`."""
    count = draw(st.none() | st.integers(1, 64))
    names = draw(st.sampled_from([None, "1,0", "none", "GPU-1f"])) if count is None else None
    return DeviceRequest(
        count=count,
        names=names,
        auto=count is None and names is None and draw(st.booleans()),
        vendor=draw(st.sampled_from([None, "nvidia"])),
        group=draw(st.none() | SHAPES),
        order=draw(st.sampled_from([None, "best", "given", "fastest", "emptiest"])),
        min_free=draw(st.sampled_from([None, 0, 307, 20 * 2**30])),
        max_util=draw(st.sampled_from([None, 0, 100])),
        never=draw(st.none() | DEVICES_NAMED),
        prefer=draw(st.none() | DEVICES_NAMED),
        mine=draw(st.booleans()),
        ignore_user=draw(st.sampled_from([(), ("dcgm",), ("dcgm", "-x")])),
        busy_memory=draw(st.sampled_from([None, 0, 307, 700 * 1024, 2**30])),
        busy_util=draw(st.sampled_from([None, 0, 100])),
        window=draw(st.none() | SECONDS),
        wait=draw(st.none() | SECONDS | st.just(float("inf"))),
        force=draw(st.booleans()),
        if_free=draw(st.booleans()),
        explain=draw(st.booleans()),
    )


JOBS = st.sampled_from([None, "k3f9", "k3f9,-x, a b", ""])
REQUESTS = st.builds(
    LaunchRequest, all_options(), all_devices(), near=st.booleans(), after=JOBS, after_ok=JOBS
)


@given(REQUESTS)
@settings(max_examples=25, deadline=None)
def test_as_json_as_words_and_in_a_call_that_changes_nothing_it_is_the_same(request: LaunchRequest) -> None:
    """One test, because a request takes longer to draw than to check."""
    _is_the_same_as_json(replace(request, model=ModelRequest(model="8B", lora=0, checkpointing=False)))
    words = request.words
    place = words.index("--")
    args = parser().parse_args(words[:place])
    _is_the_same(request, launch_request(args, words[place + 1 :]))
    args = parser().parse_args([], as_given(request))
    _is_the_same(request, launch_request(args, request.options.command))


def _is_the_same_as_json(request: LaunchRequest) -> None:
    text = sent(request)
    # `false` and null are the defaults, and are left out.
    assert received(text) == replace(request, model=replace(request.model, checkpointing=None))
    assert text.isascii() and "\n" not in text


def _is_the_same(request: LaunchRequest, again: LaunchRequest) -> None:
    options = request.options
    for field in fields(LaunchOptions):
        before, after = getattr(options, field.name), getattr(again.options, field.name)
        if field.name == "python" and options.directory is not None and "/" in (options.python or ""):
            # The path is relative to the command's directory; a call starts in another one.
            assert os.path.abspath(os.path.join(options.directory, before)) == after  # noqa: PTH100, PTH118
        else:
            assert before == after, field.name
    assert (again.devices, again.near) == (request.devices, request.near)
    assert (again.after, again.after_ok) == (request.after, request.after_ok)


@each_row("more", [("--", "true"), ("-n", "1"), ("--saved", "1"), ("--env", "A=b"), ("--mine",)])
def test_a_request_says_all_that_is_asked_for(call: Call, more: tuple[str, ...]) -> None:
    text = sent(LaunchRequest(LaunchOptions(("true",)), DeviceRequest(count=1, demo="idle")))
    assert "CUDA_VISIBLE_DEVICES=" in call("run", "--dry-run", "--request", text).line
    call("run", "--dry-run", "--request", text, *more).refused(2)


def test_a_request_that_cannot_be_read_is_a_wrong_call(call: Call) -> None:
    for text in ("", "{}", "[1]", '{"options": {"command": "true"}}', "{" * 9999):
        call("run", "--dry-run", "--request", text).refused(2)


@each_row("place", [(), ("options",), ("devices",)])
def test_what_a_newer_gputui_asks_for_besides_is_not_left_out(place: tuple[str, ...]) -> None:
    document = json.loads(sent(LaunchRequest(LaunchOptions(("true",)), DeviceRequest(count=1))))
    inside = document
    for key in place:
        inside = inside[key]
    assert received(json.dumps(document))
    inside["only_if_it_rains"] = "yes"
    with pytest.raises(DocumentError):
        received(json.dumps(document))
