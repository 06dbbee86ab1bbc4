"""Named devices that are not free: taken, taken with a warning, or refused without --force."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputui import DeviceWarning, NotEnoughError, hold, launch, pick
from gputui.allocating.allocation import Answer, answer_to
from gputui.choosing.verdict import Verdict, judge
from gputui.inventory.device import Device, Fault
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.system.users import own_name
from table_tests import each_row
from unit.builders import GIB, MIB, busy, gpu, job
from unit.claims_support import EIGHT, Box, until

NOBODY_PID = 2**22 - 7
"""The pid of a process whose owner cannot be seen."""


def _desktop(*users: str, memory: int = 2 * GIB) -> Device:
    drawing = tuple(
        job(10 + n, kind="graphics", user=user, memory=memory, command="Xorg", own=user == "me")
        for n, user in enumerate(users)
    )
    return gpu(memory_used=memory, memory_free=80 * GIB - memory, processes=drawing)


@each_row(
    ("device", "answer"),
    [
        (gpu(), "take"),
        (_desktop("root", memory=300 * MIB), "take"),
        (busy(gpu(), job(user="me", own=True)), "warn"),
        (busy(gpu(), job(1, user="me", own=True), job(2, user="me", own=True)), "warn"),
        (busy(gpu(), job(1, user="me", own=True), job(2)), "force"),
        (busy(gpu(), job(user=None)), "force"),
        (busy(gpu()), "force"),
        (gpu(utilization=90), "force"),
        (gpu(memory_used=9 * GIB, memory_free=71 * GIB), "force"),
        (gpu(compute_mode="prohibited"), "warn"),
        (_desktop("root", "me"), "warn"),
        (_desktop("root", "mira"), "force"),
        (gpu(processes=None), "warn"),
        (gpu(utilization=None), "warn"),
        (gpu(fault=Fault("error", "Unknown Error")), "warn"),
        (gpu(fault=Fault("lost", "GPU is lost")), "never"),
    ],
)
def test_whose_use_it_is_decides(device: Device, answer: Answer) -> None:
    assert answer_to(judge(device)) == answer
    in_own_lease = answer_to(judge(device), in_own_lease=True)
    assert in_own_lease == ("warn" if answer == "force" else answer)


def test_every_state_has_an_answer() -> None:
    states = ("free", "busy", "held", "claimed", "cooling", "unknown", "lost")
    found = {state: answer_to(Verdict(state, object())) for state in states}  # type: ignore[arg-type]
    assert [state for state, answer in found.items() if answer == "force"] == ["busy", "held", "claimed"]


# The same for every call that names devices: GPU 1 is in use by a stranger, 2 is held, 3 has a process of
# this user, 4 has the claim of another job.


def _use(device: Device, pid: int) -> Device:
    process = Process(pid, "compute", None, 20 * GIB, None, None)
    return replace(device, memory_used=20 * GIB, memory_free=60 * GIB, utilization=90, processes=(process,))


def _snapshot(box: Box) -> Snapshot:
    snapshot = box.driver.show_box(EIGHT)
    devices = list(snapshot.devices)
    devices[1] = _use(devices[1], NOBODY_PID)
    devices[2] = replace(devices[2], memory_used=20 * GIB, memory_free=60 * GIB, processes=())
    devices[3] = _use(devices[3], os.getpid())
    return replace(snapshot, devices=tuple(devices))


@pytest.fixture
def shared(box: Box) -> Box:
    box.driver.show(_snapshot(box), EIGHT)
    box.hold(4)
    return box


PRINTS = ("--", "sh", "-c", "echo ran on $CUDA_VISIBLE_DEVICES")
CALLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (("run", "-q"), PRINTS),
    "dry run": (("run", "--dry-run"), PRINTS),
    "detach": (("run", "--detach", "-q"), PRINTS),
    "attach": (("run", "--attach", "-q"), PRINTS),
    "compare": (("compare", "-q", "--vary", "env:X=1,2"), PRINTS),
    "pick": (("pick",), ()),
    "pick json": (("pick", "--format", "json"), ()),
    "export": (("export", "--as", "sh"), PRINTS),
    "check": (("check", "--python", "/nonexistent/python"), ()),
}


def _status(box: Box, call: str, *more: str) -> tuple[int, str, str]:
    words, command = CALLS[call]
    return box.call(*words, *more, *command)


@pytest.mark.parametrize("call", CALLS)
def test_what_others_use_or_have_claimed_is_refused_unless_forced(shared: Box, call: str) -> None:
    # All subcommands use the same service: every case is tried with one of them.
    whole = call == "run"
    for names in ("1", "2", "4", "0,1", "3,4") if whole else ("0,1",):
        status, out, said = _status(shared, call, "--gpus", names)
        assert (status, out) == (4, ""), (names, said)
        (told,) = [line for line in said.splitlines() if "--force" in line]
        assert f"GPU {names[-1]} is " in told
        status, _, said = _status(shared, call, "--gpus", names, "--force")
        assert status != 4, (names, said)
    for names in ("0", "3", "3,0") if whole else ("3,0",):
        status, _, said = _status(shared, call, "--gpus", names)
        assert status != 4 and ("GPU 3" in said) == ("3" in names), (names, said)
    for names in ("9", "GPU", "0,0", "0,,1", "", "0,none") if whole else ("9",):
        assert _status(shared, call, "--gpus", names)[0] == 2, names
    assert _status(shared, call, "--gpus", "none")[0] in (0, 5)


def test_it_is_said_once_and_who_has_it_with_how_much(shared: Box) -> None:
    said = shared.call("run", "-q", "--gpus", "1,2,4", *PRINTS)[2]
    assert len(said.splitlines()) == 4 and str(NOBODY_PID) in said and said.count("20.0G") == 2
    said = shared.call("run", "-q", "--gpus", "3", *PRINTS)[2]
    assert said.count("GPU 3") == 1
    said = shared.call("run", "-q", "--force", "--gpus", "1,4", *PRINTS)[2]
    assert said.count("GPU 1") == said.count("GPU 4") == 1


def test_what_the_command_names_is_named_too(shared: Box) -> None:
    words = ("--", "env", "CUDA_VISIBLE_DEVICES=1", "true")
    for call in (("run", "-q"), ("run", "--dry-run"), ("export", "--as", "sh")):
        assert shared.call(*call, *words)[0] == 4
        assert shared.call(*call, "--force", *words)[0] == 0


def test_inside_our_own_lease_what_is_there_is_ours(shared: Box) -> None:
    def body() -> None:
        status, out, said = shared.call("run", "-q", "--gpus", "1,2", *PRINTS, keep=True)
        assert (status, out) == (0, "ran on 1,2\n"), said

    shared.inside([1, 2], body)


def test_a_named_device_that_is_in_use_is_waited_for(shared: Box) -> None:
    waiting = shared.start("run", "-q", "--wait", "--window=0", "--gpus", "1", *PRINTS)
    until(lambda: "first in line" in waiting.err)
    shared.driver.show_box(EIGHT)
    assert waiting.end() == 0 and waiting.out == "ran on 1\n"


def test_somebody_who_comes_while_the_lease_is_taken_is_not_joined(
    box: Box, meanwhile: Callable[..., tuple[int, str, str]]
) -> None:
    for pid, expected in ((NOBODY_PID, 4), (os.getpid(), 0)):
        snapshot = box.driver.show_box(EIGHT)
        devices = (*snapshot.devices[:5], _use(snapshot.devices[5], pid), *snapshot.devices[6:])
        status, _, said = meanwhile(box, replace(snapshot, devices=devices), "--gpus", "5")
        assert status == expected and "GPU 5" in said
        assert box.claimed() == []
    status, out, said = meanwhile(box, replace(snapshot, devices=devices), "--gpus", "5", "--force")
    assert (status, out) == (0, "5\n")


@pytest.fixture
def meanwhile() -> Callable[..., tuple[int, str, str]]:
    """Run a launch during which the box changes, while its lease is being taken."""

    def run(box: Box, later: Snapshot, *words: str) -> tuple[int, str, str]:
        def work() -> int:
            from gputui.allocating.claims import lease as leases
            from gputui.cli.main import main

            real = leases.take

            def late(*arguments: Any) -> object:
                box.driver.show(later, EIGHT)
                return real(*arguments)

            leases.take = late  # type: ignore[assignment]
            return main(["run", "-q", *words, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])

        child = box.fork(work)
        return child.end(), child.out, child.err

    return run


def test_the_library_refuses_and_warns_alike(shared: Box) -> None:
    def body() -> int:
        for names in ([1], "2", [4]):
            for attempt in (
                lambda names=names: pick(devices=names),
                lambda names=names: _held(names),
                lambda names=names: launch(["true"], devices=names),
                lambda names=names: launch(["true"], devices=names, dry_run=True),
            ):
                with pytest.raises(NotEnoughError, match="--force"):
                    attempt()
            with pytest.warns(DeviceWarning):
                assert len(pick(devices=names, force=True)) == 1
            with pytest.warns(DeviceWarning):
                _held(names, force=True)
            with pytest.warns(DeviceWarning):
                assert launch(["true"], devices=names, force=True) == 0
        with pytest.warns(DeviceWarning):
            assert len(pick(devices=[3])) == 1
        return 0

    child = shared.fork(body)
    assert child.end() == 0, child.err


def _held(names: object, force: bool = False) -> None:
    with hold(devices=names, force=force):  # type: ignore[arg-type]
        pass


def test_a_sweep_waits_for_a_device_that_its_command_names(shared: Box) -> None:
    command = ("--", "env", "CUDA_VISIBLE_DEVICES=1", "sh", "-c", "echo {1..2}")
    assert shared.call("each", "--dry-run", *command)[0] == 4
    sweep = shared.start("each", "-q", "--json", "--window=0", *command)
    until(lambda: shared.call("queue", "--json")[1].find('"devices"') > 0 or sweep.over)
    assert not sweep.over
    shared.driver.show_box(EIGHT)
    assert sweep.end() == 0, sweep.err
    assert {task["state"] for task in json.loads(sweep.out)["tasks"]} == {"done"}


def test_whose_processes_they_are_is_told_by_the_name_of_our_user(shared: Box) -> None:
    (mine,) = json.loads(shared.call("ls", "--json")[1])["devices"][3]["processes"]
    assert mine["user"] == own_name()
