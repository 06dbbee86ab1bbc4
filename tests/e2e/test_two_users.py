"""Claims between real users of the operating system, whom the test run makes where it may (as root).

Most calls are forks of the test's process that become the user and call the command line's own `main`, which
becomes the command by exec: where Python is installed below a home, other users cannot start it. Some are the
program as it is installed, of the test's own user, and of the others where they can reach it.
"""

from __future__ import annotations

import ctypes
import fcntl
import grp
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.allocating import queue, waiting_loop
from gputui.allocating.claims import folder as folders
from gputui.allocating.claims import lease
from gputui.allocating.claims.files import new_token
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.read import claims
from gputui.allocating.queue import Ticket, waiters
from gputui.sources.simulated.spec import Task
from gputui.system.namespaces import in_initial_namespace
from gputui.system.record_locks import END, lock, locked
from simnvml import SimulatedNvml
from unit.claims_support import (
    EIGHT,
    Box,
    Forked,
    box_at,
    for_all_users,
    lines,
    record_name,
    until,
    use_as_default,
)

pytestmark = pytest.mark.e2e

LAUNCHES, AT_ONCE, REAL = 200, 24, 40


@dataclass(frozen=True)
class Users:
    """Two users: names, and numbers."""

    ana: int
    bob: int
    names: dict[int, str]


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    if os.geteuid() != 0 or not shutil.which("useradd") or not shutil.which("userdel"):
        pytest.skip("two users are made by root with useradd")
    token = os.urandom(3).hex()
    names = [f"gputui-{name}-{token}" for name in ("ana", "bob")]
    made = []
    try:
        for name in names:
            done = subprocess.run(
                ["useradd", "--system", "--no-create-home", "--shell", "/bin/sh", name],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"no user can be made here: {done.stderr.strip()}")
            made.append(name)
        ana, bob = (pwd.getpwnam(name).pw_uid for name in names)
        yield Users(ana, bob, {ana: names[0], bob: names[1], 0: pwd.getpwuid(0).pw_name})
    finally:
        for name in made:
            subprocess.run(["userdel", name], capture_output=True, check=False)


@pytest.fixture
def box(users: Users, nvml_library: Path) -> Iterator[Box]:
    """A box for all of them."""
    assert users.ana != users.bob
    with for_all_users() as folder:
        # Other users cannot read the folder of the compiled library, so programs that they start load a copy.
        # Forks keep the library itself: an earlier test may have loaded it into this process, and a process
        # can have only one library of this name.
        library = folder / "driver" / nvml_library.name
        library.parent.mkdir(mode=0o755)
        shutil.copy(nvml_library, library)
        library.chmod(0o755)
        driver = SimulatedNvml(folder, nvml_library)
        with box_at(folder, driver, LD_LIBRARY_PATH=str(library.parent)) as made:
            assert made.call("ls")[0] == 0
            # Everybody counts his calls there.
            driver.counters.chmod(0o666)
            yield made


def _is_done(file: Path) -> bool:
    """Whether one may remove, rename, or write a file."""
    for attempt in (file.unlink, lambda: file.rename(f"{file}.x"), lambda: file.write_text("")):
        try:
            attempt()
        except PermissionError:
            continue
        return True
    return False


