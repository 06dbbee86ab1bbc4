"""Processes for tests of claims: calls of gputui that become their command, each in a process of its own.

Each is a fork of the test's process, which has already imported everything: a start costs 20 ms of CPU
instead of 150, and a child can become another user who may not read the folder where Python is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import gputui
from gputui.allocating.claims import folder as folders
from gputui.allocating.claims.files import forget_what_was_seen, new_token
from gputui.allocating.claims.folder import older_folder, own_place
from gputui.allocating.claims.lease import Lease, take
from gputui.allocating.claims.read import HELD, claims, range_of
from gputui.cli.main import main
from gputui.inventory.claim import Claim
from gputui.sources.simulated.boxes import BOXES
from gputui.system.record_locks import lock
from simnvml import SimulatedNvml
from unit.jobs_support import PATIENCE, until

EIGHT = replace(BOXES["dgx-h100"], name="eight", tasks=())
"""Eight GPUs that nobody uses."""

_NEEDED = ("json", "psutil", "pwd", "pynvml", "random", "socket", "subprocess", "tempfile")


def _ready_to_fork() -> None:
    """Import what calls import only where they need it, and make the constructors that are made at the first
    use: otherwise every child would do so again, which takes longer than all the rest of its call."""
    for name in _NEEDED:
        importlib.import_module(name)
    for found in pkgutil.walk_packages(gputui.__path__, "gputui."):
        # (The server for agents needs an extra.)
        apart = ("gputui.tui", "gputui.checking.scripts", "gputui.cli.mcp.server")
        if found.name.startswith(apart) or found.name.endswith("__main__"):
            continue
        for made in list(vars(importlib.import_module(found.name)).values()):
            if isinstance(made, type) and "__light_fields__" in vars(made):
                with contextlib.suppress(Exception):
                    # It wants arguments, and refuses only once it is made.
                    object.__new__(made).__init__()  # type: ignore[misc]


_ready_to_fork()


def _begin(written: Sequence[int], keep: bool) -> None:
    """Set up signals, descriptors and what was read as in a new process: three open files, none of them the
    test's.

    With `keep`, inheritable descriptors stay open too.
    """
    forget_what_was_seen()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(written[0], 1)
    os.dup2(written[1], 2)
    if not keep:
        os.closerange(3, 1024)
    for number in range(3, 1024 if keep else 3):
        with contextlib.suppress(OSError):
            if not os.get_inheritable(number):
                os.close(number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115


def _become(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


class Forked:
    """A child that runs `before`, then `work` as the user `uid`, and exits with the status of `work`."""

    def __init__(
        self,
        work: Callable[[], int],
        environ: Mapping[str, str],
        files: Path,
        uid: int | None = None,
        before: Callable[[], object] = bool,
        keep: bool = False,
    ) -> None:
        files.mkdir(exist_ok=True)
        files.chmod(0o755)
        self._ended: int | None = None
        self._name = str(files / os.urandom(6).hex())
        written = [os.open(f"{self._name}.{end}", os.O_WRONLY | os.O_CREAT, 0o666) for end in ("out", "err")]
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                _begin(written, keep)
                before()
                _become(uid)
                os.environ.clear()
                os.environ.update(environ)
                status = work()
            except BaseException:  # noqa: BLE001 - a child must never go on as the test's process
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        for descriptor in written:
            os.close(descriptor)

    @property
    def out(self) -> str:
        return Path(f"{self._name}.out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return Path(f"{self._name}.err").read_text(errors="replace")

    @property
    def over(self) -> bool:
        """Whether the process has ended."""
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended = os.waitstatus_to_exitcode(status)
        return self._ended is not None

    def end(self) -> int:
        """Wait for the end, and return the exit status, or -n after signal n."""
        assert self.ends_within(PATIENCE), "it does not end"
        assert self._ended is not None
        return self._ended

    def ends_within(self, seconds: float) -> bool:
        """Whether the process ends by itself within this time."""
        if not self.over:
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], seconds)
            finally:
                os.close(descriptor)
        return self.over

    def signal(self, number: int) -> None:
        if not self.over:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """Send SIGKILL, wait for the end, and return the status."""
        self.signal(signal.SIGKILL)
        return self.end()


class Elsewhere:
    """A lease of another job: a child holds it until this process gives it back, or ends."""

    def __init__(self, keys: Sequence[str], environ: Mapping[str, str], command: str) -> None:
        until_closed, self._open = os.pipe()
        taken, tell = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._open)
                take(keys, environ, command)
                os.write(tell, b"+")
                os.read(until_closed, 1)
            finally:
                os._exit(0)
        # The command that replaces this process keeps the pipe open.
        os.set_inheritable(self._open, True)
        for descriptor in (until_closed, tell):
            os.close(descriptor)
        assert os.read(taken, 1) == b"+"
        os.close(taken)

    def release(self) -> None:
        os.close(self._open)
        os.waitpid(self._pid, 0)


class Box:
    """A simulated driver, a folder of claims, and calls of gputui on them."""

    def __init__(self, folder: Path, driver: SimulatedNvml, **variables: str) -> None:
        self.folder, self.driver = folder, driver
        self.claims_folder = folder / "claims"
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        self.environ = driver.environment(
            {
                **base,
                "GPUTUI_CLAIMS": str(self.claims_folder),
                "XDG_CONFIG_HOME": str(folder / "config"),
                "XDG_STATE_HOME": str(folder / "state"),
                **variables,
            }
        )
        self.uuids = [device.uuid for device in driver.show_box(EIGHT).devices]
        self._started: list[Forked] = []

    def fork(
        self, work: Callable[[], int], uid: int | None = None, keep: bool = False, **variables: str
    ) -> Forked:
        """A child with the box's environment, and with `keep` this process's inheritable descriptors."""
        environ = {**self.environ, **variables}
        child = Forked(work, environ, self.folder / "said", uid, self.driver.use_here, keep)
        self._started.append(child)
        return child

    def begun(self, work: Callable[[], int], uid: int | None = None) -> Forked:
        """A child that has written something, and still runs."""
        child = self.fork(work, uid)
        until(lambda: child.over or child.out)
        assert not child.over, child.err
        return child

    def start(self, *words: str, uid: int | None = None, keep: bool = False, **variables: str) -> Forked:
        """Call gputui in a process of its own, which `run` replaces with the command."""

        def call() -> int:
            try:
                return main(words)
            except SystemExit as error:
                return error.code if isinstance(error.code, int) else 1

        return self.fork(call, uid, keep, **variables)

    def call(
        self, *words: str, uid: int | None = None, keep: bool = False, **variables: str
    ) -> tuple[int, str, str]:
        """Call gputui the same way, and return its status, output and errors once it has ended."""
        child = self.start(*words, uid=uid, keep=keep, **variables)
        status = child.end()
        return status, child.out, child.err

    def hold(self, *places: int, command: str = "python train.py", uid: int | None = None) -> Forked:
        """Another process, with a lease on these devices until it is killed."""
        keys = [self.uuids[place] for place in places]

        def work() -> int:
            lease = take(keys, os.environ, command)
            print(lease.keys, lease.warnings, flush=True)
            signal.pause()
            return 0

        return self.begun(work, uid)

    def forge(self, path: Path, size: int = HELD, uid: int | None = None) -> Forked:
        """Another process, which has made a record by hand and holds its lock until it is killed."""

        def work() -> int:
            write_record(path, size=size)
            print("held", flush=True)
            signal.pause()
            return 0

        return self.begun(work, uid)

    def inside(self, places: Sequence[int], body: Callable[[], object], uid: int | None = None) -> None:
        """Call `body` inside a command that has a lease on these devices, which its children may inherit."""

        def work() -> int:
            self._started = []
            lease = take([self.uuids[place] for place in places], os.environ, "bash sweep.sh")
            assert len(lease.keys) == len(places) and lease.warnings == []
            lease.inherit()
            try:
                body()
            finally:
                self.end()
            return 0

        command = self.fork(work, uid)
        assert command.end() == 0, command.err

    def make_folder(self) -> Path:
        """The folder of claims, made if it does not exist."""
        own_place(self.environ)
        made = older_folder(self.environ)
        assert made == self.claims_folder
        return made

    def claims(self) -> tuple[Claim, ...]:
        """The claims that are alive."""
        return claims(self.environ)[0]

    def claimed(self) -> list[int]:
        """The indices of the claimed devices."""
        return sorted(self.uuids.index(claim.key) for claim in self.claims())

    def end(self) -> None:
        """End everything that was started."""
        for child in self._started:
            child.kill()


def use_as_default(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the box's folder the one that is found without a variable, in the place of /tmp."""
    box.make_folder()
    del box.environ["GPUTUI_CLAIMS"]
    monkeypatch.setattr(folders, "ADMINISTRATED", str(box.folder / "none"))
    monkeypatch.setattr(folders, "STICKY", (str(box.claims_folder),))
    monkeypatch.setattr(folders, "FALLBACKS", (str(box.claims_folder / "gputui-claims"),))


