"""The claim of each process, with a model of forks, sessions and ends, and with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.allocating.claims import processes
from gputui.allocating.claims.processes import ClaimProcesses, System
from gputui.inventory.claim import Claim
from gputui.inventory.process import ANOTHER_NAMESPACE, ENDED, OWNER_UNKNOWN, Process
from gputui.system import lock_holders
from gputui.system.namespaces import in_initial_namespace
from gputui.system.process_stat import ProcessStat, process_stat
from gputui.system.users import own_name, user_name
from table_tests import each_row
from unit.builders import NOW, gpu
from unit.claims_support import Box, until

US, OTHER = 70_001, 70_002
"""Uids that no user has, so that their names are their numbers."""

TOKEN = "0" * 32
"""The last part of the names of records."""

# A model of the system


@dataclass
class Modelled:
    """A process of the model.

    `claim` is the one in whose job the process was born: the truth that no system reports.
    """

    pid: int
    parent: int
    uid: int
    ticks: int
    session: int
    claim: int | None = None
    opened: tuple[str, ...] = ()


@dataclass
class Model(System):
    """A small system: it reuses pids as soon as Linux would, and process 1 adopts orphans."""

    folder: str = "/claims"
    running: dict[int, Modelled] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    asked: int = 0
    looked_into: int = 0
    _ticks: int = 0

    def __post_init__(self) -> None:
        self.running[1] = Modelled(1, 0, 0, 0, 1)
        for pid, uid in ((2, US), (3, OTHER)):
            self.running[pid] = Modelled(pid, 1, uid, 0, pid)

    def stat(self, pid: int) -> ProcessStat | None:  # type: ignore[override]
        self.asked += 1
        found = self.running.get(pid)
        return found and ProcessStat("S", found.parent, found.session, found.ticks)

    def owner(self, pid: int) -> int | None:  # type: ignore[override]
        found = self.running.get(pid)
        return found and found.uid

    def opened(self, pid: int) -> list[tuple[str, str]]:  # type: ignore[override]
        self.looked_into += 1
        found = self.running.get(pid)
        return [("100", path) for path in found.opened] if found and found.uid == US else []

    def fork(self, parent: int) -> int:
        taken = set(self.running) | {p.session for p in self.running.values()}
        pid = next(pid for pid in range(2, 10_000) if pid not in taken)
        self._ticks += 1
        self.running[pid] = replace(self.running[parent], pid=pid, parent=parent, ticks=self._ticks)
        return pid

    def later(self, seconds: int) -> None:
        """Let time pass; a tick is one second."""
        self._ticks += seconds

    def end(self, pid: int) -> None:
        del self.running[pid]
        for other in self.running.values():
            if other.parent == pid:
                other.parent = 1

    def run(self, parent: int) -> int:
        """Model `gputui run`: a new process takes a lease on a device of its own."""
        pid, number = self.fork(parent), len(self.claims)
        process = self.running[pid]
        process.claim = number
        record = f"{self.folder}/GPU-{number}@{process.uid}.{TOKEN}.claim"
        process.opened = (*process.opened, record)
        roots = ((pid, process.ticks),)
        since = NOW + process.ticks
        self.claims.append(Claim(f"GPU-{number}", user_name(process.uid), since, roots=roots, record=record))
        return pid

    def has_the_pid_of_an_ended_root(self, pid: int) -> bool:
        """Whether this process's session would look like one that a root made: a limit of living claims."""
        roots = {root for claim in self.claims for root in claim.roots if root[0] == pid}
        return bool(roots) and (pid, self.running[pid].ticks) not in roots

    def seen_by(self, look: ClaimProcesses) -> tuple[Claim, ...]:
        """The claims, if every running process is on a device."""
        listed = tuple(_seen(pid, process.ticks) for pid, process in self.running.items() if pid > 1)
        return look.of(self.claims, [gpu(0, processes=listed)])

    def chain(self, pid: int) -> Iterator[Modelled]:
        while pid > 1:
            yield self.running[pid]
            pid = self.running[pid].parent


def _seen(pid: int, ticks: int = 0) -> Process:
    return Process(pid, "compute", user="x", started=NOW + ticks)