def _can_start_gputui(uid: int) -> bool:
    """Whether a user can reach our interpreter and our package."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import gputui.cli.run"],
            user=uid,
            group=uid,
            extra_groups=[],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


class Started:
    """The program as it is installed, as a user."""

    def __init__(self, box: Box, words: tuple[str, ...], uid: int) -> None:
        who = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        self._process = subprocess.Popen(
            [*GPUTUI, *words],
            env=box.environ,
            stderr=subprocess.PIPE,
            text=True,
            **who,  # type: ignore[call-overload]
        )

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> int:
        self._process.wait()
        return int(self._process.returncode)

    @property
    def err(self) -> str:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            return str(stream.read())


def test_two_hundred_launches_of_three_users_race_for_eight_devices(box: Box, users: Users) -> None:
    """No device is ever held by two, every device is used by all, and everybody gets what he asked for."""
    log, chance = box.folder / "log", random.Random(11)
    log.touch()
    log.chmod(0o666)
    script = (
        f"echo b $1 $CUDA_VISIBLE_DEVICES $(id -u) >> {log}; sleep 0.03;"
        f" echo e $1 $CUDA_VISIBLE_DEVICES >> {log}"
    )
    real = [uid for uid in (0, users.ana, users.bob) if uid == 0 or _can_start_gputui(uid)]
    todo = [(n, chance.choice((1, 1, 2)), (0, users.ana, users.bob)[n % 3]) for n in range(LAUNCHES)]
    chance.shuffle(todo)
    by_hand = set(range(REAL))
    running: list[tuple[tuple[int, int, int], Forked | Started]] = []
    refused: Counter[int] = Counter()
    while todo or running:
        while todo and len(running) < AT_ONCE:
            number, count, uid = launch = todo.pop()
            words = ("run", "-q", "-n", str(count), "--", "sh", "-c", script, "sh", str(number))
            if number in by_hand:
                running.append((launch, Started(box, words, real[number % len(real)])))
            else:
                running.append((launch, box.start(*words, uid=uid)))
        until(lambda: any(call.over for _, call in running))
        for launch, call in [each for each in running if each[1].over]:
            running.remove((launch, call))
            status = call.end()
            if status == 4:
                # All are taken: it tries again, behind those that have not tried yet.
                refused[launch[0]] += 1
                assert " available" in call.err
                todo.insert(0, launch)
            else:
                assert status == 0, call.err
    held: dict[str, str] = {}
    used: defaultdict[str, set[str]] = defaultdict(set)
    for word, number, devices, *uid in lines(log):
        for device in devices.split(","):
            if word == "b":
                assert device not in held, f"{device} of {held[device]} is given to {number}"
                held[device] = number
                used[device] |= set(uid)
            else:
                assert held.pop(device) == number
    begun = Counter(number for word, number, *_ in lines(log) if word == "b")
    assert begun == {str(n): 1 for n in range(LAUNCHES)} and held == {}
    # (Who gets which device is chance; but each is used, and nobody is left out.)
    assert set(used) == set("01234567") and len(set().union(*used.values())) == 3
    assert box.claimed() == []


def test_a_claim_of_one_user_is_told_to_the_other_and_is_not_his_to_take(box: Box, users: Users) -> None:
    box.hold(2, command="python of_ana.py", uid=users.ana)
    name = users.names[users.ana]
    for uid in (users.bob, 0):
        status, _, err = box.call("run", "--gpus", "2", "--", "true", uid=uid)
        assert status == 4 and f"GPU 2 is claimed by {name}" in err and "python of_ana.py" in err
        assert f"claimed by {name}" in box.call("ls", uid=uid)[1]
        assert name in box.call("claims", uid=uid)[1]
        assert box.call("pick", "-n", "7", uid=uid)[1] == "0,1,3,4,5,6,7\n"

    def meddle() -> int:
        return sum(map(_is_done, box.claims_folder.iterdir()))

    child = box.fork(meddle, users.bob)
    assert child.end() == 0, child.err
    assert [claim.user for claim in box.claims()] == [name]


@pytest.mark.skipif(not in_initial_namespace(), reason="pids of this namespace are not the driver's")
def test_what_one_users_job_runs_on_in_truth_is_told_to_the_others(box: Box, users: Users) -> None:
    script = "sleep 1000 & echo $!; sleep 1000 & echo $!; wait"
    job = box.start("run", "-q", "--gpus", "6,7", "--", "sh", "-c", script, uid=users.ana)
    until(lambda: len(job.out.split()) == 2)
    other = box.start("run", "-q", "--gpus", "2", "--", "sleep", "1000", uid=users.bob)
    until(lambda: len(box.claims()) == 3)
    first, second = map(int, job.out.split())
    try:
        for places, told in (({6: first, 7: second, 2: other.pid}, False), ({0: first, 2: second}, True)):
            tasks = (
                Task(devices=(str(place),), user="", command="", pid=pid, memory=9000, load=90)
                for place, pid in places.items()
            )
            box.driver.show_box(replace(EIGHT, tasks=tuple(tasks)), elapsed=60.0)
            for uid in (users.bob, users.ana, 0):
                out = box.call("claims", uid=uid)[1]
                assert out.count("(claimed 6,7, runs on 0,2) sh") == (2 if told else 0)
                assert ("claimed 6,7, runs on 0,2" in box.call("people", uid=uid)[1]) == told
                rows = json.loads(box.call("claims", "--json", uid=uid)[1])["claims"]
                where = {row["user"]: row["runs_on"] for row in rows}
                on = [box.uuids[place] for place in sorted(places) if places[place] != other.pid]
                assert where[users.names[users.ana]] == on
                assert where[users.names[users.bob]] == ([] if told else [box.uuids[2]])
    finally:
        for pid in (first, second):
            os.kill(pid, signal.SIGKILL)


def test_the_files_of_who_came_first_are_everybodys(box: Box, users: Users) -> None:
    """Whoever makes the folder and the locks; with fs.protected_regular as this system has it."""
    for uid in (users.bob, users.ana, 0, users.bob):
        holder = box.hold(0, 1, uid=uid)
        assert [claim.user for claim in box.claims()] == [users.names[uid]] * 2
        assert ("[]" in holder.out) == (uid == users.bob), "only to others it is said whose folder it is"
        assert {file.stat().st_uid for file in box.claims_folder.glob("*.claim") if file.stat().st_size} == {
            uid
        }
        holder.kill()
        box.fork(lambda: len(claims(os.environ)[0]), uid).end()
    assert box.claims_folder.stat().st_uid == users.bob


def test_what_one_user_plants_keeps_no_other_from_a_device(box: Box, users: Users) -> None:
    box.hold(7, uid=users.bob).kill()

    def plant() -> int:
        os.umask(0o077)
        folder = box.claims_folder
        for number in range(3):
            # (As an older gputui named them, too.)
            (folder / f"{box.uuids[0]}.{number}.lock").touch(0o600)
            (folder / f"{box.uuids[0]}@{users.bob}.{number}.claim").touch(0o600)
            (folder / record_name(box.uuids[0], users.bob)).touch(0o600)
        (folder / record_name(box.uuids[1], users.bob)).symlink_to("/etc/passwd")
        os.mkfifo(folder / record_name(box.uuids[2], users.bob))
        (folder / record_name(box.uuids[3], users.bob)).mkdir()
        (folder / f"wait.{users.bob}.{new_token()}.ticket").touch()
        return 0

    child = box.fork(plant, users.ana)
    assert child.end() == 0, child.err
    script = "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000"
    call = box.start("run", "-q", "-n", "8", "--", "sh", "-c", script, uid=users.bob)
    until(lambda: call.out or call.over)
    assert call.out == "0,1,2,3,4,5,6,7\n", call.err
    assert call.err == ""
    assert box.claimed() == list(range(8)) and {claim.user for claim in box.claims()} == {
        users.names[users.bob]
    }
    assert box.call("run", "--gpus", "0", "--", "true", uid=users.ana)[0] == 4
    assert all(".claim" in problem for problem in claims(box.environ)[1][:3])


def test_users_are_in_one_line_and_nobody_can_put_another_out_of_it(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_loop, "_LOOK_AHEAD", 0.05)
    monkeypatch.setattr(waiting_loop, "_SHORTEST", 0.05)
    other, log = box.hold(0), box.folder / "log"
    log.touch()
    log.chmod(0o666)
    words = ("run", "-q", "-n", "8", "--wait", "--window", "0", "--", "sh", "-c")
    calls = []
    for number, uid in enumerate((users.ana, users.bob, 0, users.ana)):
        calls.append(box.start(*words, f"echo {number} >> {log}", uid=uid))
        until(lambda: len(waiters(box.environ)) == len(calls) or calls[-1].over)
    assert [w.user for w in waiters(box.environ)] == [
        users.names[u] for u in (users.ana, users.bob, 0, users.ana)
    ]

    def meddle() -> int:
        tickets = box.claims_folder.glob("wait.*")
        return sum(_is_done(file) for file in tickets if file.stat().st_uid != users.bob)

    assert box.fork(meddle, users.bob).end() == 0
    calls[1].signal(signal.SIGKILL)
    other.kill()
    assert [calls[number].end() for number in (0, 2, 3)] == [0, 0, 0]
    assert lines(log) == [["0"], ["2"], ["3"]]


def test_a_ticket_can_be_drawn_where_another_user_has_made_the_folder(box: Box, users: Users) -> None:
    box.hold(0, uid=users.bob).kill()

    def work() -> int:
        ticket = Ticket.draw(os.environ, 1, None, "x")
        assert ticket is not None and len(waiters(os.environ)) == 1
        ticket.leave()
        return 0

    child = box.fork(work, users.ana)
    assert child.end() == 0, child.err


def test_a_lease_that_is_passed_on_is_whoever_s_it_is_passed_on_to(box: Box, users: Users) -> None:
    """By `su`, for example. To become another user alone is not to leave the lease for somebody else's."""

    def begun(uid: int) -> Forked:
        script = "echo $CUDA_VISIBLE_DEVICES; exec sleep 99"
        call = box.start("run", "-q", "-n", "1", "--", "sh", "-c", script, uid=uid, keep=True)
        until(lambda: call.out or call.over)
        return call

    def body() -> None:
        assert [begun(uid).out for uid in (users.ana, 0)] == ["2\n", "5\n"]
        assert box.call("run", "-n", "1", "--", "true", uid=users.bob, keep=True)[0] == 4
        steps = [(claim.user, claim.step) for claim in box.claims()]
        assert steps == [
            (users.names[0], 0),
            (users.names[users.ana], 1),
            (users.names[0], 0),
            (users.names[0], 1),
        ]
        # Without the descriptors another user is outside: who its ancestors are, he may not see.
        assert box.call("pick", "-n", "1", uid=users.bob) == (0, "0\n", "")
        assert box.call("run", "--gpus", "2", "--", "true", uid=users.bob)[0] == 4

    box.inside([2, 5], body)


