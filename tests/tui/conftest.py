"""What tests of the screen stand on: a desk where jobs are started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tui.support import release_leases
from unit.jobs_support import Desk, desk_at


@pytest.fixture(autouse=True)
def leases() -> Iterator[None]:
    """Enter leaves a lease to the command; here there is none, and the process of the tests goes on."""
    yield
    release_leases()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


@pytest.fixture
def environ(desk: Desk) -> dict[str, str]:
    """What makes the screen keep its jobs and launches at the desk."""
    return {"XDG_STATE_HOME": desk.environ["XDG_STATE_HOME"]}