_STEPS = ("fork", "fork", "fork", "end", "run", "session", "close")


@given(st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 99), st.booleans()), max_size=50))
def test_what_is_said_of_a_process_is_so_and_what_can_be_known_is_said(
    steps: list[tuple[str, int, bool]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "in_initial_namespace", lambda: True)
        model = Model()
        monitor = ClaimProcesses(model)
        for step, which, looked_at in steps:
            pid = sorted(model.running)[1 + which % (len(model.running) - 1)]
            process = model.running[pid]
            if step == "fork":
                model.fork(pid)
            elif step == "end" and pid > 3:
                model.end(pid)
            elif step == "run" and process.claim is None:
                model.run(pid)
            elif step == "session" and not model.has_the_pid_of_an_ended_root(pid):
                process.session = pid
            elif step == "close":
                process.opened = ()
            if looked_at:
                _check(model, model.seen_by(monitor))
        _check(model, model.seen_by(ClaimProcesses(model)))


def _check(model: Model, found: tuple[Claim, ...]) -> None:
    for number, claim in enumerate(found):
        said, (root,) = set(claim.pids or ()), claim.roots
        truth = {pid for pid, process in model.running.items() if process.claim == number}
        assert said <= truth
        for pid in truth:
            chain = list(model.chain(pid))
            record = f"/claims/{claim.key}@{US}.{TOKEN}.claim"
            by_descent = any((p.pid, p.ticks) == root for p in chain)
            by_session = any(p.session == root[0] for p in chain)
            by_file = any(record in p.opened for p in chain if p.uid == US)
            assert pid in said or not (by_descent or by_session or by_file)
        alive = root[0] in model.running and model.running[root[0]].ticks == root[1]
        assert claim.pids is not None or not alive


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(processes, "in_initial_namespace", lambda: True)
    return Model()


def pids(claims: tuple[Claim, ...]) -> list[tuple[int, ...] | None]:
    return [claim.pids for claim in claims]


def test_a_file_of_the_name_of_another_user_s_record_puts_nobody_in_his_job(model: Model) -> None:
    model.run(3)
    mine = model.run(2)
    stray = model.fork(2)
    name = (model.claims[0].record or "").rpartition("/")[2]
    model.running[stray].opened = (f"/elsewhere/{name}",)
    assert mine in (model.seen_by(ClaimProcesses(model))[1].pids or ())
    assert all(stray not in (claim.pids or ()) for claim in model.seen_by(ClaimProcesses(model)))


def test_a_process_is_looked_up_once(model: Model) -> None:
    job = model.run(2)
    for _ in range(20):
        model.fork(job)
    monitor = ClaimProcesses(model)
    model.seen_by(monitor)
    model.asked = 0
    (claim,) = model.seen_by(monitor)
    assert len(claim.pids or ()) == 21 and model.asked <= 2
    model.end(job)
    (claim,) = model.seen_by(monitor)
    assert len(claim.pids or ()) == 20, "they stay its processes when it has ended"


def test_a_process_that_was_seen_before_its_claim_is_looked_up_again(model: Model) -> None:
    monitor = ClaimProcesses(model)
    first = model.run(2)
    # A record is incomplete for a moment while it is rewritten.
    record, model.claims[0] = model.claims[0], replace(model.claims[0], roots=())
    other = model.run(3)
    assert pids(model.seen_by(monitor)) == [None, (other,)]
    model.claims[0] = record
    assert pids(model.seen_by(monitor)) == [(first,), (other,)]
    model.claims[0] = replace(record, roots=())
    assert pids(model.seen_by(monitor)) == [None, (other,)]


@pytest.mark.parametrize("known", [True, False])
def test_a_process_that_is_older_than_a_new_claim_is_not_looked_up_again(model: Model, known: bool) -> None:
    monitor = ClaimProcesses(model)
    first = model.run(2)
    for _ in range(20):
        model.fork(first)
    model.seen_by(monitor)
    model.later(3600)
    second = model.run(2)
    if not known:
        model.claims[1] = replace(model.claims[1], since=None)
    model.asked = model.looked_into = 0
    assert pids(model.seen_by(monitor))[1] == (second,)
    assert (model.asked < 20) == known
    # The process has inherited nothing of that claim, so its files are not examined.
    model.looked_into = 0
    ClaimProcesses(model).of(model.claims[1:], [gpu(0, processes=(_seen(first, 1),))])
    assert (model.looked_into == 0) == known


def test_a_record_with_the_pid_of_somebody_elses_job_says_nothing_of_it(model: Model) -> None:
    theirs = model.fork(3)
    model.running[theirs].session = theirs
    model.fork(theirs)
    lie = Claim("GPU-0", user_name(US), NOW, roots=((theirs, model.running[theirs].ticks),))
    model.claims.append(lie)
    assert pids(model.seen_by(ClaimProcesses(model))) == [None]
    # A process that the user started is theirs, whichever user it runs as (sudo).
    as_root = model.fork(2)
    model.running[as_root].uid = 0
    model.claims[0] = replace(lie, roots=((as_root, model.running[as_root].ticks),))
    assert pids(model.seen_by(ClaimProcesses(model))) == [(as_root,)]


def test_who_is_left_of_a_session_that_a_root_made_is_its(model: Model) -> None:
    job = model.run(3)
    model.running[job].session = job
    worker = model.fork(model.fork(job))
    model.end(model.running[worker].parent)
    assert pids(model.seen_by(ClaimProcesses(model))) == [(job, worker)]
    model.end(job)
    assert pids(model.seen_by(ClaimProcesses(model))) == [(worker,)]
    # Another process now has the job's pid. A session of its own would have the same id, so nothing is
    # certain.
    model.running[job] = Modelled(job, 3, OTHER, 999, 3)
    assert pids(model.seen_by(ClaimProcesses(model))) == [None]


def test_a_step_is_in_its_lease_and_who_is_left_of_it_is_of_the_innermost_step_only(model: Model) -> None:
    """A step passes on its own record, and not those of the lease around it."""
    lease = model.run(2)
    found = [lease]
    for step in (1, 2):
        pid = model.fork(found[-1])
        record = f"/claims/GPU-0@{US}.step{step}.{TOKEN}.claim"
        model.running[pid].opened = (record,)
        root = (pid, model.running[pid].ticks)
        model.claims.append(replace(model.claims[0], step=step, roots=(root,), record=record))
        found.append(pid)
    orphans = [model.fork(pid) for pid in found]
    assert pids(model.seen_by(ClaimProcesses(model))) == [
        (*found, *orphans),
        (*found[1:], *orphans[1:]),
        (found[2], orphans[2]),
    ]
    # All orphans are alive, and process 1 has adopted them: only their open files show their claim.
    for orphan in orphans:
        model.running[orphan].parent = 1
    seen = model.seen_by(ClaimProcesses(model))
    assert pids(seen) == [(*found, orphans[0]), (*found[1:], orphans[1]), (found[2], orphans[2])]


@each_row("note", [ANOTHER_NAMESPACE, ENDED, OWNER_UNKNOWN])
def test_a_pid_that_means_nothing_here_belongs_to_nobody(note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "in_initial_namespace", lambda: True)
    model = Model()
    job = model.run(2)
    process = replace(_seen(job), note=note)
    (claim,) = ClaimProcesses(model).of(model.claims, [gpu(0, processes=(process,))])
    assert claim.pids == ()


def test_in_a_container_nothing_is_known_of_the_drivers_pids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "in_initial_namespace", lambda: False)
    model = Model()
    model.run(2)
    (claim,) = model.seen_by(ClaimProcesses(model))
    assert claim.pids is None


