"""Files of others in the folder of claims change nothing, except that they cause a warning."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputui.allocating.claims import files, folder, read
from gputui.allocating.claims.files import MOST_FILES, MOST_READ, listed, new_token, seen
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.read import ANNOUNCED, claims
from gputui.allocating.claims.source import WithClaims
from gputui.allocating.errors import UnsafeError
from gputui.allocating.queue import _read, waiters
from gputui.inventory.claim import Claim
from gputui.inventory.document_reader import from_json
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import SimulatedSource
from gputui.system.namespaces import pid_namespace
from gputui.system.record_locks import END, lock
from messages import numbers
from simnvml import SimulatedNvml
from unit.claims_support import (
    UNTRUSTED,
    Box,
    Take,
    box_at,
    file_of_two_names,
    for_all_users,
    record_name,
    until,
    write_record,
)

ANOTHER = 54321
"""A user id that nobody has."""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


# Files that others may have made


UNTRUSTED_RECORDS = [make for make in UNTRUSTED if make is not file_of_two_names]


@pytest.mark.parametrize("make", UNTRUSTED_RECORDS)
def test_an_untrusted_claim_of_another_device_is_no_claim_but_a_problem(
    box: Box, make: Callable[[Path], None]
) -> None:
    make(box.make_folder() / record_name(box.uuids[7]))
    box.hold(1)
    found, problems = claims(box.environ)
    assert [claim.key for claim in found] == [box.uuids[1]]
    (problem,) = problems
    assert box.uuids[7] in problem and problem.isprintable()


def test_files_are_for_all_to_read_whatever_the_umask(box: Box, lease: Take) -> None:
    before = os.umask(0o077)
    try:
        lease(box, 0)
    finally:
        os.umask(before)
    there = box.claims_folder.rglob("*")
    modes = {"." if file.is_dir() else file.suffix: stat.S_IMODE(file.stat().st_mode) for file in there}
    assert modes == {".": 0o755, ".claim": 0o644}
    assert stat.S_IMODE(box.claims_folder.stat().st_mode) == 0o1777


def test_no_file_is_ever_opened_to_be_made_that_may_be_there_already(box: Box) -> None:
    """Under fs.protected_regular, it fails for another user's file in a sticky folder, also for root."""
    made = box.hold(0)

    def work() -> int:
        seen: list[int] = []
        sys.addaudithook(lambda event, facts: seen.append(facts[2]) if event == "open" else None)
        take([box.uuids[1]], os.environ, "x").release()
        take([box.uuids[1]], os.environ, "x").release()
        claims(os.environ)
        flags = [flag for flag in seen if isinstance(flag, int)]
        assert any(flag & os.O_CREAT for flag in flags)
        assert all(flag & os.O_EXCL for flag in flags if flag & os.O_CREAT), flags
        return 0

    child = box.fork(work)
    assert child.end() == 0, child.err
    made.kill()


PIDS = (pid_namespace() or "").encode()

HELD: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"\xff\xfe\x00 {",
    "a list": b"[1, 2]",
    "deep": b"[" * 8000,
    "a number of many digits": b'{"since": ' + b"9" * 9000 + b"}",
    "other types": b'{"since": "yesterday", "pid": [1], "command": 5, "job": {}, "pids": 3}',
    "other roots": b'{"roots": [[1], ["a", 3], [-4, 5], [6, "b"]], "pids": "%s"}' % PIDS,
    "no list of roots": b'{"roots": {"1": 2}, "pids": "%s"}' % PIDS,
    "not numbers": b'{"since": NaN, "pid": 1e99}',
    "too long": b'{"command": "' + b"x" * 100_000 + b'"}',
}


@pytest.mark.parametrize("text", HELD.values(), ids=HELD)
def test_a_record_that_says_nonsense_is_a_claim_of_its_owner_as_long_as_it_is_held(
    box: Box, text: bytes
) -> None:
    descriptor = write_record(box.make_folder() / record_name(box.uuids[6]), text)
    found, problems = claims(box.environ)
    assert problems == () and [(claim.key, claim.command, claim.pid, claim.roots) for claim in found] == [
        (box.uuids[6], None, None, ())
    ]
    os.close(descriptor)


