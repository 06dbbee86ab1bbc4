"""The line of waiters: ordered by the system's own time, without dead processes."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.allocating import queue
from gputui.allocating.claims.files import new_token
from gputui.allocating.errors import UnsafeError
from gputui.allocating.queue import Ticket, _read, is_waiting, waiters
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import from_json
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.waiter import Waiter
from gputui.system.record_locks import END, lock
from messages import numbers
from simnvml import SimulatedNvml
from unit.claims_support import Box, Forked, box_at, for_all_users, until

Draw = Callable[..., Ticket]


@pytest.fixture
def draw(box: Box) -> Iterator[Draw]:
    """Draw tickets, which are left at the end."""
    drawn: list[Ticket] = []

    def made(count: int = 1, devices: frozenset[str] | None = None, **more: Any) -> Ticket:
        ticket = Ticket.draw(box.environ, count, devices, "x", **more)
        drawn.append(ticket)
        return ticket

    yield made
    for ticket in drawn:
        ticket.leave()


def _waiting(box: Box, count: int = 1, uid: int | None = None) -> Forked:
    """A process that is in line until it is killed."""

    def work() -> int:
        Ticket.draw(os.environ, count, None, f"run -n {count}")
        print("in line", flush=True)
        signal.pause()
        return 0

    return box.begun(work, uid)


def _line(box: Box) -> list[int]:
    return [waiter.count for waiter in waiters(box.environ)]


def test_nobody_is_in_line_where_nobody_ever_was(box: Box) -> None:
    assert waiters(box.environ) == () and not box.claims_folder.exists()


def test_twenty_processes_are_in_line_in_the_order_in_which_they_came(box: Box) -> None:
    for number in range(20):
        _waiting(box, number + 1)
    assert _line(box) == list(range(1, 21))
    assert waiters(box.environ)[6].command == "run -n 7"


def test_who_leaves_is_out_of_line_and_may_leave_twice(box: Box, draw: Draw) -> None:
    tickets = [draw(number) for number in (1, 2, 3)]
    tickets[1].leave()
    tickets[1].leave()
    assert _line(box) == [1, 3]
    tickets[0].leave()
    tickets[2].leave()
    assert _line(box) == [] and not [file for file in box.claims_folder.rglob("*") if file.is_file()]


def test_who_is_killed_is_out_of_line_and_holds_nobody_up(box: Box, draw: Draw) -> None:
    first = _waiting(box, 1)
    mine = draw(2)
    (before,) = mine.ahead(box.environ)
    assert is_waiting(before)
    first.kill()
    assert not is_waiting(before) and mine.ahead(box.environ) == () and _line(box) == [2]


def test_what_a_killed_waiter_has_left_is_removed_when_the_next_one_comes(box: Box, draw: Draw) -> None:
    _waiting(box).kill()
    assert len(list(box.claims_folder.glob("*.ticket"))) == 1
    draw()
    assert len(list(box.claims_folder.glob("*.ticket"))) == 1


def test_each_has_those_before_him_ahead(box: Box, draw: Draw) -> None:
    tickets = [draw(number) for number in range(1, 6)]
    assert [[w.count for w in ticket.ahead(box.environ)] for ticket in tickets] == [
        list(range(1, number)) for number in range(1, 6)
    ]


def test_in_one_tick_of_the_files_clock_they_are_in_line_as_by_their_own(
    box: Box, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's clock for files stands still for some milliseconds."""
    real = queue._place
    monkeypatch.setattr(queue, "_place", lambda facts, path: (0, real(facts, path)[1]))
    tickets = [draw(number) for number in range(1, 20)]
    assert _line(box) == list(range(1, 20)) and len(tickets[9].ahead(box.environ)) == 9


def test_a_place_cannot_be_improved_by_setting_the_time_of_the_file(box: Box, draw: Draw) -> None:
    draw(1)
    draw(2)
    second = next(file for file in box.claims_folder.glob("*.ticket") if '"count": 2' in file.read_text())
    os.utime(second, (0, 0))
    assert _line(box) == [1, 2]


def test_who_waits_for_other_devices_is_in_nobodys_way(box: Box, draw: Draw) -> None:
    left, right = frozenset(box.uuids[:4]), frozenset(box.uuids[4:])
    first, second, any_of_all = draw(4, left), draw(1, right), draw(1)
    assert first.ahead(box.environ) == second.ahead(box.environ) == ()
    assert [waiter.count for waiter in any_of_all.ahead(box.environ)] == [4, 1]
    assert [waiter.count for waiter in draw(1, left).ahead(box.environ)] == [4, 1], "and all who take any"


