"""`gputui run --detach` and `gputui jobs`: results, messages and statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.cli.jobs_text import document
from gputui.cli.jobs_text import facts as facts_of
from gputui.inventory.columns import printed
from gputui.inventory.job import Job, place_in_list
from gputui.jobs.columns import how_long, job_columns
from gputui.jobs.process_tree import alive
from gputui.jobs.rerun import demo_of
from gputui.jobs.store import all_jobs, find_job, stored
from messages import lines_of, only_warning
from table_tests import each_row
from unit.builders import box
from unit.calling import Call
from unit.jobs_support import Desk, command, desk_at, ended, kill_supervisor, says, until

RUN = ("run", "--demo", "dgx-1", "--gpus", "5,4", "--detach")


def table(jobs: list[Job], now: float, width: int | None = None) -> list[str]:
    return printed(job_columns("id name devices state status ran ended command", now), jobs, width)


NO_PROGRAM = "there is no program 'no-such-program' in PATH; activate its environment or give a path"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        monkeypatch.setenv("XDG_STATE_HOME", made.environ["XDG_STATE_HOME"])
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
        yield made


# run --detach


def test_run_detach_prints_the_id_and_says_what_was_started(call: Call, desk: Desk) -> None:
    started = call(*RUN, "--name", "llama", "--", "/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 3")
    (job,) = all_jobs(desk.environ)
    assert (started.status, started.out) == (0, f"{job.id}\n")
    assert f"gputui: {job.line}\n" in started.err
    assert f"`gputui jobs log -f {job.id}` follows it" in started.err
    assert (job.name, [device.index for device in job.devices]) == ("llama", [5, 4])
    assert ended(job).log.read_text() == "5,4\n"


def test_a_job_of_a_demo_is_in_the_list_is_marked_there_and_stays_on_the_demo(call: Call, desk: Desk) -> None:
    real = ended(desk.sh("true"))
    call(*RUN, "--", "true")
    (job,) = (ended(each) for each in all_jobs(desk.environ) if each.id != real.id)
    rows = {line.split()[0]: line for line in call("jobs").out.splitlines()}
    assert "5,4 (demo)" in rows[job.id] and "demo" not in rows[real.id]
    assert "5,4 (demo)" in call("jobs", "show", job.id).out
    assert "--demo=dgx-1" in call("jobs", "show", "--command", job.id).out
    only = call("jobs", "--demo", "dgx-1").out.splitlines()
    assert [line.split()[0] for line in only[1:]] == [job.id]
    assert job.id not in call("jobs", "--demo").out
    assert call("jobs", "--demo", "full").out == ""
    again = call("jobs", "rerun", job.id)
    assert (again.status, demo_of(ended(find_job(again.out.strip(), stored(desk.environ))))) == (0, "dgx-1")


@pytest.mark.parametrize("action", ["log", "attach", "wait", "show"])
def test_without_an_id_the_only_job_is_shown_else_the_only_one_that_runs(
    call: Call, desk: Desk, action: str
) -> None:
    assert call("jobs", action).status == 2, "there is none"
    first = ended(desk.sh("echo first"))
    assert call("jobs", action).out == call("jobs", action, first.id).out
    ended(desk.sh("echo second"))
    several = call("jobs", action)
    assert several.status == 2 and several.out == ""
    assert first.id in several.err and "second" in several.err, "they are listed"
    (example,) = re.findall("`gputui (jobs .*)`", several.err)
    assert call(*example.split()).status == 0
    if action in ("log", "show"):
        running = desk.sh("echo third; exec sleep 300")
        says(running, "third")
        assert call("jobs", action).out == call("jobs", action, running.id).out


@pytest.mark.parametrize("action", ["stop", "rerun"])
def test_what_changes_a_job_takes_none_without_its_id(call: Call, desk: Desk, action: str) -> None:
    job = desk.sh("exec sleep 300")
    ended_with = call("jobs", action)
    assert ended_with.status == 2 and f"`gputui jobs {action} {job.id}`" in ended_with.err
    assert not find_job(job.id, stored(desk.environ)).over and len(all_jobs(desk.environ)) == 1


def test_stop_names_no_job_that_has_ended(call: Call, desk: Desk) -> None:
    for _ in range(2):
        job = ended(desk.sh("true"))
        said = call("jobs", "stop")
        assert said.status == 2 and job.id not in said.err and "runs or waits" in said.err


def test_list_is_the_list(call: Call, desk: Desk) -> None:
    ended(desk.sh("true"))
    assert call("jobs", "list").out == call("jobs").out != ""
    assert (
        call("jobs", "list", "--json").out == call("jobs", "--json", "list").out == call("jobs", "--json").out
    )


def test_the_line_that_is_printed_is_the_line_that_runs(call: Call, desk: Desk) -> None:
    command = ("--", "/bin/sh", "-c", "env | grep -E '^(CUDA|PYTHON)' | sort")
    line = call(*RUN, "--dry-run", *command).line
    assert "PYTHONUNBUFFERED=1 /bin/sh" in line and all_jobs(desk.environ) == []
    call(*RUN, *command)
    job = ended(all_jobs(desk.environ)[0])
    assert job.line == line
    by_hand = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=True)
    assert job.log.read_text() == by_hand.stdout


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        ("no-such-program", 127, f"gputui: {NO_PROGRAM}"),
        ("/", 126, "gputui: cannot start '/': Permission denied"),
    ],
)
def test_run_detach_tells_what_could_not_be_started(
    call: Call, desk: Desk, program: str, status: int, message: str
) -> None:
    assert call(*RUN, "-q", "--", program).err.splitlines()[-1] == message
    (job,) = all_jobs(desk.environ)
    waited = call("jobs", "wait", job.id)
    assert (waited.status, waited.err) == (status, f"{message}\n")
    assert message.removeprefix("gputui: ") in call("jobs").text


def test_run_detach_without_a_place_for_records_is_126(
    call: Call, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = desk.folder / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    refused = call(*RUN, "-q", "--", "true")
    assert refused.status == 126 and str(file) in refused.err.splitlines()[-1]


@pytest.mark.usefixtures("desk")
def test_a_name_is_for_a_job(call: Call) -> None:
    assert "--detach" in call("run", "--demo", "--name", "x", "--", "true").refused(2)
    assert "not a valid job name" in call("run", "--demo", "--detach", "--name", "", "--", "true").refused(2)


# jobs


@pytest.mark.usefixtures("desk")
def test_no_jobs_is_a_line_that_says_how_to_start_one(call: Call) -> None:
    told = call("jobs")
    assert (told.status, told.out) == (0, "")
    assert len(lines_of(told.err)) == 1 and "`gputui run --detach " in told.err
    assert call("jobs", "--json").json["jobs"] == []


def test_the_list_has_a_line_a_job_in_the_order_of_the_screen(call: Call, desk: Desk) -> None:
    call(*RUN, "--name", "llama", "--", "/bin/sh", "-c", "exit 3")
    desk.sh("kill -TERM $$")
    gate = desk.gate()
    desk.sh(gate.wait)
    first, second, third = all_jobs(desk.environ)
    ended(first), ended(second)
    # What runs comes first, then what ended last.
    order = [job.id for job in sorted(all_jobs(desk.environ), key=place_in_list)]
    assert order[0] == third.id
    lines = [line.split() for line in call("jobs").text.splitlines()]
    assert lines[0] == ["ID", "NAME", "GPU", "STATE", "STATUS", "RAN", "ENDED", "COMMAND"]
    assert [line[0] for line in lines[1:]] == order
    found = {line[0]: line for line in lines[1:]}
    assert found[first.id][1:6] == ["llama", "5,4", "(demo)", "failed", "3"]
    assert found[second.id][1:4] == ["CPU", "failed", "SIGTERM"]
    assert found[third.id][1:4] == ["CPU", "running", "–"]
    gate.open()


def test_the_time_in_line_is_none_of_the_time_that_a_job_ran(desk: Desk) -> None:
    job = replace(ended(desk.sh("exit 0")), started=1000.0, waits=2, taken=1037.0, ended=1057.0)
    row = table([job], 1060.0)[1].split()
    assert row[4] == "20s" and how_long(job, 1060.0) == "20s", "as on the screen"


@each_row(
    ("waits", "taken", "moments"),
    [(None, None, ["created", "started"]), (2, None, ["queued"]), (2, 1037.0, ["queued", "started"])],
)
def test_who_waited_was_queued_first_and_started_when_the_command_did(
    waits: int | None, taken: float | None, moments: list[str]
) -> None:
    job = Job(
        id="c3x5",
        created=1000.0,
        started=1000.0 if waits is None else 1001.0,
        waits=waits,
        taken=taken,
        state="running",
    )
    rows = dict(line.split(None, 1) for line in facts_of(job, box()))
    assert [each for each in rows if each in ("created", "queued", "started")] == moments
    (told,) = document([job])["jobs"]
    assert (told["started"] is None) == ("started" not in rows)
    assert waits is None or told["started"] != told["created"]


@each_row(
    ("facts", "state"),
    [
        ({"state": "waiting"}, ["waiting", "1m"]),
        ({"state": "stopped", "ended": 1060.0}, ["stopped,", "waited", "1m"]),
        ({"state": "failed", "status": 124, "ended": 1060.0}, ["gave", "up,", "waited", "1m"]),
    ],
)
def test_the_time_in_line_is_told_with_the_state_and_a_job_that_never_began_has_not_run(
    facts: dict[str, Any], state: list[str]
) -> None:
    job = Job(id="c3x5", created=1000.0, argv=("x",), waits=1, **facts)
    for names in ("id state ran", "id outcome ran"):
        _, row = printed(job_columns(names, 1060.0), [job])
        told = row.split()
        assert told[-1] == "–" and told[-1 - len(state) : -1] == state
        if job.over:
            began = replace(job, started=1000.0, taken=1030.0)
            assert printed(job_columns(names, 1060.0), [began])[1].split()[-1] == "30s"


def test_the_table_keeps_to_the_width_of_a_terminal(desk: Desk) -> None:
    job = ended(desk.sh("exit 0 # " + "x" * 300))
    lines = table([job], time.time(), 60)
    assert all(len(line) <= 60 for line in lines) and lines[1].endswith("…")
    assert any("x" * 300 in line for line in table([job], time.time()))


def test_a_hostile_command_does_nothing_to_the_screen(call: Call, desk: Desk) -> None:
    ended(desk.start("/bin/echo", "\x1b]0;owned\x07", "a\nb", "caf\udce9"))
    text = call("jobs").text
    assert len(text.splitlines()) == 2 and all(line.isprintable() for line in text.splitlines())


def test_the_json_has_everything_and_is_ascii(call: Call, desk: Desk) -> None:
    call(*RUN, "--name", "llama", "--", "/bin/sh", "-c", "exit 3", "caf\udce9")
    job = ended(all_jobs(desk.environ)[0])
    told = call("jobs", "--json")
    assert told.line.isascii() and told.json["schema"] == 1
    (entry,) = told.json["jobs"]
    assert (entry["id"], entry["name"], entry["state"], entry["status"]) == (job.id, "llama", "failed", 3)
    assert entry["environment"]["CUDA_VISIBLE_DEVICES"] == "5,4"
    assert [device["index"] for device in entry["devices"]] == [5, 4]
    assert entry["started"].endswith("+00:00") and entry["log"] == str(job.log)
    assert entry["peak_process_memory"] == job.peak_process_memory
    assert entry["argv"][-1] == "caf\udce9" and entry["signal"] is None


def test_a_broken_record_is_a_warning_and_no_traceback(call: Call, desk: Desk) -> None:
    ended(desk.sh("true"))
    (desk.jobs / "k3f9").mkdir()
    (desk.jobs / "k3f9" / "job.json").write_text("{")
    told = call("jobs")
    assert told.status == 0 and len(told.out.splitlines()) == 2
    assert only_warning(told.err).startswith("k3f9 ") and "job.json: not JSON" in told.err
    assert "is not a readable job" in call("jobs", "log", "k3f9").refused(2)
    assert call("jobs", "forget", "k3f9").err == "gputui: removed 1 job\n"
    assert call("jobs").err == ""


@pytest.mark.parametrize(
    "words",
    [
        ("log", "nope"), ("wait", "nope"), ("stop", "nope"), ("forget", "nope"), ("forget",), ("log",),
        ("stop",), ("wait", "a", "b"), ("nonsense",), ("log", "-n", "x", "y"),
        ("stop", "--grace", "-1", "x"), ("stop", "--grace", "nan", "x"), ("stop", "--signal", "NOPE", "x"),
        ("--", "true"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("desk")
def test_a_wrong_call_is_one_line(call: Call, words: tuple[str, ...]) -> None:
    call("jobs", *words).refused(2)


# jobs wait


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_wait_ends_with_the_jobs_own_status(call: Call, desk: Desk, script: str, status: int) -> None:
    job = desk.sh(script)
    waited = call("jobs", "wait", job.id)
    assert (waited.status, waited.out, waited.err) == (status, "", "")


def test_wait_for_a_job_whose_end_is_not_known_says_so(call: Call, desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(gate.wait)
    kill_supervisor(job)
    gate.open()
    refused = call("jobs", "wait", job.id).refused(1)
    assert job.id in refused and "status" in refused


def test_ctrl_c_ends_the_wait_and_not_the_job(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(f"{gate.wait}; exit 5")
    with subprocess.Popen([sys.executable, "-m", "gputui", "jobs", "wait", job.id]) as waiting:
        until(lambda: _waits(waiting.pid))
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(30) == 130
    assert alive(command(job))
    gate.open()
    assert ended(job).status == 5


def _waits(pid: int) -> bool:
    """Whether a process has a descriptor of another one, in order to wait for it."""
    try:
        return any("pidfd" in os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())  # noqa: PTH115
    except OSError:
        return False


# jobs log


def test_the_log_comes_out_byte_for_byte(desk: Desk) -> None:
    job = ended(desk.sh(r"printf 'a\000\377\033]0;x\007\r\nend'"))
    done = subprocess.run(
        [sys.executable, "-m", "gputui", "jobs", "log", job.id], capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"a\0\xff\x1b]0;x\x07\r\nend", b"")


def test_the_log_can_be_had_as_it_reads(call: Call, desk: Desk) -> None:
    job = ended(desk.sh(r"printf 'start\n\r 10%%|#  |\r100%%|###|\n\033[31mred\033[0m\n'"))
    assert call("jobs", "log", "--plain", job.id).text == "start\n100%|###|\nred\n"
    assert call("jobs", "log", "--plain", "-n", "1", job.id).line == "red"
    assert "--follow" in call("jobs", "log", "--plain", "-f", job.id).refused(2)


def test_the_last_lines_of_a_log_can_be_had(call: Call, desk: Desk) -> None:
    job = ended(desk.sh("seq 100"))
    assert call("jobs", "log", "-n", "2", job.id).text == "99\n100\n"


def test_a_log_is_followed_until_its_job_has_ended(desk: Desk) -> None:
    gate = desk.gate()
    job = desk.sh(f"echo one; {gate.wait}; echo two; exit 9")
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "jobs", "log", "-f", job.id], stdout=subprocess.PIPE
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"one\n"
        gate.open()
        assert following.stdout.read() == b"two\n"
        assert following.wait(30) == 0


def test_a_reader_of_a_log_that_goes_away_is_no_error(desk: Desk) -> None:
    job = ended(desk.sh("yes | head -n 200000"))
    line = f"{sys.executable} -m gputui jobs log {job.id} | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"y\n", b"")


# jobs stop, jobs forget


def test_stop_says_what_it_did(call: Call, desk: Desk) -> None:
    jobs = [desk.sh("echo ready; exec sleep 100") for _ in range(2)]
    for job in jobs:
        says(job, "ready")
    told = call("jobs", "stop", *(job.id for job in jobs))
    assert (told.status, told.out) == (0, "")
    for job, line in zip(jobs, told.err.splitlines(), strict=True):
        assert line.startswith(f"gputui: job {job.id}: SIGTERM; it ended after ")
        assert call("jobs", "wait", job.id).status == 143
    assert "has ended already" in call("jobs", "stop", jobs[0].id).err


@pytest.mark.parametrize("name", ["INT", "sigint", "2"])
def test_stop_takes_a_signal_and_a_grace(call: Call, desk: Desk, name: str) -> None:
    job = desk.sh("trap '' INT TERM; echo ready; while :; do sleep 1; done")
    says(job, "ready")
    told = call("jobs", "stop", "--signal", name, "--grace", "0.1", job.id)
    assert told.status == 0 and "SIGINT, and SIGKILL for " in told.err


def test_forget_removes_what_has_ended(call: Call, desk: Desk) -> None:
    gate = desk.gate()
    running = desk.sh(gate.wait)
    for _ in range(3):
        ended(desk.sh("true"))
    assert "has not ended" in call("jobs", "forget", running.id).refused(2)
    assert call("jobs", "forget", "--all-ended").err == "gputui: removed 3 jobs\n"
    assert [job.id for job in all_jobs(desk.environ)] == [running.id]
    gate.open()


def test_the_jobs_of_a_demo_are_listed_and_shown_and_nothing_else_is_done_with_them(call: Call) -> None:
    assert [line.split()[0] for line in call("jobs", "--demo").out.splitlines()[1:]] == ["m6u5", "k3f9"]
    whole = call("jobs", "log", "m6u5", "--demo")
    assert whole.status == 0 and len(whole.out.splitlines()) > 10
    (line,) = call("jobs", "log", "m6u5", "-n", "1", "--demo").out.splitlines()
    assert line.startswith("step ")
    assert call("jobs", "log", "k3f9", "--demo=shared", "--json").json["lines"]
    told = dict(line.split(None, 1) for line in call("jobs", "show", "k3f9", "--demo").text.splitlines())
    assert "name" not in told and re.fullmatch(r"[-0-9]{10} [0-9]{2}:[0-9]{2}:[0-9]{2}", told["started"])
    (heading, *_) = call("jobs", "--demo").out.splitlines()
    assert "NAME" not in heading and "COMMAND" in heading
    for words in (("stop", "m6u5"), ("wait", "m6u5"), ("attach", "m6u5"), ("forget", "k3f9")):
        assert "example" in call("jobs", *words, "--demo").refused(2)
    call("jobs", "stop", "m6", "--demo").refused(2)
    call("jobs", "log", "m6u5").refused(2)
    call("jobs", "log", "m6u5", "--demo", "full").refused(2)
    assert call("jobs", "forget", "--all-ended", "--demo").status == 0


# jobs rerun, jobs show


def test_rerun_starts_the_same_again_on_the_best_free_devices(call: Call, desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    script = "pwd; echo $COLOUR on $CUDA_VISIBLE_DEVICES"
    launch = ("--env", "COLOUR=blue", "--directory", str(tmp_path / "there"))
    call("run", "-q", "--demo", "idle", "--gpus", "1,0", "--detach", *launch, "--", "sh", "-c", script)
    (first,) = all_jobs(desk.environ)
    assert ended(first).log.read_text() == f"{tmp_path}/there\nblue on 1,0\n"
    told = call("jobs", "rerun", first.id, "--demo", "idle")
    assert told.status == 0 and "CUDA_VISIBLE_DEVICES=0,1" in told.err
    second = next(job for job in all_jobs(desk.environ) if job.id == told.out.strip())
    assert ended(second).log.read_text() == f"{tmp_path}/there\nblue on 0,1\n"
    # An added option overrides the recorded one.
    line = call("jobs", "rerun", second.id, "--demo", "idle", "-n", "1", "--dry-run").out
    assert "CUDA_VISIBLE_DEVICES=0 " in line and "COLOUR=blue" in line
    assert call("jobs", "rerun", second.id, "--demo", "idle", "--gpus", "9").status != 0
    assert len(all_jobs(desk.environ)) == 2


def test_show_says_what_a_job_is_and_with_command_how_to_start_it_again(call: Call, desk: Desk) -> None:
    call(*RUN, "--name", "llama", "--launcher", "python", "--", "sh", "-c", "exit 3")
    job = ended(all_jobs(desk.environ)[0])
    facts = dict(line.split(None, 1) for line in call("jobs", "show", "llama").text.splitlines())
    assert (facts["id"], facts["state"], facts["status"]) == (job.id, "failed", "3")
    assert "largest process" in call("jobs", "show", "llama").text
    assert facts["devices"] == "5,4 (demo)" and facts["log"] == str(job.log)
    assert call("jobs", "show", job.id, "--command").line == (
        "gputui run -n 2 --demo=dgx-1 --launcher python -- sh -c 'exit 3'"
    )


def test_a_rerun_keeps_the_name_unless_another_is_given(call: Call, desk: Desk) -> None:
    call(*RUN, "--name", "llama", "--launcher", "python", "--", "sh", "-c", "exit 3")
    ended(all_jobs(desk.environ)[0])
    call("jobs", "rerun", "llama")
    call("jobs", "rerun", "llama", "--name", "alpaca")
    jobs = [ended(job) for job in all_jobs(desk.environ)]
    assert sorted(str(job.name) for job in jobs) == ["alpaca", "llama", "llama"]


def test_what_a_job_writes_into_its_own_record_does_not_reach_the_terminal(call: Call, desk: Desk) -> None:
    job = ended(desk.start("true"))
    (file,) = (each for each in job.folder.iterdir() if each.name == "job.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "line": "\x1b]0;x\x07\nid  b\u202e"}))
    shown = call("jobs", "show", job.id).out
    assert shown.replace("\n", "").isprintable() and "\nid  b" not in shown


def test_the_command_that_starts_a_job_again_is_plain_text_that_a_shell_reads_as_it_was(
    call: Call, desk: Desk
) -> None:
    words = ("", "a\nb", "\x1b]0;x\x07", "\udcff", "it's", "$(id)", "-n", "--")
    job = ended(desk.start("printf", "<%s>", *words))
    told = call("jobs", "show", "--command", job.id).line
    assert told.isprintable()
    echo = told.replace("gputui run --gpus none -- ", "", 1)
    again = subprocess.run(["bash", "-c", echo], capture_output=True, check=True)
    assert again.stdout == job.log.read_bytes() and b"<\xff>" in again.stdout


def test_a_job_without_launch_options_is_rerun_as_it_ran(call: Call, desk: Desk) -> None:
    job = ended(desk.start("echo", "a b"))
    assert call("jobs", "show", "--command", job.id).line == "gputui run --gpus none -- echo 'a b'"