@pytest.mark.parametrize("name", ["😀" * 3000, "a" * 65, "two words", "\x1b[2J", "\ud800", ""])
def test_what_gputui_gives_to_no_job_is_none_of_a_record_and_of_no_ticket(box: Box, name: str) -> None:
    """The usage of the box keeps the job of each claim: 22 such names made its file too large to be read."""
    about = {"job": name, "client": name}
    text = json.dumps({"pids": PIDS.decode(), **about}, ensure_ascii="\ud800" in name).encode()
    descriptor = write_record(box.make_folder() / record_name(box.uuids[6]), text)
    (claim,) = box.claims()
    waiter = _read(about, Waiter((1, ""), "ana"))
    assert (claim.job, claim.client) == (waiter.job, waiter.client) == (None, None)
    os.close(descriptor)


@needs_root
def test_a_record_is_its_owners_in_whosever_name_it_is(box: Box) -> None:
    """This covers a user whose number differs in their container, and a user who forges names."""
    path = box.make_folder() / record_name(box.uuids[0])
    descriptor = write_record(path)
    os.chown(path, ANOTHER, ANOTHER)
    (claim,) = box.claims()
    assert (claim.user, claim.own) == (str(ANOTHER), False)
    os.close(descriptor)


@needs_root
def test_a_record_that_others_can_write_is_none(box: Box) -> None:
    """Others could hold its lock in its owner's name."""
    path = box.make_folder() / record_name(box.uuids[0])
    descriptor = write_record(path)
    path.chmod(0o666)
    found, problems = claims(box.environ)
    assert found == () and path.name in problems[0]
    os.close(descriptor)


def test_a_record_under_the_name_of_another_device_claims_nothing(box: Box) -> None:
    """Where links to others' files are allowed, somebody else may have linked the record under that name."""
    box.hold(1)
    (record,) = box.claims_folder.glob("*.claim")
    os.link(record, box.claims_folder / record.name.replace(box.uuids[1], box.uuids[2]))
    assert box.claimed() == [1]


def test_a_record_with_another_name_is_a_claim_as_before(box: Box, lease: Take) -> None:
    box.hold(1)
    (record,) = box.claims_folder.glob("*.claim")
    os.link(record, box.folder / "another name")
    assert box.claimed() == [1]
    with pytest.raises(TakenError):
        lease(box, 1)


def test_a_record_that_is_locked_as_nobody_would_is_a_claim_all_the_same(box: Box, lease: Take) -> None:
    """A process that announces itself and never continues keeps the device, for `claims` and for `run`."""
    for place, size in ((3, ANNOUNCED), (4, 9)):
        box.forge(box.make_folder() / record_name(box.uuids[place]), size)
    assert box.claimed() == [3, 4]
    with pytest.raises(TakenError) as error:
        lease(box, 3)
    assert error.value.claim in box.claims()


@needs_root
def test_a_user_who_fills_the_folder_hides_no_claim_but_his_own(box: Box) -> None:
    """Files in a user's name take no place of another user's, and only a limited number is opened."""
    box.hold(0)
    (mine,) = box.claims_folder.glob("*.claim")
    for number in range(3000):
        forged = box.claims_folder / record_name(box.uuids[number % 8], 0 if number % 2 else ANOTHER)
        forged.touch(0o644)
        os.chown(forged, ANOTHER, ANOTHER)
    opened = 0

    def count(event: str, facts: tuple[object, ...]) -> None:
        nonlocal opened
        opened += counting and event == "open" and str(facts[0]).endswith(".claim")

    counting = True
    sys.addaudithook(count)
    found, problems = claims(box.environ)
    counting = False
    assert [claim.key for claim in found] == [box.uuids[0]] and mine.exists(), (found, problems)
    assert opened <= 2 + MOST_READ and any("too many" in problem for problem in problems)


