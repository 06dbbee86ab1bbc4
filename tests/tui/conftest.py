"""Fixtures for the tests of the screen: a desk at which jobs are started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.tui.controllers import launch as launch_controller
from tui.support import release_leases
from unit.jobs_support import Desk, desk_at


@pytest.fixture(autouse=True)
def leases() -> Iterator[None]:
    """Release the leases that Enter leaves to the command: in these tests no command replaces the process."""
    yield
    release_leases()


@pytest.fixture(autouse=True)
def patient_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch waits for its reading as long as a test needs: a question would take the next key instead."""
    for name in ("_PATIENCE",):
        monkeypatch.setattr(launch_controller, name, 120.0)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


@pytest.fixture
def environ(desk: Desk) -> dict[str, str]:
    """The variable that makes the screen keep its jobs and launches at the desk."""
    return {"XDG_STATE_HOME": desk.environ["XDG_STATE_HOME"]}
