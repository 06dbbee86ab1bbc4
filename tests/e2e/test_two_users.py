"""Claims between real users of the operating system, which the test run makes where it can (as root).

Most calls are forks of the test's process that become the user and call the command line's own `main`, which
becomes the command by exec: where Python is installed below a home, other users cannot start it. Some calls
start the installed program, as the test's own user, and as the others where they can reach it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import grp
import json
import mmap
import os
import pwd
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.allocating import queue, waiting_loop
from gputui.allocating.claims import files
from gputui.allocating.claims import folder as folders
from gputui.allocating.claims.files import MOST_FILES, MOST_READ, new_token
from gputui.allocating.claims.lease import TakenError, take
from gputui.allocating.claims.read import claims
from gputui.allocating.errors import UnsafeError
from gputui.allocating.queue import Ticket, waiters
from gputui.cli.main import main
from gputui.cli.on_boxes import in_this_directory
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Task
from gputui.system import users as system_users
from gputui.system.child_process import answers, read_answer
from gputui.system.files import open_result, private_folder, write_result
from gputui.system.lock_holders import opened
from gputui.system.namespaces import in_initial_namespace
from gputui.system.record_locks import END, lock, locked
from older_claims import OlderClaims
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
    write_record,
)
from unit.jobs_support import ended
from unit.test_idle_release import load, started

pytestmark = pytest.mark.e2e

LAUNCHES, AT_ONCE, REAL = 40, 20, 4


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
        # The next users may have the same numbers.
        system_users.user_name.cache_clear()


@pytest.fixture
def box(users: Users, nvml_library: Path) -> Iterator[Box]:
    """A box for all users."""
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
            # A named folder must be root's.
            made.make_folder()
            assert made.call("ls")[0] == 0
            # Calls of all users are counted there.
            driver.counters.chmod(0o666)
            yield made


def _is_done(file: Path) -> bool:
    """Whether this user can remove, rename, or write a file."""
    for attempt in (file.unlink, lambda: file.rename(f"{file}.x"), lambda: file.write_text("")):
        try:
            attempt()
        except (PermissionError, IsADirectoryError):
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
    """The installed program, running as a user."""

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


def test_forty_launches_of_three_users_race_for_eight_devices(box: Box, users: Users) -> None:
    """No two launches ever hold the same device, every device is used by all users, and every launch gets the
    number of devices that it asks for."""
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
                # All devices are taken: the launch tries again, behind those that have not tried yet.
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
    # Chance decides which user gets a device; but each device is used, and each user gets some.
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
        there = [file for file in box.claims_folder.rglob("*") if file.stat().st_uid != users.bob]
        return sum(map(_is_done, there))

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


@pytest.mark.skipif(not in_initial_namespace(), reason="pids of this namespace are not the driver's")
def test_a_record_of_the_same_name_does_not_hide_what_another_s_job_runs_on(box: Box, users: Users) -> None:
    script = "setsid sh -c 'echo $$; exec sleep 1000' & exit 0"
    job = box.start("run", "-q", "--gpus", "6", "--", "sh", "-c", script, uid=users.ana)
    until(lambda: job.over and job.out)
    pid = int(job.out)
    record = next(path for path in box.claims_folder.glob("*/*.claim") if _is_held(path))

    def plant() -> int:
        place = folders.own_place(os.environ)
        write_record(place / record.name, json.dumps({"since": 9e10}).encode())
        print("planted", flush=True)
        signal.pause()
        return 0

    try:
        task = Task(devices=("0",), user="", command="", pid=pid, memory=9000, load=90)
        box.driver.show_box(replace(EIGHT, tasks=(task,)), elapsed=60.0)
        box.begun(plant, users.bob)
        for uid in (users.ana, 0):
            rows = json.loads(box.call("claims", "--json", uid=uid)[1])["claims"]
            assert [row["runs_on"] for row in rows if row["user"] == users.names[users.ana]] == [
                [box.uuids[0]]
            ]
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_process_with_many_open_files_costs_root_the_time_of_a_few(box: Box, users: Users) -> None:
    """Twenty processes with 20,000 each made root's `gputui claims` take 19 seconds."""

    def open_many() -> int:
        for _ in range(900):
            os.dup(0)
        print("opened", flush=True)
        signal.pause()
        return 0

    assert len([*opened(box.begun(open_many, users.bob).pid)]) < 600


def test_each_user_has_a_folder_of_his_own(box: Box, users: Users) -> None:
    """With fs.protected_regular as this system has set it."""
    for uid in (users.bob, users.ana, 0, users.bob):
        holder = box.hold(0, 1, uid=uid)
        assert [claim.user for claim in box.claims()] == [users.names[uid]] * 2
        there = [file for file in box.claims_folder.rglob("*.claim") if file.stat().st_size]
        assert {file.stat().st_uid for file in there} == {uid} and len(there) == 4
        assert {file.parent.stat().st_uid for file in there} == {0, uid}
        holder.kill()
        box.fork(lambda: len(claims(os.environ)[0]), uid).end()
    own = [folder.stat().st_uid for folder in box.claims_folder.iterdir() if folder.is_dir()]
    assert sorted(own) == sorted((0, users.ana, users.bob))


