"""A box that hangs, needs a person's answer or asks for too much, with a stand-in for `ssh`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gputui.choosing.verdict import verdicts
from gputui.cli.ls_text import document_text
from gputui.inventory.formatting import MIB
from gputui.sources.hosts import channel, left_behind, session
from gputui.sources.hosts.calls import AT_ONCE, ask, of_each
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.sources.hosts.remote_script import MARK
from gputui.sources.hosts.session import Answer, Session
from gputui.sources.hosts.ssh import Way, trouble_of
from unit.builders import box, gpu
from unit.jobs_support import until

T = TypeVar("T")

_ANSWERS = (
    f"echo '{MARK} there'; echo '{MARK} run'; cat {{folder}}/line; read -r line; echo $line > {{folder}}/pace"
)
_ASKS = f"""\
if [ ! -e {{folder}}/answered ]; then
  echo 'me@box: Permission denied (publickey,password).' >&2
  exit 255
fi
{_ANSWERS}"""
_HANGS = "exec sleep 600"
_WANTS = f"for each in 1 2 3 4 5 6; do echo '{MARK} send'; done; {_HANGS}"
_CHATS = "while echo x; do sleep 0.01; done"

Ssh = Callable[[str], None]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """Install a script of sh as `ssh`; `$box` in it is the box, and `{folder}` contains `line`, a reading."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    snapshot = box(gpu(0))
    (tmp_path / "line").write_text(document_text(snapshot, verdicts(snapshot)) + "\n")

    def is_now(script: str) -> None:
        alias = 'while [ "$1" != -- ]; do shift; done; box=$2'
        (programs / "ssh").write_text(f"#!/bin/sh\n{alias}\n{script.format(folder=tmp_path)}\n")
        (programs / "ssh").chmod(0o755)

    return is_now


