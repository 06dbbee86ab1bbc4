"""A channel to a box that lacks a person's answer, by a stand-in for `ssh`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.choosing.verdict import verdicts
from gputui.cli.ls import document_text
from gputui.sources.hosts import channel
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.sources.hosts.remote_script import MARK
from gputui.sources.hosts.ssh import Way, trouble_of
from unit.builders import box, gpu
from unit.jobs_support import until

_SSH = """#!/bin/sh
if [ ! -e {folder}/answered ]; then
  echo 'me@box: Permission denied (publickey,password).' >&2
  exit 255
fi
echo {mark} run
cat {folder}/line
read -r line
"""


@pytest.fixture
def channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Channels:
    """Of a box that takes nobody until somebody has answered; only a person is quicker than its next try."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(_SSH.format(folder=tmp_path, mark=MARK))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(channel, "_FIRST_PAUSE", 600.0)
    monkeypatch.setattr(channel, "_LONGEST_PAUSE", 600.0)
    snapshot = box(gpu(0))
    (tmp_path / "line").write_text(document_text(snapshot, verdicts(snapshot)) + "\n")
    return Channels(("box",), Way(1), 0.1)


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


def test_it_is_asked_by_ssh_with_the_terminal_and_without_a_batch_mode(channels: Channels) -> None:
    argv = channels.asking("box")
    assert argv[0] == "ssh" and argv[-3:] == ("--", "box", "true")
    assert not any("BatchMode" in word for word in argv)


def test_since_is_when_it_was_last_heard_of_and_not_when_it_was_connected(
    channels: Channels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(channel.time, "time", lambda: clock[0])
    line = tmp_path / "line"
    (tmp_path / "answered").touch()
    # (It says its line again for each line that it is told: for each change of the pace.)
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
