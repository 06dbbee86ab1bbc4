"""The first frame in a home with jobs: it waits for no work that jobs need, and stays in its place."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Start
from e2e.terminal import Terminal
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml
from unit.jobs_support import Desk, desk_at, ended

pytestmark = pytest.mark.e2e

OBSERVED = """
import json, pathlib, sys, threading
from gputui.cli.main import main
from gputui.tui.first_frame import FirstFrame

file, seen, paint = pathlib.Path(sys.argv[1]), [], FirstFrame.paint

def note(event, about):
    if event in ("import", "open", "os.listdir", "os.scandir") and not file.exists():
        if threading.current_thread().name == "gputui sampler":
            seen.append(str(about[0]))

def painted(self, snapshot):
    paint(self, snapshot)
    if not file.exists():
        file.write_text(json.dumps(seen))

FirstFrame.paint = painted
sys.addaudithook(note)
sys.exit(main([]))
"""
"""A gputui that writes the imports and reads of the painting thread up to the first frame."""

HELD_UP = """
import json, pathlib, sys, threading
from gputui.cli.main import main
from gputui.jobs.source import WithJobs
from gputui.tui import run

file, ready, look, checked = pathlib.Path(sys.argv[1]), threading.Event(), WithJobs._look, run.guard_imports

def late(self, *asked):
    ready.wait(60)
    look(self, *asked)

def imported(stamp):
    from gputui.tui.app import GputuiApp
    begin = GputuiApp.__init__

    def observed(self, app_state, sampler, mailbox, *rest, **more):
        reading = mailbox.latest
        file.write_text(json.dumps([] if reading is None else [job.id for job in reading.result.jobs]))
        begin(self, app_state, sampler, mailbox, *rest, **more)

    GputuiApp.__init__ = observed
    checked(stamp)
    ready.set()

WithJobs._look, run.guard_imports = late, imported
sys.exit(main([]))
"""
"""A gputui that reads the jobs only once Textual has loaded; it writes the first jobs of the screen."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_at(tmp_path) as made:
        yield made


@pytest.fixture
def environment(
    base_environment: dict[str, str], simulated_nvml: SimulatedNvml, desk: Desk
) -> dict[str, str]:
    simulated_nvml.show_box(BOXES["shared"])
    return simulated_nvml.environment({**base_environment, "XDG_STATE_HOME": desk.environ["XDG_STATE_HOME"]})


def ended_with(start: Start, environment: dict[str, str], script: str, file: Path) -> list[str]:
    """Start the script and leave the screen once it is complete; return the list that the script wrote."""
    terminal = start(argv=[sys.executable, "-c", script, str(file)], environment=environment)
    terminal.until("jobs and queue" if script is HELD_UP else "○ free")
    terminal.send("q")
    assert terminal.end() == 0
    found = json.loads(file.read_text())
    assert isinstance(found, list)
    return found


def test_the_first_frame_is_painted_before_any_job_is_read(
    start: Start, environment: dict[str, str], desk: Desk, tmp_path: Path
) -> None:
    ended(desk.sh("exit 0"))
    seen = ended_with(start, environment, OBSERVED, tmp_path / "seen")
    assert "pynvml" in seen, "it is the thread that reads the driver"
    assert not [what for what in seen if what.startswith((str(desk.folder / "state"), "gputui.launching"))]
    assert not [what for what in seen if what.startswith("gputui.jobs")]


def rows(terminal: Terminal) -> list[tuple[int, str]]:
    """The positions of the lines of the eight devices, and their beginnings."""
    found = [(place, re.match(r"[ ▸] +[0-7] ", line)) for place, line in enumerate(terminal.lines)]
    return [(place, begin[0]) for place, begin in found if begin][:8]


@pytest.mark.thorough
def test_no_row_moves_when_the_jobs_arrive(start: Start, environment: dict[str, str], desk: Desk) -> None:
    old, gate = ended(desk.sh("echo bye")), desk.gate()
    running = desk.sh(gate.wait)
    terminal = start(environment=environment, size=(130, 40)).until(lambda t: len(rows(t)) == 8)
    before = rows(terminal)
    assert [begin.split()[-1] for _, begin in before] == [*"01234567"]
    # The painted text arrives in pieces.
    terminal.until(lambda t: old.id in t.text and running.id in t.text and len(rows(t)) == 8)
    assert rows(terminal) == before
    gate.open()


def test_the_screen_has_the_jobs_from_its_beginning(
    start: Start, environment: dict[str, str], desk: Desk, tmp_path: Path
) -> None:
    old = ended(desk.sh("exit 0"))
    assert ended_with(start, environment, HELD_UP, tmp_path / "jobs") == [old.id]
