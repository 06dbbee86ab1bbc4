"""`run --on A,B` over a real ssh: torchrun on both boxes, started, followed and stopped from one place."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from box_pair import GPUTUI, BoxPair
from e2e.terminal import Terminal
from ssh_boxes import PROGRAMS, SshBoxes
from table_tests import each_row
from unit.calling import Call
from unit.jobs_support import until
from unit.older_gputui import lacks_if_free

needs_ssh = pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")


def words(launch_line: str) -> dict[str, str]:
    """The options of torchrun in a line."""
    return dict(re.findall(r"--([a-z-]+)=(\S+)", launch_line))


@pytest.fixture
def pair(
    boxes: SshBoxes, tmp_path: Path, nvml_library: Path, request: pytest.FixtureRequest
) -> Iterator[BoxPair]:
    made = BoxPair(boxes, tmp_path, nvml_library, f"pair-{abs(hash(request.node.nodeid))}")
    made.torchrun("true")
    yield made
    made.close()


TORCHRUN = ("--", "torchrun", "train.py")


@needs_ssh
def test_both_start_on_devices_of_their_own_and_each_line_has_its_box(pair: BoxPair) -> None:
    pair.torchrun('echo "$CUDA_VISIBLE_DEVICES"; echo "$@"')
    status, out, said = pair.run("-n", "2", *TORCHRUN)
    assert status == 0, said
    told = {name: [each for each in out if each.startswith(f"{name}: ")] for name in pair.names}
    assert sum(map(len, told.values())) == len(out) == 4
    first, second = (words(lines[1]) for lines in told.values())
    assert first["rdzv-id"] == second["rdzv-id"] and first["rdzv-endpoint"] == second["rdzv-endpoint"]
    assert (first["rdzv-conf"], second["rdzv-conf"]) == ("is_host=true", "is_host=false")
    assert first["local-addr"] == second["local-addr"] == "127.0.0.1"
    assert first["nnodes"] == second["nnodes"] == first["nproc-per-node"] == "2"
    assert all(sorted(lines[0].split(": ")[1]) == [",", "0", "1"] for lines in told.values())
    assert pair.states() == [["done"], ["done"]] and pair.claimed() == [False, False]


@needs_ssh
def test_no_command_line_there_has_a_variable_of_the_command(pair: BoxPair) -> None:
    for home in pair.homes:
        program = home / "bin" / "gputui"
        first, _, rest = program.read_text().partition("\n")
        program.write_text(f'{first}\nprintf "%s\\n" "$*" >>"$HOME/words"\n{rest}')
    pair.torchrun('echo "$HANDED"')
    status, out, said = pair.run("-n", "2", "--env", "HANDED=over-from-here", *TORCHRUN)
    assert (status, len(out)) == (0, 2) and all(line.endswith(": over-from-here") for line in out), said
    words = [(home / "words").read_text() for home in pair.homes]
    assert all(words) and not any("over-from-here" in each for each in words)


@needs_ssh
def test_a_dry_run_prints_both_lines_and_starts_nothing(pair: BoxPair) -> None:
    first, second = pair.names
    on = f"{first}:1,{second}:2"
    status, out, _ = pair.run("--dry-run", "--rendezvous", "head:7", *TORCHRUN, on=on)
    assert status == 0 and tuple(each.partition(":")[0] for each in out) == pair.names
    given = [words(each) for each in out]
    assert given[0]["local-addr"] == "head" and given[1].get("local-addr") != "head"
    assert [(each["rdzv-endpoint"], each["nproc-per-node"]) for each in given] == [
        ("head:7", "1"),
        ("head:7", "2"),
    ]
    assert pair.states() == [[], []] and pair.claimed() == [False, False]
    ran = pair.run("-n", "1", "--rendezvous", "127.0.0.1:7", "--name", "x", *TORCHRUN)[2].splitlines()
    asked = ("--dry-run", "-n", "1", "--rendezvous", "127.0.0.1:7", "--name", "x", *TORCHRUN)
    dry = [each.partition(": ") for each in pair.run(*asked)[1]]
    for name, _, line in dry:
        assert re.sub("rdzv-id=[a-z0-9]+", "", f"gputui: {name}: {line}") in {
            re.sub("rdzv-id=[a-z0-9]+", "", each) for each in ran
        }
    status, out, _ = pair.run("--dry-run", "--gpus", "none", *TORCHRUN)
    assert status == 0 and all("CUDA_VISIBLE_DEVICES= " in each for each in out) and len(out) == 2


@pytest.mark.thorough
@needs_ssh
def test_unless_every_box_has_its_devices_nothing_starts_on_any(pair: BoxPair, boxes: SshBoxes) -> None:
    first, second = pair.names
    status, out, said = pair.run(*TORCHRUN, on=f"{first}:1,{second}:3")
    assert (status, out) == (4, []) and second in said
    boxes.add_dead(f"{first}-gone")
    assert pair.run("-n", "1", *TORCHRUN, on=f"{first},{first}-gone")[:2] == (3, [])
    until(lambda: pair.claimed() == [False, False])
    assert pair.states() == [[], []]


@needs_ssh
def test_who_fails_stops_the_others_and_its_status_counts(pair: BoxPair) -> None:
    pair.torchrun('[ $BOX = 0 ] || exit 7; trap "exit 9" TERM; while :; do sleep 0.05; done')
    status, _, _ = pair.run("-n", "1", *TORCHRUN)
    assert status == 7
    assert pair.states() == [["stopped"], ["failed"]] and pair.claimed() == [False, False]


@pytest.mark.thorough
@needs_ssh
def test_who_ends_without_a_job_stops_the_others(pair: BoxPair) -> None:
    pair.torchrun("while :; do sleep 0.05; done")
    (pair.homes[1] / "bin" / "gputui").write_text(
        """#!/bin/sh\necho '{"devices": [], "address": "127.0.0.1", "port": 1}'\nread -r line\nkill -9 $$"""
    )
    assert pair.run("-n", "1", *TORCHRUN)[0] == 3
    assert [job.state for job in pair.jobs(0)] == ["stopped"]