def test_a_link_in_the_place_of_another_s_folder_leads_no_record_to_a_folder_of_mine(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the folder of format 1 may replace it while another user makes records."""
    use_as_default(box, monkeypatch)
    older, private, meeting = box.claims_folder / "gputui-claims", box.folder / "private", box.folder / "meet"
    private.mkdir(mode=0o700)
    os.chown(private, users.bob, users.bob)
    meeting.mkdir()
    meeting.chmod(0o1777)
    asked, done = meeting / "asked", meeting / "done"

    def exchange() -> int:
        older.mkdir()
        older.chmod(0o1777)
        print("made", flush=True)
        until(asked.exists)
        older.rename(older.with_suffix(".aside"))
        older.symlink_to(private)
        done.mkdir()
        return 0

    def launch() -> int:
        def at_the_first_new_file(event: str, facts: tuple[object, ...]) -> None:
            if event == "open" and isinstance(facts[2], int) and facts[2] & os.O_CREAT and not asked.exists():
                asked.mkdir()
                until(done.exists)

        sys.addaudithook(at_the_first_new_file)
        with contextlib.suppress(UnsafeError):
            take(box.uuids[:2], os.environ, "python train.py")
        assert done.exists()
        return len(list(private.iterdir()))

    box.begun(exchange, users.ana)
    child = box.fork(launch, users.bob)
    assert child.end() == 0, (child.err, list(private.iterdir()))


def test_what_one_user_plants_keeps_no_other_from_a_device(box: Box, users: Users) -> None:
    box.hold(7, uid=users.bob).kill()

    def plant() -> int:
        os.umask(0o077)
        folder = box.claims_folder
        for number in range(3):
            # An older gputui used this name, too.
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
    problems = claims(box.environ)[1]
    # (Three are named, in the order of the folder: one of them may be the ticket.)
    assert sum(".claim" in problem for problem in problems) >= 2, problems


def test_what_one_user_mounts_keeps_no_other_from_a_device(box: Box, users: Users) -> None:
    """Only the user who has mounted a FUSE file system can look at it; fusermount(1) mounts it as here."""
    libc = ctypes.CDLL(None)
    mounted = box.claims_folder / record_name(box.uuids[3], users.bob)
    mounted.mkdir()
    os.chown(mounted, users.bob, users.bob)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("there is no FUSE here")
    options = f"fd={device},rootmode=40000,user_id={users.bob},group_id={users.bob}".encode()
    try:
        if libc.mount(b"fuse", bytes(mounted), b"fuse", 0, options):
            pytest.skip("no file system can be mounted here")
        box.hold(2, uid=users.ana)
        for uid in (0, users.ana):
            assert box.call("run", "-q", "-n", "7", "--", "true", uid=uid)[0] == 0
            assert box.call("run", "-q", "--gpus", "2", "--", "true", uid=uid)[0] == 4
    finally:
        os.close(device)
        libc.umount2(bytes(mounted), 2)


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
        assert len(waiters(os.environ)) == 1
        ticket.leave()
        return 0

    child = box.fork(work, users.ana)
    assert child.end() == 0, child.err


def test_a_lease_that_is_passed_on_is_whoever_s_it_is_passed_on_to(box: Box, users: Users) -> None:
    """`su` does so, for example. A process that only changes its user keeps its lease."""

    def begun(uid: int) -> Forked:
        script = "echo $CUDA_VISIBLE_DEVICES; exec sleep 99"
        call = box.start("run", "-q", "-n", "1", "--", "sh", "-c", script, uid=uid, keep=True)
        until(lambda: call.out or call.over)
        return call

    def body() -> None:
        # The steps of the lease's owner count for all users in it; a step of another user counts for that
        # user.
        assert [begun(uid).out for uid in (0, users.ana)] == ["2\n", "5\n"]
        assert box.call("run", "-n", "1", "--", "true", uid=users.ana, keep=True)[0] == 4
        steps = [(claim.user, claim.step) for claim in box.claims()]
        assert steps == [
            (users.names[0], 0),
            (users.names[0], 1),
            (users.names[0], 0),
            (users.names[users.ana], 1),
        ]
        assert begun(0).out == "5\n"
        # Without the descriptors another user is outside: that user may not see the ancestors of the process.
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


# Attempts of a neighbour


def _lock_all_he_can(box: Box, suffix: str) -> None:
    """Hold every lock, of any kind, that this user can have on others' files, for the life of the process."""
    for path in box.claims_folder.rglob(f"*.{suffix}"):
        with pytest.raises(PermissionError):
            os.open(path, os.O_RDWR)
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(OSError, match="Bad file descriptor"):
            lock(descriptor, 0, END)
        # This user may have read locks on the part that the owner has not locked.
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
    mine = [file for file in folder.rglob("*.ticket") if file.stat().st_uid == users.ana]
    assert len({file.name for file in mine}) == 1, "the last one, which nobody has come after"


def test_a_lock_that_another_has_on_a_ticket_does_not_silence_it(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.make_folder()
    ticket = Ticket.draw(box.environ, 1, None, "x")
    _locks_all(box, users.bob, "ticket")
    now = queue.time.monotonic
    for later in (0.7, 1.4, 2.1):
        monkeypatch.setattr(queue.time, "monotonic", lambda later=later: now() + later * queue._SILENT)
        ticket.beat()
        (waiter,) = waiters(box.environ)
        assert not waiter.silent
    ticket.leave()


@pytest.mark.parametrize("above", [False, True], ids=["itself", "the folder above"])
@pytest.mark.parametrize("owner", ["root", "oneself", "another"])
def test_a_named_folder_that_another_could_take_away_is_not_used(
    box: Box, users: Users, owner: str, above: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = {"root": 0, "oneself": users.ana, "another": users.bob}[owner]
    if above:
        place = box.folder / "above" / "claims"
        place.mkdir(parents=True)
        place.chmod(0o1777)
        place.parent.chmod(0o755)
        os.chown(place.parent, uid, uid)
        monkeypatch.setattr(box, "claims_folder", place)
        monkeypatch.setitem(box.environ, "GPUTUI_CLAIMS", str(place))
    else:
        os.chown(box.claims_folder, uid, uid)
    status, out, err = box.call("run", "-q", "-n", "1", "--", "echo", "ran", uid=users.ana)
    assert (status, out) == ((4, "") if owner == "another" else (0, "ran\n"))
    assert (str(box.claims_folder) in err) == (owner == "another")
    status, out, err = box.call("run", "-q", "--force", "-n", "1", "--", "echo", "ran", uid=users.ana)
    assert (status, out) == (0, "ran\n")


def test_nobody_can_take_another_s_folder_away_or_put_one_in_its_place(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_as_default(box, monkeypatch)
    box.hold(0, uid=users.ana)
    (place,) = (each for each in box.claims_folder.glob("gputui-claims.*") if each.stat().st_uid == users.ana)

    def try_it() -> int:
        done = 0
        for attempt in (
            lambda: place.rename(f"{place}.x"),
            lambda: place.chmod(0o777),
            lambda: (place / "x").touch(),
            lambda: next(place.glob("*.claim")).unlink(),
        ):
            try:
                attempt()
            except PermissionError:
                continue
            done += 1
        for number in range(20):
            (box.claims_folder / f"gputui-claims.2.{number:016x}").mkdir(0o755)
        return done

    assert box.fork(try_it, users.bob).end() == 0
    for uid in (users.ana, users.bob, 0):
        assert box.call("run", "--gpus", "0", "--", "true", uid=uid)[0] == 4
        assert box.call("run", "-q", "-n", "7", "--", "true", uid=uid)[0] == 0


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
    """As in a container that the user runs: inside, the user is root, and no other user has a name."""
    box.hold(2, uid=users.bob)

    def work() -> int:
        if not _enter_container(f"0 {users.ana} 1"):
            return _NOT_HERE
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
    if inside.over and inside.end() == _NOT_HERE:
        pytest.skip("this system lets nobody make a user namespace")
    assert not inside.over, inside.err
    found = {claim.key: claim.user for claim in box.claims()}
    assert found == {box.uuids[2]: users.names[users.bob], box.uuids[5]: users.names[users.ana]}
    assert box.call("run", "--gpus", "5", "--", "true", uid=users.bob)[0] == 4
    inside.kill()
    assert box.claimed() == [2]


def _enter_container(mapped: str) -> bool:
    """Enter a new user namespace, in which this user has another number; return whether that is permitted."""
    new_user_namespace = 0x10000000  # CLONE_NEWUSER of linux/sched.h
    libc = ctypes.CDLL(None, use_errno=True)
    # PR_SET_DUMPABLE: without it a process that has changed its user may not write in its own /proc.
    if libc.prctl(4, 1, 0, 0, 0) or libc.unshare(new_user_namespace):
        return False
    Path("/proc/self/uid_map").write_text(mapped)
    return True


_NOT_HERE = 77


def _plant(box: Box, uid: int, name: str, text: str | None = None) -> Forked:
    """Make files of this name in several folders of a user, some of which are listed before those of another
    user; with a text, they are tickets that this user holds."""

    def work() -> int:
        for _ in range(6):
            place = box.claims_folder / f"gputui-claims.2.{os.urandom(8).hex()}"
            place.mkdir(0o755)
            (place / name).write_text(text or "")
            (place / name).chmod(0o644)
            if text:
                now = int(queue.time.monotonic())
                lock(os.open(place / name, os.O_RDWR), now, END - now)
        print("planted", flush=True)
        signal.pause()
        return 0

    return box.begun(work, uid)


def test_a_record_of_the_same_name_hides_nobody_s(box: Box, users: Users) -> None:
    """Even where the record has the number of the user who plants it, which the holder has in a container."""

    def work() -> int:
        if not _enter_container(f"{users.bob} {users.ana} 1"):
            return _NOT_HERE
        print(*take([box.uuids[5]], os.environ, "python inside.py").records, flush=True)
        signal.pause()
        return 0

    inside = box.fork(work, users.ana)
    until(lambda: inside.out or inside.over)
    if inside.over and inside.end() == _NOT_HERE:
        pytest.skip("this system lets nobody make a user namespace")
    _plant(box, users.bob, Path(inside.out.split()[0]).name)
    assert [(claim.key, claim.user) for claim in box.claims()] == [(box.uuids[5], users.names[users.ana])]
    assert box.call("run", "--gpus", "5", "--", "true")[0] == 4
    older = next(path for path in box.claims_folder.iterdir() if path.suffix == ".claim")
    (own,) = (path for path in box.claims_folder.glob(f"*/{older.name}") if _is_held(path))
    own.unlink()
    assert box.claimed() == [5], "that of format 1 alone is no less"


def test_a_record_of_format_1_is_hidden_in_no_container_by_one_of_its_name(box: Box, users: Users) -> None:
    """All users outside have one number there, so that the user who plants it looks like the holder."""
    box.begun(lambda: OlderClaims(box.claims_folder).hold(box.uuids[0]), users.bob)
    (record,) = box.claims_folder.glob("*.claim")
    _plant(box, 54321, record.name)

    def work() -> int:
        if not _enter_container(f"0 {users.ana} 1"):
            return _NOT_HERE
        return main(("run", "-q", "--gpus", "0", "--", "true"))

    inside = box.fork(work, users.ana)
    status = inside.end()
    if status == _NOT_HERE:
        pytest.skip("this system lets nobody make a user namespace")
    assert status == 4, inside.err


def _is_held(path: Path) -> bool:
    with path.open("rb") as file:
        return locked(file.fileno()) is not None


def test_a_ticket_of_the_same_name_puts_nobody_out_of_line(box: Box, users: Users) -> None:
    box.hold(0)
    _in_line(box, users.ana, 1)
    (first,) = waiters(box.environ)
    _plant(box, users.bob, Path(first.path).name, json.dumps({"count": 9999}))
    assert [each.user for each in waiters(box.environ)] == [
        users.names[uid] for uid in (users.ana, users.bob)
    ]
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.bob)[0] == 4, "ana is ahead"


def test_files_of_mine_that_another_links_to_names_of_records_hide_none(box: Box, users: Users) -> None:
    """Files that others can write can be linked: in the folder of format 1, to which all users can write."""
    older = box.begun(lambda: OlderClaims(box.claims_folder).hold(box.uuids[0]), users.ana)
    public = box.folder / "public"
    public.touch()
    public.chmod(0o666)
    os.chown(public, users.ana, users.ana)

    def link() -> int:
        for number in range(MOST_READ + 1):
            os.link(public, box.claims_folder / record_name(box.uuids[1], users.ana, token=f"f{number:031x}"))
        return 0

    assert box.fork(link, users.bob).end() == 0
    assert box.call("run", "--gpus", "0", "--", "true")[0] == 4
    older.kill()
    assert box.call("run", "--gpus", "0", "--", "true")[0] == 0


@pytest.mark.thorough
def test_files_of_mine_that_another_moves_to_names_of_records_hide_none(box: Box, users: Users) -> None:
    """Out of a folder of a project in which all can write, to the folder of format 1."""
    box.hold(0, uid=users.ana)
    shared = box.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for number in range(MOST_FILES + MOST_READ):
        file = shared / f"{number:031x}"
        file.touch(0o644)
        os.chown(file, users.ana, users.ana)

    def move() -> int:
        for file in shared.iterdir():
            file.rename(box.claims_folder / record_name(box.uuids[1], users.ana, token=f"f{file.name}"))
        return 0

    older = box.begun(lambda: OlderClaims(box.claims_folder).hold(box.uuids[2]), users.ana)
    assert box.fork(move, users.bob).end() == 0
    assert box.call("run", "--gpus", "0", "--", "true", uid=users.bob)[0] == 4
    assert box.call("run", "--gpus", "2", "--", "true", uid=users.bob)[0] == 4
    assert set(box.claimed()) <= {0, 2}
    older.kill()


def test_who_owns_the_folder_of_format_1_makes_no_step_or_second_ticket_of_another_s_files(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another name, a lease looked like a step, around another step of the same device; and a ticket like
    one that its own waiter had to wait for."""
    use_as_default(box, monkeypatch)
    older = _own_older_folder(box, users.bob)

    def rename() -> int:
        for path in older.glob("*.claim"):
            if ".step" not in path.name:
                path.rename(str(path).replace(f"@{users.ana}.", f"@{users.ana}.step7."))
        for path in older.glob("*.ticket"):
            path.rename(path.with_name(f"wait.{users.ana}.{0:032x}.ticket"))
        print("renamed", flush=True)
        return 0

    def work() -> int:
        lease = take([box.uuids[0]], os.environ, "bash sweep.sh")
        lease.inherit()
        ticket = Ticket.draw(os.environ, 8, None, "x")
        first = take([box.uuids[0]], os.environ, "first")
        print("in line", flush=True)
        until((box.folder / "go").exists)
        with pytest.raises(TakenError):
            take([box.uuids[0]], os.environ, "second")
        assert first.keys and ticket.ahead(os.environ) == ()
        print("refused", flush=True)
        signal.pause()
        return 0

    inside = box.begun(work, users.ana)
    assert box.fork(rename, users.bob).end() == 0
    (box.folder / "go").touch()
    until(lambda: "refused" in inside.out or inside.over)
    assert not inside.over, inside.err
    assert [waiter.user for waiter in waiters(box.environ)] == [users.names[users.ana]]
    assert {claim.step for claim in box.claims()} == {0, 1}


def test_who_moves_a_record_of_another_s_to_their_own_folder_has_no_say_inside_that_lease(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_as_default(box, monkeypatch)
    older = _own_older_folder(box, users.bob)

    def move() -> int:
        place = folders.own_place(os.environ)
        for path in older.glob("*.claim"):
            path.rename(place / path.name)
        write_record(place / record_name(box.uuids[0], users.bob, 5))
        print("moved", flush=True)
        signal.pause()
        return 0

    def work() -> int:
        take([box.uuids[0]], os.environ, "bash sweep.sh").inherit()
        print("holds", flush=True)
        until((box.folder / "go").exists)
        assert take([box.uuids[0]], os.environ, "a step").keys == (box.uuids[0],)
        print("has a step", flush=True)
        return 0

    inside = box.begun(work, users.ana)
    box.begun(move, users.bob)
    (box.folder / "go").touch()
    assert inside.end() == 0, inside.err


@pytest.mark.parametrize("suffix", ["claim", "ticket"])
def test_no_link_in_the_place_of_format_1_has_a_living_record_or_ticket_removed(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Ana's gputui removes her dead files there. Bob keeps one that it has emptied, gives it the name of a
    living one, and puts a link to Ana's own folder in the place of his folder just before it is removed."""
    use_as_default(box, monkeypatch)
    older, meeting = _own_older_folder(box, users.bob), box.folder / "meet"
    meeting.mkdir()
    meeting.chmod(0o1777)

    def hold() -> int:
        lease, ticket = take([box.uuids[0]], os.environ, "x"), Ticket.draw(os.environ, 8, None, "x")
        print(lease.keys, ticket, flush=True)
        signal.pause()
        return 0

    box.begun(hold, users.ana)
    (living,) = older.glob(f"*.{suffix}")
    (own,) = (path for path in box.claims_folder.glob(f"gputui-claims.2.*/{living.name}"))
    emptied = box.folder / "emptied"
    emptied.touch(0o644)
    os.chown(emptied, users.ana, users.ana)
    living.rename(older / "aside")
    emptied.rename(living)

    def look() -> int:
        def at_the_removal(event: str, facts: tuple[object, ...]) -> None:
            if event == "os.remove" and str(facts[0]).endswith(living.name):
                (meeting / "asked").touch()
                until((meeting / "done").exists)

        sys.addaudithook(at_the_removal)
        Ticket.draw(os.environ, 8, None, "x").leave()
        return len(claims(os.environ)[1])

    def exchange() -> int:
        older.rename(f"{older}.aside")
        older.symlink_to(own.parent)
        (meeting / "done").touch()
        return 0

    child = box.fork(look, users.ana)
    until(lambda: (meeting / "asked").exists() or child.over)
    assert box.fork(exchange, users.bob).end() == 0
    assert child.end() == 0, child.err
    assert own.exists() and box.claimed() == [0] and len(waiters(box.environ)) == 1


@pytest.mark.parametrize("what", ["claims", "state"])
def test_no_link_in_the_place_of_a_new_folder_has_another_folder_of_mine_opened_or_closed(
    box: Box, users: Users, what: str
) -> None:
    """In a folder of a project, in which others can write and which is not sticky."""
    project, home = box.folder / "project", box.folder / "home"
    for place, mode in ((project, 0o777), (home, 0o750)):
        place.mkdir()
        place.chmod(mode)
    os.chown(home, users.ana, users.ana)

    def make() -> int:
        def at_its_mode(event: str, facts: tuple[object, ...]) -> None:
            if event == "os.chmod" and str(facts[0]).startswith(str(project)):
                print("made", flush=True)
                until((project / "done").exists)

        sys.addaudithook(at_its_mode)
        if what == "claims":
            return main(("run", "-q", "-n", "1", "--", "true"))
        with contextlib.suppress(OSError):
            private_folder(project / "state")
        return 4

    def exchange() -> int:
        for place in [*project.iterdir()]:
            place.rename(project / "aside")
            place.symlink_to(home)
        (project / "done").touch()
        return 0

    child = box.fork(make, users.ana, GPUTUI_CLAIMS=str(project / "claims"))
    until(lambda: child.out or child.over)
    assert box.fork(exchange, users.bob).end() == 0
    assert child.end() == 4 and (what == "state" or str(project) in child.err), child.err
    assert home.stat().st_mode & 0o7777 == 0o750


@pytest.mark.parametrize("mode", [0o700, 0o775, 0o777])
def test_who_closes_or_opens_his_folder_during_a_lease_is_not_given_its_devices_again(
    box: Box, users: Users, mode: int
) -> None:
    box.hold(0, uid=users.ana)
    (mine,) = (each for each in box.claims_folder.glob("*.2.*") if each.stat().st_uid == users.ana)
    mine.chmod(mode)
    for path in box.claims_folder.glob("*.claim"):
        path.unlink()
    for which in _WAYS:
        status, _, err = box.call("run", "-q", *which, "--", "true", uid=users.ana)
        assert status == 4 and str(mine) in err
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.bob)[0] == 0, "he is in nobody else's way"
    assert str(mine) in box.call("claims", uid=users.bob)[2]
    mine.chmod(0o755)
    assert box.call("run", "-q", "--gpus", "0", "--", "true", uid=users.bob)[0] == 4


def test_a_record_that_can_be_written_in_part_only_is_none(box: Box, users: Users) -> None:
    def begin() -> int:
        place = folders.own_place(os.environ)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(UnsafeError, match=str(place)):
            take([box.uuids[0]], os.environ, "x")
        return len([*place.iterdir()])

    child = box.fork(begin, users.ana)
    assert child.end() == 0, child.err


def test_what_a_killed_program_was_making_is_removed_by_its_user_s_next_look(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand such files would keep the user's claims from being read."""

    def begin() -> int:
        def kill(event: str, facts: tuple[object, ...]) -> None:
            if event == "os.rename" and str(facts[1]).endswith(".claim"):
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        take([box.uuids[0]], os.environ, "x")
        return 0

    assert box.fork(begin, users.ana).end() == -signal.SIGKILL
    (left,) = box.claims_folder.glob("gputui-claims.2.*/.*")
    assert box.call("claims", uid=users.ana)[0] == 0 and left.exists(), "somebody may be making it"
    monkeypatch.setattr(files, "_MOMENT", -1.0)
    assert box.call("claims", uid=users.bob)[0] == 0 and left.exists()
    assert box.call("claims", uid=users.ana)[0] == 0 and not left.exists()


@pytest.fixture
def small(box: Box) -> Iterator[Path]:
    """The folder of claims on a file system of its own, with room for few files."""
    words = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=40,mode=1777", "gputui", str(box.claims_folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield box.claims_folder
    finally:
        box.end()
        subprocess.run(["umount", box.claims_folder], check=True)


def _fill(folder: Path, what: str) -> int:
    """Make files until there is no room for another, or write into one until it is full; return 0 once that
    fails, else 1."""
    try:
        if what == "space":
            with (folder / "large").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(2**16))
        for number in range(100_000):
            (folder / f"{number}").touch()
    except OSError:
        return 0
    return 1


def test_a_file_system_without_room_for_a_record_starts_nothing(box: Box, users: Users, small: Path) -> None:
    box.hold(0, uid=users.bob)
    assert box.fork(lambda: _fill(small, "files"), users.bob).end() == 0
    words = ("run", "-q", "-n", "1", "--", "echo", "ran")
    for uid in (users.ana, users.bob):
        status, out, err = box.call(*words, uid=uid)
        assert (status, out) == (4, "") and "--setup" in err
        assert box.call("run", "--force", *words[1:], uid=uid)[:2] == (0, "ran\n")
    assert box.claimed() == [0]


def test_a_folder_that_is_too_full_to_be_read_starts_nothing(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_FILES", 100)
    holder = box.hold(0, uid=users.bob)
    assert [box.call("run", "-q", *which, "--", "true", uid=users.ana)[0] for which in _WAYS] == [4, 0]

    def plant() -> int:
        for number in range(110):
            (box.claims_folder / f"rubbish {number}").touch()
        return 0

    assert box.fork(plant, users.bob).end() == 0
    for which in _WAYS:
        status, _, err = box.call("run", "-q", *which, "--", "true", uid=users.ana)
        assert status == 4 and "--setup" in err
    assert box.call("pick", "-n", "1", uid=users.ana)[:2] == (4, "")
    assert box.call("pick", "--force", "-n", "1", uid=users.ana)[0] == 0
    assert box.call("run", "-q", "--force", "--gpus", "0", "--", "true", uid=users.ana)[0] == 0
    holder.kill()


_WAYS = (("--gpus", "0"), ("-n", "1"))


@pytest.mark.thorough
def test_no_limit_of_open_files_has_a_device_given_twice(box: Box, users: Users) -> None:
    box.hold(0, uid=users.bob)
    box.hold(*range(1, 8), uid=users.ana)
    refused = 0
    for most in range(4, 40, 2):

        def begin(most: int = most) -> int:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return main(("run", "-q", "--gpus", "0", "--", "true"))

        status = box.fork(begin, users.ana).end()
        assert status != 0, most
        refused += status == 4
    assert refused > 5


@pytest.fixture
def set_up(box: Box, users: Users, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folders that `gputui claims --setup` has made for the two users, in place of root's base."""
    use_as_default(box, monkeypatch)
    base = box.folder / "run"
    monkeypatch.setattr(folders, "ADMINISTRATED", str(base))
    names = [users.names[uid] for uid in (users.ana, users.bob)]
    status, out, err = box.call("claims", "--setup", *names)
    if status:
        pytest.skip(f"nothing can be mounted here: {err}")
    assert [line.split()[1] for line in out.splitlines()] == [str(base / name) for name in names]
    try:
        yield base
    finally:
        box.end()
        for place in base.iterdir():
            subprocess.run(["umount", place], check=False)


@pytest.mark.parametrize("what", ["files", "space"])
def test_a_place_that_root_has_set_up_is_filled_by_nobody_else(
    box: Box, users: Users, set_up: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(folders, "MAX_FILES", 100)
    older = _own_older_folder(box, users.bob)

    def flood() -> int:
        _fill(set_up / users.names[users.bob], what)
        for number in range(110):
            (box.claims_folder / f"gputui-claims.2.{number:016x}").mkdir()
        for number in range(110):
            (older / f"rubbish {number}").touch()
        return sum(map(_is_done, (set_up, set_up / users.names[users.ana])))

    box.hold(0, uid=users.ana)
    assert box.fork(flood, users.bob).end() == 0
    assert box.call("run", "-q", "-n", "7", "--", "true", uid=users.ana)[0] == 0
    assert box.call("run", "-q", "--gpus", "0", "--", "true", uid=users.bob)[0] == 4
    if what == "files":
        assert box.call("run", "-q", "--gpus", "1", "--", "true", uid=users.bob)[0] == 4, "his own is full"
    status, _, err = box.call("run", "-q", "-n", "1", "--", "true")
    assert status == 4 and "--setup" in err, "root has made none for itself"


def _enter_mounts() -> None:
    """Use a mount namespace of our own from now on. Needs root."""
    library = ctypes.CDLL(None, use_errno=True)
    private = 1 << 14 | 1 << 18  # MS_REC | MS_PRIVATE
    if library.unshare(0x20000) or library.mount(None, b"/", None, private, None):
        raise OSError(ctypes.get_errno(), "no mounts of our own")


def test_nobody_outside_fills_anything_for_who_has_no_number_in_a_container(
    box: Box, users: Users, set_up: Path
) -> None:
    """All users outside have one number there: a user's excess of files still affects only that user."""

    def flood() -> int:
        for number in range(MOST_READ + 20):
            (set_up / users.names[users.bob] / record_name(box.uuids[1], token=f"f{number:031x}")).touch()
        return _fill(set_up / users.names[users.bob], "files")

    def work() -> int:
        if not _enter_container(f"0 {users.ana} 1"):
            return _NOT_HERE
        return main(("run", "-q", "--gpus", "2", "--", "true"))

    box.hold(1, uid=users.ana)
    assert box.fork(flood, users.bob).end() == 0
    inside = box.fork(work, users.ana)
    status = inside.end()
    if status == _NOT_HERE:
        pytest.skip("this system lets nobody make a user namespace")
    assert status == 0, inside.err


def test_a_container_that_lacks_the_mount_of_a_user_starts_nothing_beside_his_claims(
    box: Box, users: Users, set_up: Path
) -> None:
    """A container from before root set up a user sees an empty folder of root's."""
    place = set_up / users.names[users.bob]

    def work() -> int:
        _enter_mounts()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", box.claims_folder], check=True)
        subprocess.run(["umount", place], check=True)
        os.setuid(users.ana)
        return main(("run", "-q", "--gpus", "2", "--", "true"))

    box.hold(2, uid=users.bob)
    inside = box.fork(work)
    assert inside.end() == 4 and str(place) in inside.err, inside.err


def test_root_claims_nothing_where_a_user_s_claims_will_be_mounted(
    box: Box, users: Users, set_up: Path
) -> None:
    place = set_up / users.names[users.bob]
    subprocess.run(["umount", place], check=True)
    status, _, err = box.call("run", "-q", "-n", "1", "--", "true")
    assert status == 4 and str(place) in err and list(place.iterdir()) == []


def test_the_name_of_a_user_is_no_format(box: Box, users: Users, set_up: Path) -> None:
    """Universities have users whose name is their number."""
    (set_up / "20231234").mkdir(mode=0o755)
    os.chown(set_up / "20231234", users.bob, users.bob)
    assert box.call("run", "-q", "-n", "8", "--", "true", uid=users.ana) == (0, "", "")


def _link(place: Path) -> None:
    place.symlink_to("/etc")


@pytest.mark.parametrize("plant", [_link, Path.touch, os.mkfifo, Path.mkdir])
def test_nothing_that_was_there_before_keeps_root_from_setting_up(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], object]
) -> None:
    use_as_default(box, monkeypatch)
    base = box.folder / "run"
    monkeypatch.setattr(folders, "ADMINISTRATED", str(base))
    base.mkdir()
    base.chmod(0o1777)
    place = base / users.names[users.ana]

    def plant_two() -> int:
        plant(place)
        plant(base / "anything")
        return 0

    assert box.fork(plant_two, users.bob).end() == 0
    status, _, err = box.call("claims", "--setup", place.name)
    try:
        if "mount" in err:
            pytest.skip("nothing can be mounted here")
        assert status == 0 and place.is_mount() and place.stat().st_uid == users.ana, err
        assert [*base.iterdir()] == [place], "each call would list the rest for ever"
    finally:
        subprocess.run(["umount", place], capture_output=True, check=False)


def test_root_unmounts_nothing_that_a_link_leads_to(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown user (of a container) made the link while everybody could write there."""
    use_as_default(box, monkeypatch)
    base, disk = box.folder / "run", box.folder / "disk"
    monkeypatch.setattr(folders, "ADMINISTRATED", str(base))
    base.mkdir()
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", disk], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    (base / "link").symlink_to(disk)
    os.lchown(base / "link", 2**30 + 7, 2**30 + 7)
    try:
        status, _, err = box.call("claims", "--setup", users.names[users.ana])
        assert status == 0 and disk.is_mount(), err
    finally:
        for place in (disk, base / users.names[users.ana]):
            subprocess.run(["umount", place], capture_output=True, check=False)


def _seen(event: str, counts: Callable[[str], bool]) -> list[str]:
    """The paths of an audit event (`sys.addaudithook`) of this process from now on, as far as they count."""
    found: list[str] = []

    def note(name: str, facts: tuple[object, ...]) -> None:
        if name == event and counts(str(facts[0])):
            found.append(str(facts[0]))

    sys.addaudithook(note)
    return found


def _own_older_folder(box: Box, uid: int, shut_out: int | None = None) -> Path:
    """Have a user own the folder of format 1, as made by that user; an access list keeps `shut_out` out."""
    older = box.claims_folder / "gputui-claims"

    def work() -> int:
        older.mkdir()
        older.chmod(0o1777)
        if shut_out is not None:
            # acl(5): version, then tag, rights and number of each entry.
            entries = ((1, 7, -1), (2, 0, shut_out), (4, 7, -1), (16, 7, -1), (32, 7, -1))
            value = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
            try:
                os.setxattr(older, "system.posix_acl_access", value)
            except OSError:
                return _NOT_HERE
        return 0

    if older.exists():
        older.rmdir()
    status = box.fork(work, uid).end()
    if status == _NOT_HERE:
        pytest.skip("no access lists here")
    assert status == 0
    return older


@pytest.mark.parametrize("by_root", [False, True])
def test_who_owns_the_folder_of_format_1_can_shut_others_out_but_not_where_root_has_set_up(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, by_root: bool
) -> None:
    if by_root:
        request.getfixturevalue("set_up")
    else:
        use_as_default(box, monkeypatch)
    older = _own_older_folder(box, users.bob, shut_out=users.ana)
    status, _, err = box.call("run", "-q", "-n", "1", "--", "true", uid=users.ana)
    if by_root:
        assert (status, err) == (0, "")
    else:
        assert status == 4 and str(older) in err and "--setup" in err


@pytest.mark.usefixtures("set_up")
def test_a_named_folder_is_not_root_s_and_needs_both_records(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older gputui looks in the named folder only, whatever root has set up."""
    named = box.folder / "named"
    named.mkdir()
    named.chmod(0o1777)

    def take_one() -> int:
        made = os.open

        def full(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if flags & os.O_CREAT and dir_fd and os.path.samestat(os.fstat(dir_fd), named.stat()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return made(path, flags, mode, dir_fd=dir_fd)

        os.open = full  # type: ignore[assignment]
        return main(("run", "-q", "-n", "1", "--", "true"))

    monkeypatch.setitem(box.environ, "GPUTUI_CLAIMS", str(named))
    child = box.fork(take_one, users.ana)
    assert child.end() == 4 and str(named) in child.err, child.err
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.ana)[0] == 0


def test_who_owns_the_folder_of_format_1_hides_claims_from_older_ones_only(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_as_default(box, monkeypatch)
    older = _own_older_folder(box, users.bob)
    box.hold(0, uid=users.ana)
    assert OlderClaims(older).held() == {box.uuids[0]: users.ana}
    assert box.fork(lambda: older.rename(f"{older}.away") and 0, users.bob).end() == 0
    assert box.call("run", "--gpus", "0", "--", "true")[0] == 4
    assert box.claimed() == [0]


@pytest.mark.parametrize("what", ["claim", "ticket", "older", "unknown"])
def test_nothing_is_set_up_beside_what_nobody_would_see_afterwards(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """So nothing that others fill can hide a claim: all of them are in the base."""
    use_as_default(box, monkeypatch)
    base = box.folder / "run"
    monkeypatch.setattr(folders, "ADMINISTRATED", str(base))
    older, name = _own_older_folder(box, users.bob), users.names[users.ana]

    def wait_in_line() -> int:
        Ticket.draw(os.environ, 1, None, "x")
        print("in line", flush=True)
        signal.pause()
        return 0

    begun = None
    if what == "claim":
        begun = box.hold(0, uid=users.ana)
    elif what == "ticket":
        begun = box.begun(wait_in_line, users.ana)
    elif what == "older":
        begun = box.begun(lambda: OlderClaims(older).hold(box.uuids[0]), users.ana)
    else:
        monkeypatch.setattr(folders, "MAX_NAMES", -1)
    status, out, err = box.call("claims", "--setup", name)
    assert (status, out) == (2, "") and not base.exists() and "/etc/fstab" in err
    monkeypatch.undo()
    if begun:
        begun.kill()


def test_where_root_has_set_up_nothing_is_read_or_made_elsewhere(
    box: Box, users: Users, set_up: Path
) -> None:
    """Whoever fills another folder hides nothing and keeps nobody from claiming."""
    older = _own_older_folder(box, users.bob)
    box.begun(lambda: OlderClaims(older).hold(box.uuids[0]), users.bob)
    held = box.hold(1, uid=users.ana)
    before = {*box.claims_folder.rglob("*")}

    def look() -> int:
        outside = _seen("os.scandir", lambda path: not path.startswith(str(set_up)))
        Ticket.draw(os.environ, 1, None, "x").ahead(os.environ)
        assert box.claimed() == [1] and outside == [], outside
        return 0

    child = box.fork(look, users.bob)
    assert child.end() == 0, child.err
    assert {*box.claims_folder.rglob("*")} == before
    held.kill()


def test_who_can_write_to_a_folder_of_mine_can_keep_me_from_claiming_but_nobody_else(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks like a folder of claims that was opened to others: see the test of that."""
    use_as_default(box, monkeypatch)
    project = box.folder / "project"
    (project / "data").mkdir(parents=True)
    for place in (project, project / "data"):
        place.chmod(0o777)
    os.chown(project / "data", users.ana, users.ana)
    moved = box.claims_folder / "gputui-claims.2.data"
    assert box.fork(lambda: bool((project / "data").rename(moved)) - 1, users.bob).end() == 0
    status, _, err = box.call("run", "-q", "-n", "1", "--", "true", uid=users.ana)
    assert status == 4 and str(moved) in err
    for uid in (users.bob, 0):
        assert box.call("run", "-q", "-n", "1", "--", "true", uid=uid)[0] == 0
    moved.chmod(0o755)
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.ana)[0] == 0


def test_setting_up_again_removes_what_users_who_are_gone_have_left(
    box: Box, users: Users, set_up: Path
) -> None:
    mine, gone = (set_up / users.names[uid] for uid in (users.ana, users.bob))
    os.chown(gone, 54321, 54321)
    holder = box.hold(0, uid=users.ana)
    assert box.call("claims", "--setup", users.names[users.ana])[0] == 0
    assert mine.exists() and not gone.exists() and box.claimed() == [0]
    holder.kill()
    assert box.call("claims", "--setup", "no-such-user")[0] == 2


def test_a_newer_format_is_said_and_nothing_is_claimed_beside_it(box: Box, users: Users) -> None:
    newer = box.claims_folder / f"gputui-claims.{folders.FORMAT + 1}.something"
    assert box.fork(lambda: newer.mkdir(0o755) or 0, users.bob).end() == 0
    status, out, err = box.call("run", "-q", "-n", "1", "--", "echo", "ran", uid=users.ana)
    assert (status, out) == (4, "") and users.names[users.bob] in err and "newer" in err
    assert users.names[users.bob] in box.call("claims", uid=users.ana)[2]
    assert box.call("run", "-q", "--force", "-n", "1", "--", "echo", "ran", uid=users.ana)[1] == "ran\n"


def test_an_anonymous_recording_names_nobody_whose_claims_cannot_be_read(box: Box, users: Users) -> None:
    newer = box.claims_folder / f"gputui-claims.{folders.FORMAT + 1}.something"
    assert box.fork(lambda: newer.mkdir(0o755) or 0, users.bob).end() == 0
    named = box.call("record", "-", uid=users.ana)[1]
    assert users.names[users.bob] in named and str(box.claims_folder) in named
    status, out, _ = box.call("record", "--anonymous", "-", uid=users.ana)
    assert status == 0 and users.names[users.bob] not in out and str(box.claims_folder) not in out


def test_a_record_of_format_1_counts_and_one_is_made_for_each_claim(box: Box, users: Users) -> None:
    """As gputui before 0.1.0 makes and reads them (tests/older_claims.py)."""
    older = box.begun(lambda: OlderClaims(box.claims_folder).hold(box.uuids[0]), users.bob)
    assert box.call("run", "--gpus", "0", "--", "true", uid=users.ana)[0] == 4
    assert box.call("run", "-q", "-n", "7", "--", "true", uid=users.ana)[0] == 0
    older.kill()
    newer = box.hold(1, uid=users.ana)
    assert OlderClaims(box.claims_folder).held() == {box.uuids[1]: users.ana}
    refused = box.fork(lambda: OlderClaims(box.claims_folder).hold(box.uuids[1]), users.bob)
    assert refused.end() == 4
    newer.kill()
    assert OlderClaims(box.claims_folder).held() == {}


# inside the user's own lease


@pytest.mark.parametrize("flat", [True, False], ids=["format 1", "own folder"])
def test_no_step_or_ticket_of_another_user_is_in_the_way_inside_a_lease(
    box: Box, users: Users, flat: bool
) -> None:
    def forge() -> int:
        place = box.claims_folder if flat else folders.own_place(os.environ)
        for number in (0, 2, 5):
            for step in (0, 1):
                write_record(place / record_name(box.uuids[number], users.ana, step))
        for count in (1, 2):
            Ticket.draw(os.environ, count, None, "x", step=1)
        print("forged", flush=True)
        signal.pause()
        return 0

    def body() -> None:
        forger = box.begun(forge, users.bob)
        for words in (("-n", "1"), ("-n", "2"), ("--force", "-n", "1"), ("--wait", "20", "-n", "2")):
            call = box.call("run", "-q", *words, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", keep=True)
            assert call[0] == 0 and call[1] in ("2\n", "2,5\n"), call
        (mine,) = (begun for begun in [box.start("run", "-q", "-n", "2", "--", "sleep", "99", keep=True)])
        until(lambda: mine.over or len([c for c in box.claims() if c.own and c.step]) == 2)
        assert box.call("run", "-n", "1", "--", "true", keep=True)[0] == 4, "one's own step is"
        forger.kill()

    box.inside([2, 5], body)


def test_force_takes_as_many_as_are_asked_for_the_free_ones_first(box: Box, users: Users) -> None:
    box.hold(*range(1, 8), uid=users.bob)
    script = "echo $CUDA_VISIBLE_DEVICES"
    for count, taken in ((1, {0}), (2, {0}), (8, set(range(8)))):
        words = ("run", "-q", "-n", str(count), "--", "sh", "-c", script)
        assert (box.call(*words, uid=users.ana)[0] == 0) == (count == 1)
        status, out, err = box.call("run", "--force", *words[1:], uid=users.ana)
        found = {int(number) for number in out.split(",")}
        assert status == 0 and len(found) == count and found >= taken
        assert err.count(users.names[users.bob]) == len(found - {0})
    assert box.call("run", "--force", "-n", "9", "--", "true", uid=users.ana)[0] == 4


# crowds


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.thorough
def test_the_users_inside_containers_are_no_other_persons(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Their numbers are their owner's (/etc/subuid): together they have no more records than the owner.
    Numbers that several users may use belong to none of these users."""
    table = box.folder / "subuid"
    owners = (users.ana, users.bob) if shared else (users.bob,)
    ranges = "".join(f"{users.names[uid]}:700000:65536\n" for uid in owners)
    table.write_text(f"root:1:1\n{ranges}broken\n")
    monkeypatch.setattr(system_users, "_SUBORDINATE", str(table))
    # (Of two with the same numbers, the one who is named last had the records of both.)
    holder = users.bob if shared else users.ana
    box.hold(0, uid=holder)
    for number in range(700_000, 700_030):
        place = box.claims_folder / f"gputui-claims.2.{number:016x}"
        place.mkdir(0o755)
        for each in range(60):
            for folder in (place, box.claims_folder)[: 1 + (each < 8)]:
                record = folder / record_name(box.uuids[each % 8], number)
                record.touch(0o644)
                os.chown(record, number, number)
            ticket = place / f"wait.{number}.{new_token()}.ticket"
            ticket.touch(0o644)
            os.chown(ticket, number, number)
        os.chown(place, number, number)

    def look() -> int:
        opened = _seen("open", lambda path: path.endswith((".claim", ".ticket")))
        assert [claim.user for claim in claims(os.environ)[0]] == [users.names[holder]]
        assert len(opened) <= MOST_FILES + MOST_READ
        opened.clear()
        assert waiters(os.environ) == () and len(opened) <= MOST_READ
        return 0

    child = box.fork(look, users.bob)
    assert child.end() == 0, child.err
    assert box.call("run", "-q", "-n", "7", "--", "true", uid=users.bob)[0] == 0


def test_what_is_not_opened_of_a_crowd_counts_as_claimed_and_costs_nothing(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd of dead records made `pick` take twelve times as long, and one of living ones 36 times."""
    monkeypatch.setattr(system_users, "_SUBORDINATE", str(box.folder / "none"))
    held = box.hold(0, uid=users.ana)
    for number in range(700_000, 700_008):
        place = box.claims_folder / f"gputui-claims.2.{number}"
        place.mkdir(0o755)
        for _ in range(MOST_READ // 6):
            for name in (record_name(box.uuids[1], number), f"wait.{number}.{new_token()}.ticket"):
                (place / name).touch(0o644)
                os.chown(place / name, number, number)
        os.chown(place, number, number)

    def look() -> int:
        opened = _seen("open", lambda path: path.endswith((".claim", ".ticket")))
        found, problems = claims(os.environ, box.uuids)
        assert len(opened) <= MOST_READ + 2 and len(problems) == 1, (len(opened), problems)
        assert [(each.key, each.user in users.names.values()) for each in found] == [
            (box.uuids[0], True),
            (box.uuids[1], False),
        ]
        opened.clear()
        assert waiters(os.environ) == () and len(opened) <= MOST_READ
        return 0

    child = box.fork(look, users.bob)
    assert child.end() == 0, child.err
    assert box.call("run", "-q", "--gpus", "0", "--", "true", uid=users.bob)[0] == 4
    assert box.call("run", "-q", "--gpus", "1", "--", "true", uid=users.bob)[0] == 4
    assert box.call("run", "-q", "-n", "6", "--", "true", uid=users.bob)[0] == 0
    held.kill()
    assert box.call("run", "-q", "--gpus", "0", "--", "true", uid=users.bob)[0] == 0


def test_what_takes_too_long_to_open_is_not_opened_and_counts_as_claimed(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others can make each of their files slow to read, and by many read locks each of Ana's slow to judge:
    512 records and 512 tickets of 16 KiB of JSON made `pick` take four times as long."""
    box.hold(0, uid=users.ana)
    theirs, dead = box.hold(1, uid=users.bob), box.hold(2, uid=users.bob)
    dead.kill()
    monkeypatch.setattr(files, "MOST_SECONDS", -1.0)

    def look() -> int:
        opened = _seen("open", lambda path: path.endswith((".claim", ".ticket")))
        found = {box.uuids.index(each.key): each.user for each in claims(os.environ)[0]}
        assert found == {0: users.names[users.ana], 1: users.names[users.bob], 2: users.names[users.bob]}
        assert {Path(path).stat().st_uid for path in opened} == {users.ana}
        Ticket.draw(os.environ, 1, None, "x")
        assert [each.user for each in waiters(os.environ)] == [users.names[users.ana]]
        return 0

    child = box.fork(look, users.ana)
    assert child.end() == 0, child.err
    assert box.call("run", "-q", "-n", "5", "--", "true", uid=users.ana)[0] == 0
    assert box.call("run", "-q", "--gpus", "1", "--", "true", uid=users.ana)[0] == 4
    theirs.kill()


def test_nobody_draws_so_many_tickets_that_their_records_are_not_listed(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TICKETS", 2)

    def work() -> int:
        first, _ = (Ticket.draw(os.environ, 1, None, "x") for _ in range(2))
        with pytest.raises(UnsafeError):
            Ticket.draw(os.environ, 1, None, "x")
        first.leave()
        Ticket.draw(os.environ, 1, None, "x")
        return 0

    child = box.fork(work, users.ana)
    assert child.end() == 0, child.err


def test_who_changes_something_all_the_time_has_nobody_list_everything_again_and_again(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing is reused for a time in proportion to its cost, so that a call makes one."""
    monkeypatch.setattr(files, "_CHEAP", 0.0)
    monkeypatch.setattr(files, "_WORTH", 1e9)
    box.hold(0, uid=users.bob)

    def look() -> int:
        listed = 0

        def count(event: str, facts: tuple[object, ...]) -> None:
            nonlocal listed
            if event == "os.scandir" and facts[0] == str(box.claims_folder):
                listed += 1
                (box.claims_folder / f"another-{listed}").touch()

        sys.addaudithook(count)
        assert main(("pick", "-n", "1")) == 0
        assert listed == 1
        Ticket.draw(os.environ, 1, None, "x").ahead(os.environ)
        assert listed >= 3, "who gets in line looks who is there"
        return 0

    child = box.fork(look, users.ana)
    assert child.end() == 0, child.err


def _bloat(folder: Path) -> int:
    """Make a folder large by files with long names, and remove them."""
    names = [f"{number:0>250}" for number in range(6000)]
    for name in names:
        (folder / name).symlink_to("x")
    for name in names:
        (folder / name).unlink()
    return folder.stat().st_size


@pytest.mark.thorough
def test_a_folder_that_was_large_once_costs_nobody_else_the_time_to_read_it(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of a folder is that of its names at their most: ext4 gives nothing back."""
    use_as_default(box, monkeypatch)
    older = _own_older_folder(box, users.bob)
    theirs = box.claims_folder / "gputui-claims.2.large"
    assert box.fork(lambda: theirs.mkdir(0o755) or 0, users.bob).end() == 0
    if box.fork(lambda: int(_bloat(theirs) < 2**20), users.bob).end():
        pytest.skip("a folder of this file system takes no more than its names")

    def look() -> int:
        def tell(event: str, facts: tuple[object, ...]) -> None:
            if event == "os.scandir" and facts[0] in (str(theirs), str(older)):
                print(facts[0], flush=True)

        sys.addaudithook(tell)
        return main(("run", "-q", "-n", "1", "--", "true"))

    child = box.fork(look, users.ana)
    assert child.end() == 0, child.err
    assert {*child.out.split()} == {str(older)}
    assert f"{theirs} are not read: the folder itself takes" in box.call("claims", uid=users.ana)[2]
    monkeypatch.setattr(folders, "MAX_BYTES", 2**13)
    assert box.fork(lambda: int(not _bloat(older)), users.bob).end() == 0
    child = box.fork(look, users.ana)
    assert child.end() == 4 and f"too many files in {older}" in child.err


def test_many_folders_of_one_user_cost_no_other_user_the_time_to_read_them(box: Box, users: Users) -> None:
    """Each may have been large once: two thousand took more than a second of every call."""
    box.hold(0, uid=users.ana)
    others = [box.claims_folder / f"gputui-claims.2.{number}" for number in range(40)]
    assert box.fork(lambda: any(each.mkdir(0o755) for each in others), users.bob).end() == 0

    def look() -> int:
        listed = _seen("os.scandir", lambda path: Path(path) in others)
        assert [each.user for each in claims(os.environ)[0]] == [users.names[users.ana]]
        assert len(listed) <= 16, listed
        return 0

    child = box.fork(look)
    assert child.end() == 0, child.err
    assert box.call("run", "-q", "-n", "1", "--", "true")[0] == 0


def test_many_users_outside_keep_nobody_in_a_container_from_claiming(box: Box, users: Users) -> None:
    """All of them have one number there."""
    for number in range(700_000, 700_020):
        place = box.claims_folder / f"gputui-claims.2.{number}"
        place.mkdir(0o755)
        os.chown(place, number, number)

    def work() -> int:
        if not _enter_container(f"0 {users.ana} 1"):
            return _NOT_HERE
        return main(("run", "-q", "-n", "1", "--", "true"))

    inside = box.fork(work, users.ana)
    status = inside.end()
    if status == _NOT_HERE:
        pytest.skip("this system lets nobody make a user namespace")
    assert status == 0, inside.err


def use_two_folders(box: Box, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second folder in which every user's claims are looked for: the one of format 1."""
    use_as_default(box, monkeypatch)
    more = box.folder / "more"
    more.mkdir()
    more.chmod(0o1777)
    monkeypatch.setattr(folders, "FALLBACKS", (str(more),))
    return more


def test_what_fills_several_folders_is_too_much_as_in_one(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = use_two_folders(box, monkeypatch)
    monkeypatch.setattr(folders, "MAX_FILES", 100)

    def plant() -> int:
        for place in (box.claims_folder, more):
            for number in range(60):
                (place / f"rubbish {number}").touch()
        return 0

    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.ana)[0] == 0
    assert box.fork(plant, users.bob).end() == 0
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.ana)[0] == 4


def test_who_fills_one_place_keeps_nobody_from_reading_the_next(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one person may have in all places is used up, and more, before the second place is read."""
    more = use_two_folders(box, monkeypatch)

    def plant() -> int:
        for number in range(MOST_FILES + 10):
            (box.claims_folder / record_name(f"GPU-{number}-x", users.bob)).touch(0o644)
        return 0

    box.begun(lambda: OlderClaims(more).hold(box.uuids[0]), users.ana)
    assert box.fork(plant, users.bob).end() == 0
    assert [claim.key for claim in claims(box.environ)[0]] == [box.uuids[0]]
    assert box.call("run", "-q", "-n", "7", "--", "true", uid=users.ana)[0] == 0


# waiters that cannot take their turn


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the fifteen seconds to four: on a busy machine, a waiter reports a second late."""
    monkeypatch.setattr(queue, "_SILENT", 3.0)
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
@pytest.mark.thorough
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
@pytest.mark.thorough
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


@pytest.mark.usefixtures("impatient")
def test_who_was_silent_does_not_jump_the_line_by_moving_his_lock(box: Box, users: Users) -> None:
    """A program that was silent, and later writes again as if nothing had happened, stays behind."""
    other, go = box.hold(0), box.folder / "go"

    def forge() -> int:
        ticket = Ticket.draw(os.environ, 8, None, "x")
        print("in line", flush=True)
        until(go.exists)
        while True:
            for _, descriptor in ticket._files:
                queue.unlock(descriptor, 0, int(queue.time.monotonic()))
            print("moved", flush=True)
            queue.time.sleep(0.1)

    forger = box.begun(forge, users.ana)
    second = _in_line(box, users.bob, 2)
    until(lambda: [waiter.silent for waiter in waiters(box.environ)] == [False, True])
    # The second waiter has noticed this, too, once it has looked again.
    before = box.driver.counts().get("nvmlDeviceGetMemoryInfo_v2", 0)
    until(lambda: box.driver.counts().get("nvmlDeviceGetMemoryInfo_v2", 0) > before + 16)
    go.touch()
    until(lambda: [waiter.silent for waiter in waiters(box.environ)] == [False, False])
    other.kill()
    assert (second.end(), second.out) == (0, "ran\n")
    forger.kill()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("hidden", ["by no lock", "by a closed folder"])
def test_a_ticket_that_was_not_in_line_before_does_not_jump_it(box: Box, users: Users, hidden: str) -> None:
    """A file that was prepared long ago, and is locked or shown once others wait."""
    other, go = box.hold(0), box.folder / "go"

    def forge() -> int:
        place = folders.own_place(os.environ)
        if hidden == "by no lock":
            path = place / f"wait.{os.geteuid()}.{new_token()}.ticket"
            path.write_text(json.dumps({"count": 8}))
            path.chmod(0o644)
            descriptor = os.open(path, os.O_RDWR)
        else:
            place.chmod(0o700)
            descriptor = Ticket.draw(os.environ | {"GPUTUI_CLAIMS": str(own)}, 8, None, "x")._files[0][1]
            for path in own.glob("*/wait*"):
                path.rename(place / path.name)
        print("prepared", flush=True)
        until(go.exists)
        place.chmod(0o755)
        now = int(queue.time.monotonic())
        lock(descriptor, now, END - now)
        while True:
            queue.unlock(descriptor, 0, int(queue.time.monotonic()))
            queue.time.sleep(0.1)

    own = box.folder / "own"
    own.mkdir()
    own.chmod(0o1777)
    forger = box.begun(forge, users.ana)
    second = _in_line(box, users.bob, 1)
    before = box.driver.counts().get("nvmlDeviceGetMemoryInfo_v2", 0)
    until(lambda: box.driver.counts().get("nvmlDeviceGetMemoryInfo_v2", 0) > before + 16)
    go.touch()
    until(lambda: len(waiters(box.environ)) == 2)
    assert waiters(box.environ)[0].user == users.names[users.ana], "by the time of its last change"
    other.kill()
    assert (second.end(), second.out) == (0, "ran\n"), second.err
    forger.kill()


@pytest.mark.parametrize("wanted", ["GPU-none", None], ids=["another device", "more devices"])
def test_a_ticket_that_wants_something_else_than_before_does_not_jump_the_line(
    box: Box, users: Users, small: Path, wanted: str | None
) -> None:
    """On a tmpfs, what is written through mmap(2) to a page that was read before changes no time: the ticket
    keeps its place."""
    go, asked = box.folder / "go", json.dumps({"count": 9, "devices": wanted and [wanted]}).encode()

    def forge() -> int:
        place = folders.own_place(os.environ) / f"wait.{os.geteuid()}.{new_token()}.ticket"
        place.write_bytes(asked)
        place.chmod(0o644)
        descriptor, now = os.open(place, os.O_RDWR), int(queue.time.monotonic())
        with mmap.mmap(descriptor, 0) as memory:
            lock(descriptor, now, END - now)
            print("in line", memory[:], flush=True)
            until(go.exists)
            memory[:] = b'{"count": 1}'.ljust(len(asked))
            print("changed", flush=True)
            signal.pause()
        return 0

    def wait() -> int:
        ticket = Ticket.draw(os.environ, 1, frozenset(box.uuids), "x")
        ticket.ahead(os.environ)
        print("in line", flush=True)
        until((box.folder / "look").exists)
        files.forget_what_was_seen()
        assert len(waiters(os.environ)) == 2 and ticket.ahead(os.environ) == ()
        return 0

    assert small.is_mount()
    forger, second = box.begun(forge, users.bob), box.begun(wait, users.ana)
    go.touch()
    until(lambda: "changed" in forger.out)
    (box.folder / "look").touch()
    assert second.end() == 0, second.err


def test_who_was_not_seen_in_a_folder_that_is_too_full_is_still_ahead(box: Box, users: Users) -> None:
    def wait() -> int:
        Ticket.draw(os.environ, 1, None, "x")
        print("in line", flush=True)
        signal.pause()
        return 0

    def look() -> int:
        ticket, most = Ticket.draw(os.environ, 1, None, "x"), folders.MAX_NAMES
        for folders.MAX_NAMES in (most, 0, most):
            files.forget_what_was_seen()
            print(len(ticket.ahead(os.environ)))
        return 0

    box.make_folder()
    box.begun(wait, users.ana)
    child = box.fork(look, users.bob)
    assert child.end() == 0 and child.out.split() == ["1", "0", "1"], (child.out, child.err)


def test_who_waits_by_gputui_0_1_0_is_hidden_by_no_tickets_that_another_plants(
    box: Box, users: Users
) -> None:
    def plant() -> int:
        name = f"wait.{users.ana}.{'f' * 32}.ticket"
        descriptor, now = os.open(box.claims_folder / name, os.O_RDWR | os.O_CREAT, 0o644), queue._now()
        lock(descriptor, int(now), END - int(now))
        print("in line", flush=True)
        signal.pause()
        return 0

    def flood() -> int:
        for number in range(MOST_READ):
            (box.claims_folder / f"wait.{users.bob}.{number:032x}.ticket").touch(0o644)
        return 0

    box.begun(plant, users.ana)
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.bob)[0] == 4
    assert box.fork(flood, users.bob).end() == 0
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.bob)[0] == 4


@pytest.mark.parametrize("entered", [True, False])
def test_nobody_jumps_the_line_by_a_clock_of_his_own(box: Box, users: Users, entered: bool) -> None:
    """In a time namespace, which an ordinary user can make, all other last beats would be days old. A process
    that has made one is not in it: its children are, and before Linux 6.2 no program that it becomes."""

    def work() -> int:
        if ctypes.CDLL(None).unshare(0x80):
            return _NOT_HERE
        Path("/proc/self/timens_offsets").write_text("monotonic 900000 0\n")
        # A program that starts there has not looked before.
        queue._ahead.cache_clear()
        inside = os.fork() if entered else 0
        if inside == 0:
            os.setgid(users.bob)
            os.setuid(users.bob)
            os._exit(main(("run", "-q", "-n", "1", "--", "true")))
        return os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1])

    box.hold(0)
    _in_line(box, users.ana, 1)
    inside = box.fork(work)
    status = inside.end()
    if status == _NOT_HERE:
        pytest.skip("this kernel has no time namespaces")
    assert status == 4 and users.names[users.ana] in inside.err, inside.err


def test_a_ticket_from_the_future_is_behind_all_others(box: Box, users: Users) -> None:
    """A ticket with a forged time of its last beat counts as silent."""

    def forge() -> int:
        ticket = Ticket.draw(os.environ, 8, None, "x")
        for _, descriptor in ticket._files:
            queue.unlock(descriptor, 0, 2**40)
        print("in line", flush=True)
        signal.pause()
        return 0

    box.make_folder()
    forger = box.fork(forge, users.ana)
    until(lambda: forger.out or forger.over)
    assert [waiter.silent for waiter in waiters(box.environ)] == [True]
    assert box.call("run", "-q", "-n", "1", "--", "true", uid=users.bob) == (0, "", "")


def test_a_ticket_for_more_than_there_is_holds_nobody_up(box: Box, users: Users) -> None:
    """gputui itself draws no such ticket: the forger's program does."""

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


def test_an_idle_job_is_stopped_and_nothing_of_another_user(box: Box, users: Users) -> None:
    theirs = box.start("run", "-q", "--gpus", "5", "--", "sleep", "600", uid=users.bob)
    until(lambda: 5 in box.claimed())
    ours = started(box, "--idle-release", "1")
    # All of it is idle, and theirs is on a device of ours, too.
    load(box, 0, {6: int(ours.log.read_text()), 7: theirs.pid, 5: theirs.pid})
    assert ended(ours).state == "stopped"
    assert not theirs.over and box.claimed() == [5]


def test_settings_that_another_user_can_change_start_nothing_of_his(box: Box, users: Users) -> None:
    """Ana's folder is Ana's alone; the group of the file, and of a folder above it, has other members."""
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


PLANTED = ("pbcopy", "wl-copy", "xclip", "xsel", "tmux", "ssh", "scontrol", "squeue", "xpu-smi", "hl-smi")


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--copy", "--as", "sh", "--gpus", "0", "--", "python", "x.py"),
        ("ls", "--hosts", "far"),
        ("doctor",),
        ("ls", "--slurm"),
    ],
    ids=" ".join,
)
def test_no_program_runs_that_another_user_could_have_put_in_path(
    box: Box, users: Users, words: tuple[str, ...]
) -> None:
    """Bob's folder is the first one of Ana's PATH."""
    bins, ran = box.folder / "bins", box.folder / "ran"

    def plant() -> int:
        bins.mkdir()
        for name in PLANTED:
            (bins / name).write_text(f"#!/bin/sh\n: > {ran}\n")
            (bins / name).chmod(0o755)
        return 0

    assert box.fork(plant, users.bob).end() == 0
    path = f"{bins}:{os.environ['PATH']}"
    box.call(*words, uid=users.ana, PATH=path, DISPLAY=":0", WAYLAND_DISPLAY="x", TMUX="x")
    assert not ran.exists()


def test_no_answer_is_read_from_a_folder_that_another_user_can_exchange(box: Box, users: Users) -> None:
    """A folder of temporary files in which all can write, but not only their own (TMPDIR=/scratch)."""
    scratch, go = box.folder / "scratch", box.folder / "go"
    scratch.mkdir()
    scratch.chmod(0o777)

    def ask() -> int:
        tempfile.tempdir = None
        with answers() as folder:
            (folder / "driver.json").write_text('"mine"')
            print("asked", flush=True)
            until(go.exists)
            print(read_answer(folder / "driver.json"), flush=True)
        return 0

    def exchange() -> int:
        for folder in scratch.iterdir():
            folder.rename(f"{folder}.aside")
            folder.mkdir()
            (folder / "driver.json").write_text('"another\'s"')
        return 0

    child = box.fork(ask, users.ana, TMPDIR=str(scratch))
    until(lambda: child.out or child.over)
    assert box.fork(exchange, users.bob).end() == 0
    go.touch()
    assert child.end() == 0 and child.out == "asked\nmine\n", child.err
    assert not [*scratch.iterdir()]


def test_a_directory_of_another_user_s_is_not_the_one_of_the_same_name(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run --on` names the directory in which it is called, and on the other box another user has made one of
    that name."""
    work = box.folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    asked = LaunchRequest(LaunchOptions(("true",)))
    named = LaunchRequest(LaunchOptions(("true",), directory="x"))
    assert in_this_directory(named) == (named, False)
    for owner, mode in ((0, 0o755), (users.bob, 0o755), (0, 0o777)):
        os.chown(work, owner, owner)
        work.chmod(mode)
        is_own = (owner, mode) == (0, 0o755)
        sent, own_directory = in_this_directory(asked)
        assert sent.options.directory == str(work)
        assert own_directory == is_own, "here it is as unsafe"
        for more in ((), ("--detach",), ("--dry-run",)):
            call = ("run", "-q", *more, f"--directory={work}", "--own-directory", "-n", "1", "--", "true")
            status, out, err = box.call(*call)
            assert status == (0 if is_own else 126), err
            assert is_own or (out == "" and repr(str(work)) in err and "--directory" in err)
    assert box.call("run", "-q", f"--directory={work}", "-n", "1", "--", "true")[0] == 0, "he has named it"


def test_no_result_is_written_through_a_link_of_another_user_s(box: Box, users: Users) -> None:
    """Linux refuses it to a shell's `>` in /tmp, which opens a file by its name (fs.protected_symlinks)."""
    mine, named = box.folder / "mine", box.folder / "plan.sh"
    mine.write_text("mine")
    os.chown(mine, users.ana, users.ana)
    assert box.fork(lambda: named.symlink_to(mine) or 0, users.bob).end() == 0

    def write() -> int:
        with pytest.raises(OSError, match="another user"):
            write_result(named, b"exported")
        named.with_name("own").symlink_to(mine)
        write_result(named.with_name("own"), b"exported")
        return 0

    child = box.fork(write, users.ana)
    assert child.end() == 0 and mine.read_text() == "exported", child.err


@pytest.mark.parametrize(
    "write", [write_result, lambda file, data: open_result(file).close(), partial(write_result, folders=True)]
)
@pytest.mark.parametrize("own", [False, True])
def test_no_link_of_another_user_s_in_the_middle_of_a_path_is_followed(
    box: Box, users: Users, write: Callable[[Path, bytes], None], own: bool
) -> None:
    """A folder of his became a link to a folder of hers, whose file was replaced. Her own links are followed,
    but not his behind one of hers."""
    mine, shared, link = box.folder / "mine", box.folder / "shared", box.folder / "link"
    (mine / "folder").mkdir(parents=True)
    (mine / "folder" / "plan.sh").write_text("mine")
    for each in (mine, mine / "folder", mine / "folder" / "plan.sh"):
        os.chown(each, users.ana, users.ana)

    def plant() -> int:
        shared.mkdir(0o755)
        (shared / "results").symlink_to(mine)
        return 0

    def call() -> int:
        link.symlink_to(shared / "results" / "folder")
        (mine / "here").symlink_to("folder")
        with pytest.raises(OSError, match="another user"):
            write((link if own else shared / "results" / "folder") / "plan.sh", b"exported")
        with pytest.raises(OSError, match="another user"):
            write(shared / "results" / "new" / "plan.sh", b"exported")
        assert (mine / "folder" / "plan.sh").read_text() == "mine" and not (mine / "new").exists()
        write(mine / "here" / ".." / "here" / "plan.sh", b"exported")
        return 0

    assert box.fork(plant, users.bob).end() == 0
    child = box.fork(call, users.ana)
    assert child.end() == 0, child.err


def test_no_link_is_followed_that_another_user_puts_in_the_place_of_one_of_mine(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of his, he exchanged her own link for his, between the look at its owner and at its target:
    one of some thousand tries came in time."""
    mine, shared = box.folder / "mine", box.folder / "shared"
    named, elsewhere = shared / "plan.sh", box.folder / "elsewhere"
    mine.write_text("mine")
    os.chown(mine, users.ana, users.ana)

    def plant() -> int:
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "his").symlink_to(mine)
        return 0

    looks = os.fstat

    def look(descriptor: int) -> os.stat_result:
        found = looks(descriptor)
        if not elsewhere.exists() and os.readlink(f"/proc/self/fd/{descriptor}") == str(named):  # noqa: PTH115
            (shared / "his").replace(named)
        return found

    def write() -> int:
        named.symlink_to(elsewhere)
        monkeypatch.setattr(os, "fstat", look)
        write_result(named, b"exported")
        return 0

    assert box.fork(plant, users.bob).end() == 0
    child = box.fork(write, users.ana)
    assert child.end() == 0, child.err
    assert mine.read_text() == "mine" and elsewhere.read_text() == "exported"


def test_a_pipe_that_another_user_puts_in_the_place_of_one_of_mine_makes_nobody_wait(
    box: Box, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of his, he exchanged her pipe for his, which nobody reads: to open it had no end."""
    shared = box.folder / "shared"
    named, his = shared / "pipe", shared / "his"

    def plant() -> int:
        shared.mkdir()
        shared.chmod(0o777)
        os.mkfifo(his)
        his.chmod(0o666)
        return 0

    looks = os.stat

    def look(*of: Any, **how: Any) -> os.stat_result:
        found = looks(*of, **how)
        if os.fspath(of[0]) in (named.name, str(named)) and os.path.lexists(his):
            his.replace(named)
        return found

    def write() -> int:
        os.mkfifo(named)
        monkeypatch.setattr(os, "stat", look)
        with pytest.raises(OSError, match="another user"):
            open_result(named)
        return 0

    assert box.fork(plant, users.bob).end() == 0
    child = box.fork(write, users.ana)
    assert child.end() == 0, child.err


@pytest.mark.parametrize("words", [("ls", "--from"), ("ls", "--demo"), ("each", "--dry-run", "--from-file")])
def test_no_file_that_is_named_and_is_another_user_s_pipe_or_link_to_a_device_is_waited_for(
    box: Box, users: Users, words: tuple[str, ...]
) -> None:
    """He opened his pipe for writing and wrote nothing: to read it had no end, and so had a terminal that
    nobody uses."""
    shared = box.folder / "shared"
    pipe, link = shared / "pipe", shared / "link"

    def plant() -> int:
        shared.mkdir()
        os.mkfifo(pipe, 0o644)
        os.open(pipe, os.O_RDWR)
        link.symlink_to("/dev/ptmx")
        print("planted", flush=True)
        signal.pause()
        return 0

    box.begun(plant, users.bob)
    for named in (pipe, link):
        status, _, err = box.call(*words, str(named), uid=users.ana)
        assert status and "another user owns" in err


def test_a_folder_that_only_another_user_can_read_is_said_to_be_so(box: Box, users: Users) -> None:
    folder = box.folder / "model"
    assert box.fork(lambda: folder.mkdir(0o700) or 0, users.bob).end() == 0
    for words in (("plan", str(folder)), ("plan", "--", "vllm", "serve", str(folder))):
        status, _, said = box.call(*words, uid=users.ana)
        assert status == 2 and "Permission denied" in said and "Traceback" not in said
    said = box.call("run", "-n", "1", "--directory", str(folder), "--", "python x.py", uid=users.ana)[2]
    assert "several words" in said
    said = box.call("check", "-n", "1", "--", str(folder / "torchrun"), "x.py", uid=users.ana)[1]
    assert "there is no program" in said


def test_no_lease_of_another_user_s_makes_a_plan_wait(box: Box, users: Users) -> None:
    """Who opens a file of which its owner has a lease waits for 45 s (F_SETLEASE, fcntl(2))."""
    shared, own = box.folder / "shared", box.folder / "own"
    for folder in (shared, own):
        folder.mkdir()
    shared.chmod(0o777)
    os.chown(own, users.ana, users.ana)
    words = ("plan", "8B", "-n", "2", "--use", "fsdp2", "-o")
    assert box.call(*words, str(own), "--", "x.py", uid=users.ana)[0] == 0
    (written,) = own.iterdir()

    def plant() -> int:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        (shared / written.name).write_bytes(bytes(written.stat().st_size))
        (shared / written.name).chmod(0o644)
        leased = os.open(shared / written.name, os.O_RDWR)
        fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        print("leased", flush=True)
        signal.pause()
        return 0

    box.begun(plant, users.bob)
    for overwrite in ((), ("--overwrite",)):
        status, _, said = box.call(*words, str(shared), *overwrite, "--", "x.py", uid=users.ana)
        assert status == 2 and "other users can write" in said


def test_no_result_has_the_rights_that_another_user_has_chosen(box: Box, users: Users) -> None:
    """Of mode 4777, in a folder that both can write, it became a program of root's, which bob could fill."""
    shared = box.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for uid in (users.ana, 0):
        for private in (False, True):
            named = shared / f"plan-{uid}-{private}"

            def plant(named: Path = named) -> int:
                named.touch()
                named.chmod(0o4777)
                return 0

            def write(named: Path = named, private: bool = private) -> int:
                os.umask(0o022)
                write_result(named, b"exported", private)
                return 0

            assert box.fork(plant, users.bob).end() == 0
            child = box.fork(write, uid)
            assert child.end() == 0, child.err
            facts = named.stat()
            assert (facts.st_uid, facts.st_mode & 0o7777) == (uid, 0o600 if private else 0o644)


@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.parametrize("before", [None, 0o640])
@pytest.mark.parametrize("folder", ["shared", "shared/new"])
def test_no_folder_of_another_user_s_chooses_who_reads_a_result(
    box: Box, users: Users, umask: int, before: int | None, folder: str
) -> None:
    """The access list that he has given to the folder was that of her new file, in the place of her umask,
    and so was the group of the folder: he read her file, and wrote to it."""
    shared, own = box.folder / "shared", box.folder / "own"

    def plant() -> int:
        os.umask(0)
        shared.mkdir()
        # Version 2; who, rights and number: the owner, bob, the group, the mask, all others (acl(5)).
        of = ((1, -1), (2, users.bob), (4, -1), (16, -1), (32, -1))
        listed = b"".join(struct.pack("<HHi", who, 7, number) for who, number in of)
        with contextlib.suppress(OSError):
            # (Not every file system has access lists.)
            os.setxattr(shared, "system.posix_acl_default", struct.pack("<I", 2) + listed)
        shared.chmod(0o2777)
        return 0

    def write() -> int:
        os.umask(umask)
        for write in (
            partial(write_result, folders=True),
            partial(write_result, private=True),
            lambda file, data: open_result(file).write(data),
        ):
            named = box.folder / folder / os.urandom(4).hex()
            if before is not None and named.parent.exists():
                own.write_text("before")
                own.chmod(before)
                own.rename(named)
            write(named, b"exported")
            print(named)
        return 0

    def steal() -> int:
        for named in written.out.split():
            for flag in (os.O_RDONLY, os.O_WRONLY):
                with contextlib.suppress(PermissionError):
                    os.open(named, flag)
                    print(flag)
        return 0

    assert box.fork(plant, users.bob).end() == 0
    box.folder.chmod(0o777)
    written = box.fork(write, users.ana)
    assert written.end() == 0 and len(written.out.split()) == 3, written.err
    thief = box.fork(steal, users.bob)
    assert thief.end() == 0, thief.err
    # The rights of a file of hers that is there limit those of a result; a stream is written to that file.
    readable = 2 if folder == "shared" and umask == 0o022 and before is None else 0
    assert thief.out.split() == [str(os.O_RDONLY)] * readable


def test_no_result_is_written_to_a_file_or_pipe_of_another_user_s(box: Box, users: Users) -> None:
    """He read the variables of an export, and the command lines of a recording."""
    shared = box.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)

    def plant() -> int:
        os.umask(0)
        os.mkfifo(shared / "pipe")
        os.mkfifo(shared / "pipe.csv")
        (shared / "file").touch()
        return 0

    assert box.fork(plant, users.bob).end() == 0
    for words in (
        ("export", "--demo", "-n", "1", "--as", "sh", "-o", str(shared / "pipe"), "--", "true"),
        ("record", "--demo", "--every", "1s", "-o", str(shared / "pipe.csv")),
        ("record", "--demo", "--every", "1s", "-o", str(shared / "file")),
    ):
        status, out, said = box.call(*words, uid=users.ana)
        assert status == 2 and not out and "another user" in said, said
    assert (shared / "file").stat().st_size == 0


@pytest.mark.thorough
def test_what_another_user_locks_keeps_no_setting_from_being_saved_and_nobody_from_quitting(
    box: Box,
    users: Users,
    start: Start,
    base_environment: dict[str, str],
    simulated_nvml: SimulatedNvml,
) -> None:
    """A user who can read a file or folder can lock it, and never release it."""
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
    simulated_nvml.show_box(BOXES["idle"])
    terminal = start(environment=simulated_nvml.environment(base_environment | {"HOME": str(home)}))
    terminal.until("○ free")
    terminal.send(":theme light\r")
    terminal.until("theme light, saved")
    terminal.until(lambda _: "light" in config.read_text())
    terminal.send("q")
    assert terminal.end() == 0
    assert not holder.over
