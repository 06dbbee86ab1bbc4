"""Without psutil, /proc yields the same facts about processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gputui.system import plain_processes, processes
from gputui.system.processes import Owner, ProcessTable

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")


@pytest.fixture
def child() -> Iterator[int]:
    with subprocess.Popen(["/bin/sh", "-c", "read x", "a name"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def owner(pid: int, library: object, monkeypatch: pytest.MonkeyPatch) -> Owner:
    monkeypatch.setattr(processes, "process_library", lambda: library)
    return ProcessTable(host_pids=True).owner(pid)


def test_owners_are_the_same(child: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in (child, os.getpid(), 1, 2**22 + 1):
        plain, known = (owner(pid, library, monkeypatch) for library in (plain_processes, psutil))
        assert plain.started == pytest.approx(known.started, abs=0.05)
        assert (plain.user, plain.command, plain.note) == (known.user, known.command, known.note)
        assert [each.pid for each in plain.ancestors] == [each.pid for each in known.ancestors]


def test_what_a_process_takes_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "process_library", lambda: plain_processes)
    table, pid = ProcessTable(host_pids=True), os.getpid()
    table.owner(pid)
    assert table.uses([pid])[pid].cpu is None
    use = table.uses([pid])[pid]
    assert use.cpu is not None and use.cpu >= 0
    assert use.memory == pytest.approx(psutil.Process(pid).memory_info().rss, rel=0.2)


def test_a_process_that_has_ended_is_none(child: int) -> None:
    process = plain_processes.Process(child)
    assert process == plain_processes.Process(child) and process != plain_processes.Process(os.getpid())
    with pytest.raises(plain_processes.NoSuchProcess):
        plain_processes.Process(2**22 + 1)


def test_where_there_is_proc_psutil_is_not_imported() -> None:
    assert plain_processes.process_library() is plain_processes


def test_ls_and_people_need_no_psutil() -> None:
    blocked = (
        "import sys; sys.modules['psutil'] = None;"
        " from gputui.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    for words in (["ls", "--demo"], ["people", "--demo"]):
        subprocess.run([sys.executable, "-c", blocked, *words], check=True, capture_output=True)
    look = (
        "import sys; sys.modules['psutil'] = None; import os;"
        " from gputui.system.processes import ProcessTable;"
        " print(ProcessTable(host_pids=True).owner(os.getpid()).user)"
    )
    said = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout
    assert said.strip() == psutil.Process().username()
