"""A full disk, an unwritable home, no home, no user, no descriptors, no processes.

Every call reports in one line the thing that cannot be done, and does the rest.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml
from unit.claims_support import for_all_users

pytestmark = pytest.mark.e2e

NOBODY = 55_000 + os.getpid() % 5_000
"""A uid without an entry in passwd, different in each process of tests: processes are counted by user."""
_MAY_READ = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
"""Python and the package may be installed below a home that is closed to other users."""
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *_MAY_READ, "--")


@dataclass(frozen=True)
class World:
    """The fault: environment variables (None: unset), limits, and the calling user.

    keeps   whether there is a place for state all the same
    claims  whether devices can be claimed
    """

    changes: dict[str, str | None] = field(default_factory=dict)
    limits: tuple[tuple[int, int], ...] = ()
    nobody: bool = False
    keeps: bool = False
    claims: bool = True

    @property
    def limit(self) -> Callable[[], None] | None:
        """The function that sets the limits in a child."""

        def set_them() -> None:
            for kind, most in self.limits:
                resource.setrlimit(kind, (most, most))

        return set_them if self.limits else None


FULL, READ_ONLY, OWN, OPEN = "{full}", "{ro}", "{own}", "{open}"
WORLDS = {
    "full disk": World({"HOME": FULL}),
    "full disk for claims": World({"GPUTUI_CLAIMS": f"{FULL}/claims"}, keeps=True, claims=False),
    "read-only home": World({"HOME": READ_ONLY}),
    "home that is not there": World({"HOME": "/nonexistent/home"}, nobody=True),
    "home that everybody can write to": World({"HOME": OPEN}),
    "no user": World({"HOME": OWN}, nobody=True, keeps=True),
    "no user and no home": World({"HOME": None}, nobody=True),
    "20 descriptors": World(limits=((resource.RLIMIT_NOFILE, 20),), keeps=True),
    "no thread": World({"HOME": OWN}, ((resource.RLIMIT_NPROC, 1),), nobody=True),
    "few processes": World({"HOME": OWN}, ((resource.RLIMIT_NPROC, 2),), nobody=True),
}


@dataclass(frozen=True)
class Places:
    """Calls of gputui in a world."""

    folder: Path
    environment: dict[str, str]

    def environ(self, world: World) -> dict[str, str]:
        """The environment of a call."""
        names = {name: str(self.folder / name) for name in ("full", "ro", "own", "open")}
        changed = {n: None if v is None else v.format(**names) for n, v in world.changes.items()}
        both = {**self.environment, **changed}
        return {name: value for name, value in both.items() if value is not None}

    def argv(self, world: World, words: Sequence[str]) -> list[str]:
        """The command line of a call, as this world's user."""
        return [*(AS_NOBODY if world.nobody else ()), *GPUTUI, *words]

    def call(self, world: World, *words: str) -> subprocess.CompletedProcess[str]:
        """Make a call and return its result, which contains no traceback."""
        done = subprocess.run(
            self.argv(world, words),
            env=self.environ(world),
            preexec_fn=world.limit,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert len({line.partition(": ")[2] for line in done.stderr.splitlines()}) == len(
            done.stderr.splitlines()
        ), "said twice"
        return done


def fill(folder: Path) -> None:
    """Fill the file system to the last byte."""
    with (folder / "fill").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


@pytest.fixture(scope="module")
def places(nvml_library: Path) -> Iterator[Places]:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root makes full disks and other users")
    with for_all_users() as folder:
        for name in ("full", "ro", "own", "open", "home"):
            (folder / name).mkdir()
        os.chown(folder / "own", NOBODY, NOBODY)
        (folder / "open").chmod(0o777)
        (folder / "claims").mkdir()
        (folder / "claims").chmod(0o1777)
        driver = SimulatedNvml(folder, nvml_library)
        driver.show_box(BOXES["dgx-h100"])
        base = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "HOME": str(folder / "home"),
            "GPUTUI_CLAIMS": str(folder / "claims"),
        }
        made = Places(folder, driver.environment(base))
        mounted = []
        try:
            for name, options in (("full", "size=1m"), ("ro", "size=1m,ro")):
                mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder / name)]
                if subprocess.run(mount, capture_output=True, check=False).returncode:
                    pytest.skip("nothing can be mounted here")
                mounted.append(name)
            fill(folder / "full")
            subprocess.run([*GPUTUI, "ls"], env=made.environment, stdout=subprocess.DEVNULL, check=True)
            driver.counters.chmod(0o666)
            yield made
        finally:
            for name in mounted:
                subprocess.run(["umount", "-l", str(folder / name)], check=False)


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("full disk", "no user and no home")
        else pytest.param(name, marks=pytest.mark.thorough)
        for name in WORLDS
    ],
)
def test_every_call_says_in_one_line_what_cannot_be_and_does_the_rest(places: Places, name: str) -> None:
    world = WORLDS[name]
    for words in (("ls",), ("claims",)):
        done = places.call(world, *words)
        assert done.returncode == 0 and (done.stdout or done.stderr), words
    force = () if world.claims else ("--force",)
    if force:
        refused = places.call(world, "run", "-n1", "--", "echo", "ran")
        assert (refused.returncode, refused.stdout) == (4, ""), refused.stderr
    ran = places.call(world, "run", "-n1", *force, "--", "echo", "ran")
    assert (ran.returncode, ran.stdout) == (0, "ran\n"), ran.stderr
    assert len(ran.stderr.splitlines()) <= 2
    job = places.call(world, "run", "-q", "-n1", *force, "--detach", "--", "sleep", "100")
    if world.keeps:
        assert job.returncode == 0, job.stderr
        stopped = places.call(world, "jobs", "stop", job.stdout.strip())
        assert stopped.returncode == 0 and "SIGTERM" in stopped.stderr
        assert "stopped" in places.call(world, "jobs").stdout
    else:
        assert job.returncode == 126 and job.stdout == "" and len(job.stderr.splitlines()) == 1, job.stderr
        assert places.call(world, "jobs").returncode in (0, 2)
    missing = places.call(world, "jobs", "stop", "zzzz")
    assert missing.returncode == 2 and len(missing.stderr.splitlines()) == 1
    if name == "full disk":
        record = places.call(world, "record", str(places.folder / "full" / "record.json"))
        assert record.returncode == 2 and "No space left" in record.stderr
        assert [file.name for file in (places.folder / "full").iterdir() if "gputui." in file.name] == []