def test_root_s_claims_of_another_user_s_left_processes_are_told_by_their_keepers(
    box: Box, users: Users
) -> None:
    script = "sleep 99 & echo $!"
    call = box.start("run", "-q", "-n", "1", "--", "sh", "-c", script, uid=users.ana)
    assert call.end() == 0
    for uid, keepers in (
        (0, [(int(call.out), "sleep")]),
        (users.ana, [(int(call.out), "sleep")]),
        (users.bob, []),
    ):
        (claim,) = json.loads(box.call("claims", "--json", uid=uid)[1])["claims"]
        assert [(each["pid"], each["name"]) for each in claim["kept_by"]] == keepers
    os.kill(int(call.out), signal.SIGKILL)
    until(lambda: box.claimed() == [])


# what a neighbour may try


def _lock_all_he_can(box: Box, suffix: str) -> None:
    """Hold every lock that he can have of others' files, whatever kind, for as long as he lives."""
    for path in box.claims_folder.glob(f"*.{suffix}"):
        with pytest.raises(PermissionError):
            os.open(path, os.O_RDWR)
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(OSError, match="Bad file descriptor"):
            lock(descriptor, 0, END)
        # (He may have read locks on what its owner has not locked.)
        first, size = locked(descriptor) or (END, 0)
        for start, length in ((0, first), (first + size, 0)):
            if start or length:
                fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)


