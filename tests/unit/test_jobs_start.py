"""Starting a job: the command and its environment to the byte, the answer, the record, and its readers."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.inventory.job import JobError
from gputui.jobs.start import detached, start_job
from gputui.jobs.store import all_jobs, jobs_folder
from gputui.launching.launch import Launch
from gputui.launching.start import StartError
from table_tests import each_row
from unit.builders import gpu
from unit.jobs_support import Desk, desk_at, ended, kill_supervisor

DUMP = (sys.executable, "-S", "-E", str(Path(__file__).with_name("dump.py")))


NO_PROGRAM = "there is no program 'no-such-program' in PATH; activate its environment or give a path"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


def told(log: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(log.read_text())
    return found


# The arguments, environment and streams of the command.


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_commands_status_is_recorded(desk: Desk, status: int) -> None:
    job = ended(desk.sh(f"exit {status}"))
    assert (job.status, job.signal, job.exit_status) == (status, None, status)
    assert job.state == ("failed" if status else "done")


def test_the_memory_of_its_largest_process_is_recorded_at_the_end(desk: Desk) -> None:
    """Any process of the job may be the largest: a launcher itself is small."""
    gate, mib = desk.gate(), 2**20
    large = f"{sys.executable} -c 'x = bytearray(200 << 20)'"
    job = desk.sh(f"{gate.wait}; {large} & {large} & wait")
    assert job.peak_process_memory is None
    gate.open()
    assert 200 * mib < (ended(job).peak_process_memory or 0) < 300 * mib, "not the sum of both"
    assert 0 < (ended(desk.sh("true")).peak_process_memory or 0) < 50 * mib


def test_the_signal_that_ended_the_command_is_recorded(desk: Desk) -> None:
    job = ended(desk.sh("kill -SEGV $$"))
    assert (job.state, job.status, job.signal, job.exit_status) == ("failed", None, 11, 139)


def test_what_the_command_writes_is_in_the_log_in_its_order(desk: Desk) -> None:
    job = ended(desk.sh("echo one; echo two >&2; echo three"))
    assert job.log.read_text() == "one\ntwo\nthree\n"


def test_the_words_of_the_command_arrive_as_they_are(desk: Desk) -> None:
    hostile = ["", "a b", "$HOME", "it's", "new\nline", "👩\u200d🚀", "caf\udce9", "=x"]
    job = ended(desk.start(*DUMP, *hostile))
    argv = told(job.log)["argv"]
    assert isinstance(argv, list)
    assert [bytes.fromhex(word) for word in argv][1:] == [os.fsencode(word) for word in hostile]
    assert list(job.argv) == [*DUMP, *hostile]


def test_no_variable_of_a_job_applies_to_its_supervisor(desk: Desk) -> None:
    """An agent may name any variable: LD_PRELOAD would be a program outside its limits, and GPUTUI_CLAIMS
    would hide from the check that the job runs on devices that it has not claimed."""
    gate = desk.gate()
    launch = Launch(("/bin/sh", "-c", f'echo "$LD_PRELOAD"; {gate.wait}'), (("LD_PRELOAD", "/none.so"),))
    job = start_job(launch, desk.environ)
    assert job.supervisor is not None
    given = Path(f"/proc/{job.supervisor.pid}/environ").read_bytes()
    assert b"/none.so" not in given and os.fsencode(desk.environ["XDG_STATE_HOME"]) in given
    gate.open()
    assert "/none.so" in ended(job).log.read_text()


def test_the_environment_is_exactly_the_base_with_the_changes(desk: Desk) -> None:
    state = desk.environ["XDG_STATE_HOME"]
    base = {"PATH": os.defpath, "KEPT": "a\nb", "GONE": "x", "ODD": "caf\udce9", "XDG_STATE_HOME": state}
    launch = Launch(DUMP, (("GONE", None), ("ADDED", "$x y"), ("PYTHONUNBUFFERED", "")))
    job = ended(start_job(launch, base))
    environ = told(job.log)["environ"]
    assert isinstance(environ, dict)
    expected = {
        "PATH": os.defpath,
        "KEPT": "a\nb",
        "ADDED": "$x y",
        "ODD": "caf\udce9",
        "XDG_STATE_HOME": state,
        "PYTHONUNBUFFERED": "",
    }
    assert {bytes.fromhex(name): bytes.fromhex(value) for name, value in environ.items()} == {
        os.fsencode(name): os.fsencode(value) for name, value in expected.items()
    }


def test_the_command_reads_nothing_from_us(desk: Desk) -> None:
    assert ended(desk.start("/bin/readlink", "/proc/self/fd/0")).log.read_text() == "/dev/null\n"


def test_the_command_has_no_descriptor_but_the_usual_three(desk: Desk) -> None:
    with open(os.devnull) as ours:  # noqa: PTH123
        os.set_inheritable(ours.fileno(), True)
        job = ended(desk.start("/bin/ls", "/proc/self/fd"))
    assert job.log.read_text().split() == ["0", "1", "2", "3"], "3 is the folder that ls reads"


def test_the_command_ignores_and_blocks_no_signal_whatever_we_do(desk: Desk) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD])
    try:
        job = ended(desk.start("/bin/cat", "/proc/self/status"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, before)
    fields = dict(line.split(":\t", 1) for line in job.log.read_text().splitlines() if ":\t" in line)
    # glibc uses the two signals between these two itself, so that no program can set them; its posix_spawn
    # ignores them.
    all_signals = sum(1 << number - 1 for number in signal.valid_signals())
    assert int(fields["SigIgn"], 16) & all_signals == int(fields["SigBlk"], 16) & all_signals == 0


def test_the_command_starts_in_its_directory(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    place = desk.folder / "a b"
    place.mkdir()
    monkeypatch.chdir(desk.folder)
    for directory in (str(place), "a b"):
        job = ended(start_job(Launch(("/bin/pwd",), directory=directory), desk.environ))
        assert job.log.read_text() == f"{place}\n"
        assert job.directory == str(place)


def test_the_program_is_looked_for_in_the_path_of_the_launch(desk: Desk) -> None:
    program = desk.folder / "only-here"
    program.write_text("#!/bin/sh\nexit 42\n")
    program.chmod(0o755)
    path = (("PATH", f"/no/such/folder:{desk.folder}"),)
    assert ended(start_job(Launch(("only-here",), path), desk.environ)).status == 42


def test_a_script_without_a_first_line_for_the_kernel_runs_as_after_any_shell(desk: Desk) -> None:
    script = desk.folder / "train.sh"
    script.write_text('echo "$0" "$@"; exit 3\n')
    script.chmod(0o755)
    job = ended(desk.start(str(script), "a b"))
    assert (job.status, job.log.read_text()) == (3, f"{script} a b\n")


def test_what_the_job_says_to_python_is_not_said_to_its_supervisor(desk: Desk) -> None:
    trap = desk.folder / "trap"
    trap.mkdir()
    for module in ("signal.py", "contextlib.py", "ctypes.py", "sitecustomize.py"):
        (trap / module).write_text("raise SystemExit('the trap')\n")
    changes = (("PYTHONPATH", str(trap)), ("PYTHONHOME", "/no/such/home"), ("PYTHONSTARTUP", "x"))
    job = ended(start_job(Launch(("/bin/sh", "-c", "exit 4"), changes), desk.environ))
    assert (job.status, job.log.read_text()) == (4, "")


# Python writes its log at once.


def test_python_is_told_to_write_its_log_at_once_and_the_line_says_so(desk: Desk) -> None:
    launch = Launch((sys.executable, "-c", "import sys; sys.stdout.write('x'); sys.stdin.read()"))
    assert detached(launch, desk.environ).line.startswith("PYTHONUNBUFFERED=1 ")
    job = start_job(launch, desk.environ)
    assert job.changes == (("PYTHONUNBUFFERED", "1"),) and job.line.startswith("PYTHONUNBUFFERED=1 ")


@each_row("value", ["", "0", "1"])
def test_a_user_who_has_decided_on_that_is_not_overruled(value: str) -> None:
    launch = Launch(("python", "train.py"))
    assert detached(launch, {"PYTHONUNBUFFERED": value}) == launch
    own = replace(launch, changes=(("PYTHONUNBUFFERED", value),))
    assert detached(own, {}) == own


# Descriptors to pass on.


def test_a_lock_that_is_passed_on_is_held_for_as_long_as_the_command_lives(desk: Desk) -> None:
    gate = desk.gate()
    lease = desk.folder / "lease"
    with lease.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        job = desk.start("/bin/sh", "-c", gate.wait, pass_fds=(file.fileno(),))
    with lease.open("w") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kill_supervisor(job)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gate.open()
        fcntl.flock(other, fcntl.LOCK_EX)


def test_the_supervisor_itself_keeps_nothing_that_is_passed_on(desk: Desk) -> None:
    gate = desk.gate()
    with (desk.folder / "lease").open("w") as file:
        job = desk.start("/bin/sh", "-c", gate.wait, pass_fds=(file.fileno(),))
        number = file.fileno()
    assert job.supervisor and job.command
    theirs = Path(f"/proc/{job.command.pid}/fd/{number}")
    assert theirs.resolve() == desk.folder / "lease"
    kept = {entry.resolve().name for entry in Path(f"/proc/{job.supervisor.pid}/fd").iterdir()}
    assert kept == {"null", "log"}


# Commands that cannot be started.


@pytest.mark.parametrize(
    ("argv", "directory", "status", "message"),
    [
        (("no-such-program",), None, 127, NO_PROGRAM),
        (("/no/such/program",), None, 127, "there is no program '/no/such/program'"),
        (("/",), None, 126, "cannot start '/': Permission denied"),
        (("",), None, 126, "cannot start '': Invalid argument"),
        (
            ("/bin/true",),
            "/no/such/place",
            126,
            "cannot change to '/no/such/place': No such file or directory",
        ),
    ],
)
def test_a_command_that_cannot_be_started_is_said_and_recorded(
    desk: Desk, argv: tuple[str, ...], directory: str | None, status: int, message: str
) -> None:
    with pytest.raises(StartError) as error:
        start_job(Launch(argv, directory=directory), desk.environ)
    assert (str(error.value), error.value.status) == (message, status)
    (job,) = all_jobs(desk.environ)
    assert (job.state, job.status) == ("failed", status) and job.trouble


def test_a_word_that_no_command_can_have_starts_nothing(desk: Desk) -> None:
    for launch in (Launch(("/bin/echo", "a\0b")), Launch(("/bin/echo",), (("A", "b\0"),))):
        with pytest.raises(StartError) as error:
            start_job(launch, desk.environ)
        assert error.value.status == 126
    assert all_jobs(desk.environ) == []


def test_without_a_place_for_records_nothing_starts_and_the_remedy_is_said(desk: Desk) -> None:
    file = desk.folder / "file"
    file.write_text("")
    started = desk.folder / "started"
    for environ in ({"XDG_STATE_HOME": str(file)}, {"XDG_STATE_HOME": "/proc"}):
        with pytest.raises(JobError, match=r"cannot keep a record in .*; set XDG_STATE_HOME"):
            start_job(Launch(("/bin/touch", str(started))), environ)
    assert not started.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_home_that_cannot_be_written_is_said(desk: Desk) -> None:
    desk.folder.chmod(0o500)
    try:
        with pytest.raises(JobError, match="Permission denied; set XDG_STATE_HOME"):
            desk.sh("true")
    finally:
        desk.folder.chmod(0o700)


def test_a_command_that_cannot_be_recorded_never_begins(desk: Desk, tmp_path: Path) -> None:
    started = tmp_path / "started"
    # The supervisor may write nothing; the command that it starts touches a file.
    limit = f"ulimit -f 0; exec {sys.executable} -c '{_STARTER}' /bin/sh -c ': > {started}'"
    done = subprocess.run(
        ["/bin/sh", "-c", limit], env=desk.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert "JobError" in done.stderr and not started.exists()
    assert all_jobs(desk.environ) == []


_STARTER = (
    "import os, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    " from gputui.jobs.start import start_job; from gputui.launching.launch import Launch;"
    " start_job(Launch(tuple(sys.argv[1:])), os.environ)"
)


# The record.


def test_the_record_has_the_launch_and_nothing_else_of_the_environment(desk: Desk) -> None:
    devices = (gpu(5, uuid="GPU-five", name="NVIDIA H100"), gpu(4, uuid="GPU-four"))
    changes = (("CUDA_VISIBLE_DEVICES", "5,4"), ("GONE", None), ("PYTHONUNBUFFERED", "1"))
    launch = Launch(("/bin/true", "--lr", "1"), changes, devices=devices, launcher="torchrun")
    job = start_job(launch, {**desk.environ, "SECRET": "swordfish"}, name="llama")
    assert (job.name, job.line, job.argv, job.changes) == ("llama", launch.line, launch.argv, changes)
    assert [(d.index, d.uuid) for d in job.devices] == [(5, "GPU-five"), (4, "GPU-four")]
    assert job.devices[0].name == "NVIDIA H100" and job.launcher == "torchrun"
    ended(job)
    for file in job.folder.iterdir():
        assert b"swordfish" not in file.read_bytes() and b"SECRET" not in file.read_bytes()


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_only_its_owner_reads_a_job_whatever_the_umask(desk: Desk, umask: int) -> None:
    before = os.umask(umask)
    try:
        job = ended(desk.sh("umask; echo said"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(job.folder.stat().st_mode) == stat.S_IMODE(desk.jobs.stat().st_mode) == 0o700
    names = {file.name: stat.S_IMODE(file.stat().st_mode) for file in job.folder.iterdir()}
    assert names == dict.fromkeys(("job.json", "started.json", "ended.json", "log"), 0o600)
    assert int(job.log.read_text().split()[0], 8) == umask, "the command has its user's umask"


@pytest.mark.thorough
def test_twenty_jobs_started_at_once_are_twenty_jobs(desk: Desk) -> None:
    with ThreadPoolExecutor(20) as pool:
        jobs = list(pool.map(lambda number: desk.sh(f"echo {number}; exit {number}"), range(20)))
    assert len({job.id for job in jobs}) == 20
    for number, job in enumerate(map(ended, jobs)):
        assert (job.status, job.log.read_text()) == (number, f"{number}\n")
    assert len(all_jobs(desk.environ)) == 20


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "-f", "x" * 61, "gpu1:k3f9"])
def test_a_name_that_could_not_be_seen_or_typed_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(JobError):
        desk.start("/bin/true", name=name)
    assert all_jobs(desk.environ) == []


@each_row("ignored", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}])
def test_the_folder_follows_the_specification(
    ignored: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    for name, value in {"HOME": "/h", **ignored}.items():
        monkeypatch.setenv(name, value)
    assert jobs_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/gputui/jobs")
    assert jobs_folder(os.environ) == Path("/h/.local/state/gputui/jobs")
