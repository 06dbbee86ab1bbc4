"""Fixtures of the tests that call the command line."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from unit.calling import Call, caller


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of the machine that runs the tests counts; what the program changes is set right."""
    for name in [name for name in os.environ if name.startswith(("CUDA_", "PET_"))]:
        monkeypatch.delenv(name)
    yield
    gc.enable()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls gputui with some words."""
    return caller(capsys)
