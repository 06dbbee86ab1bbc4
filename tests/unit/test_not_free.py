"""Every selected device that is not free is reported before a launch, with its verdict; a free one never."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.selection import NotFree, Selection, not_free
from gputui.choosing.verdict import ClaimedBy, Verdict, verdicts
from gputui.choosing.verdict_text import not_free_lines
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.process import ANOTHER_NAMESPACE
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, job


def _found(before: Device, after: Device | None, later: float = NOW + 30) -> tuple[NotFree, ...]:
    """The findings where `before` was selected and `after` is present at the launch."""
    then, now = box(before), box(*([after] if after else []), time=later)
    return tuple(not_free(Selection((before.key,)), verdicts(then), now, verdicts(now)).values())


def test_nothing_happened() -> None:
    assert _found(gpu(0), gpu(0)) == ()


@each_row(
    ("after", "state"),
    [
        (busy(gpu(0)), "busy"),
        (gpu(0, memory_used=20 * GIB), "held"),
        (gpu(0, processes=None), "unknown"),
        (gpu(0, fault=Fault("lost", "GPU is lost")), "lost"),
    ],
)
def test_every_way_to_get_worse_is_found(after: Device, state: str) -> None:
    (found,) = _found(gpu(0), after)
    assert found.verdict is not None and (found.before, found.verdict.state) == ("free", state)


def test_a_device_that_has_vanished_is_found() -> None:
    assert _found(gpu(0), None) == (NotFree(0, "nvidia", None, None, "free"),)


def test_a_device_that_has_become_free_is_not() -> None:
    assert _found(busy(gpu(0)), gpu(0)) == ()


def test_a_device_that_was_busy_already_is_found_too() -> None:
    """Selecting it is not a decision to start on it."""
    (found,) = _found(busy(gpu(0)), busy(gpu(0)), later=NOW + 7200)
    assert found.verdict is not None and (found.before, found.verdict.state) == ("busy", "busy")


def test_a_claimed_device_is_found_with_its_claim() -> None:
    claim = Claim(gpu(0).key, "ana", NOW - 60, "python train.py")
    now = replace(box(gpu(0)), claims=(claim,))
    (found,) = not_free(Selection((gpu(0).key,)), {}, now, verdicts(now)).values()
    assert found.verdict == Verdict("claimed", ClaimedBy(claim)) and found.before is None


def test_a_worse_state_of_a_device_taken_knowingly_is_found() -> None:
    (found,) = _found(busy(gpu(0)), gpu(0, fault=Fault("lost", "GPU is lost")))
    assert found.verdict is not None and (found.before, found.verdict.state) == ("busy", "lost")


def test_every_device_is_found_under_its_own_rank() -> None:
    then = box(gpu(0), gpu(1), gpu(2))
    now = box(busy(gpu(0)), gpu(1), replace(gpu(2), processes=None))
    selection = Selection((gpu(2).key, gpu(1).key, gpu(0).key))
    found = not_free(selection, verdicts(then), now, verdicts(now))
    assert [(key, each.rank) for key, each in found.items()] == [(gpu(2).key, 0), (gpu(0).key, 2)]


def test_devices_that_are_not_selected_do_not_count() -> None:
    then, now = box(gpu(0), gpu(1)), box(gpu(0), busy(gpu(1)))
    assert not_free(Selection((gpu(0).key,)), verdicts(then), now, verdicts(now)) == {}


def test_cpu_only_has_no_devices() -> None:
    now = box(busy(gpu(0)))
    before: dict[str, Verdict] = {}
    assert not_free(Selection(cpu_only=True), before, now, verdicts(now)) == {}


# the lines of the question


@each_row(
    ("before", "after", "line"),
    [
        (
            gpu(5),
            busy(gpu(5)),
            "GPU 5 (cuda:0) is busy (was free): mira runs train.py (pid 4242, 1h, 20.0G)",
        ),
        (
            busy(gpu(0)),
            busy(gpu(0), job(user=None, command=None, note=ANOTHER_NAMESPACE)),
            "GPU 0 (cuda:0) is busy: pid 4242, no visible owner (outside this container), 1h, 20.0G",
        ),
        (
            gpu(0),
            replace(busy(gpu(0), job(user="bo")), utilization=0, idle_since=NOW - 720),
            "GPU 0 (cuda:0) is idle 12m (was free): bo holds it with train.py (pid 4242, 1h, 20.0G). Ask bo.",
        ),
        (gpu(0), None, f"{gpu(0).key} (cuda:0) is no longer present"),
    ],
)
def test_a_line_has_the_rank_the_device_its_states_and_the_reason(
    before: Device, after: Device | None, line: str
) -> None:
    then, now = box(before), box(*([after] if after else []))
    found = not_free(Selection((before.key,)), verdicts(then), now, verdicts(now))
    assert not_free_lines(found, now) == {before.key: line}
