"""Dead, hung and changed boxes next to live ones, over a real ssh: the live boxes keep their rate."""

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
FAILING = ("dead", "hung", "changed")
WATCHED = 6.0
"""Seconds."""


@pytest.mark.thorough
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
            channels = Channels(("login", *FAILING, *LIVE), Way(2), 1.0)
            channels.start()
            try:
                until(lambda: {_states(channels)[name] for name in LIVE} == {"live"})
                readings = _readings(channels)
                # The watched time begins and ends within a reading, and a busy machine is late by one or two.
                assert all(WATCHED / 2 <= readings[name] <= WATCHED + 2 for name in LIVE), readings
                assert _states(channels)["login"] == "connecting"
                until(lambda: {_states(channels)[name] for name in FAILING} == {"dead"})
            finally:
                channels.stop()
    finally:
        boxes.close()


def _states(channels: Channels) -> dict[str, str]:
    """The state of each box by its name."""
    return {state.alias: state.state for state in channels.states}


def _readings(channels: Channels) -> dict[str, int]:
    """The number of readings of each box within WATCHED seconds; one is due each second."""
    times: dict[str, set[float]] = {state.alias: set() for state in channels.states}
    end = time.monotonic() + WATCHED

    def look() -> bool:
        for state in channels.states:
            if state.reading and state.reading.snapshot:
                times[state.alias].add(state.reading.snapshot.time)
        return time.monotonic() >= end

    until(look)
    return {name: len(seen) for name, seen in times.items()}
