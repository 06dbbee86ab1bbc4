"""What `--json` prints: one document for each call, also where it fails."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.cli.dispatch import dispatch
from gputui.cli.subcommands import SUBCOMMANDS, module_of
from gputui.launching.history import with_launch
from gputui.launching.history_file import change
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from published_schemas import DOCUMENTS, PAGE, closed, errors, page, published
from published_schemas import keys as schema_keys
from table_tests import each_row, quick_first
from unit.calling import Call, Ended

jsonschema = pytest.importorskip("jsonschema")

TRAIN = ("--", "python", "train.py")
OF_A_BOX: dict[tuple[str, ...], str] = {
    ("ls",): "ls",
    ("topo",): "topo",
    ("people",): "people",
    ("usage",): "usage",
    ("pick", "-n", "2"): "pick",
    ("plan", "8B"): "plan",
    ("claims",): "claims",
    ("queue",): "queue",
    ("run", "-n", "2", "--dry-run", *TRAIN): "launch",
    ("export", "-n", "2", *TRAIN): "launch",
    ("plan", "1B", "--use", "ddp", *TRAIN): "launch",
    ("compare", "--vary", "env:X=0,1", "--dry-run", *TRAIN): "dry-run",
    ("each", "--dry-run", *TRAIN, "{1..2}"): "dry-run",
}
"""The calls that answer of any box, with the names of their schemas."""
KEYS: dict[str, list[str]] = json.loads(
    Path(__file__).parents[1].joinpath("data", "json_keys_0.1.0.json").read_text()
)
"""The keys of each document of version 0.1.0."""
SCHEMA_KEYS: dict[str, str] = json.loads(
    Path(__file__).parents[1].joinpath("data", "schema_keys_0.1.0.json").read_text()
)
"""The keys of each schema of version 0.1.0. The file is never made anew: the next version gets its own."""


def check(document: Any, name: str) -> None:
    """Check that a document agrees with its schema, and has no other keys."""
    jsonschema.Draft202012Validator(closed(published(name))).validate(document)


def keys(value: Any, path: str = "") -> Iterator[str]:
    """The path of every key of a document; the names of variables are no keys."""
    if isinstance(value, list):
        for each in value:
            yield from keys(each, f"{path}[]")
    if isinstance(value, dict):
        for key, each in value.items():
            yield f"{path}.{key}" if path else key
            if key != "environment":
                yield from keys(each, f"{path}.{key}" if path else key)


def no_keys_lost(name: str, *documents: Any) -> None:
    """Check that these documents have together every key that that document of 0.1.0 has."""
    assert set(KEYS[name]) <= {key for document in documents for key in keys(document)}


def test_every_schema_has_every_key_of_the_first_version() -> None:
    for name, before in SCHEMA_KEYS.items():
        assert not set(before.split()) - {path for path, _ in schema_keys(published(name))}, name


_UNLIKE = ("shared", "a100-mig", "amd-cpx", "gaudi", "lost", "mixed-vendors")
"""Boxes that differ most: the others are for the thorough tests."""


@pytest.mark.parametrize("box", quick_first([*_UNLIKE, *sorted(set(BOXES) - set(_UNLIKE))], len(_UNLIKE)))
def test_every_call_answers_of_every_box_as_its_schema_says(box: str, call: Call) -> None:
    for words, schema in OF_A_BOX.items():
        told = call(words[0], "--json", f"--demo={box}", *words[1:])
        check(json.loads(told.out), schema if told.status == 0 else "error")


@each_row(
    ("name", "words"),
    [
        ("ls", ("ls", "--json")),
        ("ls --details", ("ls", "--json", "--details")),
        ("topo", ("topo", "--json")),
        ("people", ("people", "--json")),
        ("pick", ("pick", "--format", "json")),
        ("plan", ("plan", "8B", "--json")),
        ("export", ("export", "--as", "json", *TRAIN)),
        ("claims", ("claims", "--json")),
        ("queue", ("queue", "--json")),
    ],
)
def test_a_document_of_a_box_has_every_key_of_the_first_version(
    name: str, words: tuple[str, ...], call: Call
) -> None:
    told = (call(words[0], f"--demo={box}", *words[1:]) for box in BOXES)
    no_keys_lost(name, *(json.loads(each.out) for each in told if each.status == 0))


def test_experiments_answer_as_their_schemas_say(call: Call) -> None:
    run = ("--gpus", "none", "--json", "-q", "--")
    comparison = call("compare", "--vary", "env:X=0,1", *run, "true").json
    sweep = call("each", *run, "/bin/sh", "-c", "exit 0", "{1..2}").json
    kept = {"comparison": comparison, "sweep": sweep}
    kept["comparisons"] = call("compare", "--list", "--json").json
    kept["sweeps"] = call("each", "--list", "--json").json
    for name, document in kept.items():
        check(document, name)
        no_keys_lost(name, document)
    check(call("compare", "--show", comparison["id"], "--json").json, "comparison")


DETACHED = ("run", "--gpus", "none", "--detach", "--json", "-q", "--")


def test_jobs_answer_as_their_schemas_say(call: Call) -> None:
    started = call(*DETACHED, "/bin/sh", "-c", "echo one; echo two; exit 3").json
    check(started, "job")
    id = started["job"]["id"]
    waited = call("jobs", "wait", id, "--json")
    assert waited.status == 3
    check(json.loads(waited.out), "job")
    shown = call("jobs", "show", id, "--json").json
    check(shown, "job")
    assert (shown["job"]["id"], shown["job"]["state"], shown["job"]["status"]) == (id, "failed", 3)
    assert json.loads(waited.out) == shown
    log = call("jobs", "log", id, "--json", "-n", "1").json
    check(log, "log")
    assert (log["id"], log["state"], log["lines"]) == (id, "failed", ["two"])
    again = call("jobs", "show", id, "--command", "--json").json
    check(again, "call")
    assert again["call"][:2] == ["gputui", "run"]
    jobs = call("jobs", "--json").json
    check(jobs, "jobs")
    no_keys_lost("jobs", jobs)
    rerun = call("jobs", "rerun", id, "--json", "-q").json
    check(rerun, "job")
    assert rerun["job"]["id"] != id
    call("jobs", "wait", rerun["job"]["id"])
    gone = json.loads(call("jobs", "forget", id, "--json").out)
    check(gone, "jobs")
    assert [each["id"] for each in gone["jobs"]] == [id]
    assert failure(call("jobs", "show", id, "--json"), 2)["code"] == "no_such_job"


def test_a_job_that_is_stopped_is_told_as_it_has_ended(call: Call) -> None:
    id = call(*DETACHED, "sleep", "600").json["job"]["id"]
    told = json.loads(call("jobs", "stop", id, "--json").out)
    check(told, "jobs")
    assert [(each["id"], each["state"]) for each in told["jobs"]] == [(id, "stopped")]


def test_a_command_that_cannot_start_is_a_failure_with_its_status(call: Call) -> None:
    assert failure(call(*DETACHED, "/no/such/program"), 127)["code"] == "cannot_start"


@each_row(
    "words",
    [
        ("run", "--gpus", "none", "--json", "--", "true"),
        ("run", "--gpus", "none", "--attach", "--json", "--", "true"),
        ("run", "--on", "gpu1,gpu2", "--detach", "--json", "--", "torchrun", "t.py"),
        ("run", "--slurm", "--detach", "--json", "--", "true"),
        ("jobs", "--json", "attach", "x"),
        ("claims", "--setup", "--json"),
        ("plan", "--demo", "8B", "--prove", "--json", "--", "t.py"),
    ],
)
def test_json_is_refused_where_stdout_is_for_something_else(call: Call, words: tuple[str, ...]) -> None:
    assert failure(call(*words), 2)["code"] == "wrong_call"


def test_the_log_that_is_followed_is_no_document(call: Call) -> None:
    id = call(*DETACHED, "true").json["job"]["id"]
    call("jobs", "wait", id)
    assert failure(call("jobs", "log", id, "-f", "--json"), 2)["code"] == "wrong_call"


def test_a_call_that_follows_prints_readings_only(call: Call) -> None:
    ended = call("ls", "--json", "--follow", "--bogus")
    assert (ended.status, ended.out) == (2, "") and "--bogus" in ended.err


def test_an_experiment_answers_before_it_starts_as_its_schema_says(call: Call) -> None:
    words = ("--gpus", "none", "--dry-run", "--json", "--", "true")
    told = call("compare", "--vary", "env:X=0,1", *words).json
    check(told, "dry-run")
    assert [each["environment"]["X"] for each in told["launches"]] == ["0", "1"]
    check(call("each", *words, "{1..2}").json, "dry-run")
    started = call("each", "--gpus", "none", "--detach", "--json", "-q", "--", "true", "{1..2}").json
    check(started, "job")
    call("jobs", "wait", started["job"]["id"])


@each_row(
    ("name", "words"),
    [
        ("doctor", ("doctor", "--json")),
        ("config", ("config", "--json")),
        ("pages", ("docs", "--json")),
        ("page", ("docs", "json", "--json")),
    ],
)
def test_a_call_about_gputui_itself_answers_as_its_schema_says(
    name: str, words: tuple[str, ...], call: Call
) -> None:
    check(json.loads(call(*words).out), name)


def test_launches_answer_as_their_schema_says(call: Call) -> None:
    kept = with_launch((), LaunchOptions(("python", "t.py")), 2, 1.0, "/")
    change(os.environ, lambda _: kept)
    document = call("launches", "--json").json
    check(document, "launches")
    no_keys_lost("launches", document)
    named = call("launches", "name", "1", "nightly", "--json").json
    check(named, "launches")
    assert [each["name"] for each in named["launches"]] == ["nightly"]
    assert call("launches", "forget", "nightly", "--json").json["launches"] == []


def test_a_check_answers_as_its_schema_says(call: Call) -> None:
    document = json.loads(call("check", "--gpus", "none", "--json").out)
    check(document, "check")
    no_keys_lost("check", document)


def failure(told: Ended, status: int) -> dict[str, Any]:
    """The failure that a call with --json has printed on stdout; stderr has its message too, where the
    reasons of several devices have a line each."""
    assert told.status == status, told
    document = json.loads(told.out)
    assert list(document) == ["schema", "error"] and document["schema"] == 1
    found: dict[str, Any] = document["error"]
    assert list(found) == ["code", "message", "remedy", "devices"]
    assert all(part in " ".join(told.err.split()) for part in found["message"].split(": GPU")[:1])
    return found


@each_row(
    ("words", "status", "code"),
    [
        (("pick", "--demo", "--json", "-n", "99"), 4, "not_enough"),
        (("pick", "--demo", "--json", "--nope"), 2, "wrong_call"),
        (("pick", "--demo", "--json", "--gpus", "99"), 2, "bad_request"),
        (("ls", "--json", "--from", "/nowhere"), 3, "no_source"),
        (("jobs", "--json", "--nope"), 2, "wrong_call"),
        (("nonsense", "--json"), 2, "wrong_call"),
        (("compare", "--show", "zzzz", "--json"), 2, "no_such_job"),
        (("plan", "--demo", "no/such/model", "--json"), 2, "wrong_call"),
    ],
)
def test_a_failure_is_one_object_with_a_code(
    words: tuple[str, ...], status: int, code: str, call: Call
) -> None:
    assert failure(call(*words), status)["code"] == code


def test_a_failure_names_the_devices_that_are_the_reason(call: Call) -> None:
    devices = {each["index"]: each["uuid"] for each in call("ls", "--demo", "--json").json["devices"]}
    judged = {each["index"]: each["verdict"] for each in call("ls", "--demo", "--json").json["devices"]}
    taken = [index for index in devices if judged[index]["state"] != "free"]
    found = failure(call("pick", "--demo", "--json", "-n", str(len(devices))), 4)
    assert sorted(found["devices"]) == sorted(devices[index] for index in taken)
    assert found["remedy"]
    busy = next(index for index in taken if judged[index]["state"] == "busy")
    found = failure(call("pick", "--demo", "--json", "--gpus", str(busy)), 4)
    assert found["devices"] == [devices[busy]]


@each_row(
    ("words", "helps"),
    [
        ((), True),
        (("-n", "8"), True),
        (("-n", "9"), False),
        (("--gpus", "0"), True),
        (("--gpus", "0", "--if-free"), False),
        (("-n", "1", "--min-free", "200G"), False),
        (("-n", "8", "--demo", "lost"), True),
        (("--gpus", "6", "--demo", "lost"), False),
    ],
)
def test_who_may_wait_for_devices_is_told_so(words: tuple[str, ...], helps: bool, call: Call) -> None:
    demo = () if "--demo" in words else ("--demo", "shared" if words else "full")
    found = failure(call("run", *demo, *words, "--dry-run", "--json", "--", "true"), 4)
    assert ("--wait" in found["remedy"]) is helps
    said = call("run", *demo, *words, "--dry-run", "--", "true").err
    assert ("--wait" in said) is helps
    picks = [word for word in words if word != "--if-free"]
    assert "--wait" not in call("pick", *demo, *picks).err


def test_a_wrong_call_is_told_where_its_help_is(call: Call) -> None:
    assert "gputui pick --help" in failure(call("pick", "--json", "--nope"), 2)["remedy"]


def test_a_failure_with_bytes_that_are_no_text_is_one_object_too(call: Call) -> None:
    told = call("pick", "--demo", "--json", "--gpus", "\udce9\x1b[2J")
    assert told.status == 2 and told.out.isascii()
    check(json.loads(told.out), "error")


def test_the_launch_of_a_plan_answers_as_its_schema_says(call: Call) -> None:
    told = call("plan", "--demo=idle", "1B", "-n", "2", "--use", "ddp", "--json", "--", "python", "t.py")
    assert told.status == 0, told
    check(json.loads(told.out), "launch")


def test_a_failure_without_json_leaves_stdout_alone(call: Call) -> None:
    call("pick", "--demo", "-n", "99").refused(4)
    # The form that scripts know since before there was --json.
    call("pick", "--demo", "--format", "json", "-n", "99").refused(4)


def test_a_setting_that_is_wrong_has_its_own_code(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gputui").mkdir()
    (tmp_path / "gputui" / "config.toml").write_text("[rules]\nnonsense = [\n")
    assert failure(call("ls", "--demo", "--json"), 2)["code"] == "bad_settings"


def test_an_interrupted_call_is_a_failure_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gputui.cli.ls.main", interrupted)
    status = dispatch(["ls", "--json"])
    told = capsys.readouterr()
    assert failure(Ended(status, told.out, told.err), 130)["code"] == "interrupted"


NO_JSON = {
    "metrics": "its answer is OpenMetrics text",
    "record": "its answer is a document already",
    "completion": "its answer is a shell's script",
    "mcp": "its answers are those of its protocol",
    "agent-skill": "its answer is a file for agents",
}


def test_every_subcommand_answers_in_json() -> None:
    """A new subcommand has --json and a schema, or stands in the list with its reason."""
    described = {call.split()[0] for _, calls in DOCUMENTS.values() for call in calls}
    for name in SUBCOMMANDS:
        options = importlib.import_module(module_of(name)).parser()._option_string_actions
        assert ("--json" in options) == (name not in NO_JSON), name
        assert name in described or name in NO_JSON, name


def test_the_documentation_lists_every_call_with_its_schema_and_every_key() -> None:
    assert PAGE.read_text() == page()


def test_the_documentation_lists_every_code_with_its_status() -> None:
    documented = dict(
        line.split("|")[1:3]
        for line in PAGE.read_text().partition("## Keys")[0].splitlines()
        if line.startswith("| `") and line.count("|") == 4
    )
    told = {code.strip(" `"): status.strip() for code, status in documented.items()}
    for each in errors():
        status = "126, 127" if each.code == "cannot_start" else str(each.status)
        assert told.pop(each.code, status) == status, each
    assert set(told) == set(), "codes that no error has"
