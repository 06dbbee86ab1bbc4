"""A third-party program that reports facts: after a missed deadline, it is left alone for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.system import child_process
from gputui.system.child_process import Ended
from gputui.system.program import PAUSE, Program
from gputui.system.root import Root
from unit.recorded import program


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_after_a_missed_deadline_it_is_not_run_until_the_pause_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Ended(None, "", "no answer within 5 seconds"), Ended(0, "answer\n")]
    calls: list[object] = []

    def run(*arguments: object, **_more: object) -> Ended:
        calls.append(arguments)
        return answers[len(calls) - 1]

    monkeypatch.setattr(child_process, "run", run)
    program(tmp_path, "tool", "")
    clock = Clock()
    tool = Program(Root(str(tmp_path)), "tool", clock=clock)
    assert tool.ask() is None and tool.silent
    trouble = tool.trouble
    assert trouble is not None
    clock.now += PAUSE - 1
    assert tool.ask() is None and tool.silent and tool.trouble == trouble
    assert len(calls) == 1
    clock.now += 1
    assert not tool.silent
    assert tool.ask() == "answer\n" and tool.trouble is None


def test_a_failure_before_the_deadline_brings_no_pause(tmp_path: Path) -> None:
    program(tmp_path, "tool", f"echo call >>{tmp_path}/calls; echo broken >&2; exit 3")
    tool = Program(Root(str(tmp_path)), "tool", deadline=60.0, clock=Clock())
    for _ in range(2):
        assert tool.ask() is None and not tool.silent
        assert tool.trouble == "tool ended with status 3: broken"
    assert (tmp_path / "calls").read_text() == "call\n" * 2


def test_a_program_that_is_not_installed_is_no_trouble(tmp_path: Path) -> None:
    tool = Program(Root(str(tmp_path)), "tool")
    assert not tool.there and tool.ask() is None and tool.trouble is None