@pytest.mark.thorough
@needs_ssh
def test_who_cannot_start_leaves_no_other_running(pair: BoxPair) -> None:
    pair.torchrun("while :; do sleep 0.05; done")
    # The file is executable, and only the exec shows that it cannot start.
    (pair.homes[1] / "bin" / "torchrun").write_text("#!/no/such/interpreter\n")
    status, out, said = pair.run("-n", "1", *TORCHRUN)
    assert (status, out) == (127, []) and f"gputui jobs attach {pair.names[0]}:" in said
    assert pair.run("--detach", "-n", "1", *TORCHRUN)[:2] == (127, [])
    assert "running" not in pair.states()[0] and pair.claimed() == [False, False]


@pytest.mark.thorough
@needs_ssh
def test_where_no_job_runs_none_is_said_to_go_on(pair: BoxPair) -> None:
    for home in pair.homes:
        (home / "bin" / "torchrun").write_text("#!/no/such/interpreter\n")
    status, out, said = pair.run("-n", "1", *TORCHRUN)
    assert (status, out) == (127, []) and "attach" not in said


@pytest.mark.thorough
@needs_ssh
def test_what_one_box_lacks_is_told_before_anything_starts_on_any(pair: BoxPair) -> None:
    (pair.homes[0] / "here").mkdir()
    (pair.homes[1] / "bin" / "torchrun").unlink()
    environ = pair.homes[1].parent / f"{pair.names[1]}.env"
    environ.write_text(f"{environ.read_text()}\nexport PATH={pair.homes[1] / 'bin'}:/usr/bin:/bin\n")
    for words, expected in (((), 127), (("--directory", "here"), 126)):
        status, out, said = pair.run(*words, "-n", "1", *TORCHRUN)
        assert (status, out) == (expected, []) and pair.names[1] in said
    (pair.homes[1] / "bin" / "torchrun").touch(0o644)
    assert pair.run("-n", "1", *TORCHRUN)[:2] == (126, [])
    until(lambda: pair.claimed() == [False, False])
    assert pair.states() == [[], []]


