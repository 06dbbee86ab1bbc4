"""The request for an experiment: as JSON, as words, and as the options that a later call overrides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputui.cli.common import WrongCallError
from gputui.cli.experiment_call import parsed, typed
from gputui.inventory.typed_json import DocumentError
from gputui.jobs.experiments.axes import AxisError, read_axis
from gputui.jobs.experiments.request import REQUEST, ExperimentRequest, Kind, variants_of, without_secrets
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest, received, sent
from table_tests import each_row

CALLS: list[tuple[Kind, str, str]] = [
    ("comparison", "-n 2 --vary launcher=python,torchrun --vary env:X=,a", "train.py"),
    ("comparison", r"--gpus 0,1 --vary env:X=a\,b,c --vary arg:--bf16 --except X=c", "t.py --lr 1"),
    ("comparison", "--vary n=1,2 --repeat 3 --warm-up --metric loss(.*) --less --wait", "t.py"),
    ("comparison", "--vary gpus=0+1,2 --force --threads near --jobs 2 --memory 700K", "t.py"),
    ("comparison", "--vary threads=1,near --model 8B -n auto --directory /tmp --python bin/py", "t.py"),
    ("sweep", "-n 1 --jobs 4 --retry 2 --stop-on-failure --timeout 30m --window 5", "A=1 t.py {1..3}"),
    ("sweep", "--gpus 4,5 -n 1 --memory 20G --env A=b --confine=never", "t.py --seed {1..8}"),
]


@each_row(("kind", "options", "command"), CALLS)
def test_a_request_is_the_same_as_json_as_words_and_as_the_options_of_another_call(
    kind: Kind, options: str, command: str
) -> None:
    request = parsed(kind, [*options.split(), "--before", "rm -r {run}/x"], command.split())[1]
    text = sent(request, REQUEST)
    assert received(text, REQUEST) == request and text.isascii()
    assert parsed(kind, ["--request", text], None)[1] == request
    assert parsed(kind, [], None, request)[1] == request
    gputui, _, *words = request.words
    place = words.index("--")
    model = ["--model", "8B"] if "auto" in words else []
    again = parsed(kind, [*words[:place], *model], words[place + 1 :])[1]
    assert (gputui, again) == ("gputui", request)


def test_options_of_a_later_call_override_those_of_the_first(tmp_path: Path) -> None:
    request = parsed("sweep", ["-n", "1", "--jobs", "4", "--retry", "1"], ["t.py", "{1,2}"])[1]
    later = parsed("sweep", ["--jobs", "2", "--env", "X=1"], None, request)[1]
    assert (later.jobs, later.retry, later.launch.devices.count) == (2, 1, 1)
    assert later.launch.options.additions == (("X", "1"),)
    file = tmp_path / "tasks"
    file.write_text("t.py 7\n")
    for words, command in ((["--from-file", str(file)], None), ([], ["t.py", "{3,4}"])):
        assert parsed("sweep", words, command, request)[1].retry == 0, "a call of its own"


def test_what_a_newer_gputui_asks_for_besides_is_not_left_out() -> None:
    document = json.loads(sent(ExperimentRequest("sweep", LaunchRequest(LaunchOptions(("t",)))), REQUEST))
    with pytest.raises(DocumentError):
        received(json.dumps({**document, "newer": 1}), REQUEST)
    with pytest.raises(WrongCallError):
        parsed("sweep", ["--request", "{}"], None)


def test_no_secret_stays_and_each_is_named() -> None:
    words = [
        "--vary",
        "env:HF_TOKEN=hf_first,hf_second",
        "--env",
        "API_KEY=third",
        "--except",
        "HF_TOKEN=hf_first",
        "--vary",
        "arg:--api-key=sixth,seventh",
    ]
    words += ["--before", "curl -H 'Authorization: Bearer fourthfourth'", "-n", "1"]
    request = parsed("comparison", words, ["t.py", "--password", "fifth"])[1]
    kept, withheld = without_secrets(request)
    text = sent(kept, REQUEST)
    assert not any(secret in text for secret in ("hf_", "third", "fourth", "fifth", "sixth", "seventh"))
    assert {"env:HF_TOKEN", "arg:--api-key", "API_KEY", "--password"} <= {*withheld}
    assert without_secrets(kept)[0] == kept


def test_a_variable_before_the_command_gives_way_to_options_and_axes() -> None:
    request = parsed(
        "comparison", ["--env", "B=option", "--vary", "env:C=axis"], ["A=1", "B=1", "C=1", "t.py"]
    )[1]
    (variant,) = variants_of(request)[1]
    assert dict(variant.launch.options.additions) == {"A": "1", "B": "option", "C": "axis"}
    assert variant.launch.options.command == ("t.py",)
    with pytest.raises(AxisError):
        variants_of(parsed("comparison", ["--vary", "env:X=1"], ["A=1"])[1])


def test_a_relative_interpreter_stays_the_same_where_the_directory_is_varied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request = parsed("comparison", ["--python", "bin/py", "--vary", "directory=/,/tmp"], ["t.py"])[1]
    found = {variant.launch.options.python for variant in variants_of(request)[1]}
    assert found == {f"{tmp_path}/bin/py"}


def test_words_of_a_line_vary_a_launch_and_its_devices_can_be_replaced() -> None:
    launch = parsed("comparison", ["-n", "2", "--launcher", "torchrun"], ["t.py", "--lr", "1"])[1].launch
    request = typed("launcher=python env:X=0,1 arg:--bf16 --lr=1,2 --repeat=3 --metric a=(.)", launch)
    assert [axis.name for axis in request.axes] == ["launcher", "env:X", "arg:--bf16", "arg:--lr"]
    assert (request.repeat, request.metric, request.launch) == (3, "a=(.)", launch)
    assert typed("n=1,4", launch).launch.devices.count is None
    assert typed("env:X=1 --gpus 3", launch).launch.devices.names == "3"
    for line in ("", "--repeat 2", "nothing=1", "--no-such", "env:X=1 -n 0"):
        with pytest.raises((WrongCallError, AxisError)):
            typed(line, launch)


def test_the_text_of_an_axis_is_read_as_the_same_axis() -> None:
    for text in (r"env:A=a\,b,c", "env:A=,x", "arg:--bf16", "word:x=1", "n=1,2", "gpus=0+1,2"):
        assert read_axis(text, ()).text == text