@pytest.mark.thorough
def test_a_job_is_stopped_and_its_end_is_known_on_a_disk_that_it_has_filled(places: Places) -> None:
    disk = places.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    world = World({"HOME": str(disk)}, keeps=True)
    try:
        jobs = [
            places.call(world, "run", "-q", "-n1", "--detach", "--", *command).stdout.strip()
            for command in (("sleep", "100"), ("sleep", "100"), ("sh", "-c", "sleep 1; exit 7"))
        ]
        fill(disk)
        stopped = places.call(world, "jobs", "stop", jobs[0])
        assert (stopped.returncode, len(stopped.stderr.splitlines())) == (0, 1), stopped.stderr
        stopped = places.call(world, "jobs", "stop", "--signal", "INT", "--grace", "5", jobs[1])
        assert (stopped.returncode, len(stopped.stderr.splitlines())) == (0, 1), stopped.stderr
        assert places.call(world, "jobs", "wait", jobs[2]).returncode == 7
        listed = places.call(world, "jobs").stdout
        assert listed.count("stopped") + listed.count("failed") == 3 and "running" not in listed
        assert places.call(world, "claims").stdout == ""
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "full disk",
        "read-only home",
        "home that everybody can write to",
        "no user and no home",
        "20 descriptors",
    ],
)
def test_the_screen_says_once_what_it_cannot_save_and_goes_on(
    places: Places, start: Start, name: str
) -> None:
    world = WORLDS[name]
    limits = "".join(f"ulimit -n {most}; " for kind, most in world.limits)
    script = f'{limits}exec "$@"'
    terminal = start(
        argv=["sh", "-c", script, "sh", *places.argv(world, ())],
        environment=places.environ(world),
        size=(130, 30),
    )
    terminal.until("○ free")
    terminal.send(":sort by memory\r")
    if not world.keeps:
        terminal.until("settings not saved")
        assert terminal.text.count("settings not saved") == 1
    terminal.send("5")
    terminal.until("cuda:0 = GPU 5")
    terminal.send("q")
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text


def test_the_screen_without_threads_is_one_line(places: Places, start: Start) -> None:
    world = WORLDS["no thread"]
    argv = ["prlimit", "--nproc=1:1", *places.argv(world, ())]
    if not shutil.which("prlimit"):
        pytest.skip("no prlimit")
    terminal = start(argv=argv, environment=places.environ(world))
    assert terminal.end() == 126
    assert "Traceback" not in terminal.text and "no more threads" in terminal.text