@needs_ssh
def test_ctrl_c_reaches_both(pair: BoxPair) -> None:
    pair.torchrun("trap 'echo ca''ught; exit 5' INT; echo re''ady; while :; do sleep 0.05; done")
    with pair.start("-n", "1", *TORCHRUN) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline().decode() for _ in "ab") == [
            f"{n}: ready\n" for n in pair.names
        ]
        process.send_signal(signal.SIGINT)
        assert sorted(process.stdout.readline().decode() for _ in "ab") == [
            f"{n}: caught\n" for n in pair.names
        ]
        assert process.wait(60) == 5


@pytest.mark.thorough
@needs_ssh
def test_three_ctrl_c_leave_jobs_that_do_not_hear_them(pair: BoxPair) -> None:
    pair.torchrun("trap '' INT; echo re''ady; exec sleep 600")
    with pair.start("-n", "1", *TORCHRUN) as process:
        try:
            assert process.stdout is not None
            for _ in "ab":
                process.stdout.readline()
            until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None)
            assert process.stderr is not None
            said = process.stderr.read().decode()
            assert process.returncode == 130, said
            assert f"--hosts {pair.both}" in said
        finally:
            process.kill()
    assert pair.states() == [["running"], ["running"]]


@pytest.mark.thorough
@needs_ssh
def test_a_connection_that_is_lost_stops_no_job(pair: BoxPair, tmp_path: Path) -> None:
    pair.torchrun(f"echo re''ady; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo end")
    with pair.start("-n", "1", *TORCHRUN) as process:
        assert process.stdout is not None
        for _ in "ab":
            process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        until(lambda: not Path(f"/proc/{children[0]}").exists())
        assert pair.states() == [["running"], ["running"]]
        (tmp_path / "go").touch()
        assert process.wait(60) == 255
        assert process.stdout.read().decode().count("end") == 1
    until(lambda: pair.states() == [["done"], ["done"]])


@needs_ssh
def test_a_client_that_is_killed_leaves_both_running(pair: BoxPair, tmp_path: Path) -> None:
    pair.torchrun(f"echo re''ady; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    with pair.start("-n", "1", *TORCHRUN) as process:
        assert process.stdout is not None
        for _ in "ab":
            process.stdout.readline()
        process.kill()
    assert pair.states() == [["running"], ["running"]]
    (tmp_path / "go").touch()
    until(lambda: pair.states() == [["done"], ["done"]])


@pytest.mark.thorough
@needs_ssh
def test_a_client_that_is_killed_at_any_moment_leaves_no_devices_held_for_nobody(pair: BoxPair) -> None:
    drawn = random.Random(7)
    for _ in range(2):
        with pair.start("-n", "2", *TORCHRUN) as process:
            try:
                process.wait(drawn.uniform(0.2, 1.6))
            except subprocess.TimeoutExpired:
                process.kill()
        until(lambda: pair.claimed() == [False, False])
    until(lambda: {state for states in pair.states() for state in states} <= {"done"})


@pytest.mark.thorough
@needs_ssh
def test_who_is_killed_before_all_have_claimed_gives_back_the_devices(pair: BoxPair) -> None:
    (pair.homes[1] / "bin" / "gputui").write_text("#!/bin/sh\nexec cat\n")
    with pair.start("-n", "1", *TORCHRUN) as process:
        until(lambda: pair.claimed()[0])
        process.kill()
    until(lambda: not pair.claimed()[0])
    assert pair.jobs(0) == []


@pytest.mark.thorough
@needs_ssh
def test_a_box_that_has_waited_too_long_for_another_gives_its_devices_back(pair: BoxPair) -> None:
    shorter = "import gputui.cli.run_held as h; h.HELD_FOR = 0.2; from gputui.cli.main import entry; entry()"
    first, second = (home / "bin" / "gputui" for home in pair.homes)
    first.write_text(
        f'#!/bin/sh\n{GPUTUI[0]} -c "{shorter}" "$@"\nstatus=$?\ntouch "$HOME/over"\nexit $status\n'
    )
    # This waits until the connection to the first box has ended here, too: its ssh has the alias as a word of
    # its own.
    alias = f"[{pair.names[0][0]}]{pair.names[0][1:]}"
    waits = (
        f'while [ ! -e "{pair.homes[0]}/over" ] || grep -zqsx "{alias}" /proc/[0-9]*/cmdline;'
        " do sleep 0.02; done"
    )
    second.write_text(f'#!/bin/sh\n{waits}\nexec {" ".join(GPUTUI)} "$@"\n')
    status, out, said = pair.run("-n", "1", *TORCHRUN)
    assert (status, out) == (124, [])
    # One line names the box, and one says that nothing has started.
    assert len(said.splitlines()) == 2 and pair.names[0] in said.splitlines()[0]
    assert pair.states() == [[], []]
    until(lambda: pair.claimed() == [False, False])


@needs_ssh
def test_detached_jobs_are_named_with_their_boxes(pair: BoxPair) -> None:
    status, out, _ = pair.run("--detach", "-n", "1", "--name", "night", *TORCHRUN)
    ids = [f"{name}:{pair.jobs(number)[0].id}" for number, name in enumerate(pair.names)]
    assert (status, out) == (0, ids)


@pytest.mark.thorough
@needs_ssh
def test_an_older_gputui_there_is_sent_ours(pair: BoxPair) -> None:
    program = pair.homes[1] / "bin" / "gputui"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *--held*) echo "gputui: unrecognized arguments: --held" >&2; exit 2;; esac\n'
        + program.read_text().partition("\n")[2]
    )
    pair.torchrun("echo here")
    status, out, _ = pair.run("-n", "1", *TORCHRUN)
    assert status == 0 and sorted(out) == [f"{name}: here" for name in pair.names]


