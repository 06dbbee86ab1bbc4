"""The command of `notify` at the end of a job: real jobs, their real supervisor, real scripts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.inventory.process import Identity
from gputui.jobs import start as job_start
from gputui.jobs.process_tree import identity
from gputui.jobs.start import start_job
from gputui.jobs.stop import stop
from gputui.launching.launch import Launch
from unit.jobs_support import Desk, desk_at, ended, gone, until


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def notifies(desk: Desk, script: str, *words: str) -> Path:
    """Make the settings name a script, called with `words`; return the file that `told` in it writes."""
    program, told = desk.folder / "notify-me", desk.folder / "told"
    program.write_text(f"#!/bin/sh\ntold() {{ cat > {told}.new; mv {told}.new {told}; }}\n{script}\n")
    program.chmod(0o755)
    settings = Path(desk.environ["XDG_CONFIG_HOME"]) / "gputui/config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    listed = ", ".join(f'"{word}"' for word in (str(program), *words))
    settings.write_text(f"[wait]\nnotify = [{listed}]\n")
    return told


def test_it_is_told_how_the_job_ended_and_nothing_that_could_be_a_secret(desk: Desk) -> None:
    told = notifies(desk, 'echo "$1" "$2" | told', "-x", "<{message}>")
    job = ended(desk.start("sh", "-c", "exit 3", "--token=hf_secret"))
    until(told.exists)
    words = rf"-x <gputui: job {job.id} \(sh\) ended with status 3 after \d+s>\n"
    assert re.fullmatch(words, told.read_text())


def test_it_has_the_jobs_name_and_a_job_that_was_stopped_is_called_so(desk: Desk) -> None:
    told = notifies(desk, 'echo "$1" | told', "{message}")
    job = desk.start("sleep", "100", name="llama")
    stop(job, grace=5)
    until(told.exists)
    assert re.fullmatch(rf"gputui: job {job.id} \(llama\) stopped after \d+s\n", told.read_text())


def test_it_inherits_no_lease_and_writes_not_to_the_jobs_log(desk: Desk) -> None:
    told = notifies(desk, "echo noise; echo noise >&2; ls -l /proc/$$/fd | told")
    lease = os.open(desk.folder / "held", os.O_RDWR | os.O_CREAT)
    job = ended(start_job(Launch(("test", "-e", f"/proc/self/fd/{lease}")), desk.environ, pass_fds=(lease,)))
    os.close(lease)
    assert job.status == 0
    until(told.exists)
    assert "/held\n" not in told.read_text() and str(job.log) not in told.read_text()
    assert job.log.read_text() == ""


def _runs(script: Path) -> bool:
    """Whether a process has this script on its command line: the supervisor, or the process that kills a
    hanging command."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(process.read_bytes())
    return any(os.fsencode(script) in line for line in lines)


def test_one_that_hangs_is_killed_with_what_it_started_and_nobody_waits_for_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It loads other files by their places beside it.
    shutil.copytree(job_start._SUPERVISE.parents[1], desk.folder / "gputui")
    impatient = desk.folder / "gputui/jobs/supervise.py"
    text = job_start._SUPERVISE.read_text()
    assert "_NOTIFY_TIME = 10.0" in text
    monkeypatch.setattr(job_start, "_SUPERVISE", impatient)
    told = notifies(desk, 'trap "" TERM ALRM; sleep 1000 & echo $$ $! | told; wait')
    # On a busy machine the command may be killed before it has written anything: then it gets more time.
    for patience in (0.5, 2.0, 8.0):
        impatient.write_text(text.replace("_NOTIFY_TIME = 10.0", f"_NOTIFY_TIME = {patience}"))
        job = ended(desk.sh("exit 0"))
        assert job.supervisor is not None
        gone(job.supervisor)
        until(lambda: not _runs(impatient))
        if told.exists():
            break
    hung: list[Identity] = [identity(int(pid)) for pid in told.read_text().split()]
    gone(*hung)


@pytest.mark.parametrize("path", ["{folder}:{path}", ".:{path}"], ids=["named", "relative"])
def test_a_program_that_another_user_could_have_put_into_the_path_is_not_run(
    desk: Desk, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = notifies(desk, "told < /dev/null")
    settings = Path(desk.environ["XDG_CONFIG_HOME"]) / "gputui/config.toml"
    settings.write_text('[wait]\nnotify = ["notify-me"]\n')
    (desk.folder / "shared").mkdir(0o777)
    (desk.folder / "shared").chmod(0o777)
    (desk.folder / "notify-me").rename(desk.folder / "shared" / "notify-me")
    monkeypatch.chdir(desk.folder / "shared")
    desk.environ["PATH"] = path.format(folder=desk.folder / "shared", path=desk.environ["PATH"])
    job = ended(desk.sh("exit 0"))
    assert not (job.folder / "notify").exists() and not told.exists()


def test_one_that_is_not_there_changes_nothing(desk: Desk) -> None:
    notifies(desk, "")
    (desk.folder / "notify-me").unlink()
    job = ended(desk.sh("exit 0"))
    assert job.status == 0 and not (job.folder / "notify").exists()
