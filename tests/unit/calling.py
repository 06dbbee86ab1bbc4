"""A call of the command line in the tests' own process, and its result; and the selection on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gputui.cli.main import main
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.source import Source
from gputui.tui.app_state import AppState


@dataclass(frozen=True)
class Ended:
    """The exit status and the output of a call."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The output of a call that succeeded without a warning."""
        said = [line for line in self.err.splitlines() if not line.startswith("gputui: note: ")]
        assert (self.status, said) == (0, []), self
        return self.out

    @property
    def line(self) -> str:
        """The only line of that output."""
        assert self.text.endswith("\n") and self.text.count("\n") == 1, self
        return self.text[:-1]

    @property
    def json(self) -> Any:
        """That line, parsed as JSON."""
        return json.loads(self.line)

    def refused(self, status: int) -> str:
        """The only line, on stderr, of a call that failed with this status. The lines of devices that are not
        available, which are indented, are joined to it, and that of `--wait` is left out. --json puts the
        failure on stdout too."""
        assert self.status == status, self
        assert not self.out or json.loads(self.out)["error"]["message"] in self.err, self
        lines = self.err.splitlines()
        first, *reasons = lines[:-1] if lines[-1].startswith("gputui: wait for ") else lines
        assert first.startswith("gputui: ") and self.err.endswith("\n"), self
        assert all(line.startswith("gputui:   ") and status == 4 for line in reasons), self
        assert (first + "".join(reasons)).isprintable(), self
        told = (" ".join(line.removeprefix("gputui:   ").split()) for line in reasons)
        return f"{first} {'; '.join(told)}".rstrip()


Call = Callable[..., Ended]


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """A function that calls gputui with these words."""

    def call(*words: str) -> Ended:
        capsys.readouterr()
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return call


def best_on_screen(source: Source, presses: int, environ: Mapping[str, str] | None = None) -> list[int]:
    """The indices of the devices that the key for the best devices selects when it is pressed this often."""
    try:
        state = AppState(environ or {}, LaunchOptions(("python", "train.py"))).with_snapshot(source.read())
    finally:
        source.close()
    for _ in range(presses):
        state, _message = state.add_best()
    assert state.snapshot is not None
    return [state.snapshot.by_key[key].index for key in state.selection.keys]
