"""gputui as a library: typed, without effects at import, and on the same claims as the command line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gputui
from gputui import (
    DeviceWarning,
    Launch,
    NoSourceError,
    NotEnoughError,
    RequestError,
    SettingsError,
    StartError,
    WaitedTooLongError,
    hold,
    launch,
    pick,
    read,
)
from gputui.jobs.rerun import rerun_of
from gputui.sources.simulated.boxes import BOXES
from table_tests import each_row
from unit.claims_support import Box

ROOT = Path(__file__).parents[2]


@pytest.fixture
def inside(box: Box) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Run code in a process of its own on the box, which must succeed."""

    def run(work: Callable[[], object]) -> None:
        def body() -> int:
            work()
            return 0

        child = box.fork(body)
        assert child.end() == 0, child.err

    yield run


Inside = Callable[[Callable[[], object]], None]


# The import.


def test_the_import_has_no_effect_and_brings_nothing_along() -> None:
    script = (
        "import os, sys; before = dict(os.environ); from gputui import read, pick, hold, launch;"
        "assert dict(os.environ) == before; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert not {m for m in modules if m.partition(".")[0] in ("textual", "rich", "pynvml", "psutil", "torch")}
    # The first call imports the slow modules: the import itself takes 21 ms as measured, of which 15 are
    # Python's typing.
    ours = {module for module in modules if module.partition(".")[0] == "gputui"}
    parts = (
        "inventory",
        "inventory.light_dataclasses",
        "library",
        *(f"library.{m}" for m in ("box", "hold", "launch")),
    )
    assert ours == {"gputui", *(f"gputui.{part}" for part in parts)}
    assert not modules & {"argparse", "subprocess", "json", "asyncio", "threading"}


@each_row("name", gputui.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(gputui, name)
    assert found.__doc__ and name in dir(gputui)
    assert f"`{name}" in (ROOT / "docs" / "api.md").read_text()


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        gputui.nothing_of_that_name  # noqa: B018


def test_type_checkers_see_the_types(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(
        "from gputui import Box, Device, Held, Job, Launch, Picked, hold, launch, pick, read\n"
        "box: Box = read()\n"
        "free: tuple[Device, ...] = box.free\n"
        "picked: Picked = pick(2, min_free='20G', order='fastest')\n"
        "first: Device = picked[0]\n"
        "with hold(devices=[0, first]) as held:\n"
        "    same: Held = held\n"
        "    env: dict[str, str] = held.env\n"
        "status: int = launch(['true'], 1)\n"
        "made: Launch = launch(['true'], 1, dry_run=True)\n"
        "job: Job = launch(['true'], 1, detach=True)\n"
        "wrong: str = pick(1)\n"
        "pick(order='nearest')\n"
        "launch(['true'], group=1)\n"
        "launch(['true'], gpus='0')\n"
        "launch(['true'], name='nightly')\n"
        "launch(['true'], 2, min_free='20G', env={}, detach=True, name='nightly')\n"
    )
    words = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path}", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT / "app")},
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {line.split(":")[1] for line in errors} == {"12", "13", "14", "15", "16"}, done.stdout


# Reading.


@each_row("name", BOXES)
def test_every_box_is_read_with_a_state_and_a_reason_for_each_device(name: str) -> None:
    box = read(demo=name)
    assert box.devices and box.host
    for device in box.devices:
        assert box.state(device) in ("free", "busy", "held", "claimed", "unknown", "lost")
        assert box.reason(device) and box.label(device)
        assert (device in box.free) == (box.state(device) == "free")
    assert box.document()["schema"] == 1
    assert [d["verdict"]["state"] for d in box.document()["devices"]] == [*map(box.state, box.devices)]


def test_links_are_left_out_where_they_are_not_wanted(inside: Inside) -> None:
    def work() -> None:
        one, other = read().devices[:2]
        assert read().link(one, other) == "NV18"
        assert read(links=False).link(one, other) is None

    inside(work)


def test_what_cannot_be_read_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        read(recording=tmp_path / "none.json")
    (tmp_path / "config" / "gputui").mkdir(parents=True)
    (tmp_path / "config" / "gputui" / "config.toml").write_text("[nothing]\n")
    with pytest.raises(SettingsError):
        read(demo="idle")


# Picking.


def test_what_is_picked_is_what_the_command_line_picks(box: Box, inside: Inside) -> None:
    status, out, _ = box.call("pick", "-n", "3")

    def work() -> None:
        before = dict(os.environ)
        picked = pick(3)
        assert f"{picked.ids}\n" == out and len(picked) == 3
        assert picked.env == {**before, **{k: v for k, v in picked.variables.items() if v is not None}}
        assert picked.variables["CUDA_VISIBLE_DEVICES"] == picked.ids
        assert picked.uuids == tuple(device.uuid for device in picked)
        assert os.environ == before

    assert status == 0
    inside(work)


def test_devices_that_no_variable_can_make_visible_have_no_environment() -> None:
    picked = pick(1, demo="apple")
    assert len(picked) == 1
    for read_it in (lambda: picked.env, lambda: picked.variables):
        with pytest.raises(RequestError):
            read_it()


def test_a_shortage_is_a_typed_error() -> None:
    with pytest.raises(NotEnoughError) as caught:
        pick(64, demo="dgx-h100")
    assert isinstance(caught.value, gputui.GputuiError) and "\n" not in str(caught.value)
    with pytest.raises(NotEnoughError):
        pick(1, min_free="900G", demo="idle")


@each_row(
    "arguments",
    [
        {"n": 0},
        {"n": True},
        {"group": "tp"},
        {"n": 3, "group": "tp=2"},
        {"order": "nearest"},
        {"max_util": 101},
        {"min_free": -1},
        {"min_free": float("nan")},
        {"min_free": "much"},
        {"vendor": "acme"},
        {"devices": "0,,1"},
        {"devices": [0, 0]},
        {"devices": ["GPU-none"]},
        {"wait": -1},
        {"wait": float("nan")},
        {"window": -1},
        {"wait": True},
    ],
    ids=str,
)
def test_a_call_that_cannot_be_meant_is_a_request_error(arguments: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        pick(**arguments, demo="idle")  # type: ignore[arg-type]


def test_devices_are_named_by_index_uuid_or_as_values() -> None:
    one, other = read(demo="idle").devices[:2]
    for names in ([1, 0], ["1", "0"], "1,0", [other, one], [other.uuid, one]):
        assert [device.index for device in pick(devices=names, demo="idle")] == [1, 0]
    assert [device.index for device in pick(1, never=[0], demo="idle")] == [1]
    assert len(pick(devices="none", demo="idle")) == 0


def test_a_device_that_is_named_by_force_is_a_warning_at_the_callers_line() -> None:
    busy = next(d for d in read(demo="shared").devices if d.processes)
    forced: dict[str, Any] = {"devices": [busy], "demo": "shared", "force": True}
    for call in (lambda: pick(**forced), lambda: _held(**forced)):
        with pytest.warns(DeviceWarning) as seen:
            call()
        assert {Path(each.filename) for each in seen} == {Path(__file__)}


def _held(**arguments: object) -> None:
    with hold(**arguments):  # type: ignore[arg-type]
        pass


# Holding.


def test_what_is_held_is_claimed_until_the_block_ends(box: Box, inside: Inside) -> None:
    def work() -> None:
        with hold(2) as held:
            assert held.claimed and len(held.pass_fds) >= 2
            assert {claim.key for claim in box.claims()} == set()  # our own claims are left out
            seen = [device.index for device in held]
            other = box.call("claims", "--json")[1]
            assert all(device.uuid in other for device in held)
            states = {device.index: read().state(device) for device in read().devices}
            assert [index for index, state in states.items() if state == "claimed"] == sorted(seen)
            assert not set(pick(2)) & set(held)
            status, out, _ = box.call("pick", "-n", "6")
            assert status == 0 and not {*map(int, out.split(","))} & {*seen}
        assert box.call("pick", "-n", "8")[0] == 0
        assert len(pick(8)) == 8

    inside(work)


def test_two_holds_of_one_process_never_get_the_same_device(inside: Inside) -> None:
    def work() -> None:
        with hold(3) as one, hold(5) as other:
            assert len({device.uuid for device in (*one, *other)}) == 8
            with pytest.raises(NotEnoughError), hold(1):
                pass
            with pytest.raises(NotEnoughError), hold(devices=[one[0]]):
                pass

    inside(work)


def test_threads_that_hold_at_once_get_different_devices(inside: Inside) -> None:
    def work() -> None:
        got: list[str] = []
        all_have_one = threading.Barrier(8, timeout=30)

        def thread() -> None:
            with hold(1) as held:
                got.append(held[0].uuid)
                all_have_one.wait()

        threads = [threading.Thread(target=thread) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(set(got)) == 8

    inside(work)


def test_an_error_in_the_block_gives_the_devices_back(inside: Inside) -> None:
    def work() -> None:
        with pytest.raises(ZeroDivisionError), hold(8):
            raise ZeroDivisionError
        assert len(pick(8)) == 8

    inside(work)


def test_a_warning_that_is_an_error_gives_the_devices_back(box: Box, inside: Inside) -> None:
    holder = box.hold(3)

    def work() -> None:
        warnings.simplefilter("error", DeviceWarning)
        with pytest.raises(DeviceWarning), hold(devices=[3, 4], force=True):
            pass
        assert len(pick(7)) == 7

    inside(work)
    holder.kill()


def test_a_held_device_is_refused_and_force_takes_it(box: Box, inside: Inside) -> None:
    holder = box.hold(3)

    def work() -> None:
        with pytest.raises(NotEnoughError), hold(devices=[3]):
            pass
        with pytest.warns(DeviceWarning), hold(devices=[3, 4], force=True) as held:
            assert [device.index for device in held] == [3, 4] and not held.claimed

    inside(work)
    holder.kill()


def test_the_claim_ends_with_the_process_and_not_with_what_has_inherited_it(box: Box) -> None:
    def work() -> int:
        context = hold(2)
        held = context.__enter__()
        child = subprocess.Popen(["sleep", "60"], env=held.env, pass_fds=held.pass_fds)
        plain = subprocess.Popen(["sleep", "60"], env=held.env)
        print(child.pid, plain.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    holder = box.fork(work)
    assert holder.end() == -signal.SIGKILL
    child, plain = map(int, holder.out.split())
    try:
        assert len(box.claimed()) == 2
    finally:
        os.kill(plain, signal.SIGKILL)
        descriptor = os.pidfd_open(child)
        os.kill(child, signal.SIGKILL)
        # The process is not our child: its descriptor shows its end.
        import select

        assert select.select([descriptor], [], [], 30)[0]
        os.close(descriptor)
    assert box.claimed() == []


def test_waiting_ends_in_its_time_or_with_a_device(box: Box, inside: Inside) -> None:
    holder = box.hold(*range(8))

    def too_long() -> None:
        with pytest.raises(WaitedTooLongError), hold(1, wait=0.01):
            pass

    inside(too_long)
    holder.kill()

    def at_once() -> None:
        with hold(1, wait=30, window=0) as held:
            assert held.claimed

    inside(at_once)


def test_a_demo_box_is_held_without_claims() -> None:
    with hold(2, demo="idle") as held:
        assert len(held) == 2 and not held.claimed and held.pass_fds == ()


# Launching.


def test_a_launch_is_what_the_command_line_makes(box: Box, inside: Inside) -> None:
    _, out, _ = box.call("run", "-n", "2", "--dry-run", "--", "torchrun", "train.py")

    def work() -> None:
        made = launch(["torchrun", "train.py"], 2, dry_run=True)
        assert isinstance(made, Launch) and f"{made.line}\n" == out
        with_more = launch(
            ["torchrun", "train.py"], 2, env={"A": "1"}, directory="/tmp", processes=4, dry_run=True
        )
        assert ("A", "1") in with_more.changes and with_more.directory == "/tmp"
        assert "--nproc-per-node=4" in with_more.argv

    inside(work)


def test_a_launch_ends_with_the_commands_status_on_claimed_devices(box: Box, inside: Inside) -> None:
    def work() -> None:
        script = 'test -n "$CUDA_VISIBLE_DEVICES" && echo "$CUDA_VISIBLE_DEVICES" > seen && exit 7'
        assert launch(["/bin/sh", "-c", script], 2, directory=str(box.folder)) == 7
        assert (box.folder / "seen").read_text() == f"{pick(2).ids}\n"
        assert launch(["/bin/sh", "-c", "kill -9 $$"], 1) == -9
        assert len(pick(8)) == 8

    inside(work)


def test_ctrl_c_lets_the_command_end_in_its_own_time(box: Box, tmp_path: Path) -> None:
    script = "trap 'sleep 0.6; echo saved; exit 3' INT; echo started; while :; do sleep 0.05; done"
    code = (
        "from gputui import launch, pick\n"
        f"try: launch(['/bin/sh', '-c', {script!r}], 2)\n"
        "except KeyboardInterrupt: print('interrupted', len(pick(8)), flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=box.environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[0].split("\n") == ["saved", "interrupted 8", ""]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_ctrl_c_as_the_command_is_started_waits_for_it_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = signal.signal

    def pressed_as_it_becomes_usual_again(number: int, handler: Any) -> object:
        before = usual(number, handler)
        if number == signal.SIGINT and handler is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return before

    monkeypatch.setattr(signal, "signal", pressed_as_it_becomes_usual_again)
    with pytest.raises(KeyboardInterrupt):
        launch(["/bin/sh", "-c", f"sleep 0.3; echo saved > {tmp_path}/state"], devices="none")
    assert (tmp_path / "state").read_text() == "saved\n"


def test_others_read_the_script_and_none_of_its_arguments(
    box: Box, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "sweep.py", "--token", "hunter2"])

    def work() -> None:
        with hold(1):
            out = box.call("claims", "--json")[1]
            assert "python sweep.py" in out and "hunter2" not in out

    inside(work)


def test_a_detached_launch_is_a_job_that_has_the_devices(box: Box, inside: Inside) -> None:
    def work() -> None:
        job = launch(["sleep", "60"], 2, detach=True, name="nightly", never="0")
        assert (job.state, job.name) == ("running", "nightly")
        assert rerun_of(job).request.devices.never == ("0",)
        assert len(box.claimed()) == 2
        with pytest.raises(NotEnoughError):
            pick(7)
        assert box.call("jobs", "stop", "nightly")[0] == 0
        assert len(pick(8)) == 8

    inside(work)


def test_a_command_that_cannot_be_started_is_a_typed_error(inside: Inside) -> None:
    def work() -> None:
        for detach in (False, True):
            with pytest.raises(StartError) as caught:
                launch(["/no/such/program"], 1, detach=detach)
            assert caught.value.status == 127
        assert len(pick(8)) == 8

    inside(work)


def test_a_command_that_asks_for_other_devices_is_refused() -> None:
    with pytest.raises(RequestError):
        launch(["torchrun", "--nproc-per-node=3", "train.py"], 2, demo="idle", dry_run=True)
    with pytest.raises(RequestError):
        launch(["python", "t.py"], 1, devices="0", demo="idle", dry_run=True)
    with pytest.raises(RequestError):
        launch([], 1, demo="idle")
    for wrong in ({"launcher": "mine"}, {"processes": 0}):
        with pytest.raises(RequestError):
            launch(["python", "t.py"], 1, demo="idle", dry_run=True, **wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        launch("python train.py", 1, demo="idle", dry_run=True)
