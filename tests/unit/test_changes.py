"""What has got worse between choosing and launching: told; what was known or is better: not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.choosing.changes import changes
from gputui.choosing.selection import Selection
from gputui.choosing.verdict import Verdict, verdicts
from gputui.inventory.device import Device, Fault
from gputui.inventory.process import ANOTHER_NAMESPACE
from unit.builders import GIB, NOW, box, busy, gpu, job


def _news(before: Device, after: Device | None, later: float = NOW + 30) -> tuple[str, ...]:
    """What is said when `before` was chosen and `after` is there at the launch."""
    then, now = box(before), box(*([after] if after else []), time=later)
    return changes(Selection((before.key,)), verdicts(then), now, verdicts(now))


def test_nothing_happened_is_no_news() -> None:
    assert _news(gpu(0), gpu(0)) == ()


def test_a_device_that_was_taken_meanwhile_is_told_with_its_owner() -> None:
    (line,) = _news(gpu(5), busy(gpu(5)))
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
    (line,) = _news(gpu(0), after)
    assert f"is {state} (was free)" in line


def test_a_device_that_is_gone_is_told() -> None:
    (line,) = _news(gpu(0), None)
    assert line == f"cuda:0 = {gpu(0).key} is not there any more"


def test_a_device_that_has_got_free_is_no_news() -> None:
    assert _news(busy(gpu(0)), gpu(0)) == ()


def test_a_busy_device_that_was_taken_knowingly_is_no_news() -> None:
    assert _news(busy(gpu(0)), busy(gpu(0))) == ()


def test_the_same_job_with_more_memory_and_more_age_is_no_news() -> None:
    after = busy(gpu(0), job(memory=60 * GIB))
    assert _news(busy(gpu(0)), after, later=NOW + 7200) == ()


def test_another_job_on_a_busy_device_is_news() -> None:
    (line,) = _news(busy(gpu(0)), busy(gpu(0), job(77, user="olek")))
    assert "is busy (was busy): olek runs python (pid 77)" in line


def test_the_same_job_of_another_namespace_is_no_news() -> None:
    hidden = job(user=None, command=None, note=ANOTHER_NAMESPACE)
    later = replace(hidden, memory=60 * GIB)
    assert _news(busy(gpu(0), hidden), busy(gpu(0), later), later=NOW + 7200) == ()


def test_the_same_job_whose_owner_has_become_known_is_no_news() -> None:
    nameless = job(user=None, command=None, started=None)
    assert _news(busy(gpu(0), nameless), busy(gpu(0), job())) == ()


def test_a_load_that_nobody_can_be_seen_to_cause_may_waver() -> None:
    assert _news(gpu(0, utilization=40), gpu(0, utilization=41)) == ()


def test_a_worse_state_of_a_device_taken_knowingly_is_news() -> None:
    (line,) = _news(busy(gpu(0)), gpu(0, fault=Fault("lost", "GPU is lost")))
    assert "is lost (was busy)" in line


def test_a_device_of_which_no_verdict_was_kept_is_told_without_one() -> None:
    now = box(busy(gpu(0)))
    (line,) = changes(Selection((gpu(0).key,)), {}, now, verdicts(now))
    assert line.startswith("cuda:0 = GPU 0 is busy: ")


def test_every_device_has_its_own_line_under_its_own_rank() -> None:
    then = box(gpu(0), gpu(1), gpu(2))
    now = box(busy(gpu(0)), gpu(1), replace(gpu(2), processes=None))
    selection = Selection((gpu(2).key, gpu(1).key, gpu(0).key))
    lines = changes(selection, verdicts(then), now, verdicts(now))
    assert [line.split(" is ")[0] for line in lines] == ["cuda:0 = GPU 2", "cuda:2 = GPU 0"]


def test_devices_that_are_not_chosen_are_not_talked_about() -> None:
    then, now = box(gpu(0), gpu(1)), box(gpu(0), busy(gpu(1)))
    assert changes(Selection((gpu(0).key,)), verdicts(then), now, verdicts(now)) == ()


def test_cpu_only_has_no_news() -> None:
    now = box(busy(gpu(0)))
    before: dict[str, Verdict] = {}
    assert changes(Selection(cpu_only=True), before, now, verdicts(now)) == ()
