"""Every selected device that is not free is told before a launch, with who has it; a free one never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.choosing.not_free import not_free
from gputui.choosing.selection import Selection
from gputui.choosing.verdict import Verdict, verdicts
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.process import ANOTHER_NAMESPACE
from unit.builders import GIB, NOW, box, busy, gpu, job


def _lines(before: Device, after: Device | None, later: float = NOW + 30) -> tuple[str, ...]:
    """What is said when `before` was chosen and `after` is there at the launch."""
    then, now = box(before), box(*([after] if after else []), time=later)
    return tuple(not_free(Selection((before.key,)), verdicts(then), now, verdicts(now)).values())


def test_nothing_happened_is_no_lines() -> None:
    assert _lines(gpu(0), gpu(0)) == ()


def test_a_device_that_was_taken_meanwhile_is_told_with_its_owner() -> None:
    (line,) = _lines(gpu(5), busy(gpu(5)))
    assert line.startswith("cuda:0 = GPU 5 is busy (was free): mira runs python (pid 4242)")


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (gpu(0, memory_used=20 * GIB), "held"),
        (gpu(0, processes=None), "unknown"),
        (gpu(0, fault=Fault("lost", "GPU is lost")), "lost"),
    ],
)
def test_every_way_to_get_worse_is_told(after: Device, state: str) -> None:
    (line,) = _lines(gpu(0), after)
    assert f"is {state} (was free)" in line


def test_a_device_that_is_gone_is_told() -> None:
    (line,) = _lines(gpu(0), None)
    assert line == f"cuda:0 = {gpu(0).key} is not there any more"


def test_a_device_that_has_got_free_is_no_lines() -> None:
    assert _lines(busy(gpu(0)), gpu(0)) == ()


def test_a_device_that_was_busy_already_is_told_too() -> None:
    """Selecting it is no decision to start on it."""
    (line,) = _lines(busy(gpu(0)), busy(gpu(0)), later=NOW + 7200)
    assert line.startswith("cuda:0 = GPU 0 is busy: mira runs python (pid 4242) for 3h")


def test_a_job_whose_owner_is_not_known_is_told_by_its_number() -> None:
    hidden = busy(gpu(0), job(user=None, command=None, note=ANOTHER_NAMESPACE))
    (line,) = _lines(hidden, hidden)
    assert "is busy: pid 4242, another namespace" in line


def test_a_claimed_device_is_told_with_its_claim() -> None:
    now = replace(box(gpu(0)), claims=(Claim(gpu(0).key, "ana", NOW - 60, "python train.py"),))
    (line,) = not_free(Selection((gpu(0).key,)), {}, now, verdicts(now)).values()
    assert line.startswith("cuda:0 = GPU 0 is claimed: by ana for 1m") and "python train.py" in line


def test_a_worse_state_of_a_device_taken_knowingly_is_lines() -> None:
    (line,) = _lines(busy(gpu(0)), gpu(0, fault=Fault("lost", "GPU is lost")))
    assert "is lost (was busy)" in line


def test_a_device_of_which_no_verdict_was_kept_is_told_without_one() -> None:
    now = box(busy(gpu(0)))
    (line,) = not_free(Selection((gpu(0).key,)), {}, now, verdicts(now)).values()
    assert line.startswith("cuda:0 = GPU 0 is busy: ")


def test_every_device_has_its_own_line_under_its_own_rank() -> None:
    then = box(gpu(0), gpu(1), gpu(2))
    now = box(busy(gpu(0)), gpu(1), replace(gpu(2), processes=None))
    selection = Selection((gpu(2).key, gpu(1).key, gpu(0).key))
    lines = not_free(selection, verdicts(then), now, verdicts(now)).values()
    assert [line.split(" is ")[0] for line in lines] == ["cuda:0 = GPU 2", "cuda:2 = GPU 0"]


def test_devices_that_are_not_chosen_are_not_talked_about() -> None:
    then, now = box(gpu(0), gpu(1)), box(gpu(0), busy(gpu(1)))
    assert not_free(Selection((gpu(0).key,)), verdicts(then), now, verdicts(now)) == {}


def test_cpu_only_has_no_lines() -> None:
    now = box(busy(gpu(0)))
    before: dict[str, Verdict] = {}
    assert not_free(Selection(cpu_only=True), before, now, verdicts(now)) == {}
