"""`run --on BOX` over a real ssh: the command is a job of that box, followed from here."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from confinement import box_of_eight, needs_landlock, script
from e2e.terminal import Terminal
from gputui.allocating.device_request import DeviceRequest
from gputui.inventory.job import Job
from gputui.jobs.box_calls import start_detached
from gputui.jobs.store import all_jobs
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from simnvml import SimulatedNvml
from ssh_boxes import PROGRAMS, SshBoxes
from table_tests import each_row
from unit.builders import box, busy, gpu
from unit.builders import job as a_process
from unit.calling import Call
from unit.jobs_support import until
from unit.older_gputui import lacks_if_free
from unit.on_a_terminal import interrupted_there

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")

NOBODY_PID = 2**22 - 7
"""The pid of a process whose owner cannot be seen."""

GPUTUI = (sys.executable, "-m", "gputui")


class Remote:
    """A box with two free devices, and local calls of gputui."""

    def __init__(self, boxes: SshBoxes, name: str, environ: dict[str, str]) -> None:
        self.name = name
        self.home = boxes.add(name, environ)
        self.environ = boxes.environment(
            {**os.environ, "HOME": str(self.home.parent), "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}
        )

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*GPUTUI, "run", "--on", self.name, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            **more,
        )

    def run(self, *words: str) -> tuple[int, bytes, str]:
        """The status, output and messages of a call that ends."""
        with self.start("--directory", ".", *words) as process:
            out, said = process.communicate(timeout=60)
            return process.returncode, out, said.decode()

    def known(self) -> list[Job]:
        """The jobs of the box, read without a call of gputui: this is cheap enough to repeat often."""
        return all_jobs({"XDG_STATE_HOME": str(self.home / ".local" / "state")})

    def jobs(self) -> list[dict[str, Any]]:
        """The box's jobs, as gputui there lists them."""
        env = {**os.environ, "HOME": str(self.home)}
        env.pop("XDG_STATE_HOME", None)
        said = subprocess.run(
            [*GPUTUI, "jobs", "--json"], env=env, capture_output=True, check=True, timeout=60
        ).stdout
        found: list[dict[str, Any]] = json.loads(said)["jobs"]
        return found

    def state(self) -> str | None:
        """The state of the box's last job."""
        jobs = self.known()
        return jobs[-1].state if jobs else None


@pytest.fixture
def remote(
    boxes: SshBoxes, simulated_nvml: SimulatedNvml, own_claims: Path, request: pytest.FixtureRequest
) -> Iterator[Remote]:
    simulated_nvml.show(box(gpu(0), gpu(1)))
    names = ("LD_LIBRARY_PATH", "SIMNVML_BOX", "SIMNVML_CONTROL", "SIMNVML_COUNTS")
    found = simulated_nvml.environment()
    environ = {name: found[name] for name in names} | {"GPUTUI_CLAIMS": str(own_claims)}
    name = f"run-{abs(hash(request.node.nodeid))}"
    made = Remote(boxes, name, environ)
    yield made
    for job in made.known():
        for process in (job.command, job.supervisor):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if process else None


def test_a_command_there_starts_after_a_job_of_that_box(remote: Remote) -> None:
    status, out, said = remote.run("--detach", "-q", "--gpus", "none", "--", "sh", "-c", "exit 3")
    assert status == 0, said
    address = out.decode().strip()
    words = ("-q", "--gpus", "none", "--min-free", "1G", "--after", address, "--", "echo", "there")
    assert remote.run(*words)[:2] == (0, b"there\n")
    status, _, said = remote.run("--detach", "--gpus", "none", "--after-ok", address, "--", "true")
    assert status == 5 and "ended with status 3" in said
    assert remote.run("-n", "1", "--after", "other:k3f9", "--", "true")[0] == 2


