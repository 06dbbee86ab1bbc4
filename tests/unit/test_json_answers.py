"""What `--json` prints: one document for each call, also where it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputui.cli.dispatch import dispatch
from gputui.inventory.errors import GputuiError
from unit.calling import Call, Ended

TRAIN = ("--", "python", "train.py")


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


@pytest.mark.parametrize(
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


def test_a_wrong_call_is_told_where_its_help_is(call: Call) -> None:
    assert "gputui pick --help" in failure(call("pick", "--json", "--nope"), 2)["remedy"]


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


def errors() -> list[type[GputuiError]]:
    """Every class of errors, of all modules."""
    import gputui.allocating.settings
    import gputui.cli.dispatch
    import gputui.jobs.experiments.runner
    import gputui.launching.confine
    import gputui.sources.source
    import gputui.vendors.driver_process  # noqa: F401 - their classes

    found: list[type[GputuiError]] = [GputuiError]
    for each in found:
        found += each.__subclasses__()
    return found


def test_the_documentation_lists_every_code_with_its_status() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "json.md").read_text()
    documented = dict(
        line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `") and line.count("|") == 4
    )
    told = {code.strip(" `"): status.strip() for code, status in documented.items()}
    for each in errors():
        status = "126, 127" if each.code == "cannot_start" else str(each.status)
        assert told.pop(each.code, status) == status, each
    assert set(told) == set(), "codes that no error has"