def test_a_line_is_of_all_users(simulated_nvml: SimulatedNvml) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become other users")
    with for_all_users() as place, box_at(place, simulated_nvml) as box:
        for number, uid in enumerate((0, 54321, 54322, 54321), 1):
            _waiting(box, number, uid)
        assert [(w.count, w.user) for w in waiters(box.environ)] == [
            (1, "root"),
            (2, "54321"),
            (3, "54322"),
            (4, "54321"),
        ]


@pytest.mark.parametrize("jump", [365 * 86_400, -86_400])
def test_a_clock_that_is_set_silences_nobody_and_revives_nobody(
    box: Box, draw: Draw, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    first, second = draw(1), draw(2)
    day, boot = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: day() + jump)
    assert [(w.count, w.silent) for w in waiters(box.environ)] == [(1, False), (2, False)]
    assert [w.count for w in second.ahead(box.environ)] == [1] and not first.ahead(box.environ)
    # After these seconds the first waiter is silent; the second has just beaten.
    monkeypatch.setattr(time, "monotonic", lambda: boot() + queue._SILENT + 5)
    second.beat()
    assert [(w.count, w.silent) for w in waiters(box.environ)] == [(2, False), (1, True)]
    assert not second.ahead(box.environ)


def _plant(box: Box, name: str, text: bytes, locked: bool = True) -> int:
    """Write a file like a ticket; return its open descriptor, locked."""
    path = box.claims_folder / name
    path.write_bytes(text)
    path.chmod(0o644)
    descriptor = os.open(path, os.O_RDWR)
    if locked:
        now = int(time.monotonic())
        lock(descriptor, now, END - now)
    return descriptor


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"[" * 8000, b"[]", b'{"count": true, "devices": [1]}', b'{"count": -5}', b"x" * 99_999],
)
def test_a_ticket_that_says_nonsense_is_one_for_a_device_of_any_kind(
    box: Box, draw: Draw, text: bytes
) -> None:
    """A waiter may well ask for one device, and the ticket costs others no more than that."""
    draw(1).leave()
    descriptor = _plant(box, f"wait.{os.geteuid()}.{new_token()}.ticket", text)
    (waiter,) = waiters(box.environ)
    assert (waiter.count, waiter.devices) == (1, None)
    os.close(descriptor)
    assert waiters(box.environ) == ()


_TEXT = st.text(st.characters(), max_size=50)  # with lone surrogates, as JSON may have them


@given(
    st.fixed_dictionaries(
        {
            "count": st.integers() | st.booleans() | st.floats(),
            "devices": st.none() | st.lists(_TEXT, max_size=3) | st.just([str(n) for n in range(2000)]),
            "since": st.floats() | st.integers() | st.booleans(),
            "command": _TEXT,
            "step": st.integers() | st.booleans(),
            "job": st.none() | _TEXT,
        }
    )
)
@settings(max_examples=25, deadline=None)
def test_whatever_a_ticket_says_can_be_recorded_and_read_again(said: dict[str, object]) -> None:
    waiter = _read(json.loads(json.dumps(said)), Waiter((1, ""), "ana"))
    (again,) = from_json(json.dumps(to_document(Snapshot(Host(), 1.0, (), waiters=(waiter,)), {}))).waiters
    assert (again.count, again.step) == (waiter.count, waiter.step)
    assert (again.devices is None, again.since is None) == (waiter.devices is None, waiter.since is None)


def test_an_untrusted_file_is_in_nobodys_way(box: Box, draw: Draw) -> None:
    draw(1).leave()
    folder, me = box.claims_folder, os.geteuid()
    (folder / f"wait.{me}.{new_token()}.ticket").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"wait.{me}.{new_token()}.ticket")
    (folder / f"wait.{me}.{new_token()}.ticket").mkdir()
    opened = [
        _plant(box, f"wait.{me}.{new_token()}.ticket", b"{}", locked=False),
        _plant(box, f"wait.me.{new_token()}.ticket", b"{}"),
    ]
    unreadable = folder / f"wait.{me}.{new_token()}.ticket"
    opened.append(_plant(box, unreadable.name, b"{}"))
    unreadable.chmod(0o600)
    mine = draw(2)
    assert mine.ahead(box.environ) == () and _line(box) == [2]
    assert not is_waiting(Waiter((0, ""), "x", path=f"{folder}/wait.{me}.{new_token()}.ticket"))
    for descriptor in opened:
        os.close(descriptor)


def test_thousands_of_files_put_nobody_out_of_line(box: Box, draw: Draw) -> None:
    mine = draw(3)
    for number in range(5000):
        (box.claims_folder / f"rubbish {number}").touch()
    last = draw(4)
    assert [waiter.count for waiter in last.ahead(box.environ)] == [3] and mine.ahead(box.environ) == ()


def test_where_there_is_no_folder_there_is_no_line(box: Box) -> None:
    with pytest.raises(UnsafeError, match="/dev/null"):
        Ticket.draw({**box.environ, "GPUTUI_CLAIMS": "/dev/null"}, 1, None, "x")


