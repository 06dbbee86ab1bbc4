"""The cap of a job's log: the middle is removed, both ends stay, and readers skip the hole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.inventory.job import Job
from gputui.jobs.last_lines import last_lines as end_of
from gputui.jobs.log_file import missing, read_data
from gputui.jobs.log_screen import Tail
from gputui.jobs.wait import follow, start_of_last_lines
from unit.jobs_support import Desk, desk_at, ended, says, until

MIB = 1 << 20
CAP = 16 * MIB
LINES = 1_200_000
"""Lines of 40 bytes: 46 MiB."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        settings = tmp_path / "config" / "gputui" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text('[jobs]\nlog_cap = "16M"\n')
        yield made


def can_punch(folder: Path) -> bool:
    """Whether the file system of the tests supports holes and finding them."""
    file = folder / "probe"
    with file.open("wb") as stream:
        stream.truncate(4 * MIB)
        stream.seek(4 * MIB)
        stream.write(b"x")
    with file.open("rb") as stream:
        found = os.lseek(stream.fileno(), 0, os.SEEK_DATA) > 0
    file.unlink()
    return found


def long_one(desk: Desk) -> Job:
    if not can_punch(desk.folder):
        pytest.skip("this file system has no holes")
    return desk.sh(f"seq -f 'line %034.0f' {LINES}")


def disk(job: Job) -> int:
    return job.log.stat().st_blocks * 512


def test_a_long_log_keeps_its_beginning_and_its_end(desk: Desk) -> None:
    job = ended(long_one(desk))
    assert job.exit_status == 0
    assert job.log.stat().st_size == LINES * 40
    assert disk(job) <= CAP + MIB
    text = b"".join(follow(job))
    lines = text.splitlines()
    assert lines[0] == b"line %034d" % 1 and lines[-1] == b"line %034d" % LINES
    (said,) = (line for line in lines if b"missing" in line)
    assert said.startswith(b"[gputui: ") and b"\0" not in text
    place = lines.index(said)
    numbers = [int(line[5:]) for line in lines if len(line) == 39 and line.startswith(b"line")]
    # The only missing lines are those in the one hole.
    gaps = [n for n in range(1, len(numbers)) if numbers[n] != numbers[n - 1] + 1]
    assert len(gaps) == 1 and abs(gaps[0] - place) <= 1


def test_a_job_that_goes_on_is_held_to_the_cap_and_its_follower_loses_nothing(desk: Desk) -> None:
    gate = desk.gate()
    if not can_punch(desk.folder):
        pytest.skip("this file system has no holes")
    job = desk.sh(f"seq -f 'line %034.0f' {LINES}; echo first half; {gate.wait}; echo second half")
    says(job, "first half")
    until(lambda: disk(job) <= CAP + MIB)
    following = follow(job, start_of_last_lines(job.log, 3))
    assert next(following).splitlines() == [b"line %034d" % (LINES - 1), b"line %034d" % LINES, b"first half"]
    gate.open()
    assert b"".join(following) == b"second half\n"


def test_a_log_that_somebody_has_emptied_is_held_to_the_cap_again(tmp_path: Path) -> None:
    if not can_punch(tmp_path):
        pytest.skip("this file system has no holes")
    script = f"""
import os
from gputui.jobs.log_cap import LogCap
cap = LogCap({CAP})
for mib in (48, 32):
    os.ftruncate(1, 0)
    os.lseek(1, 0, os.SEEK_SET)
    for _ in range(mib):
        os.write(1, b"x" * {MIB})
    cap.look()
"""
    log = tmp_path / "log"
    with log.open("wb") as stdout:
        subprocess.run([sys.executable, "-c", script], stdout=stdout, check=True)
    facts = log.stat()
    assert facts.st_size == 32 * MIB and facts.st_blocks * 512 <= CAP + MIB


def test_every_reader_of_the_end_finds_it(desk: Desk) -> None:
    job = ended(long_one(desk))
    assert end_of(job.log, 1) == (f"line {LINES:034d}",)
    tail = Tail(job.log)
    tail.feed()
    assert tail.lines(1) == [f"line {LINES:034d}"]


def test_without_a_cap_everything_is_kept(desk: Desk) -> None:
    (desk.folder / "config" / "gputui" / "config.toml").write_text('[jobs]\nlog_cap = "none"\n')
    job = ended(long_one(desk))
    assert disk(job) >= LINES * 40 and b"missing" not in b"".join(follow(job))


def test_a_hole_of_many_gigabytes_is_no_work(tmp_path: Path, desk: Desk) -> None:
    job = ended(desk.sh("echo begun"))
    with job.log.open("r+b") as file:
        file.truncate(100 << 30)
        file.seek(100 << 30)
        file.write(b"the end\n")
    if not can_punch(tmp_path):
        pytest.skip("this file system has no holes")
    text = b"".join(follow(job))
    assert text.startswith(b"begun\n") and text.endswith(b"the end\n") and len(text) < 64 * 1024
    assert b"100.0G of this log are missing" in text
    os.truncate(job.log, 200 << 30)
    assert len(b"".join(follow(job))) < 64 * 1024


def test_null_bytes_that_a_job_wrote_are_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\0b")
    with log.open("rb") as file:
        assert read_data(file.fileno(), 0, 100) == (0, b"a\0b")
        assert read_data(file.fileno(), 3, 100) == (3, b"")
    assert missing(3 << 30).strip() == b"[gputui: 3.0G of this log are missing here]"
