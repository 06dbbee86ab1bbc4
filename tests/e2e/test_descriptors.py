"""The inherited descriptors of the command: its standard streams, open or closed, and leases elsewhere."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.jobs.store import all_jobs
from simnvml import SimulatedNvml
from unit.claims_support import Box, box_at
from unit.jobs_support import ended, until

pytestmark = pytest.mark.e2e

CLOSED = [
    closed for count in range(4) for closed in itertools.combinations((0, 1, 2), count)
]  # None of them, one, …
REPORT = """
import contextlib, json, os
opened = {}
for number in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):  # the list itself
        opened[number] = os.readlink(f"/proc/self/fd/{number}")
with contextlib.suppress(OSError):
    os.write(2, b"said " * 3)
with open(os.environ["REPORT"] + ".new", "w") as file:
    json.dump(opened, file)
os.rename(os.environ["REPORT"] + ".new", os.environ["REPORT"])
"""


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    with box_at(tmp_path, simulated_nvml) as made:
        yield made


def call(box: Box, closed: tuple[int, ...], *words: str) -> Path:
    """Call gputui from a shell with these streams closed; the command lists its open files in the file."""
    report = box.folder / "report"
    closing = " ".join(f"{number}>&-" for number in closed)
    line = ["sh", "-c", f'exec "$@" {closing}', "sh", *GPUTUI, *words, "--", sys.executable, "-c", REPORT]
    subprocess.run(
        line,
        env={**box.environ, "REPORT": str(report)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return report


def opened(report: Path) -> dict[int, str]:
    """The open files of a report, by their numbers."""
    return {int(number): path for number, path in json.loads(report.read_text()).items()}


def leases(box: Box, files: dict[int, str]) -> list[int]:
    return sorted(number for number, path in files.items() if path.startswith(str(box.claims_folder)))


@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_a_lease_is_no_standard_stream_and_what_was_closed_is_closed(
    box: Box, closed: tuple[int, ...]
) -> None:
    files = opened(call(box, closed, "run", "-q", "--gpus", "3,4"))
    held = leases(box, files)
    assert len(held) == 6 and held[0] >= 100, "in each of two formats the folder, and a record a device"
    assert {0, 1, 2} - files.keys() == set(closed)
    assert all(
        b"said said" not in file.read_bytes() for file in box.claims_folder.rglob("*") if file.is_file()
    )


@pytest.mark.parametrize("closed", [(0,), (0, 1, 2)], ids=str)
def test_a_job_starts_with_streams_closed_and_its_lease_is_no_standard_stream(
    box: Box, closed: tuple[int, ...]
) -> None:
    report = call(box, closed, "run", "-q", "--detach", "--gpus", "3")
    (job,) = all_jobs(box.environ)
    ended(job)
    until(report.exists)
    files = opened(report)
    assert leases(box, files)[0] >= 100
    assert {0, 1, 2} <= files.keys(), "a job has /dev/null and its log"


@pytest.mark.parametrize("closed", [(0,), (1, 2)], ids=str)
def test_a_launch_that_has_waited_has_its_streams_as_they_were(box: Box, closed: tuple[int, ...]) -> None:
    files = opened(call(box, closed, "run", "-q", "--wait", "--window", "0", "--gpus", "3"))
    assert leases(box, files)[0] >= 100 and {0, 1, 2} - files.keys() == set(closed)


@pytest.mark.parametrize(("closed", "key"), [(1, "\r"), (2, ":return\r")], ids=["enter", "return"])
def test_the_screen_s_command_has_its_streams_as_they_were(
    box: Box, start: Start, closed: int, key: str
) -> None:
    report, script = box.folder / "report", box.folder / "script.py"
    script.write_text(REPORT)
    environ = {**box.environ, "REPORT": str(report), "TERM": "xterm-256color"}
    line = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *GPUTUI, "--", sys.executable, str(script)]
    terminal = start(argv=line, environment=environ)
    terminal.until("○ free")
    terminal.send("3")
    terminal.until("cuda:0 = GPU 3")
    terminal.send(key)
    terminal.until(lambda _: report.exists())
    files = opened(report)
    assert leases(box, files)[0] >= 100 and {0, 1, 2} - files.keys() == {closed}


STREAMS = """
import os, sys
from gputui.cli.main import _keep_standard_numbers
from gputui.system.descriptors import LEAST, move_to_high_number
report = os.dup2(int(sys.argv[1]), 90)
os.closerange(0, 90)
_keep_standard_numbers()
opened = os.open("/", os.O_RDONLY)
kept = [os.path.samefile(f"/proc/self/fd/{number}", os.devnull) for number in (0, 1, 2)]
inherited = [os.get_inheritable(number) for number in (0, 1, 2)]
os.write(report, repr((opened, kept, inherited, move_to_high_number(opened) >= LEAST)).encode())
"""


def test_no_file_of_ours_gets_the_number_of_a_closed_stream() -> None:
    """A file that a driver's library opens may reach the command: it must not become its stdout."""
    reading, writing = os.pipe()
    subprocess.run([sys.executable, "-c", STREAMS, str(writing)], pass_fds=(writing,), check=True)
    os.close(writing)
    with open(reading) as report:  # noqa: PTH123 - a descriptor
        assert report.read() == repr((3, [True] * 3, [False] * 3, True))


def test_with_few_numbers_left_a_lease_is_still_no_standard_stream() -> None:
    script = """if True:
        import os, resource
        from gputui.system.descriptors import move_to_high_number
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
        os.close(0)
        raise SystemExit(move_to_high_number(os.open("/", os.O_RDONLY)))"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode >= 3


def test_few_open_files_are_enough(box: Box) -> None:
    """With a limit under 100 no descriptor can be moved to 100 or higher: it gets a lower number above the
    standard streams."""
    report = box.folder / "report"
    limited = ["sh", "-c", 'ulimit -n 40; exec "$@" 2>&-', "sh", *GPUTUI]
    subprocess.run(
        [*limited, "run", "-q", "--gpus", "3", "--", sys.executable, "-c", REPORT],
        env={**box.environ, "REPORT": str(report)},
        check=True,
    )
    held = leases(box, opened(report))
    assert len(held) == 4 and held[0] > 9, "a script's own `exec 9>lock` does not close it"
