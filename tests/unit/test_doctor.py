"""`gputui doctor`: each thing that is wrong is found, with its remedy, in two seconds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.cli import doctor
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.calling import Call

NEEDED = {"driver", "claims", "settings"}


def _checks(call: Call, status: int) -> dict[str, Any]:
    ended = call("doctor", "--json")
    assert (ended.status, ended.err) == (status, "")
    document = json.loads(ended.out)
    assert document["good"] is (status == 0)
    return {each["name"]: each for each in document["checks"]}


@pytest.fixture
def dgx(nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch) -> SimulatedNvml:
    """A driver that answers, with eight devices, however busy the machine is."""
    monkeypatch.setattr(doctor, "_PATIENCE", 60.0)
    nvml_here.show_box(BOXES["dgx-h100"])
    return nvml_here


with_devices = pytest.mark.usefixtures("dgx")


@with_devices
def test_where_all_is_well_the_status_is_0(call: Call) -> None:
    assert_costs(2.0, lambda: cpu_seconds(lambda: _checks(call, 0), time.process_time))
    found = _checks(call, 0)
    assert {name for name, each in found.items() if each["needed"]} == NEEDED | {"device files"}
    assert all(found[name]["good"] for name in NEEDED)
    # The files of a simulated device do not exist: it is not known whether they can be opened.
    assert found["device files"]["good"] is None and found["device files"]["remedy"]
    assert "8× " in found["driver"]["detail"]


@with_devices
@pytest.mark.parametrize("inside", [True, False])
def test_a_container_is_said_to_see_nothing_outside(
    call: Call, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    monkeypatch.setattr(doctor, "in_initial_namespace", lambda: not inside)
    assert ("container" in _checks(call, 0)) is inside


def test_without_a_driver_the_rest_is_checked_all_the_same(call: Call, dgx: SimulatedNvml) -> None:
    dgx.fail_init(9)
    found = _checks(call, 5)
    assert not found["driver"]["good"] and found["claims"]["good"]
    # The remedy is on a line of its own.
    assert found["driver"]["remedy"] and found["driver"]["remedy"] not in found["driver"]["detail"]
    assert {"confinement", "ssh", "clipboard", "notification", "terminal"} <= found.keys()


def test_without_a_terminal_the_same_is_said_of_all_that_needs_one(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "tools", lambda environ: ())
    monkeypatch.setattr(doctor, "is_terminal", lambda stream: False)
    lines = [line.split(None, 1) for line in call("doctor").out.splitlines()]
    told = {name: rest for name, rest in lines if name in ("clipboard", "notification", "terminal")}
    assert len(told) == 3
    assert {" ".join(rest.split()) for rest in told.values()} == {
        "unknown no terminal here: output goes to a file or a pipe"
    }


def test_a_driver_that_does_not_answer_is_given_up(
    call: Call, dgx: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE", 0.05)
    dgx.delay("*", 100_000)
    found = _checks(call, 5)
    assert not found["driver"]["good"] and found["driver"]["remedy"]


@with_devices
def test_a_device_file_that_cannot_be_opened_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gputui.vendors.nvidia.vendor import VENDOR

    monkeypatch.setattr(type(VENDOR), "nodes", lambda *_: (str(tmp_path / "closed"),))
    found = _checks(call, 5)["device files"]
    assert "closed" in found["detail"] and found["remedy"]


@with_devices
def test_where_there_is_no_other_device_nothing_must_be_proved(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pointed to `gputui check --confine`, which has nothing to prove there."""
    monkeypatch.setattr("gputui.launching.confine.left_out", lambda *_: ())
    assert _checks(call, 0)["confinement"]["good"]


@each_row(("mode", "group", "joins"), [(0o660, 1, True), (0o660, 0, False), (0o600, 1, False)])
def test_who_cannot_open_a_device_file_joins_its_group_unless_that_is_roots(
    monkeypatch: pytest.MonkeyPatch, mode: int, group: int, joins: bool
) -> None:
    facts = os.stat_result((mode, 0, 0, 1, 0, group, 0, 0, 0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", lambda *_, **__: facts)
        patched.setattr(Path, "group", lambda *_, **__: "render")
        remedy = doctor._opens("/dev/dri/renderD128")
    assert ("usermod -aG render" in remedy) is joins and ("administrator" in remedy) is not joins


@with_devices
def test_a_claims_folder_that_cannot_be_used_is_a_problem(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(0o755)
    monkeypatch.setenv("GPUTUI_CLAIMS", str(folder))
    assert str(folder) in _checks(call, 5)["claims"]["detail"]


def _write_settings(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    file = folder / "gputui" / "config.toml"
    file.parent.mkdir()
    file.write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))


@with_devices
def test_settings_that_are_wrong_are_a_problem(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _write_settings("[rulez]\n", monkeypatch, tmp_path)
    assert "rulez" in _checks(call, 5)["settings"]["detail"]


@with_devices
def test_what_can_be_used_besides_does_not_fail_the_call(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _write_settings('[wait]\nnotify = ["no-such-program"]\n', monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = _checks(call, 0)
    for name in ("ssh", "notification"):
        assert not found[name]["good"] and found[name]["remedy"]


def test_the_text_has_a_line_for_each_check_and_each_remedy(call: Call, dgx: SimulatedNvml) -> None:
    dgx.fail_init(9)
    ended = call("doctor")
    lines = ended.out.splitlines()
    assert ended.status == 5 and lines[0].split()[:2] == ["driver", "problem"]
    words = [line.partition("  ")[2].split()[0] for line in lines]
    assert words.count("→") + sum(word in ("ok", "unknown", "limited", "problem") for word in words) == len(
        lines
    )


@with_devices
def test_the_word_agrees_with_the_status_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem is what fails the call, and a remedy says what to do: nothing to do is none."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("gputui.launching.confine.left_out", lambda *_: None)
    for each in doctor.findings(os.environ):
        assert (each.word == "ok") is (each.good is True) and (each.word != "ok" or each.remedy is None)
        assert (each.word == "problem") is (each.needed and each.good is False)
        assert "nothing" not in (each.remedy or "")