@contextmanager
def for_all_users() -> Iterator[Path]:
    """A folder like /tmp: pytest's own folders are private to its user."""
    with tempfile.TemporaryDirectory(prefix="gputui-tests-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@contextmanager
def box_at(folder: Path, driver: SimulatedNvml, **variables: str) -> Iterator[Box]:
    """A box whose processes are ended on exit."""
    made = Box(folder, driver, **variables)
    try:
        yield made
    finally:
        made.end()


def holders(path: Path) -> set[int]:
    """The processes that have this file open, from /proc."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and str(path) in opened_by(int(process.name)).values():
            found.add(int(process.name))
    return found


def opened_by(pid: int) -> dict[int, str]:
    """The files that a process has open, by descriptor."""
    # Path would be slow: some tests read the descriptors of every process of the machine, hundreds of times.
    found: dict[int, str] = {}
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115
    except OSError:
        # The process has ended meanwhile.
        return found
    return found


def lines(file: Path) -> list[list[str]]:
    """The words of each line of a file that others append to."""
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def record_name(key: str, uid: int | None = None, step: int = 0, token: str | None = None) -> str:
    """A name of a record."""
    owner = os.geteuid() if uid is None else uid
    return f"{key}@{owner}.{f'step{step}.' if step else ''}{token or new_token()}.claim"


def write_record(
    path: Path, text: bytes = b"{}", size: int = HELD, of: str | None = None, passed_on: bool = True
) -> int:
    """Make a record by hand, as any user may for themselves, and return the descriptor that holds its lock.

    `size`: of the locked range, 0 for no lock; `of`: the device whose range is locked, by default that of the
    record's name; `passed_on`: whether the programs that this process starts inherit the descriptor, as in a
    launch. Only such a record is reported as a claim, and a lease that this process takes is then a step of
    it.
    """
    path.write_bytes(text)
    path.chmod(0o644)
    descriptor = os.open(path, os.O_RDWR)
    os.set_inheritable(descriptor, passed_on)
    if size:
        lock(descriptor, range_of(of or path.name.partition("@")[0]), size)
    return descriptor


def symbolic_link(place: Path) -> None:
    place.symlink_to("/etc/passwd")


def dangling_link(place: Path) -> None:
    place.symlink_to("/nowhere/at/all")


def link_to_pipe(place: Path) -> None:
    os.mkfifo(place.with_suffix(".pipe"), 0o666)
    place.symlink_to(place.with_suffix(".pipe"))


def pipe(place: Path) -> None:
    os.mkfifo(place, 0o666)


def directory(place: Path) -> None:
    place.mkdir()
    (place / "full").touch()


def unix_socket(place: Path) -> None:
    here = Path.cwd()
    os.chdir(place.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(place.name)
    os.chdir(here)


def file_of_two_names(place: Path) -> None:
    place.with_suffix(".other").write_text("of two names")
    os.link(place.with_suffix(".other"), place)


def unreadable_file(place: Path) -> None:
    place.touch(0o600)
    place.chmod(0o600)


UNTRUSTED: tuple[Callable[[Path], None], ...] = (
    symbolic_link,
    dangling_link,
    link_to_pipe,
    pipe,
    directory,
    unix_socket,
    file_of_two_names,
    unreadable_file,
)
"""Makers of things that somebody may have put under a name before us; none is a file of gputui."""


Take = Callable[..., Lease]
"""Take a lease on devices of a box, by their positions: the fixture `lease`."""
