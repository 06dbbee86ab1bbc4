"""The owner of a pid that a driver named: known, hidden, in another namespace, or another process by now."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.inventory.process import ANOTHER_NAMESPACE, OWNER_UNKNOWN
from gputui.sources.simulated.boxes import BOXES
from gputui.system import plain_processes, processes, timed_reader
from gputui.system.containers import container
from gputui.system.namespaces import in_initial_namespace
from gputui.system.process_stat import ProcessStat
from gputui.system.processes import HostUse, Owner, ProcessTable
from gputui.system.root import Root
from gputui.system.root_processes import RootProcesses
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.claims_support import until

NOBODY = 2**22 + 1
"""A pid that Linux never assigns."""


class Fake:
    """psutil.Process with the facts of a test; `alive`: whether /proc has the process."""

    def __init__(
        self, user: str = "mira", command: str = "python train.py", started: float = 1_000.0
    ) -> None:
        self.user, self.command, self.started, self.alive = user, command, started, True
        self.refuses: type[psutil.Error] | None = None
        self.pid = NOBODY
        self.above: Fake | None = None
        self.asked_for_parent = 0

    def parent(self) -> Fake | None:
        self.asked_for_parent += 1
        return self.above

    @contextlib.contextmanager
    def oneshot(self) -> Iterator[None]:
        yield

    def _answer(self, value: object) -> object:
        if self.refuses:
            raise self.refuses(1)
        return value

    def username(self) -> object:
        return self._answer(self.user)

    def cmdline(self) -> object:
        return self._answer(self.command.split())

    def name(self) -> object:
        return self._answer(self.command.split("/")[-1] or "name")

    def cpu_percent(self, _: None) -> float:
        return 50.0

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=2**20)

    def create_time(self) -> object:
        return self.started


CONTAINER = """
import pathlib, subprocess, sys
box, first, second = pathlib.Path(sys.argv[1]), *sys.argv[2:]
subprocess.run(["mount", "-t", "tmpfs", "devices", "/dev"], check=True)
for name in ("null", "nvidia0"):
    pathlib.Path("/dev", name).touch()
def started(text, name):
    words = [sys.executable, "-S", "-c", f"{text}; print(flush=True); input()", name]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child.pid
trains, idles = started("file = open('/dev/nvidia0')", "train.py"), started("pass", "other.py")
text = box.read_text().replace(f" {first} ", f" {trains} ").replace(f" {second} ", f" {idles} ")
box.write_text(text)
subprocess.run([sys.executable, "-m", "gputui", "ls", "--json"], check=True)
"""
"""A container without the host's pids: a process that has a GPU open, one that has not, and gputui."""

