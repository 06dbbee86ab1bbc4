"""The allocation: what is claimed for a launch, what blocks it, and when it is released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.allocating.allocate import allocate
from gputui.allocating.allocation import Allocation, hold, queue_for
from gputui.allocating.claims.read import claims
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.allocating.queue import Ticket
from gputui.allocating.request import Notice, Request
from gputui.choosing.grouping import Grouping
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import SimulatedSource
from gputui.sources.source import Want
from gputui.timeline.keeper import Keeper
from gputui.timeline.past import with_past
from gputui.timeline.store import Store
from gputui.vendors.vendor import Vendor
from unit.builders import NOW, box, busy, gpu, job
from unit.claims_support import Elsewhere


class Boxes:
    """A source that shows one box after another, and repeats the last one."""

    label = ""

    def __init__(self, *snapshots: Snapshot) -> None:
        self._snapshots = list(snapshots)

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: object = None) -> Snapshot:
        return self._snapshots.pop(0) if len(self._snapshots) > 1 else self._snapshots[0]

    def close(self) -> None: ...


class Heard:
    """A listener that keeps its notices."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice)

    def progress(self, progress: object) -> None: ...

    def waited(self, allocation: object, seconds: float) -> None: ...


FREE = box(*(gpu(index) for index in range(4)))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"GPUTUI_CLAIMS": str(tmp_path / "claims")}


def _claimed(environ: dict[str, str]) -> set[str]:
    """The keys of the claims, from the records: this process does not see claims of its own leases."""
    folder = Path(environ["GPUTUI_CLAIMS"])
    return {path.name.partition("@")[0] for path in folder.glob("*.claim") if path.stat().st_size}


def _allocated(environ: dict[str, str], request: Request, *snapshots: Snapshot) -> Allocation:
    return allocate(request, Boxes(*snapshots or (FREE,)), environ, Heard(), holds=True)


def _indices(devices: Sequence[Device]) -> list[int]:
    return [device.index for device in devices]


def test_devices_are_held_until_the_launch_is_over(environ: dict[str, str]) -> None:
    allocation = _allocated(environ, Request(2, purpose="train.py"))
    keys = {device.key for device in allocation.devices}
    assert allocation.start(lambda lease: _claimed(environ)) == keys
    assert _claimed(environ) == set()


@pytest.mark.parametrize("wait", [None, math.inf])
def test_who_waits_in_line_gets_the_device_that_is_chosen_without_waiting(
    wait: float | None, environ: dict[str, str]
) -> None:
    snapshot = SimulatedSource(BOXES["mixed"]).read()
    allocation = _allocated(environ, Request(1, wait=wait, rules=Rules(window=0.0)), snapshot)
    assert _indices(allocation.devices) == [1]
    allocation.release()


def test_devices_are_given_back_where_the_launch_fails(environ: dict[str, str]) -> None:
    allocation = _allocated(environ, Request(2))

    def fails(_: object) -> None:
        raise OSError("no such program")

    with pytest.raises(OSError, match="no such program"):
        allocation.start(fails)
    assert _claimed(environ) == set()


def test_a_device_that_is_busy_by_the_time_it_is_held_is_replaced(environ: dict[str, str]) -> None:
    later = replace(FREE, devices=(busy(gpu(0)), *FREE.devices[1:]))
    allocation = _allocated(environ, Request(1), FREE, FREE, later)
    assert _indices(allocation.devices) == [1] and len(_claimed(environ)) == 1
    assert [notice.kind for notice in allocation.notices] == ["note"]
    allocation.release()


def test_a_named_device_that_others_use_by_the_time_it_is_held_is_given_back_unless_forced(
    environ: dict[str, str],
) -> None:
    later = replace(FREE, devices=(busy(gpu(0)), *FREE.devices[1:]))
    with pytest.raises(NotEnoughError):
        _allocated(environ, Request(names="0"), FREE, later)
    assert _claimed(environ) == set()
    allocation = _allocated(environ, Request(names="0", force=True), FREE, later)
    assert _indices(allocation.devices) == [0]
    assert [notice.kind for notice in allocation.notices] == ["warning"]
    allocation.release()