def _locks_all(box: Box, uid: int, suffix: str) -> Forked:
    def work() -> int:
        _lock_all_he_can(box, suffix)
        print("locked", flush=True)
        signal.pause()
        return 0

    return box.begun(work, uid)


@pytest.mark.parametrize("living", [True, False], ids=["living", "dead"])
def test_nobody_else_can_keep_a_claim_of_mine(box: Box, users: Users, living: bool) -> None:
    mine = box.hold(0, 1, uid=users.ana)
    if not living:
        mine.kill()
    _locks_all(box, users.bob, "claim")
    if living:
        assert box.claimed() == [0, 1]
        mine.kill()
    assert box.claimed() == []
    for uid in (users.ana, users.bob, 0):
        assert box.call("run", "-q", "-n", "8", "--", "true", uid=uid)[0] == 0


def test_nobody_else_can_keep_a_dead_waiter_in_line(box: Box, users: Users) -> None:
    box.hold(0, uid=users.bob)

    def wait() -> int:
        Ticket.draw(os.environ, 8, None, "x")
        print("in line", flush=True)
        signal.pause()
        return 0

    mine = box.fork(wait, users.ana)
    until(lambda: mine.out)
    _locks_all(box, users.bob, "ticket")
    assert [waiter.silent for waiter in waiters(box.environ)] == [False]
    mine.kill()
    assert waiters(box.environ) == ()


