"""`run --on anywhere` over a real ssh: where another job is quicker, the next best box is tried."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from box_pair import BoxPair
from ssh_boxes import PROGRAMS, SshBoxes
from unit.jobs_support import until
from unit.older_gputui import lacks_if_free
from unit.on_a_terminal import interrupted_there

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")


@pytest.fixture
def pair(
    boxes: SshBoxes, tmp_path: Path, nvml_library: Path, request: pytest.FixtureRequest
) -> Iterator[BoxPair]:
    """Two boxes that are equally good, so that the first of the settings is the best."""
    made = BoxPair(boxes, tmp_path, nvml_library, f"any-{abs(hash(request.node.nodeid))}")
    listed = ", ".join(f'"{name}"' for name in made.names)
    file = tmp_path / "config" / "gputui" / "config.toml"
    file.write_text(f"[hosts]\nboxes = [{listed}]\nconnect_timeout = 5\n")
    yield made
    made.close()


def somebody_is_quicker(home: Path) -> None:
    """Have another job take a device of a box just before a call of `run` there takes one."""
    (home / "bin" / "gputui").write_text(
        f"""#!/bin/sh
if [ "$1" = run ]; then
  echo run >> "$HOME/asked"
  [ -e "$HOME/quicker" ] || {sys.executable} -m gputui run --detach -n 1 -- sleep 600 >/dev/null || exit 1
  touch "$HOME/quicker"
fi
exec {sys.executable} -m gputui "$@"
"""
    )


def asked(home: Path) -> int:
    """The number of times that the box was asked to start a command."""
    file = home / "asked"
    return len(file.read_text().split()) if file.exists() else 0


PRINTS = ("--", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"; exit 7')


def test_who_was_too_late_on_the_best_box_gets_the_next_best(pair: BoxPair) -> None:
    somebody_is_quicker(pair.homes[0])
    status, out, said = pair.run("-q", "-n", "2", *PRINTS, on="anywhere")
    assert status == 7 and len(out) == 1 and sorted(out[0][3:].split(",")) == ["0", "1"]
    assert asked(pair.homes[0]) == 1 and pair.states() == [["running"], ["failed"]]
    # One line names the box that was tried, and the next one.
    (line,) = (line for line in said.splitlines() if pair.names[0] in line and pair.names[1] in line)
    assert line.isprintable()


@pytest.mark.thorough
def test_a_detached_job_and_a_dry_run_go_on_to_the_next_box_too(pair: BoxPair) -> None:
    somebody_is_quicker(pair.homes[0])
    status, out, _ = pair.run("--dry-run", "-n", "2", *PRINTS, on="anywhere")
    assert status == 0 and len(out) == 1 and "CUDA_VISIBLE_DEVICES=" in out[0]
    assert pair.states() == [["running"], []]
    (pair.homes[0] / "quicker").unlink()
    pair.close()
    until(lambda: pair.claimed() == [False, False])
    status, out, said = pair.run("--detach", "-n", "2", *PRINTS, on="anywhere")
    assert (status, out) == (0, [f"{pair.names[1]}:{pair.jobs(1)[0].id}"]) and pair.names[0] in said


def test_each_box_is_asked_once_and_where_none_is_left_there_are_not_enough(pair: BoxPair) -> None:
    for home in pair.homes:
        somebody_is_quicker(home)
    status, out, said = pair.run("-n", "2", *PRINTS, on="anywhere")
    assert (status, out) == (4, []) and list(map(asked, pair.homes)) == [1, 1]
    assert all(name in said.splitlines()[-1] for name in pair.names)
    assert pair.states() == [["running"], ["running"]]


@pytest.mark.thorough
def test_a_command_that_ends_with_the_same_status_starts_on_no_other_box(pair: BoxPair) -> None:
    status, out, said = pair.run("-n", "2", "--", "sh", "-c", "echo once; exit 4", on="anywhere")
    assert (status, out) == (4, ["once"]) and pair.states() == [["failed"], []]
    assert f"gputui jobs attach {pair.names[0]}:" in said


def loses_the_connection(pair: BoxPair, when: str) -> None:
    """Make the best box lose its connections. `when` is "start" (every connection after the one that starts
    the job) or "answer" (the one that starts it, before its answer)."""
    name, home = pair.names[0], pair.homes[0]
    with (home.parent / f"{name}.env").open("a") as environ:
        environ.write('[ ! -e "$HOME/started" ] || exit 255\n')
    (home / "bin" / "gputui").write_text(
        f"""#!/bin/sh
if [ "$1" = run ]; then
  touch "$HOME/started"
  [ {when} = start ] || {{ {sys.executable} -m gputui "$@" >/dev/null; exit 255; }}
fi
exec {sys.executable} -m gputui "$@"
"""
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("when", "words"), [("start", ()), ("answer", ("--detach",))])
def test_where_the_connection_is_lost_after_the_start_that_is_no_box_that_cannot_be_reached(
    pair: BoxPair, when: str, words: tuple[str, ...]
) -> None:
    loses_the_connection(pair, when)
    status, out, said = pair.run(*words, "-n", "2", "--", "sleep", "600", on="anywhere")
    # 3 would mean that nothing has started: a script would start the job elsewhere.
    assert (status, out) == (255, []) and pair.states() == [["running"], []]
    assert f"gputui jobs {'attach' if when == 'start' else '--hosts'} {pair.names[0]}" in said


def test_ctrl_c_while_the_job_starts_says_where_it_may_run(pair: BoxPair) -> None:
    begun, real = pair.homes[0] / "begun", f'exec {sys.executable} -m gputui "$@"'
    (pair.homes[0] / "bin" / "gputui").write_text(
        f'#!/bin/sh\n[ "$1" != run ] || {{ touch {begun}; exec sleep 600; }}\n{real}\n'
    )
    with pair.start("-q", "-n", "2", *PRINTS, on="anywhere") as process:
        until(begun.exists)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert f"gputui jobs --hosts {pair.names[0]}" in said.decode()


@pytest.mark.thorough
def test_an_older_gputui_on_the_best_box_is_sent_ours(pair: BoxPair) -> None:
    lacks_if_free(pair.homes[0] / "bin" / "gputui")
    status, out, said = pair.run("--if-free", "-n", "2", *PRINTS, on="anywhere")
    assert status == 7 and len(out) == 1 and "--if-free" not in said
    assert pair.states() == [["failed"], []]


def test_what_cannot_start_on_the_best_box_is_tried_on_no_other(pair: BoxPair) -> None:
    status, out, _ = pair.run("-n", "2", "--", "no-such-program", on="anywhere")
    assert (status, out) == (127, []) and pair.states()[1] == []


@pytest.mark.thorough
@pytest.mark.usefixtures("terminals_there")
def test_ctrl_c_on_a_terminal_goes_to_the_job_on_the_next_box(pair: BoxPair) -> None:
    somebody_is_quicker(pair.homes[0])
    shown = interrupted_there("anywhere", 2, pair.environ)
    # (The terminal breaks long lines.)
    assert f"gputui jobs attach {pair.names[1]}:" in shown.replace("\n", "")