@pytest.fixture
def channels(ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> Channels:
    """Channels to a box that accepts nobody until a person has answered.

    The pauses are long, so that only a person connects before the next try.
    """
    ssh(_ASKS)
    monkeypatch.setattr(channel, "_FIRST_PAUSE", 600.0)
    monkeypatch.setattr(channel, "_LONGEST_PAUSE", 600.0)
    return Channels(("box",), Way(1), 0.1)


def in_time(work: Callable[[], T]) -> T:
    """The result of the call; fails instead of hanging if the call hangs."""
    given: list[T] = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()
    thread.join(90)
    assert given, "it hangs"
    return given[0]


@pytest.mark.parametrize(("runs", "prompts"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("told", ["echo >{folder}/told; exit 0", ""])
def test_an_ssh_that_does_not_end_is_ended_and_has_no_status(
    ssh: Ssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, runs: bool, prompts: bool
) -> None:
    """SIGTERM lets ssh end its own children; SIGKILL follows if it does not end."""
    if not told:
        monkeypatch.setattr(session, "_ENDS_WITHIN", 0.05)
    marks = f"echo '{MARK} there'; echo '{MARK} run'; " if runs else ""
    ssh(f"trap '{told}' TERM; echo $$ >{{folder}}/pid; {marks}while :; do sleep 0.1; done")
    asked = Session("box", ["ls"], Way(5, prompts), apart=True)
    try:
        until((tmp_path / "pid").exists)
        until(lambda: asked.receive(0.01) == b"" and asked.mode == ("run" if runs else None))
    finally:
        assert in_time(lambda: (asked.close(),)) == (None,)
    assert (tmp_path / "told").exists() == bool(told)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


class _Sends:
    """A connection that brings these bytes in pieces, and then ends."""

    mode = "run"

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def receive(self, _seconds: float) -> bytes | None:
        self._at += 64 * 1024
        return self._data[self._at - 64 * 1024 : self._at] or None

    def close(self) -> None:
        """It has ended."""

    def answer(self) -> Answer:
        return Answer("large", 0, b"", "", None)


@pytest.mark.parametrize("junk", [
    '{"": 777}', "[777]", '"' + "x" * 1000 + '"', '"\N{PILE OF POO}' + "x" * 1000 + '"', '"\N{PILE OF POO}"',
])  # fmt: skip
def test_a_followed_box_costs_little_memory_whatever_it_sends(
    monkeypatch: pytest.MonkeyPatch, junk: str
) -> None:
    """It could cost the screen 80 MiB, and each of twenty boxes as much."""
    snapshot = box(gpu(0))
    text = document_text(snapshot, verdicts(snapshot))
    known = set()
    for size in (MIB // 8, MIB // 4, MIB // 2, MIB, 2 * MIB - 20_000, 16 * MIB):
        many = ",".join([junk] * (size // len(f"{junk},".encode())))
        sends = _Sends(f'{text.rstrip()[:-1]}, "junk": [{many}]}}\n'.encode() * 2)
        monkeypatch.setattr(channel, "connect", lambda *_words, sends=sends, **_options: sends)
        followed = channel.Channel("large", Way(1), 1.0)
        tracemalloc.start()
        try:
            known.add(followed._connected())
            assert known >= {followed.state.reading is not None}
            assert tracemalloc.get_traced_memory()[1] < 18 * MIB
        finally:
            tracemalloc.stop()
    assert known == {True, False}


@pytest.mark.parametrize("then", ["exec cat /dev/zero >&2", "cat /dev/zero >&2 & exit 3"])
@pytest.mark.parametrize("runs", [True, False])
def test_a_box_that_writes_messages_without_end_is_given_up(ssh: Ssh, runs: bool, then: str) -> None:
    """It kept a call for as long as a driver may take to start; or for ever, where ssh had ended."""
    ssh(f"echo '{MARK} there'; {f'echo {MARK!r} run' * runs}\n{then}")
    answer = in_time(lambda: ask("box", ["ls"], Way(1), patience=600.0))
    kind = answer.trouble.kind if answer.trouble is not None else None
    assert (answer.status == 3 or kind == "failed") and len(answer.said) < 64 * 1024


_SLEEPS = """
import os, signal, subprocess
from gputui.sources.hosts import left_behind
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ends, stays = [subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL).pid for _ in range(2)]
left_behind.end_with_us(ends)
left_behind.end_with_us(stays)
left_behind.has_ended(stays)
print(ends, stays, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_has_not_ended_ends_when_we_have() -> None:
    """This holds however we end. A process that has ended is left alone: its pid may be another's by now."""
    done = subprocess.run([sys.executable, "-c", _SLEEPS], stdout=subprocess.PIPE, text=True, check=False)
    ends, stays = map(int, done.stdout.split())
    try:
        until(lambda: not Path(f"/proc/{ends}").exists())
        assert Path(f"/proc/{stays}").exists()
    finally:
        os.kill(stays, signal.SIGKILL)


def test_a_box_that_asks_says_so_and_is_connected_to_when_it_was_answered(
    channels: Channels, tmp_path: Path
) -> None:
    channels.start()
    try:
        until(lambda: channels.states[0].asks)
        assert channels.states[0].error
        (tmp_path / "answered").touch()
        channels.connect_now("box")
        until(lambda: channels.states[0].state == "live")
        assert not channels.states[0].asks
    finally:
        channels.stop()


def test_it_is_asked_by_ssh_with_the_terminal_and_without_a_batch_mode(
    channels: Channels, tmp_path: Path
) -> None:
    argv = channels.asking("box")
    assert argv[0] == str(tmp_path / "bin" / "ssh") and argv[-3:] == ("--", "box", "true")
    assert not any("BatchMode" in word for word in argv)


def test_since_is_when_it_was_last_heard_of_and_not_when_it_was_connected(
    channels: Channels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(channel.time, "time", lambda: clock[0])
    line = tmp_path / "line"
    (tmp_path / "answered").touch()
    # The stand-in prints its line again for each line it receives: for each change of the pace.
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(ssh.read_text().replace("read -r line", f"while read -r word; do cat {line}; done"))
    channels.start()
    try:
        until(lambda: channels.states[0].state == "live")
        first = channels.states[0]
        assert first.since == 1000.0
        clock[0] = 2000.0
        channels.set_interval(0.2)
        until(lambda: channels.states[0].reading is not first.reading)
        assert channels.states[0].state == "live" and channels.states[0].since == 1000.0
        clock[0] = 3000.0
        line.write_text("not a reading\n")
        channels.set_interval(0.3)
        until(lambda: channels.states[0].state == "stale")
        assert channels.states[0].since == 2000.0 and channels.states[0].error
    finally:
        channels.stop()


def test_a_box_that_was_never_live_is_dead_since_the_first_failure(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel.time, "time", lambda: 1000.0)
    channels.start()
    try:
        until(lambda: channels.states[0].state == "dead")
        assert channels.states[0].since == 1000.0
    finally:
        channels.stop()


@pytest.mark.parametrize(
    "said, asks",
    [("Host key verification failed.", True), ("@ REMOTE HOST IDENTIFICATION HAS CHANGED! @", False)],
)
def test_ssh_asks_for_a_key_that_is_new_and_not_for_one_that_has_changed(said: str, asks: bool) -> None:
    trouble = trouble_of("box", said.encode())
    assert BoxState("box", "dead", None, trouble.text, 1.0, trouble.kind).asks is asks


@pytest.mark.parametrize("script", [_WANTS, _CHATS, _HANGS])
def test_whatever_a_box_does_instead_of_answering_it_is_given_up(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    ssh(script)
    monkeypatch.setattr(session, "LOGIN_WITHIN", 0.2)
    answer = in_time(lambda: ask("box", ("ls",), Way(0), patience=0.4))
    assert answer.trouble is not None and answer.trouble.kind == "unreachable"
    assert "time" in answer.trouble.text and answer.status is None


def test_a_login_that_prints_many_lines_is_given_up_as_one_that_prints_a_long_line(ssh: Ssh) -> None:
    """Only the length of each line was limited: it took a whole processor until the login was given up."""
    ssh("while :; do echo; done")
    assert "prints too much" in str(in_time(lambda: ask("box", ["ls"], Way(1))).error)


@pytest.mark.parametrize(("most", "trouble"), [(12, None), (11, "its answer is too long")])
def test_an_answer_has_at_most_the_bytes_that_are_asked_for(ssh: Ssh, most: int, trouble: str | None) -> None:
    ssh(f"echo '{MARK} there'; echo '{MARK} run'; echo 12345678901; exit 0")
    answer = in_time(lambda: ask("box", ("ls",), Way(30), most=most))
    assert (answer.trouble and answer.trouble.text) == trouble


def test_the_end_of_a_reading_is_found_wherever_it_is_divided(ssh: Ssh, tmp_path: Path) -> None:
    """An empty line ends a reading of nvidia-smi: one piece may end with the first half of that end."""
    row = "0, GPU-0, RTX 4090, 00000000:01:00.0, 24564, 8, 24155, 0, 31, 25.11, 450.00, 535.183.01\n"
    (tmp_path / "smi").write_text(row)
    mode = f"echo '{MARK} there'; echo '{MARK} nvidia-smi'"
    ssh(f"{mode}; cat {{folder}}/smi; sleep 0.5; echo; exec sleep 600")
    channels = Channels(("box",), Way(30), 0.1)
    channels.start()
    try:
        until(lambda: channels.states[0].state == "live")
    finally:
        channels.stop()


def test_a_channel_to_a_box_that_takes_nothing_ends_when_it_is_told_to(ssh: Ssh, tmp_path: Path) -> None:
    ssh(f"touch {{folder}}/asked; {_WANTS}")
    channels = Channels(("box",), Way(600), 0.1)
    before = {*threading.enumerate()}
    channels.start()
    until((tmp_path / "asked").exists)
    in_time(lambda: [channels.stop()])
    until(lambda: {*threading.enumerate()} <= before)


MANY = (*(f"hung{number}" for number in range(AT_ONCE)), "well")


@pytest.mark.thorough
def test_boxes_whose_login_hangs_keep_no_other_from_connecting(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh(f'[ "$box" = well ] || {_HANGS}; {_ANSWERS}')
    monkeypatch.setattr(session, "LOGIN_WITHIN", 5.0)
    channels = Channels(MANY, Way(0), 0.1)
    channels.start()
    try:
        until(lambda: channels.states[-1].state == "live")
        assert {state.state for state in channels.states[:-1]} == {"connecting"}
        until(lambda: all(state.state == "dead" for state in channels.states[:-1]))
    finally:
        channels.stop()
    monkeypatch.setattr(session, "LOGIN_WITHIN", 3.0)
    ssh(f'[ "$box" = well ] || {_HANGS}; echo "{MARK} run"; echo hello')
    answers = in_time(lambda: of_each(MANY, lambda each: ask(each, ("ls",), Way(0))))
    assert [answer.trouble is None for answer in answers] == [False] * AT_ONCE + [True]
    assert answers[-1].out == b"hello\n"


def test_no_more_than_eight_connect_at_a_time(ssh: Ssh, tmp_path: Path) -> None:
    (tmp_path / "connecting").mkdir()
    ssh(
        "cd {folder}/connecting; : > $$; ls | wc -l >> ../counts; sleep 0.1; rm $$\n"
        f"echo '{MARK} there'; echo '{MARK} run'; exit 0"
    )
    answers = of_each([f"box{number}" for number in range(20)], lambda each: ask(each, ("ls",), Way(30)))
    assert {answer.status for answer in answers} == {0}
    assert max(map(int, (tmp_path / "counts").read_text().split())) <= AT_ONCE


_INTERRUPTED = """
import os, signal, threading, time
from gputui.sources.hosts import calls
calls.LOOK = 0.001

def interrupted(after):
    unwanted, started = threading.Event(), threading.Barrier(2)

    def work(box):
        if started.wait() == 0:
            until = time.perf_counter() + after
            while time.perf_counter() < until:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        assert unwanted.wait(120), "Ctrl-C is lost"

    try:
        calls.of_each(["one", "two"], work, unwanted)
    except KeyboardInterrupt:
        return True

assert all(interrupted(after=number * 6e-7) for number in range(500))
"""


@pytest.mark.thorough
def test_ctrl_c_is_never_lost_between_the_threads_of_several_boxes() -> None:
    """Raised at an arbitrary point, it kept a lock of `concurrent.futures` held: one in some 500."""
    subprocess.run([sys.executable, "-c", _INTERRUPTED], check=True, timeout=300)


def test_channels_that_are_opened_and_stopped_leave_no_descriptors(ssh: Ssh) -> None:
    ssh(_ANSWERS)

    def descriptors() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    # left_behind opens its pipe at the first connection and keeps it, so it is opened before the count.
    left_behind.has_ended(0)
    before = descriptors()
    for _ in range(3):
        channels = Channels(("a", "b", "c"), Way(1), 0.1)
        channels.start()
        until(lambda channels=channels: all(each.state == "live" for each in channels.states))
        channels.stop()
    until(lambda: descriptors() <= before)
    Channels(("a",), Way(1), 0.1)
    assert descriptors() <= before


@pytest.mark.parametrize("early", [True, False])
def test_a_new_pace_is_told_to_the_box(ssh: Ssh, tmp_path: Path, early: bool) -> None:
    ssh(f"touch {{folder}}/asked; while [ ! -e {{folder}}/go ]; do sleep 0.05; done; {_ANSWERS}")
    channels = Channels(("box",), Way(30), 0.1)
    channels.start()
    try:
        if early:
            until((tmp_path / "asked").exists)
            channels.set_interval(0.5)
        (tmp_path / "go").touch()
        until(lambda: channels.states[0].state == "live")
        if not early:
            channels.set_interval(0.5)
        until(lambda: (tmp_path / "pace").exists() and (tmp_path / "pace").read_text() == "0.5\n")
    finally:
        channels.stop()