def test_of_a_crowd_with_many_open_files_a_few_are_read_and_its_jobs_are_not_known_at_once(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty processes with sixty ancestors that had 512 open files each made root's `ls` take 19 seconds."""
    monkeypatch.setattr(lock_holders, "_MOST_SECONDS", 60.0)
    crowd = [model.run(2)]
    crowd += [model.fork(crowd[0]) for _ in range(99)]
    for pid in crowd:
        model.running[pid].opened = ("/dev/null",) * 512
    mine = model.run(3)
    us, other = user_name(US), user_name(OTHER)
    listed = (
        *(Process(pid, "compute", us, started=NOW + 999) for pid in crowd),
        Process(mine, "compute", other, started=NOW + 999, own=True),
    )
    monitor = ClaimProcesses(model)
    found = []
    for _ in range(4):
        model.looked_into = 0
        found.append(pids(monitor.of(model.claims, [gpu(0, processes=listed)])))
        # (Those of the job that is our own are read first.)
        assert model.looked_into <= 42
    # (A screen reads again and again, and each reading goes on where the last one was cut off.)
    assert found[0] == [None, (mine,)] and found[-1] == [tuple(crowd), (mine,)]


def test_a_look_that_takes_too_long_ends_and_nothing_is_known(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.run(2)
    monkeypatch.setattr(lock_holders, "_MOST_SECONDS", -1.0)
    listed = tuple(replace(_seen(pid, 1), user=user_name(US)) for pid in model.running)
    assert pids(ClaimProcesses(model).of(model.claims, [gpu(0, processes=listed)])) == [None]


# Real processes

_TREE = """
import os, signal, subprocess, sys
# A worker, a worker in a session of its own, and one whose parent has ended: with the lease and without.
code = "import signal; print(0, flush=True); signal.pause()"
run = lambda **more: subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, **more)
found = [run(), run(start_new_session=True)]
for keep in (True, False):
    script = f"import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-S', '-c', {code!r}],"
    script += f" close_fds={not keep}, start_new_session=True, stdout=subprocess.DEVNULL); print(p.pid)"
    done = subprocess.run([sys.executable, "-S", "-c", script], close_fds=False, stdout=subprocess.PIPE)
    found.append(int(done.stdout))
print(*(each if isinstance(each, int) else each.pid for each in found), flush=True)
signal.pause()
"""


def _listed(*pids: int) -> Process | tuple[Process, ...]:
    return tuple(
        Process(pid, "compute", own_name(), started=psutil.Process(pid).create_time()) for pid in pids
    )


@pytest.mark.skipif(not in_initial_namespace(), reason="pids of this pid namespace are not the driver's")
@pytest.mark.parametrize("detach", [False, True])
def test_real_processes_are_found_by_descent_and_by_what_they_inherited(box: Box, detach: bool) -> None:
    how = ("--detach",) if detach else ()
    job = box.start("run", "-q", "-n", "2", *how, "--", sys.executable, "-S", "-c", _TREE)
    until(lambda: _log(box, job.out).count(" ") == 3)
    pids = [int(word) for word in _log(box, job.out).split()]
    (root,) = {claim.pid or 0 for claim in box.claims()}
    with ExitStack() as stack:
        for pid in (*pids, root):
            stack.callback(os.kill, pid, signal.SIGKILL)
        other = stack.enter_context(subprocess.Popen(["sleep", "1000"]))
        stack.callback(other.kill)
        device = gpu(0, processes=_listed(*pids, other.pid, os.getpid()))
        both = ClaimProcesses().of(box.claims(), [device])
        assert [claim.key for claim in both] == sorted(box.uuids[:2])
        # A daemon that closed the lease, and whose parent has ended, could belong to anybody. Only a job's
        # supervisor adopts it, and so still knows its job.
        known = pids if detach else pids[:3]
        assert {claim.pids for claim in both} == {tuple(sorted(known))}


def _log(box: Box, out: str) -> str:
    logs = list((Path(box.environ["XDG_STATE_HOME"]) / "gputui" / "jobs").glob("*/log"))
    return logs[0].read_text() if logs else out


def test_a_process_of_proc_is_read_as_psutil_reads_it() -> None:
    found = process_stat(os.getpid())
    assert found is not None
    assert (found.parent, found.session) == (os.getppid(), os.getsid(0))
    assert (
        abs(found.ticks / os.sysconf("SC_CLK_TCK") + psutil.boot_time() - psutil.Process().create_time()) < 1
    )
    assert process_stat(2**22 + 1) is None