def test_named_devices_are_taken_only_if_free_where_that_is_asked_for(environ: dict[str, str]) -> None:
    strict = Request(names="1,0", if_free=True)
    allocation = _allocated(environ, strict)
    assert _indices(allocation.devices) == [1, 0] and not allocation.notices
    allocation.release()
    later = replace(FREE, devices=(busy(gpu(0)), *FREE.devices[1:]))
    # GPU 0 is busy at the first reading, or only in the reading after it is claimed.
    for snapshots in ((later,), (FREE, later)):
        with pytest.raises(NotEnoughError):
            _allocated(environ, strict, *snapshots)
    other = Elsewhere([FREE.devices[0].key], environ, "other.py")
    with pytest.raises(NotEnoughError):
        _allocated(environ, strict)
    other.release()
    for wants in (None, frozenset({FREE.devices[0].key})):
        ticket = Ticket.draw(environ, 1, wants, "other.py")
        assert ticket is not None
        with pytest.raises(NotEnoughError):
            _allocated(environ, strict)
        ticket.leave()
    assert FREE.devices[1].key not in _claimed(environ)


def test_a_request_is_for_whole_groups_before_any_box_is_looked_at() -> None:
    with pytest.raises(RequestError):
        Request(3, group=Grouping(2))


def test_what_the_command_does_not_agree_with_is_neither_claimed_nor_waited_for(
    environ: dict[str, str],
) -> None:
    def refuse(_: object, found: Sequence[Vendor]) -> None:
        assert [vendor.name for vendor in found] == ["nvidia"]
        raise RequestError("other devices")

    for request in (Request(1), Request(names="0"), Request(1, wait=5.0)):
        with pytest.raises(RequestError):
            allocate(request, Boxes(FREE), environ, Heard(), holds=True, approve=refuse)
    assert not Path(environ["GPUTUI_CLAIMS"]).exists()


def test_nobody_overtakes_unless_forced_and_a_named_device_is_a_warning(environ: dict[str, str]) -> None:
    ticket = Ticket.draw(environ, 4, None, "other.py")
    assert ticket is not None
    with pytest.raises(NotEnoughError):
        _allocated(environ, Request(1))
    forced = _allocated(environ, Request(1, force=True))
    named = _allocated(environ, Request(names="3"))
    assert [notice.kind for notice in named.notices] == ["warning"]
    for allocation in (forced, named):
        allocation.release()
    ticket.leave()


def test_of_devices_for_which_somebody_waits_others_are_taken(environ: dict[str, str]) -> None:
    ticket = Ticket.draw(environ, 1, frozenset({FREE.devices[0].key}), "other.py")
    assert ticket is not None
    allocation = _allocated(environ, Request(1))
    assert _indices(allocation.devices) == [1]
    allocation.release()
    ticket.leave()


# Functions that the screen uses: the devices are already selected.


def test_a_part_can_be_held_and_the_rest_is_told_with_its_owner(environ: dict[str, str]) -> None:
    other = Elsewhere([FREE.devices[1].key], environ, "other.py")
    selected = Allocation(Request(names="0,1"), FREE.devices[:2], FREE)
    none = hold(selected, environ)
    assert none.lease is None and [conflict.key for conflict in none.conflicts] == [FREE.devices[1].key]
    part = hold(selected, environ, partly=True)
    assert part.lease is not None and part.lease.keys == (FREE.devices[0].key,)
    assert [conflict.key for conflict in part.conflicts] == [FREE.devices[1].key]
    assert claims(environ)[0][0].key == FREE.devices[1].key
    part.release()
    other.release()


def test_the_queue_is_of_those_who_could_take_one_of_these_devices(environ: dict[str, str]) -> None:
    assert queue_for(FREE.devices, FREE, environ) is None
    ticket = Ticket.draw(environ, 1, frozenset({FREE.devices[0].key}), "other.py")
    assert ticket is not None
    assert queue_for(FREE.devices[1:], FREE, environ) is None
    queue = queue_for(FREE.devices, FREE, environ)
    assert queue is not None and not queue.for_any
    assert [queue.wants(device) for device in FREE.devices] == [True, False, False, False]
    ticket.leave()


def test_of_several_who_wait_one_is_enough_to_want_a_device(environ: dict[str, str]) -> None:
    drawn = [Ticket.draw(environ, 1, frozenset({FREE.devices[place].key}), "x.py") for place in (0, 1)]
    queue = queue_for(FREE.devices, FREE, environ)
    assert queue is not None and [queue.wants(device) for device in FREE.devices] == [
        True,
        True,
        False,
        False,
    ]
    for ticket in drawn:
        assert ticket is not None
        ticket.leave()