@pytest.mark.thorough
@needs_ssh
def test_one_that_lacks_a_newer_option_is_sent_ours_too(pair: BoxPair) -> None:
    for home in pair.homes:
        lacks_if_free(home / "bin" / "gputui")
    pair.torchrun("echo here")
    status, out, said = pair.run("-n", "1", "--if-free", *TORCHRUN)
    assert status == 0 and sorted(out) == [f"{name}: here" for name in pair.names]
    assert "--if-free" not in said


@pytest.mark.thorough
@needs_ssh
def test_a_progress_bar_on_a_terminal_is_one_line_with_its_box(pair: BoxPair) -> None:
    pair.torchrun(r"[ $BOX = 0 ] || exit 0; printf '10%%\r20%%\r30%%\n\033[1Aup\033]0;title\007\n'")
    terminal = Terminal(
        [*GPUTUI, "run", "--on", pair.both, "--directory", ".", "-n", "1", "-q", *TORCHRUN],
        {**pair.environ, "TERM": "xterm"},
        (100, 20),
    )
    try:
        terminal.until("up")
        assert terminal.end() == 0
        assert f"{pair.names[0]}: 30%" in terminal.text and "10%" not in terminal.text
        assert f"{pair.names[0]}: up" in terminal.text
    finally:
        terminal.close()


@each_row(
    "call_words",
    [
        ("--on", "a,b", "-n", "1", "--", "true"),
        ("--on", "a,b", "-n", "1", "--wait", "--", "torchrun", "x.py"),
        ("--on", "a,b", "--gpus", "0", "--", "torchrun", "x.py"),
        ("--on", "a:1,b:2", "-n", "1", "--", "torchrun", "x.py"),
        ("--on", "a,a", "-n", "1", "--", "torchrun", "x.py"),
        ("--on", "a:0,b", "--", "torchrun", "x.py"),
        ("--on", "a:1", "-n", "1", "--", "torchrun", "x.py"),
        ("--on", "a,anywhere", "-n", "1", "--", "torchrun", "x.py"),
        ("--on", "a,b", "-n", "1", "--nodes", "3", "--rendezvous", "h", "--", "torchrun", "x.py"),
    ],
)
def test_what_several_boxes_cannot_do_is_refused(call: Call, call_words: tuple[str, ...]) -> None:
    call("run", *call_words).refused(2)