@needs_landlock
def test_the_command_is_confined_there(
    boxes: SshBoxes, simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    there = box_of_eight(tmp_path / "there", simulated_nvml)
    names = [name for name in there.environ if name.startswith(("SIM", "LD_", "GPUTUI_"))]
    remote = Remote(boxes, "confined", {name: there.environ[name] for name in names})
    words = shlex.join([*there.machine.before, sys.executable, "-m", "gputui"])
    (remote.home / "bin" / "gputui").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    own = script(there, 'env "CUDA_$(printf VISIBLE)_DEVICES=0,1" SEEN')
    for how, seen in (("--confine", [4, 5]), ("--no-confine", [0, 1])):
        status, out, said = remote.run(how, "--gpus", "5,4", "--", "sh", own)
        assert status == 0, said
        assert there.told(out.decode()) == seen


def test_the_command_runs_there_on_devices_that_are_claimed_and_its_status_is_ours(remote: Remote) -> None:
    status, out, said = remote.run("-n", "2", "--", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $HOME"; exit 7')
    assert status == 7
    devices, home = out.decode().split()
    assert sorted(devices.split(",")) == ["0", "1"] and home == str(remote.home)
    (job,) = remote.jobs()
    assert job["id"] in said and remote.name in said and (job["status"], job["directory"]) == (7, home)


WORDS = ["a b", "it's", '"$HOME"', "`id`", "two\nlines\n", "!x", "\\n", "", "ä", "*"]


def test_every_word_of_the_command_arrives_as_it_is(remote: Remote) -> None:
    status, out, _ = remote.run(
        "-n", "1", "--", "sh", "-c", "for w; do printf '%s\\0' \"$w\"; done", "sh", *WORDS
    )
    assert (status, out) == (0, b"".join(word.encode() + b"\0" for word in WORDS))


@pytest.mark.thorough
def test_what_is_missing_there_is_one_line_and_nothing_starts(remote: Remote) -> None:
    for words, expected in (
        (("--directory", "/no/such/folder", "-n", "1", "--", "true"), 126),
        (("--directory", ".", "-n", "1", "--", "no-such-program"), 127),
        (("--directory", ".", "-n", "3", "--", "true"), 4),
        (("--directory", ".", "-n", "1", "--gpus", "0", "--", "true"), 2),
    ):
        with remote.start("-q", *words) as process:
            out, said = process.communicate(timeout=60)
        assert (process.returncode, out) == (expected, b"")
        assert said.count(b"\n") == 1 and said.decode()[:-1].isprintable()
    assert all(job.state == "failed" for job in remote.known())


def test_a_device_that_somebody_uses_there_is_refused_and_used_with_force(
    remote: Remote, simulated_nvml: SimulatedNvml
) -> None:
    """As on this machine: naming a device needs --force where another user's process is on it."""
    simulated_nvml.show(box(gpu(0), busy(gpu(1), a_process(NOBODY_PID, user=None))))
    for more in ((), ("--dry-run",)):
        status, out, said = remote.run(*more, "--gpus", "0,1", "--", "true")
        assert (status, out) == (4, b""), said
        (told,) = [line for line in said.splitlines() if "--force" in line]
        assert "GPU 1 " in told
    assert all(job.state == "failed" for job in remote.known()), "nothing has started"
    assert remote.run("--force", "--gpus", "1", "--", "true")[0] == 0
    _, _, said = remote.run("--detach", "-q", "--force", "--gpus", "1", "--", "true")
    assert "GPU 1 " in said, "a quiet call has its warnings, too"


def test_a_box_that_cannot_be_reached_is_status_3(boxes: SshBoxes, call: Call) -> None:
    boxes.add_dead("gone")
    for words in ((), ("--detach",)):
        call("run", "--on", "gone", *words, "-n", "1", "--", "true").refused(3)


def test_a_detached_job_is_named_with_its_box(remote: Remote) -> None:
    status, out, said = remote.run("--detach", "--name", "night", "-n", "1", "--", "true")
    (job,) = remote.jobs()
    assert (status, out.decode()) == (0, f"{remote.name}:{job['id']}\n") and job["name"] == "night"
    assert out.decode().strip() in said


def test_a_job_of_another_box_is_answered_in_json(remote: Remote) -> None:
    status, out, _ = remote.run("--detach", "--json", "-n", "1", "--", "true")
    assert status == 0, out
    job = json.loads(out)["job"]
    assert (status, job["id"]) == (0, f"{remote.name}:{remote.jobs()[0]['id']}") and job["argv"] == ["true"]
    status, out, said = remote.run("--detach", "--json", "-n", "9", "--", "true")
    error = json.loads(out)["error"]
    assert (status, error["code"]) == (4, "not_enough") and error["message"] in said
    status, out, _ = remote.run("--dry-run", "--json", "-n", "2", "--", "true")
    assert status == 0 and len(json.loads(out)["devices"]) == 2


def test_a_box_that_cannot_be_reached_is_a_failure_in_json(remote: Remote) -> None:
    status, out, _ = remote.run("--detach", "--json", "--on", "no-such-box", "--", "true")
    assert (status, json.loads(out)["error"]["code"]) == (3, "unreachable")


@pytest.mark.parametrize("words", [(), ("--attach", "--name", "night")])
def test_the_line_of_a_dry_run_is_the_line_that_runs(remote: Remote, words: tuple[str, ...]) -> None:
    status, out, _ = remote.run("--dry-run", *words, "-n", "2", "--", "true")
    assert status == 0 and b"CUDA_VISIBLE_DEVICES=" in out and remote.known() == []
    remote.run(*words, "-n", "2", "--", "true")
    assert f"{remote.known()[0].line}\n" == out.decode()


@pytest.mark.thorough
def test_an_older_gputui_that_lacks_an_option_is_sent_ours(remote: Remote) -> None:
    lacks_if_free(remote.home / "bin" / "gputui")
    status, _, said = remote.run("--if-free", "--gpus", "1", "--", "true")
    assert status == 0 and "--if-free" not in said
    assert [device.index for device in remote.known()[0].devices] == [1]


@pytest.mark.thorough
def test_a_rerun_with_an_option_that_an_older_gputui_lacks_is_by_ours(remote: Remote, call: Call) -> None:
    remote.run("--detach", "-n", "1", "--", "true")
    until(lambda: remote.state() == "done")
    job = f"{remote.name}:{remote.known()[0].id}"
    lacks_if_free(remote.home / "bin" / "gputui")
    again = call("jobs", "rerun", job, "--if-free", "--gpus", "1")
    assert again.status == 0 and again.out.startswith(f"{remote.name}:"), again.err
    until(lambda: remote.state() == "done")
    assert [each.index for each in remote.known()[-1].devices] == [1]
    # An option that our gputui does not know either is a wrong call as before.
    assert call("jobs", "rerun", job, "--no-such-option").status == 2 and len(remote.known()) == 2


@pytest.mark.thorough
@pytest.mark.usefixtures("terminals_there")
def test_an_older_gputui_is_sent_ours_for_a_terminal_too(remote: Remote) -> None:
    lacks_if_free(remote.home / "bin" / "gputui")
    words = ("--on", remote.name, "--directory", ".", "--if-free", "--gpus", "1", "--", "echo", "it ran")
    terminal = Terminal([*GPUTUI, "run", "-q", *words], {**remote.environ, "TERM": "xterm"}, (100, 20))
    try:
        terminal.until("it ran")
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_the_messages_name_a_job_as_it_must_be_typed_here(remote: Remote, call: Call) -> None:
    _, out, said = remote.run("-n", "1", "--", "sh", "-c", 'echo "called: $GPUTUI_CALLED"')
    (job,) = remote.known()
    assert f"`gputui jobs attach {remote.name}:{job.id}`" in said
    assert out == b"called: \n"
    for action in ("attach", "wait", "log", "stop"):
        unknown = call("jobs", action, f"{remote.name}:zzzz").refused(2)
        assert f"`gputui jobs --hosts {remote.name}`" in unknown


def test_ctrl_c_reaches_the_command(remote: Remote) -> None:
    script = "trap 'echo ca''ught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    with remote.start("--directory", ".", "-n", "1", "--", "sh", "-c", script) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"caught\n"
        assert process.wait(60) == 5


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["run", "attach"])
def test_three_ctrl_c_leave_a_job_that_does_not_hear_them(remote: Remote, call: str) -> None:
    ignores = ("-n", "1", "--", "sh", "-c", "trap '' INT; echo ready; exec sleep 600")
    if call == "attach":
        remote.run("--detach", *ignores)
        words = ["jobs", "attach", f"{remote.name}:{remote.known()[0].id}"]
    else:
        words = ["run", "--on", remote.name, "--directory", ".", *ignores]
    with subprocess.Popen(
        [*GPUTUI, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=remote.environ,
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None)
            assert process.returncode == 130
            assert process.stderr is not None
            assert remote.name in process.stderr.read().decode().splitlines()[-1]
        finally:
            process.kill()
    assert remote.state() == "running"


def test_a_client_that_is_killed_leaves_the_job_running(remote: Remote, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with remote.start(
        "--directory", ".", "-n", "1", "--", "sh", "-c", f"echo ready; read x < {gate}"
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.kill()
    assert remote.state() == "running"
    gate.write_text("go\n")
    until(lambda: remote.state() == "done")


@pytest.mark.thorough
def test_a_client_that_is_killed_at_any_moment_leaves_a_whole_job_or_none(remote: Remote) -> None:
    drawn = random.Random(29)
    for words in ((), ("--detach",)):
        with remote.start("--directory", ".", *words, "-n", "2", "--", "true") as process:
            try:
                process.wait(drawn.uniform(0.1, 1.2))
            except subprocess.TimeoutExpired:
                process.kill()
    # Each job that has started has ended, and no devices remain held.
    until(lambda: {job.state for job in remote.known()} <= {"done"})
    until(lambda: remote.run("-n", "2", "--", "true")[0] == 0)


@pytest.mark.thorough
def test_a_client_that_is_killed_in_line_leaves_no_waiter(remote: Remote, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    remote.run("--detach", "-n", "2", "--", "sh", "-c", f"read x < {gate}")
    with remote.start("--directory", ".", "--wait", "-n", "1", "--", "true") as process:
        until(lambda: len(remote.known()) == 2 and remote.state() == "waiting")
        process.kill()
    until(lambda: remote.state() == "stopped")
    gate.write_text("go\n")


@pytest.mark.thorough
def test_of_three_who_want_the_same_two_devices_one_gets_them(remote: Remote, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    statuses: list[int] = []

    def one() -> None:
        statuses.append(remote.run("--detach", "-n", "2", "--", "sh", "-c", f"read x < {gate}")[0])

    racers = [threading.Thread(target=one) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    # This assertion comes before the gate is opened: without a reader the write would block for ever.
    assert sorted(statuses) == [0, 4, 4]
    gate.write_text("go\n")


@pytest.mark.thorough
@pytest.mark.usefixtures("terminals_there")
def test_on_a_terminal_the_job_is_in_it(remote: Remote) -> None:
    shown = interrupted_there(remote.name, 1, remote.environ)
    assert f"gputui jobs attach {remote.name}:" in "".join(shown.splitlines()), "the terminal breaks lines"


def test_anywhere_is_the_best_of_the_boxes(
    boxes: SshBoxes, remote: Remote, tmp_path: Path, call: Call
) -> None:
    boxes.add_dead("gone")
    file = tmp_path / "config" / "gputui" / "config.toml"
    file.write_text(f'[hosts]\nboxes = ["gone", "{remote.name}"]\nconnect_timeout = 5\n')
    ended = call("run", "--on", "anywhere", "--detach", "--directory", ".", "-n", "2", "--", "true")
    assert ended.status == 0 and ended.out.startswith(f"{remote.name}:") and "gone" in ended.err
    assert call("run", "--on", "anywhere", "--detach", "-n", "3", "--", "true").status == 4
    call("run", "--on", "anywhere", "--gpus", "0", "--", "true").refused(2)
    # The devices that the command itself requests count, as in `run`.
    assert call("run", "--on", "anywhere", "--detach", "--", "vllm", "serve", "m", "-tp", "4").status == 4
    call("run", "--on", "anywhere", "--", "env", "CUDA_VISIBLE_DEVICES=0", "true").refused(2)


@pytest.mark.thorough
def test_ctrl_c_ends_what_only_looks_at_a_job_and_not_the_job(remote: Remote) -> None:
    remote.run("--detach", "-n", "1", "--", "sh", "-c", "echo re''ady; exec sleep 600")
    argv = [*GPUTUI, "jobs", "log", "-f", f"{remote.name}:{remote.known()[0].id}"]
    with subprocess.Popen(
        argv, env=remote.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as looks:
        assert looks.stdout is not None
        assert looks.stdout.readline() == b"ready\n"
        looks.send_signal(signal.SIGINT)
        assert looks.wait(30) == 130
    assert remote.state() == "running"


@each_row(
    "words",
    [("--on", "-oX=1"), ("--on", "a,b"), ("--on", "a", "--demo"), ("--on", "a", "--attach", "--detach")],
)
def test_what_cannot_be_meant_is_refused(call: Call, words: tuple[str, ...]) -> None:
    call("run", *words, "-n", "1", "--", "true").refused(2)


@pytest.mark.parametrize("action", ["log", "show"])
def test_what_a_box_says_of_a_job_does_nothing_to_the_terminal(remote: Remote, action: str) -> None:
    hostile = r"\033]0;title\007\033]52;c;aGVsbG8=\007\033[2J\033[6n\033[99Aend\302\233"
    (remote.home / "bin" / "gputui").write_text(
        f"#!/bin/sh\nprintf '{hostile}\\n'\nprintf '{hostile}\\n' >&2\n"
    )
    terminal = Terminal([*GPUTUI, "jobs", action, f"{remote.name}:x1"], remote.environ | {"TERM": "xterm"})
    try:
        assert terminal.end() == 0
        assert terminal.raw.count(b"end") == 2
        assert b"\x1b" not in terminal.raw.replace(b"\x1b[0m", b"") and b"\x9b" not in terminal.raw
    finally:
        terminal.close()


@pytest.mark.parametrize("said", ['x1; rm -rf "$HOME"', "$(id)", "x1\nx2", "x" * 5000, "", "x\u05d01"])
@pytest.mark.parametrize("words", [("run", "--detach", "-n", "1", "--on"), ("jobs", "rerun")])
def test_what_is_no_id_of_a_job_is_none(
    remote: Remote, call: Call, words: tuple[str, ...], said: str
) -> None:
    """Scripts build commands from the printed id, and people from the message."""
    (remote.home / "bin" / "gputui").write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(said)}\n")
    place = (f"{remote.name}:x1",) if words[0] == "jobs" else (remote.name, "--", "true")
    message = call(*words, *place).refused(3)
    assert remote.name in message and (said == "" or said not in message)


@each_row("words", [("forget", "--all-ended"), ("stop", "--signal=KILL"), ("show", "--json")])
def test_no_id_of_a_job_is_an_option_there(call: Call, words: tuple[str, str]) -> None:
    """A script may have taken it from a list of others; `forget --all-ended` removes every job."""
    assert "--" not in call("jobs", words[0], f"gpu1:{words[1]}").refused(2).partition(";")[0]


@pytest.mark.thorough
def test_a_log_of_a_box_that_cannot_be_written_is_one_line(remote: Remote, tmp_path: Path) -> None:
    """As for a local job: the disk, or the permitted file size, is full."""
    (remote.home / "bin" / "gputui").write_text("#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' x\n")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    for file, before in ((tmp_path / "out", limit), (Path("/dev/full"), None)):
        with file.open("wb") as out:
            done = subprocess.run(
                [*GPUTUI, "jobs", "log", f"{remote.name}:x1"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                env=remote.environ,
                check=False,
                preexec_fn=before,
            )
        assert done.returncode == 1 and done.stderr.startswith(b"gputui: cannot write: ")
        assert done.stderr.count(b"\n") == 1


def test_jobs_of_a_box_are_listed_and_acted_on_from_here(
    boxes: SshBoxes, remote: Remote, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    boxes.add_dead("gone")
    remote.run("--detach", "--name", "night", "-n", "1", "--", "sh", "-c", "echo hello; exit 4")
    until(lambda: remote.state() == "failed")
    (job,) = remote.jobs()
    found = call("jobs", "--hosts", f"gone,{remote.name}", "--json").json["boxes"]
    assert [each["host"] for each in found] == ["gone", remote.name]
    assert found[0]["error"] and found[1]["jobs"] == [job]
    listed = call("jobs", "--hosts", f"gone,{remote.name}").text
    assert job["id"] in listed and "gone" in listed
    assert call("jobs", "--hosts", "gone").status == 3
    there = f"{remote.name}:{job['id']}"
    assert call("jobs", "log", there).text == "hello\n"
    assert call("jobs", "log", "-n", "1", f"{remote.name}:night").text == "hello\n"
    assert call("jobs", "wait", there).status == 4
    attached = call("jobs", "attach", there)
    assert (attached.status, attached.out) == (4, "hello\n")
    assert job["id"] in call("jobs", "show", there).text
    again = call("jobs", "rerun", there)
    assert again.status == 0 and again.out.startswith(f"{remote.name}:") and len(remote.known()) == 2
    assert call("jobs", "stop", f"{remote.name}:nothing").status == 2
    call("jobs", "log", "gone:x").refused(3)
    until(lambda: remote.state() == "failed")
    assert call("jobs", "forget", there).status == 0 and len(remote.known()) == 1
    for words in (("stop", there, "abcd"), ("log", "-oX:1"), ("--hosts", "a", "log", "b")):
        assert call("jobs", *words).status == 2


@pytest.mark.thorough
def test_a_box_that_is_sent_gputui_runs_and_queues_as_any_other(
    remote: Remote, no_packages: str, tmp_path: Path
) -> None:
    (remote.home / "bin" / "gputui").unlink()
    file = remote.home.parent / f"{remote.name}.env"
    file.write_text(f"{file.read_text()}\nexport PATH={no_packages}\n")
    words = ("--wait", "--window", "0", "-n", "1", "--", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
    status, out, _ = remote.run(*words)
    assert status == 0 and out.endswith(b"\n0\n")
    script = tmp_path / "train.sh"
    script.write_text("echo from a script\n")
    assert remote.run("-n", "1", "--", "sh", str(script))[:2] == (0, b"from a script\n")


def _noted(program: Path, notes: Path) -> None:
    """Make the script `program` write its arguments to `notes` first."""
    first, _, rest = program.read_text().partition("\n")
    program.write_text(f'{first}\nprintf "%s\\n" "$*" >>{shlex.quote(str(notes))}\n{rest}')


@pytest.mark.parametrize("how", ["alone", "detached", "rerun", "from the screen"])
def test_no_command_line_here_or_there_has_a_variable_of_the_command(
    boxes: SshBoxes, remote: Remote, tmp_path: Path, how: str
) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec {shlex.quote(str(boxes.path / "ssh"))} "$@"\n')
    ssh.chmod(0o755)
    remote.environ["PATH"] = f"{ssh.parent}:{remote.environ['PATH']}"
    _noted(ssh, tmp_path / "here")
    _noted(remote.home / "bin" / "gputui", tmp_path / "there")
    variable, command = "HANDED=over-from-here", ("sh", "-c", 'echo "$HANDED" >given')
    words = ("--env", variable, "--directory", str(remote.home), "-n", "1")
    if how == "from the screen":
        options = LaunchOptions(
            command=command, directory=str(remote.home), additions=(("HANDED", "over-from-here"),)
        )
        said, good = start_detached(
            remote.name, LaunchRequest(options, DeviceRequest(count=1)), remote.environ
        )
        assert good, said
    elif how == "rerun":
        status, out, said = remote.run(
            "--detach", "-q", "--directory", str(remote.home), "-n", "1", "--", *command
        )
        assert status == 0, said
        words = ("jobs", "rerun", out.decode().strip(), "--env", variable)
        subprocess.run([*GPUTUI, *words], env=remote.environ, check=True, timeout=60)
    else:
        more = ("--detach",) if how == "detached" else ()
        with remote.start(*more, *words, "--", *command) as process:
            assert process.wait(60) == 0, process.stderr and process.stderr.read()
    until(
        lambda: (remote.home / "given").exists() and (remote.home / "given").read_text() == "over-from-here\n"
    )
    for side in ("here", "there"):
        seen = (tmp_path / side).read_text()
        assert seen and "over-from-here" not in seen, seen
