"""Fixtures of the tests that call the command line."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.allocating.claims import lease as leases
from gputui.allocating.claims.lease import Lease, take
from simnvml import SimulatedNvml
from ssh_boxes import CannotStartError, SshBoxes, gives_terminals, system_programs
from unit.calling import Call, caller
from unit.claims_support import Box, Take, box_at
from unit.jobs_support import end_jobs


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Restore the process settings that the program changes."""
    # `run` gives its command the signal handlers that a shell would. If the command cannot start, these
    # handlers stay, and a pipe whose reader has closed it would kill the process of the tests.
    signals = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    yield
    for number, answer in signals.items():
        signal.signal(number, answer)
    gc.enable()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """The function that calls gputui with these words."""
    return caller(capsys)


# A simulated box with claims of its own (unit/claims_support.py).


@pytest.fixture
def box(tmp_path: Path, simulated_nvml: SimulatedNvml) -> Iterator[Box]:
    """Eight idle GPUs, and calls of gputui on them."""
    with box_at(tmp_path, simulated_nvml) as made:
        yield made


@pytest.fixture
def jobs_at_once(box: Box) -> Iterator[None]:
    """Jobs start on devices that nobody has watched first; they end with the test."""
    settings = box.folder / "config" / "gputui" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[rules]\nwindow = 0\n")
    yield
    end_jobs(box.environ)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait for nothing."""
    monkeypatch.setattr(leases, "_PATIENCE", 0.0)


@pytest.fixture
def lease() -> Iterator[Take]:
    """A function that takes leases; they are released at the end."""
    taken: list[Lease] = []

    def made(box: Box, *places: int, command: str = "python train.py") -> Lease:
        found = take([box.uuids[place] for place in places], box.environ, command)
        taken.append(found)
        return found

    yield made
    for each in taken:
        each.release()


# Other boxes, over a real ssh (ssh_boxes.py).


@pytest.fixture(scope="session")
def ssh_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshBoxes]:
    try:
        made = SshBoxes(tmp_path_factory.mktemp("ssh") / "boxes")
    except (CannotStartError, OSError) as error:
        pytest.skip(f"sshd does not start here: {error}")
    yield made
    made.close()


@pytest.fixture
def boxes(ssh_daemon: SshBoxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshBoxes:
    """The ssh daemon, with our calls set up to reach it."""
    monkeypatch.setenv("PATH", ssh_daemon.environment(dict(os.environ))["PATH"])
    config = tmp_path / "config" / "gputui"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[hosts]\nconnect_timeout = 5\n")
    return ssh_daemon


@pytest.fixture
def terminals_there(boxes: SshBoxes) -> SshBoxes:
    """The same daemon; skips where it provides no terminals."""
    if not gives_terminals():
        pytest.skip("sshd of an ordinary user gives no terminals here: devpts is mounted without gid=5")
    return boxes


@pytest.fixture
def no_packages(tmp_path: Path) -> str:
    """A PATH with the system's programs and a Python that has only its standard library."""
    folder = tmp_path / "plain"
    folder.mkdir()
    base = getattr(sys, "_base_executable", sys.executable)
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\nexec {base} -S "$@"\n')
    script.chmod(0o755)
    return f"{folder}:{system_programs(tmp_path)}"
