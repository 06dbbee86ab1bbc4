"""Boxes that are dead, hung or changed beside live ones, over a real ssh: the live ones keep their pace."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gputui.sources.hosts.channel import Channels
from gputui.sources.hosts.ssh import Way
from ssh_boxes import PROGRAMS, SshBoxes
from unit.jobs_support import until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")]

LIVE = ("live1", "live2", "live3")
WATCHED = 3.0
"""Seconds."""


def test_live_boxes_keep_their_pace_beside_those_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = SshBoxes(tmp_path / "boxes")
    monkeypatch.setenv("PATH", boxes.environment(dict(os.environ))["PATH"])
    try:
        for name in LIVE:
            home = boxes.add(name)
            program = home / "bin" / "gputui"
            program.write_text(program.read_text().replace('"$@"', '"$@" --demo'))
        boxes.add("login", before="exec cat >/dev/null")
        boxes.add_dead("dead")
        boxes.add_changed("changed")
        with boxes.add_hung("hung"):
            _watch(Channels(("login", "dead", "hung", "changed", *LIVE), Way(2), 1.0))
    finally:
        boxes.close()


def _watch(channels: Channels) -> None:
    times: dict[str, set[float]] = {name: set() for name in LIVE}

    def look() -> bool:
        for state in channels.states:
            if state.alias in times and state.reading and state.reading.snapshot:
                times[state.alias].add(state.reading.snapshot.time)
        return time.monotonic() >= end

    channels.start()
    try:
        until(lambda: {s.state for s in channels.states if s.alias in LIVE} == {"live"})
        end = time.monotonic() + WATCHED
        until(look)
        # (A turn more or less: where the film begins and ends in one.)
        assert all(WATCHED - 1 <= len(seen) <= WATCHED + 2 for seen in times.values()), times
        states = {state.alias: state for state in channels.states if state.alias not in LIVE}
        assert states.pop("login").state == "connecting"
        until(lambda: all(s.state == "dead" for s in channels.states if s.alias in states))
    finally:
        channels.stop()