Give = Callable[[int, Fake], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Put a fake process behind a pid; all other pids do not exist. `give.looked` lists the look-ups."""
    there: dict[int, Fake] = {}

    def look(pid: int) -> Fake:
        looked.append(pid)
        if pid not in there:
            raise psutil.NoSuchProcess(pid)
        return there[pid]

    looked: list[int] = []

    def stat(pid: int) -> ProcessStat | None:
        fake = there.get(pid)
        return ProcessStat("S", 1, pid, int(fake.started)) if fake and fake.alive else None

    monkeypatch.setattr(psutil, "Process", look)
    monkeypatch.setattr(processes, "process_library", lambda: psutil)
    monkeypatch.setattr(processes, "process_stat", stat)

    def put(pid: int, fake: Fake) -> None:
        there[pid] = fake

    put.looked = looked  # type: ignore[attr-defined]
    put.forget = there.clear  # type: ignore[attr-defined]
    return put


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that waits for its standard input to close."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input('up')"], stdin=-1, stdout=-1) as started:
        assert started.stdout
        started.stdout.read(2)
        yield started
        assert started.stdin
        started.stdin.close()


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """The words that start a program in a pid namespace with a /proc of its own, where it may mount."""
    words = ("unshare", "--pid", "--fork", "--mount", "--mount-proc")
    for more in ((), ("--map-root-user",)):
        with contextlib.suppress(OSError):
            mounted = [*words, *more, "mount", "-t", "tmpfs", "devices", "/dev"]
            if subprocess.run(mounted, capture_output=True, check=False).returncode == 0:
                return (*words, *more)
    pytest.skip("no pid namespace can be made here")


# Real processes.


def test_our_own_process_is_known() -> None:
    owner = ProcessTable(host_pids=True).owner(os.getpid())
    assert owner.user == getpass.getuser()
    assert owner.command and "py" in owner.command
    assert owner.started and 0 <= time.time() - owner.started < 86_400
    assert owner.note is None


def test_a_child_is_known_by_its_whole_command_line(child: subprocess.Popen[bytes]) -> None:
    owner = ProcessTable(host_pids=True).owner(child.pid)
    assert owner.command == f"{sys.executable} -S -c input('up')"


def test_a_child_is_known_by_those_who_started_it(child: subprocess.Popen[bytes]) -> None:
    owner = ProcessTable(host_pids=True).owner(child.pid)
    assert owner.ancestors[0].pid == os.getpid()
    assert owner.ancestors[0].command and "py" in owner.ancestors[0].command


def test_those_who_started_it_are_told_as_far_as_they_are_the_same_users(give: Give) -> None:
    worker, launcher, shell, server = (Fake(command=name) for name in ("w", "torchrun x.py", "bash", "sshd"))
    server.user = "root"
    worker.above, launcher.above, shell.above, server.above = launcher, shell, server, Fake()
    give(4711, worker)
    commands = [each.command for each in ProcessTable(host_pids=True).owner(4711).ancestors]
    assert commands == ["torchrun x.py", "bash"]


def test_those_who_started_many_are_looked_up_once(give: Give) -> None:
    launcher, shell = Fake(command="torchrun x.py"), Fake(command="bash")
    launcher.above = shell
    for pid in range(100, 110):
        worker = Fake(command="w")
        worker.above = launcher
        give(pid, worker)
    table = ProcessTable(host_pids=True)
    found = {table.owner(pid).ancestors for pid in range(100, 110)}
    assert [[each.command for each in line] for line in found] == [["torchrun x.py", "bash"]]
    assert launcher.asked_for_parent == 1


def test_who_started_it_is_told_as_it_is_at_the_next_reading(give: Give) -> None:
    one, other, launcher = Fake(), Fake(), Fake(command="bash")
    one.above = other.above = launcher
    give(1, one)
    give(2, other)
    table = ProcessTable(host_pids=True)
    table.owner(1)
    table.forget_all_but({1})
    launcher.command = "torchrun x.py"
    assert table.owner(2).ancestors[0].command == "torchrun x.py"


def test_a_long_line_of_ancestors_is_told_as_far_as_it_helps(give: Give) -> None:
    worker = lowest = Fake()
    for _ in range(3000):
        lowest.above = Fake(command="bash")
        lowest = lowest.above
    give(1, worker)
    assert 0 < len(ProcessTable(host_pids=True).owner(1).ancestors) < 20


def test_who_started_it_may_not_be_seen(give: Give) -> None:
    worker, launcher = Fake(), Fake()
    launcher.refuses = psutil.AccessDenied
    worker.above = launcher
    give(4711, worker)
    owner = ProcessTable(host_pids=True).owner(4711)
    assert owner.ancestors == () and owner.user == "mira"


HEX = "3f2a9c01d4e5" + "0" * 52
POD = "8d1f0c2a-1b2c-4d5e-9f00-123456789abc"
SLICE = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
IN_POD = f"k8s 3f2a9c01d4e5 pod {POD}"


@each_row(
    ("cgroup", "told"),
    [
        (f"0::/system.slice/docker-{HEX}.scope\n", "docker 3f2a9c01d4e5"),
        (f"12:memory:/docker/{HEX}\n11:cpu:/docker/{HEX}\n", "docker 3f2a9c01d4e5"),
        (
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope",
            "podman 3f2a9c01d4e5",
        ),
        (
            f"0::/machine.slice/machine-libpod_pod_{HEX}.slice/libpod-{HEX}.scope/container",
            "podman 3f2a9c01d4e5",
        ),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{HEX}.scope", IN_POD),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{HEX}.scope/container", IN_POD),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/docker-{HEX}.scope", IN_POD),
        (f"11:memory:/system.slice/containerd.service/{SLICE}:cri-containerd:{HEX}\n0::/\n", IN_POD),
        (f"9:pids:/kubepods/besteffort/pod{POD}/{HEX}\n8:cpu:/kubepods/besteffort/pod{POD}/{HEX}\n", IN_POD),
        (f"0::/kubepods/pod{'0a' * 16}/{HEX}", f"k8s 3f2a9c01d4e5 pod {'0a' * 16}"),
        # kind: a node of Kubernetes in a container of Docker.
        (
            f"0::/system.slice/docker-{'f' * 64}.scope/kubelet.slice/{SLICE}/cri-containerd-{HEX}.scope",
            IN_POD,
        ),
        (f"0::/docker/{'f' * 64}/docker/{HEX}", "docker 3f2a9c01d4e5"),
        (f"0::/ecs/0123456789abcdef0123456789abcdef/{HEX}", "docker 3f2a9c01d4e5"),
        (f"0::/system.slice/nerdctl-{HEX}.scope", "nerdctl 3f2a9c01d4e5"),
        ("0::/lxc.payload.web/init.scope", "lxc web"),
        ("0::/lxc/101/ns/init.scope", "lxc 101"),
        ("4:cpu:/lxc/web\n3:devices:/lxc/web\n", "lxc web"),
        ("0::/machine.slice/machine-deb.scope", "nspawn deb"),
        ("0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0", "slurm 1234"),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        # Podman's monitor is a process of the host.
        (f"0::/user.slice/libpod-conmon-{HEX}.scope", None),
        ("0::/user.slice/job_12x", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_a_container_is_known_by_its_control_group(cgroup: str, told: str | None) -> None:
    assert container(cgroup) == told


@each_row("part", ["kubepods-pod", f"pod{'1' * 32}", "/ecs/", "/ecs/a/b", "machine-", "/lxc/a"])
def test_a_control_group_with_a_long_name_is_read_in_time(part: str) -> None:
    """With a repetition that has no limit, this takes half a minute."""
    container(f"0::/{part * 5000}")


def test_a_process_that_has_ended_is_not_taken_for_running(child: subprocess.Popen[bytes]) -> None:
    table = ProcessTable(host_pids=True)
    assert table.owner(child.pid).user
    child.communicate(b"\n")
    assert table.owner(child.pid).user is None


def test_a_process_that_is_dead_and_not_yet_buried_raises_nothing() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], os.environ)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        owner = ProcessTable(host_pids=True).owner(pid)
        assert owner.user == getpass.getuser() or owner.note
    finally:
        os.waitpid(pid, 0)


def test_whether_the_drivers_pids_are_ours_is_found_out() -> None:
    assert in_initial_namespace() == (os.readlink("/proc/self/ns/pid") == "pid:[4026531836]")  # noqa: PTH115


# Another namespace.


def test_in_another_namespace_nothing_is_looked_up(give: Give) -> None:
    give(NOBODY, Fake())
    assert ProcessTable(host_pids=False).owner(NOBODY) == Owner(note=ANOTHER_NAMESPACE)
    assert give.looked == []  # type: ignore[attr-defined]


def test_in_a_container_only_a_process_that_has_a_gpu_open_is_known(
    simulated_nvml: SimulatedNvml, tmp_path: Path, namespace: tuple[str, ...]
) -> None:
    """Real processes in a namespace of their own; the driver's pids are these, and one of the host."""
    simulated_nvml.show_box(BOXES["shared"])
    environment = simulated_nvml.environment({**os.environ, "GPUTUI_CLAIMS": str(tmp_path / "claims")})
    done = subprocess.run(
        [*namespace, sys.executable, "-c", CONTAINER, str(simulated_nvml.box), "31007", "31988"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    trains, idles, outside = (
        json.loads(done.stdout)["devices"][place]["processes"][0] for place in (0, 1, 3)
    )
    assert trains["command"].endswith("train.py") and trains["user"] and trains["note"] is None
    for process in (idles, outside):
        assert (process["user"], process["command"], process["note"]) == (None, None, ANOTHER_NAMESPACE)


@pytest.mark.usefixtures("give")
def test_a_pid_that_nobody_has_is_not_somebody() -> None:
    owner = ProcessTable(host_pids=True).owner(NOBODY)
    assert (owner.user, owner.command, owner.started) == (None, None, None)
    assert owner.note


@pytest.mark.usefixtures("give")
def test_a_process_that_ended_meanwhile_is_not_said_to_be_of_another_namespace() -> None:
    assert ProcessTable(host_pids=True).owner(NOBODY).note != ANOTHER_NAMESPACE


# Facts that this user may not read.


def test_a_process_that_may_not_be_looked_at_is_still_somebodys(give: Give) -> None:
    hidden = Fake()
    hidden.refuses = psutil.AccessDenied
    give(7, hidden)
    assert ProcessTable(host_pids=True).owner(7) == Owner(None, None, 1_000.0, OWNER_UNKNOWN)


@pytest.mark.usefixtures("give")
def test_a_process_that_proc_hides_is_still_somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(processes.os, "kill", refuse)
    assert ProcessTable(host_pids=True).owner(7).note == OWNER_UNKNOWN


@pytest.mark.usefixtures("give")
def test_looking_at_a_process_never_signals_it(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []
    monkeypatch.setattr(processes.os, "kill", lambda pid, signal: signals.append(signal))
    ProcessTable(host_pids=True).owner(7)
    assert set(signals) <= {0}


@pytest.mark.parametrize("error", [psutil.NoSuchProcess, psutil.ZombieProcess])
def test_a_process_that_ends_while_it_is_looked_at_raises_nothing(
    give: Give, error: type[psutil.Error]
) -> None:
    ending = Fake()
    ending.refuses = error
    give(NOBODY, ending)
    owner = ProcessTable(host_pids=True).owner(NOBODY)
    assert owner.user is None and owner.note


def test_a_process_without_a_command_line_goes_by_its_name(give: Give) -> None:
    give(7, Fake(command=""))
    assert ProcessTable(host_pids=True).owner(7).command == "name"


# Cached facts.


def test_a_process_is_looked_up_once(give: Give) -> None:
    give(7, Fake())
    table = ProcessTable(host_pids=True)
    assert table.owner(7) == table.owner(7) == Owner("mira", "python train.py", 1_000.0)
    assert give.looked == [7]  # type: ignore[attr-defined]


def test_a_pid_that_was_given_to_another_process_is_looked_up_anew(give: Give) -> None:
    first, second = Fake(), Fake("olek", "python sweep.py", 2_000.0)
    table = ProcessTable(host_pids=True)
    give(7, first)
    assert table.owner(7).user == "mira"
    first.alive = False
    give(7, second)
    assert table.owner(7) == Owner("olek", "python sweep.py", 2_000.0)


def test_a_process_that_is_gone_is_not_remembered(give: Give) -> None:
    first = Fake()
    give(NOBODY, first)
    table = ProcessTable(host_pids=True)
    table.owner(NOBODY)
    first.alive, first.refuses = False, psutil.NoSuchProcess
    assert table.owner(NOBODY).user is None
    give(NOBODY, Fake("olek"))
    assert table.owner(NOBODY).user == "olek"


def test_of_psutils_objects_only_those_of_processes_that_are_looked_at_are_kept(give: Give) -> None:
    fakes = {pid: Fake() for pid in (7, 8, 9)}
    for pid, fake in fakes.items():
        give(pid, fake)
    table = ProcessTable(host_pids=True)
    for pid in fakes:
        table.owner(pid)
    table.forget_all_but(set(fakes))
    left = [weakref.ref(fake) for fake in fakes.values()]
    give.forget()  # type: ignore[attr-defined]
    fakes.clear()
    del fake
    assert not [ref for ref in left if ref() is not None]


def test_what_a_process_uses_is_compared_with_the_last_look(give: Give) -> None:
    give(7, Fake())
    give(8, Fake())
    table = ProcessTable(host_pids=True)
    assert table.uses({7}) == {7: HostUse()}, "it was not looked up"
    table.owner(7)
    table.owner(8)
    assert table.uses({7}) == {7: HostUse(None, 2**20)}
    assert table.uses({7, 8}) == {7: HostUse(50.0, 2**20), 8: HostUse(None, 2**20)}
    assert table.uses({8}) == {8: HostUse(50.0, 2**20)}
    assert table.uses({7}) == {7: HostUse(None, 2**20)}, "what nobody looked at was forgotten"


def test_what_another_process_used_is_not_compared_with(give: Give) -> None:
    first = Fake()
    give(7, first)
    table = ProcessTable(host_pids=True)
    table.owner(7)
    table.uses({7})
    give(7, Fake(started=2_000.0))
    assert table.uses({7}) == {7: HostUse()}
    table.owner(7)
    assert table.uses({7}) == {7: HostUse(None, 2**20)}


def test_workers_of_one_user_and_command_share_their_texts(give: Give) -> None:
    table = ProcessTable(host_pids=True)
    for pid in range(100, 110):
        # The texts are as the system returns them: equal, but not identical objects.
        give(pid, Fake("".join(["mi", "ra"]), "".join(["python ", "train.py"])))
    owners = [table.owner(pid) for pid in range(100, 110)]
    assert len({id(owner.user) for owner in owners}) == len({id(owner.command) for owner in owners}) == 1


def test_what_no_device_runs_any_more_is_forgotten(give: Give) -> None:
    table = ProcessTable(host_pids=True)
    for pid in (7, 8):
        give(pid, Fake())
        table.owner(pid)
    table.forget_all_but({8, 9})
    table.owner(8)
    table.owner(7)
    assert give.looked == [7, 8, 7]  # type: ignore[attr-defined]


def test_what_was_answered_last_is_told_again_without_looking(give: Give) -> None:
    process = Fake()
    give(7, process)
    table = ProcessTable(host_pids=True)
    assert table.last(7) == table.still(7) == Owner()
    known = table.owner(7)
    assert table.last(7) == table.still(7) == known
    process.alive = False
    assert table.last(7) == known
    assert table.still(7) == Owner(), "the pid may be another process's"
    assert give.looked == [7]  # type: ignore[attr-defined]
    table.forget_all_but(set())
    assert table.last(7) == Owner()


def test_the_reason_why_nothing_is_known_is_told_again_too() -> None:
    table = ProcessTable(host_pids=False)
    table.owner(NOBODY)
    assert table.last(NOBODY) == table.still(NOBODY) == Owner(note=ANOTHER_NAMESPACE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees the files of all processes")
def test_a_process_of_our_namespace_whose_files_are_hidden_is_not_said_to_be_outside() -> None:
    assert ProcessTable(host_pids=False).owner(1) == Owner(note=OWNER_UNKNOWN)


# Command lines.


@pytest.fixture
def sleeper() -> Iterator[Callable[..., int]]:
    """Start processes with these arguments that sleep."""
    children: list[subprocess.Popen[bytes]] = []

    def started(*arguments: bytes) -> int:
        words = [b"sh", b"-c", b"echo; read _", *arguments]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None and child.stdout.readline()
        return child.pid

    yield started
    for child in children:
        child.kill()
        child.communicate()


def test_a_command_line_is_cut_where_it_is_read(sleeper: Callable[..., int]) -> None:
    pid = sleeper(*([b"x" * 100_000] * 18))
    assert_costs(0.5, lambda: cpu_seconds(lambda: ProcessTable(host_pids=True).owner(pid)))
    command = ProcessTable(host_pids=True).owner(pid).command
    assert command is not None and command.startswith("sh -c echo") and command.endswith("…")
    assert len(command.encode()) <= processes.MOST_COMMAND + 10


def test_the_command_line_of_an_ancestor_is_cut_shorter_because_each_worker_repeats_it() -> None:
    """Two hundred workers of a neighbour's made `ls --json` 45 MB: no other box could read it."""
    words = ["sh", "-c", "sleep 1000 & echo $!; wait", "sh", "x" * 5000]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            ancestor, *_ = ProcessTable(host_pids=True).owner(int(parent.stdout.readline())).ancestors
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
    assert ancestor.pid == parent.pid and ancestor.command is not None
    assert ancestor.command.startswith("sh -c sleep") and len(ancestor.command.encode()) < 300


def test_thirty_long_command_lines_take_little_memory(sleeper: Callable[..., int]) -> None:
    pids = [sleeper(*([b"x" * 100_000] * 18)) for _ in range(30)]
    table = ProcessTable(host_pids=True)
    table.owner(os.getpid())
    tracemalloc.start()
    try:
        for pid in pids:
            table.owner(pid)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_cut_divides_no_character(sleeper: Callable[..., int]) -> None:
    for shift in range(3):
        pid = sleeper(b"a" * shift, "ü".encode() * 5000)
        command = ProcessTable(host_pids=True).owner(pid).command
        assert command is not None and command.removesuffix(" …").endswith("üü")


def test_the_command_line_of_an_ancestor_is_cut_too(sleeper: Callable[..., int]) -> None:
    pid = sleeper(b"x" * 100_000)
    found, _ = ProcessTable(host_pids=True)._line(psutil.Process(pid), psutil.Process(pid).username())
    assert found and len(found[0].command) < processes.MOST_COMMAND + 10


def test_a_command_line_that_is_empty_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile its owner can make it gigabytes long (PR_SET_MM_MAP)."""
    name = "fifteen-letters"
    program = f"open('/proc/self/comm', 'w').write({name!r})"
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", program], os.environ)
    read_whole: list[int] = []
    for library in (psutil, plain_processes):
        monkeypatch.setattr(library.Process, "cmdline", lambda process: read_whole.append(process.pid) or [])
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ProcessTable(host_pids=True).owner(pid).command == name
    finally:
        os.waitpid(pid, 0)
    assert pid not in read_whole


class Hogged:
    """Command lines that nobody can read until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
        self.pids, self.free = pids, threading.Event()
        monkeypatch.setattr(processes, "_command", self.command)

    def command(self, pid: int, most: int) -> bytes:
        if pid in self.pids:
            assert self.free.wait(60)
        return b"train %d" % (pid - NOBODY)


def of_another(pid: int, above: Fake | None = None) -> Fake:
    process = Fake(command=f"train {pid}")
    process.pid, process.above = NOBODY + pid, above
    return process


def test_a_command_line_that_cannot_be_read_is_waited_for_a_moment_and_read_later(
    give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in range(20):
        give(NOBODY + pid, of_another(pid))
    hogged = Hogged(monkeypatch, *range(NOBODY, NOBODY + 15))
    table, before = ProcessTable(host_pids=True), threading.active_count()
    monkeypatch.setattr(processes, "name_of", lambda pid: f"name {pid - NOBODY}")
    for _ in range(2):
        found = [table.owner(NOBODY + pid) for pid in range(20)]
        assert [each.command for each in found] == [f"name {pid}" for pid in range(20)]
        assert {each.user for each in found} == {"mira"}, "it stays somebody's"
        table.forget_all_but(set(range(NOBODY, NOBODY + 20)))
        assert threading.active_count() - before <= timed_reader.MOST_LATE, "no thread waits between readings"
    hogged.free.set()
    until(lambda: threading.active_count() <= before)

    def all_are_known() -> bool:
        found = [table.owner(NOBODY + pid) for pid in range(20)]
        table.forget_all_but(set(range(NOBODY, NOBODY + 20)))
        return [each.command for each in found] == [f"train {pid}" for pid in range(20)]

    until(all_are_known)


def test_one_command_line_that_cannot_be_read_hides_no_other(
    give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = of_another(3)
    for pid in range(3):
        give(NOBODY + pid, of_another(pid, parent if pid else None))
    hogged = Hogged(monkeypatch, NOBODY, parent.pid)
    table = ProcessTable(host_pids=True)
    table._timed = timed_reader.TimedReader(2.0)
    first, *others = (table.owner(NOBODY + pid) for pid in range(3))
    assert first.command is None
    assert [each.command for each in others] == ["train 1", "train 2"]
    assert [each.ancestors[0].command for each in others] == ["", ""]
    table.forget_all_but(set(range(NOBODY, NOBODY + 3)))
    hogged.free.set()

    def all_are_known() -> bool:
        first, *others = (table.owner(NOBODY + pid) for pid in range(3))
        table.forget_all_but(set(range(NOBODY, NOBODY + 3)))
        return first.command == "train 0" and all(a.command == "train 3" for o in others for a in o.ancestors)

    until(all_are_known)


def test_our_own_processes_are_read_without_a_thread(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("a thread"))
    assert ProcessTable(host_pids=True).owner(child.pid).command


def test_a_call_ends_although_a_command_line_hangs() -> None:
    code = (
        "import threading; from gputui.system.timed_reader import TimedReader\n"
        "try: TimedReader(0.01).read(1, threading.Event().wait)\n"
        "except TimeoutError: print('late')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert ended.stdout == b"late\n"


def test_a_machine_that_is_recorded_waits_no_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = tmp_path / "proc/7/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n")
    free, read = threading.Event(), Root.bytes
    monkeypatch.setattr(
        Root,
        "bytes",
        lambda root, path, *most: (
            free.wait(60) and b"train" if "cmdline" in path else read(root, path, *most)
        ),
    )
    table = RootProcesses(Root(str(tmp_path)))
    assert (table.owner(7).user, table.owner(7).command) == ("1000", "python")
    free.set()
    until(lambda: table.owner(7).command == "train")