def test_a_lease_of_the_file_by_its_owner_makes_nobody_wait(box: Box) -> None:
    """F_SETLEASE blocks an open until the owner gives the lease back, 45 seconds at most (fcntl(2))."""
    box.make_folder()

    def work() -> int:
        descriptor = write_record(box.claims_folder / record_name(box.uuids[0]))
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        print("held", flush=True)
        signal.pause()
        return 0

    holder = box.fork(work)
    until(lambda: holder.out or holder.over)
    looks = box.fork(lambda: len(claims(os.environ)[0]))
    assert looks.ends_within(60) and looks.end() == 0, looks.err


@needs_root
def test_what_a_broken_disk_does_not_give_may_be_a_claim(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.hold(0)
    opened = os.open

    def broken(path: str, flags: int, *more: Any, **known: Any) -> int:
        if str(path).endswith(".claim"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(path, flags, *more, **known)

    monkeypatch.setattr(os, "open", broken)
    status, _, err = box.call("run", "-q", "-n", "1", "--", "true")
    assert status == 4 and os.strerror(errno.EIO) in err


def test_a_user_whom_this_system_does_not_know_is_told_by_number(simulated_nvml: SimulatedNvml) -> None:
    with for_all_users() as place, box_at(place, simulated_nvml) as box:
        box.hold(0, uid=ANOTHER)
        (claim,) = box.claims()
        assert claim.user == str(ANOTHER)


def test_thousands_of_files_hide_no_claim_and_are_told_in_a_few_lines(box: Box) -> None:
    shared = box.make_folder()
    for number in range(4000):
        (shared / f"rubbish {number}").touch()
    for number in range(1040):
        (shared / record_name(f"GPU-{number:08x}-0000", number)).symlink_to("/etc/passwd")
    for number in range(400):
        (shared / f"wait.{number}.{new_token()}.ticket").touch()
    box.hold(0)
    box.hold(7)
    found, problems = claims(box.environ)
    assert {claim.key for claim in found} == {box.uuids[0], box.uuids[7]}
    assert 0 < len(problems) <= 4 and numbers(problems[-1])[0] > 300


def test_where_more_files_are_than_can_be_looked_at_nothing_is_claimed(
    box: Box, lease: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = box.make_folder()
    for number in range(30):
        (shared / f"rubbish {number}").touch()
    monkeypatch.setattr(folder, "MAX_FILES", 20)
    assert any(str(shared) in problem for problem in claims(box.environ)[1])
    with pytest.raises(UnsafeError):
        lease(box, 0)


@pytest.mark.parametrize(
    "said",
    [
        '"pid": true',
        '"pid": 1e3',
        '"job": "\\ud800"',
        '"command": "\\udfff\\u0000"',
        '"since": true',
        '"since": 1e-300',
    ],
)
def test_whatever_a_record_says_other_boxes_can_read_this_one(box: Box, said: str) -> None:
    """One record made the whole `ls --json` unreadable for them: a neighbour could take the box off their
    pages."""
    text = b'{"pids": "%s", %s}' % (PIDS, said.encode())
    descriptor = write_record(box.make_folder() / record_name(box.uuids[6]), text, passed_on=False)
    assert from_json(box.call("ls", "--json")[1]).claimed.keys() == {box.uuids[6]}
    os.close(descriptor)


def test_whatever_a_neighbour_calls_his_folder_other_boxes_can_read_this_one(box: Box) -> None:
    """What is wrong with it is said among the errors of the box, with its name."""
    folder = Path(os.fsdecode(os.fsencode(box.make_folder()) + b"/gputui-claims.2.\xff"))
    folder.mkdir()
    folder.chmod(0o777)
    assert from_json(box.call("ls", "--json")[1]).errors


@needs_root
def test_a_claim_of_another_s_of_a_device_that_is_not_there_is_ignored(simulated_nvml: SimulatedNvml) -> None:
    with for_all_users() as place, box_at(place, simulated_nvml) as box:
        for number in range(3):
            box.forge(box.make_folder() / record_name(f"GPU-{number}-none"), uid=ANOTHER)
        status, out, err = box.call("claims")
        assert (status, out) == (0, "") and "GPU-" not in err and 3 in numbers(err)
        assert box.call("pick", "-n", "8")[0] == 0


def test_a_folder_that_somebody_has_filled_takes_little_memory(box: Box) -> None:
    shared = box.make_folder()
    for number in range(2000):
        (shared / f"GPU-00000000-aaaa-bbbb-cccc-000000000000@1234.{number:032x}.claim").touch()
    tracemalloc.start()
    try:
        found = listed(box.environ)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
    assert len(found.records) == MOST_READ and [*map(len, found.problems)] == [1, 1]


@needs_root
def test_a_crowd_that_makes_up_devices_costs_little_memory_and_its_claims_count(box: Box) -> None:
    """For each of 44,000 devices something was kept between two looks: 12 MiB of the screen's memory."""
    shared = box.make_folder()
    for user in range(ANOTHER, ANOTHER + 20):
        place = shared / f"gputui-claims.2.{user}"
        place.mkdir()
        for number in range(MOST_FILES):
            (place / record_name(f"GPU-{number}-{user}{'a' * 70}", user)).touch(0o644)
        os.chown(place, user, user)
    known = {f"GPU-{number}-{ANOTHER}{'a' * 70}" for number in range(MOST_FILES)}
    seen(box.environ)
    tracemalloc.start()
    try:
        kept = listed(box.environ)
        assert tracemalloc.get_traced_memory()[0] < 2**18 and len(kept.unread) == 1
        names = listed(box.environ, {*known, "GPU-1-none"})
        assert tracemalloc.get_traced_memory()[1] < 2 * 2**20, "all their names take 3 MiB"
    finally:
        tracemalloc.stop()
    opened = {each.key for each in names.records}
    found, _ = claims(box.environ, {*known, "GPU-1-none"}, names)
    assert {each.key for each in found} == known - opened
    source = WithClaims(SimulatedSource(BOXES["idle"]), box.environ)
    assert not source.read().claims


def test_little_is_kept_of_what_a_record_or_a_ticket_says(box: Box) -> None:
    """512 records of 14 KiB each cost the screen 20 MiB, and 80 ms of CPU for a key."""
    shared = box.make_folder()
    source = WithClaims(SimulatedSource(BOXES["idle"]), box.environ)
    key = source.read().devices[0].key
    said = {
        "command": "\U0001f600" * 3000,
        "pids": PIDS.decode(),
        "roots": [[1, n + 2**20] for n in range(99)],
    }
    record = write_record(shared / record_name(key), json.dumps(said, ensure_ascii=False).encode())
    other = {"command": "\U0001f600" * 1500, "devices": [key, *(f"{number:06}" for number in range(1000))]}
    ticket = shared / f"wait.{os.geteuid()}.{new_token()}.ticket"
    ticket.write_bytes(json.dumps(other, ensure_ascii=False, separators=(",", ":")).encode())
    place = os.open(ticket, os.O_RDWR)
    now = int(time.monotonic())
    lock(place, now, END - now)
    snapshot = source.read()
    (claim,), (waiter,) = snapshot.claims, snapshot.waiters
    assert 2 < len(claim.roots) <= 16 and 100 <= len(claim.command or "") <= 500
    assert waiter.devices == {key} and 100 <= len(waiter.command or "") <= 500
    os.close(place)
    os.close(record)


@needs_root
def test_a_crowd_s_records_of_other_devices_cost_little_time_and_memory(box: Box) -> None:
    """Each name was taken apart and sorted: `pick` beside 117 users with 512 each took six times as long."""
    shared = box.make_folder()
    for user in range(ANOTHER, ANOTHER + 40):
        place = shared / f"gputui-claims.2.{user}"
        place.mkdir()
        for _ in range(MOST_FILES):
            (place / record_name(f"GPU-{user}-0000", user)).touch(0o644)
        os.chown(place, user, user)

    def cost(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    def entries() -> None:
        for place in os.scandir(shared):
            if place.is_dir():
                [entry.name for entry in os.scandir(place.path)]

    theirs = [f"GPU-{user}-0000" for user in range(ANOTHER, ANOTHER + 40)]
    listed(box.environ)
    tracemalloc.start()
    try:
        names = listed(box.environ, theirs)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * 2**20, "all their names take 3 MiB"
    finally:
        tracemalloc.stop()
    assert (len(names.records), len(names.unread)) == (MOST_READ, 40)
    # (In turns: a machine that is busy for a moment slows down both.)
    rounds = [(cost(lambda: listed(box.environ)), cost(entries)) for _ in range(10)]
    listing, entering = map(min, zip(*rounds, strict=True))
    assert listing < 6 * entering, rounds


@pytest.mark.parametrize("cheap", [True, False])
def test_what_costs_much_to_list_is_listed_once_in_a_while(
    box: Box, monkeypatch: pytest.MonkeyPatch, cheap: bool
) -> None:
    """Listing thousands of another user's files would cost every reading of a screen a tenth of a second."""
    shared = box.make_folder()
    for number in range(MOST_READ + 10):
        # Our own ended records would be removed.
        (shared / record_name(f"GPU-{number}-none")).touch(0o600)
    monkeypatch.setattr(files, "_CHEAP", 1e9 if cheap else 0.0)
    monkeypatch.setattr(files, "_WORTH", 1e9)
    now, real, listings = [0.0], os.scandir, list[object]()
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(files.os, "scandir", lambda folder: listings.append(folder) or real(folder))
    source = WithClaims(SimulatedSource(BOXES["idle"]), box.environ)
    before = source.read()
    assert not waiters(box.environ)
    assert len(listings) == (4 if cheap else 2), "the base, and our own folder"
    listings.clear()
    assert source.read().errors == before.errors != () and not waiters(box.environ)
    assert len(listings) == (4 if cheap else 0)
    now[0] += 1e12
    listings.clear()
    assert not waiters(box.environ) and len(listings) == 2


def test_a_call_reads_the_claims_of_a_crowd_once_and_a_screen_at_each_reading(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pick` reads twice, and took more than three times as long beside records that are slow to read."""
    source = WithClaims(SimulatedSource(BOXES["idle"]), box.environ)
    key = source.read().devices[0].key
    write_record(box.make_folder() / record_name(key), b"{}")
    monkeypatch.setattr(files, "_CHEAP", 0.0)
    monkeypatch.setattr(files, "_WORTH", 1e9)
    now, real, opened = [0.0], read.held_file, list[str]()
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    files.forget_what_was_seen()
    monkeypatch.setattr(read, "held_file", lambda path, *of: opened.append(path) or real(path, *of))
    for moment, times in ((10.0, 1), (10.1, 1), (11.0, 2)):
        now[0] = moment
        source.read()
        assert len(opened) == times


def _looked(box: Box) -> tuple[Claim, ...]:
    """The claims, as in a reading."""
    return claims(box.environ, None, seen(box.environ))[0]


def test_a_claim_that_ends_is_seen_at_the_next_look_although_nothing_is_listed_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_CHEAP", 0.0)
    monkeypatch.setattr(files, "_WORTH", 1e9)
    holder = box.hold(1)
    assert [claim.key for claim in _looked(box)] == [box.uuids[1]]
    holder.kill()
    until(lambda: holder.over)
    assert not _looked(box), "its lock is gone"
    monkeypatch.setattr(files, "_CHEAP", 1e9)
    files.forget_what_was_seen()
    assert not _looked(box)
    box.hold(2)
    assert [claim.key for claim in _looked(box)] == [box.uuids[2]]