def test_a_ticket_is_in_line_at_once_or_not_at_all(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is locked before it has a name, and a full disk leaves no file."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    Box.claims(box)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        Ticket.draw(box.environ, 1, None, "x")
    assert not [file for file in box.claims_folder.rglob("*") if file.is_file()]


def test_a_line_stays_in_order_whoever_dies_or_leaves(box: Box, draw: Draw) -> None:
    chance = random.Random(5)
    mine = draw(99)
    others = {number: _waiting(box, number) for number in range(1, 20)}
    while others:
        number = chance.choice(sorted(others))
        others.pop(number).signal(chance.choice((signal.SIGKILL, signal.SIGTERM)))
        until(lambda: _line(box) == [99, *sorted(others)])
    assert mine.ahead(box.environ) == ()


# waiters that can never start


IN_VAIN = [
    (9, lambda uuids: None),
    (1, lambda uuids: frozenset({"GPU-00000000-0000-0000-0000-000000000000"})),
    (2, lambda uuids: frozenset({uuids[0], "GPU-00000000-0000-0000-0000-000000000000"})),
    (3, lambda uuids: frozenset(uuids[:2])),
]
"""A number of devices, and the set of usable ones, that a box of eight lacks."""


@pytest.mark.parametrize(("count", "devices"), IN_VAIN)
def test_who_can_never_start_holds_up_neither_those_in_line_nor_those_who_are_not(
    box: Box, draw: Draw, count: int, devices: Callable[[list[str]], frozenset[str] | None]
) -> None:
    draw(count, devices(list(box.uuids)))
    assert box.call("run", "-q", "-n", "8", "--", "true") == (0, "", "")
    assert box.call("run", "-q", "--wait", "20", "--window", "0", "-n", "8", "--", "true")[0] == 0
    assert box.call("pick", "-n", "8")[2] == ""
    told = box.call("queue")[1]
    assert "it can never start" in told or "after" not in told


def test_who_asks_for_more_memory_than_any_device_has_holds_up_nobody(box: Box, draw: Draw) -> None:
    draw(1, min_free=1 << 60)
    assert box.call("run", "-q", "-n", "1", "--", "true") == (0, "", "")
    assert "it can never start" in box.call("queue")[1]


def test_who_is_refused_behind_others_is_told_how_many_devices_are_free(box: Box, draw: Draw) -> None:
    draw(8)
    status, _, err = box.call("run", "-q", "-n", "2", "--", "true")
    assert status == 4 and numbers(err) == [8, 8]


def test_who_can_start_when_a_lost_device_is_back_keeps_the_place(box: Box, draw: Draw) -> None:
    draw(8)
    box.driver.error("*", 15, 7)
    status, _, err = box.call("run", "-q", "-n", "1", "--", "true")
    box.driver.heal()
    assert status == 4 and "ahead" in err


# calls that take no place in line


@pytest.mark.parametrize(
    "words",
    [
        ("pick", "-n", "1"),
        ("pick", "--gpus", "0"),
        ("export", "-n", "1", "--as", "dotenv"),
        ("run", "-n", "1", "--dry-run", "--", "true"),
    ],
)
def test_who_only_asks_for_devices_is_answered_and_told_of_those_in_line(
    box: Box, draw: Draw, words: tuple[str, ...]
) -> None:
    status, alone, err = box.call(*words)
    assert (status, "in line" in err) == (0, False)
    draw(4)
    status, out, err = box.call(*words)
    assert (status, out) == (0, alone)
    assert "your own run waits ahead (4 GPUs)" in err and "--wait joins" in err
    assert ("named devices" if "--gpus" in words else "refused") in err


def test_nobody_waits_for_the_devices_of_a_simulated_box(box: Box, draw: Draw) -> None:
    draw(4)
    assert box.call("pick", "-n", "1", "--demo")[2] == ""


@pytest.mark.parametrize("words", [("pick", "-n", "2"), ("run", "-n", "2", "--dry-run", "--", "true")])
def test_who_takes_all_that_can_be_had_is_told_of_those_who_wait_for_these_very_devices(
    box: Box, draw: Draw, words: tuple[str, ...]
) -> None:
    """Without a choice UUIDs need not be read; the queue is by UUID."""
    draw(1, frozenset({box.uuids[0]}))
    status, _, err = box.call(words[0], "--never", "2,3,4,5,6,7", *words[1:])
    assert status == 0 and "your own run waits ahead (1 GPU)" in err


def test_who_goes_ahead_is_not_told_of_the_queue(box: Box, draw: Draw) -> None:
    draw(4)
    status, _, err = box.call("run", "-n", "1", "--dry-run", "--force", "--", "true")
    assert (status, "in line" in err) == (0, False)