def test_tickets_planted_in_my_name_keep_none_of_my_dead_ones_there(box: Box, users: Users) -> None:
    folder = box.make_folder()

    def draw() -> int:
        Ticket.draw(os.environ, 8, None, "x")
        os._exit(0)

    def plant() -> int:
        for number in range(20):
            (folder / f"wait.{users.ana}.{number:032x}.ticket").write_text("")
            (folder / f"wait.{users.ana}.{'f' * 30}{number:02x}.ticket").write_text("")
        return 0

    box.fork(draw, users.ana).end()
    assert box.fork(plant, users.bob).end() == 0
    box.fork(draw, users.ana).end()
    mine = [file for file in folder.glob("*.ticket") if file.stat().st_uid == users.ana]
    assert len(mine) == 1, "the last one, which nobody has come after"


def test_a_lock_that_another_has_on_a_ticket_does_not_silence_it(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.make_folder()
    ticket = Ticket.draw(box.environ, 1, None, "x")
    assert ticket is not None
    _locks_all(box, users.bob, "ticket")
    now = queue.time.monotonic
    for later in (10.0, 20.0, 30.0):
        monkeypatch.setattr(queue.time, "monotonic", lambda later=later: now() + later)
        ticket.beat()
        (waiter,) = waiters(box.environ)
        assert not waiter.silent
    ticket.leave()


@pytest.mark.parametrize("owner", ["root", "oneself", "another"])
def test_whose_the_folder_is_is_said_where_he_could_remove_claims(box: Box, users: Users, owner: str) -> None:
    uid = {"root": 0, "oneself": users.ana, "another": users.bob}[owner]
    os.chown(box.make_folder(), uid, uid)
    status, out, err = box.call("run", "-q", "-n", "1", "--", "echo", "ran", uid=users.ana)
    told = [users.names[users.bob] in text for text in (err, box.call("claims", uid=users.ana)[2])]
    assert (status, out) == (0, "ran\n") and told == [owner == "another"] * 2


def test_a_device_is_held_although_its_record_was_removed(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By him whose folder it is. Then nobody can say whose it is, but all say that it is held."""
    shared = box.make_folder()
    use_as_default(box, monkeypatch, users.bob)
    holder = box.hold(0, uid=users.ana)

    def remove() -> int:
        for record in shared.glob("*.claim"):
            record.unlink()
        return 0

    assert box.fork(remove, users.bob).end() == 0 and list(shared.glob("*.claim")) == []
    for uid in (users.ana, users.bob, 0):
        assert box.call("pick", "-n", "7", uid=uid)[1] == "1,2,3,4,5,6,7\n"
        assert box.call("pick", "-n", "8", uid=uid)[0] == 4
        assert box.call("run", "--gpus", "0", "--", "true", uid=uid)[0] == 4
        (claim,) = json.loads(box.call("claims", "--json", uid=uid)[1])["claims"]
        assert (claim["index"], claim["pid"]) == (0, None)
        states = [d["verdict"]["state"] for d in json.loads(box.call("ls", "--json", uid=uid)[1])["devices"]]
        assert [place for place, state in enumerate(states) if state == "claimed"] == [0]
    holder.kill()
    assert box.call("pick", "-n", "8", uid=users.bob)[0] == 0


def test_who_removes_a_record_before_its_device_is_held_causes_no_second_grant(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By him whose folder it is: between the last look of one who wants a device and the moment he has it."""
    shared, go = box.make_folder(), box.folder / "go"
    use_as_default(box, monkeypatch, users.bob)

    def slow() -> int:
        real = lease.unlock

        def late(*place: int) -> None:
            print("looked", flush=True)
            until(go.exists)
            real(*place)

        lease.unlock = late
        take([box.uuids[0]], os.environ, "x")
        print("held", flush=True)
        signal.pause()
        return 0

    first = box.fork(slow, users.ana)
    until(lambda: first.out or first.over)
    (record,) = shared.glob("*.claim")
    record.unlink()
    assert box.call("run", "--gpus", "0", "--", "true", uid=users.bob)[0] == 4
    assert box.call("run", "-q", "-n", "7", "--", "true", uid=users.bob)[0] == 0
    go.touch()
    until(lambda: "held" in first.out)
    assert box.call("run", "--gpus", "0", "--", "true", uid=users.bob)[0] == 4
    first.kill()


def test_in_a_folder_of_root_s_no_lock_without_a_name_counts(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can have removed its record, so that somebody has forged it, who wants not to be named."""
    shared = box.make_folder()
    use_as_default(box, monkeypatch, 0, own=True)
    forger = box.forge(shared / record_name(box.uuids[0]), uid=users.bob)
    assert [claim.user for claim in box.claims()] == [users.names[users.bob]], "with a record he is named"
    next(shared.glob("*.claim")).unlink()
    assert box.call("pick", "-n", "8", uid=users.ana)[0] == 0
    forger.kill()


def test_beside_a_folder_of_root_s_another_user_s_own_makes_no_lock_without_a_name_count(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can make /tmp/gputui-claims where root has made /run/gputui."""
    use_as_default(box, monkeypatch, 0, own=True)
    planted = box.folder / "planted"
    planted.mkdir()
    planted.chmod(0o1777)
    os.chown(planted, users.bob, users.bob)
    monkeypatch.setattr(folders, "FALLBACKS", (str(planted),))
    forger = box.forge(planted / record_name(box.uuids[0]), uid=users.bob)
    assert [claim.user for claim in box.claims()] == [users.names[users.bob]], "with a record he is named"
    next(planted.glob("*.claim")).unlink()
    assert box.call("pick", "-n", "8", uid=users.ana)[0] == 0
    assert box.call("run", "-q", "-n", "8", "--", "true", uid=users.ana)[0] == 0
    assert json.loads(box.call("claims", "--json", uid=users.ana)[1])["claims"] == []
    forger.kill()


@pytest.mark.parametrize("how", ["closed", "renamed", "renamed and made again"])
def test_who_takes_the_folder_away_causes_no_second_grant(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """By him whose folder it is: he may close it to others, and rename it in a sticky /tmp."""
    shared = box.make_folder()
    use_as_default(box, monkeypatch, users.bob)
    monkeypatch.setattr(folders, "FALLBACKS", (str(shared), str(box.folder / "next")))
    holder = box.hold(0, uid=users.ana)

    def take_away() -> int:
        if how == "closed":
            shared.chmod(0o700)
        else:
            shared.rename(shared.with_name("elsewhere"))
        if how == "renamed and made again":
            shared.mkdir()
            shared.chmod(0o1777)
        return 0

    taker = box.fork(take_away, users.bob)
    assert taker.end() == 0, taker.err
    for uid in (users.ana, users.bob):
        assert box.call("run", "--gpus", "0", "--", "true", uid=uid)[0] == 4
        # (The first launch makes the next folder.)
        assert box.call("pick", "-n", "7", uid=uid)[1] == "1,2,3,4,5,6,7\n"
        assert box.call("pick", "-n", "8", uid=uid)[0] == 4
    holder.kill()
    assert box.call("pick", "-n", "8", uid=users.ana)[0] == 0


def test_who_claims_what_he_does_not_use_is_named_and_can_be_passed_over(box: Box, users: Users) -> None:
    for place in range(8):
        box.forge(box.make_folder() / record_name(box.uuids[place], users.ana), uid=users.bob)
    name = users.names[users.bob]
    status, _, err = box.call("run", "-n", "1", "--", "true", uid=users.ana)
    assert status == 4 and name in err and users.names[users.ana] not in err
    assert {claim.user for claim in box.claims()} == {name}
    assert box.call("run", "-q", "--force", "-n", "1", "--gpus", "0", "--", "true", uid=users.ana)[0] in (
        0,
        2,
    )
    assert box.call("run", "-q", "--force", "--gpus", "0", "--", "true", uid=users.ana)[0] == 0


def test_a_record_that_changes_while_it_is_read_stays_one_claim_of_its_owner(box: Box, users: Users) -> None:
    path = box.make_folder() / record_name(box.uuids[0], users.bob)
    box.forge(path, uid=users.bob)

    def scribble() -> int:
        with path.open("r+b", buffering=0) as file:
            while True:
                file.seek(0)
                file.write(random.choice([b"{", b'{"since": 1}', b"x" * 50_000, b'{"command": "a"}']))
                file.truncate(random.randrange(20_000))

    box.fork(scribble, users.bob)
    for _ in range(200):
        (claim,) = box.claims()
        assert (claim.key, claim.user) == (box.uuids[0], users.names[users.bob])


def test_a_claim_out_of_a_user_namespace_is_its_user_s_and_claims_are_seen_in_it(
    box: Box, users: Users
) -> None:
    """As in a container that he runs himself: inside he is root, and nobody else has a name."""
    new_user_namespace = 0x10000000  # CLONE_NEWUSER of linux/sched.h
    box.hold(2, uid=users.bob)

    def work() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        # (PR_SET_DUMPABLE: who has changed his user may not write in his /proc without it.)
        if libc.prctl(4, 1, 0, 0, 0) or libc.unshare(new_user_namespace):
            return 77
        Path("/proc/self/uid_map").write_text(f"0 {users.ana} 1")
        assert os.geteuid() == 0 and [claim.key for claim in claims(os.environ)[0]] == [box.uuids[2]]
        lease = take([box.uuids[5]], os.environ, "python inside.py")
        assert lease.keys == (box.uuids[5],)
        with pytest.raises(TakenError):
            take([box.uuids[2]], os.environ, "x")
        print("held", flush=True)
        signal.pause()
        return 0

    inside = box.fork(work, users.ana)
    until(lambda: inside.out or inside.over)
    if inside.over and inside.end() == 77:
        pytest.skip("this system lets nobody make a user namespace")
    assert not inside.over, inside.err
    found = {claim.key: claim.user for claim in box.claims()}
    assert found == {box.uuids[2]: users.names[users.bob], box.uuids[5]: users.names[users.ana]}
    assert box.call("run", "--gpus", "5", "--", "true", uid=users.bob)[0] == 4
    inside.kill()
    assert box.claimed() == [2]


# those in line who cannot take their turn


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fifteen seconds are two."""
    monkeypatch.setattr(queue, "_SILENT", 1.0)
    monkeypatch.setattr(queue, "BEAT", 0.2)
    for name, seconds in (("BEAT", 0.2), ("_LOOK_AHEAD", 0.05), ("_SHORTEST", 0.1), ("_SHARE", 1.0)):
        monkeypatch.setattr(waiting_loop, name, seconds)


def _in_line(box: Box, uid: int, place: int) -> Forked:
    words = ("run", "-q", "-n", "8", "--wait", "--window", "0", "--", "echo", "ran")
    call = box.start(*words, uid=uid)
    until(lambda: call.over or len(waiters(box.environ)) == place)
    assert not call.over, call.err
    return call


@pytest.mark.usefixtures("impatient")
def test_who_is_stopped_loses_his_place_and_goes_to_the_end_when_he_comes_back(
    box: Box, users: Users
) -> None:
    other = box.hold(0)
    first, second = _in_line(box, users.ana, 1), _in_line(box, users.bob, 2)
    ana, bob = users.names[users.ana], users.names[users.bob]
    first.signal(signal.SIGSTOP)
    until(lambda: [(w.user, w.silent) for w in waiters(box.environ)] == [(bob, False), (ana, True)])
    rows = box.call("queue", uid=users.bob)[1].splitlines()
    assert ana in rows[2] and "lost its place" in rows[2] and "lost its place" not in rows[1]
    first.signal(signal.SIGCONT)
    until(lambda: [(w.user, w.silent) for w in waiters(box.environ)] == [(bob, False), (ana, False)])
    first.signal(signal.SIGSTOP)
    other.kill()
    assert (second.end(), second.out) == (0, "ran\n")
    until(lambda: waiters(box.environ)[0].silent)
    assert box.call("run", "-q", "-n", "8", "--", "true", uid=users.bob)[0] == 0, "he is in nobody's way"
    first.signal(signal.SIGCONT)
    assert (first.end(), first.out) == (0, "ran\n")


@pytest.mark.usefixtures("impatient")
def test_whose_driver_does_not_answer_loses_his_place(box: Box, users: Users, nvml_library: Path) -> None:
    other = box.hold(0)
    with for_all_users() as folder:
        hanging = Box(folder, SimulatedNvml(folder, nvml_library), GPUTUI_CLAIMS=str(box.claims_folder))
        assert hanging.call("ls")[0] == 0
        hanging.driver.counters.chmod(0o666)
        blind = _in_line(hanging, users.ana, 1)
        seeing = _in_line(box, users.bob, 2)
        hanging.driver.hang("nvmlDeviceGetMemoryInfo_v2", 3)
        until(lambda: [waiter.silent for waiter in waiters(box.environ)] == [False, True])
        other.kill()
        assert (seeing.end(), seeing.out) == (0, "ran\n")
        assert not blind.over
        blind.kill()
    assert waiters(box.environ) == ()


def test_a_ticket_from_the_future_is_behind_all_others(box: Box, users: Users) -> None:
    """Who forges the time of his last word has said nothing."""

    def forge() -> int:
        ticket = Ticket.draw(os.environ, 8, None, "x")
        assert ticket is not None
        queue.unlock(ticket._descriptor, 0, 2**40)
        print("in line", flush=True)
        signal.pause()
        return 0

    box.make_folder()
    forger = box.fork(forge, users.ana)
    until(lambda: forger.out or forger.over)
    assert [waiter.silent for waiter in waiters(box.environ)] == [True]
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.bob) == (0, "", "")


def test_a_ticket_for_more_than_there_is_holds_nobody_up(box: Box, users: Users) -> None:
    """gputui itself draws none like it: the forger's program does."""

    def forge() -> int:
        drawn = [
            Ticket.draw(os.environ, 9, None, "x"),
            Ticket.draw(os.environ, 1, frozenset({"GPU-none"}), "x"),
            Ticket.draw(os.environ, 3, frozenset(box.uuids[:2]), "x"),
        ]
        print("in line", len(drawn), flush=True)
        signal.pause()
        return 0

    box.make_folder()
    forger = box.fork(forge, users.ana)
    until(lambda: forger.out or forger.over)
    assert len(waiters(box.environ)) == 3
    assert box.call("run", "-q", "-n", "8", "--", "true", uid=users.bob) == (0, "", "")
    waited = ("run", "-q", "--wait", "20", "--window", "0", "-n", "8", "--", "true")
    assert box.call(*waited, uid=users.bob)[0] == 0


def test_settings_that_another_user_can_change_start_nothing_of_his(box: Box, users: Users) -> None:
    """Ana's folder is her own; the group of her file, and of a folder before it, is not hers alone."""
    home = box.folder / "ana"
    file = home / ".config" / "gputui" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[rules]\nmemory = '512M'\n")
    places = (home, file.parent.parent, file.parent, file)
    own, other = (grp.getgrnam(users.names[uid]).gr_gid for uid in (users.ana, users.bob))

    def pick() -> tuple[int, str]:
        status, _, err = box.call("pick", "-n", "1", uid=users.ana, HOME=str(home), XDG_CONFIG_HOME="")
        return status, err

    for place in places:
        os.chown(place, users.ana, own)
        place.chmod(0o755)
    assert pick()[0] == 0
    for place in places:
        for owner, group, mode in (
            (users.ana, other, 0o775),
            (users.ana, own, 0o777),
            (users.bob, own, 0o755),
        ):
            os.chown(place, owner, group)
            place.chmod(mode)
            status, err = pick()
            assert status == 2 and repr(str(place)) in err, err
            os.chown(place, users.ana, own)
            place.chmod(0o775)
            assert pick()[0] == 0, "nobody else is in her own group"
    members = (users.names[users.bob], users.names[users.ana])
    if subprocess.run(["gpasswd", "-a", *members], capture_output=True, check=False).returncode == 0:
        try:
            assert pick()[0] == 2
        finally:
            subprocess.run(["gpasswd", "-d", *members], capture_output=True, check=True)


def test_what_another_user_locks_keeps_no_setting_from_being_saved_and_nobody_from_quitting(
    box: Box, users: Users, start: Start, base_environment: dict[str, str]
) -> None:
    """Whoever can read a file or folder can lock it, and never let go."""
    home = box.folder / "home"
    config = home / ".config" / "gputui" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[screen]\ntheme = 'dark'\n")
    (home / ".local" / "state" / "gputui").mkdir(parents=True)
    for place in (home, *home.rglob("*")):
        place.chmod(0o755)

    def hold() -> int:
        held = []
        for place in (home, *home.rglob("*")):
            held.append(os.open(place, os.O_RDONLY))
            fcntl.flock(held[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        print(len(held), flush=True)
        signal.pause()
        return 0

    holder = box.fork(hold, users.bob)
    until(lambda: holder.out or holder.over)
    assert holder.out.strip() == "7", holder.err
    terminal = start("--demo", environment=base_environment | {"HOME": str(home)})
    terminal.until("○ free")
    terminal.send("T")
    terminal.until("theme: light")
    terminal.until(lambda _: "light" in config.read_text())
    terminal.send("q")
    assert terminal.end() == 0
    assert not holder.over