def test_one_who_waits_for_any_device_keeps_all_others_from_overtaking(environ: dict[str, str]) -> None:
    some = Ticket.draw(environ, 1, frozenset({FREE.devices[0].key}), "x.py")
    anyone = Ticket.draw(environ, 1, None, "y.py")
    assert some is not None and anyone is not None
    with pytest.raises(NotEnoughError):
        _allocated(environ, Request(1))
    anyone.leave()
    allocation = _allocated(environ, Request(1))
    assert _indices(allocation.devices) == [1]
    allocation.release()
    some.leave()


def test_a_choice_has_its_reason_and_named_devices_have_none(environ: dict[str, str]) -> None:
    best = _allocated(environ, Request(2, explain=True))
    assert best.reason == best.alternatives[0].reason
    assert best.weakest_link == best.alternatives[0].weakest
    best.release()
    named = _allocated(environ, Request(names="0,1"))
    assert (named.reason, named.weakest_link) == (None, None)
    named.release()


class LinksOnDemand(Boxes):
    """A source that reads links only if they are wanted, as the real ones do."""

    def read(self, want: Want = Want.ALL, among: object = None) -> Snapshot:
        found = super().read(want, among)
        return found if Want.LINKS in want else replace(found, links=())


def test_the_links_order_a_pipeline_also_where_there_is_nothing_to_choose(environ: dict[str, str]) -> None:
    links = (("X", "SYS", "NV2"), ("SYS", "X", "NV2"), ("NV2", "NV2", "X"))
    source = LinksOnDemand(box(gpu(0), gpu(1), gpu(2), links=links))
    found = allocate(Request(3, group=Grouping(pipeline=3)), source, environ, Heard())
    assert _indices(found.devices) == [0, 2, 1]


def test_a_refusal_says_for_how_long_a_user_has_not_used_a_device_as_ls_does(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["XDG_STATE_HOME"] = str(tmp_path)
    taken = replace(busy(gpu(0), job(user="bo")), utilization=0)
    now = box(taken, gpu(1))
    keeper, store = Keeper(environ, lambda: NOW), Store()
    keeper.read()
    for minute in range(12, 0, -1):
        store.add(NOW - 60.0 * minute, [replace(taken, utilization=0 if minute < 12 else 90)], 60.0)
    for moment in (NOW - 120.0, NOW):
        keeper.keep(store, replace(now, time=moment))
    keeper.join(60.0)
    keeper.close()
    judged = verdicts(with_past(now, environ))[taken.key]
    told = state_and_reason(judged, NOW)
    assert judged.shown == "idle" and told.endswith("ask bo")
    for request in (Request(2), Request(names="0"), Request(names="0", if_free=True)):
        with pytest.raises(NotEnoughError) as refused:
            _allocated(environ, request, now)
        assert told in str(refused.value)
    heard = Heard()
    allocate(Request(2, force=True), Boxes(now), environ, heard, holds=True).release()
    assert any(told in notice.text for notice in heard.notices)


def test_what_changed_is_told_with_the_device_and_its_verdict() -> None:
    after = replace(FREE, devices=(busy(gpu(0)), gpu(2), gpu(3)))
    allocation = Allocation(Request(names="0,1"), FREE.devices[:2], FREE)
    taken, gone = allocation.recheck(after, verdicts(after), verdicts(FREE))
    assert taken.verdict is not None
    assert state_and_reason(taken.verdict, after.time) in taken.text(FREE) and "GPU 0" in taken.text(FREE)
    assert gone.verdict is None and "GPU 1" in gone.text(FREE)


def test_only_what_was_free_and_is_not_any_more_has_changed() -> None:
    before = replace(FREE, devices=(gpu(0), busy(gpu(1)), gpu(2), gpu(3)))
    after = replace(FREE, devices=(busy(gpu(0)), busy(gpu(1)), gpu(2)))
    allocation = Allocation(Request(names="0,1,2,3"), before.devices, before)
    changed = allocation.recheck(after, verdicts(after), verdicts(before))
    assert [conflict.key for conflict in changed] == [gpu(0).key, gpu(3).key]
    assert changed[1].verdict is None
