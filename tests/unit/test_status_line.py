"""`gputui ls --format`: figures for a status bar; a format can reach nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from gputui.choosing.verdict import verdicts
from gputui.cli.common import WrongCallError
from gputui.cli.status_line import FIELDS, fields_of, status_line
from gputui.inventory.formatting import UNKNOWN
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from table_tests import each_row
from unit.builders import NOW, box, busy, gpu, instance, recording
from unit.calling import Call


def figures(snapshot: Snapshot) -> dict[str, str]:
    line = status_line("|".join(f"{name}={{{name}}}" for name in FIELDS), snapshot, verdicts(snapshot))
    return dict(part.split("=", 1) for part in line.split("|"))


def test_devices_are_counted_by_state() -> None:
    found = figures(box(gpu(0), busy(gpu(1)), gpu(2), gpu(3, apart="display")))
    assert (found["free"], found["busy"], found["total"]) == ("2", "1", "3")
    assert found["free_ids"] == "0,2"


def test_instances_count_instead_of_their_gpu() -> None:
    parent = gpu(0, mig=True)
    found = figures(box(parent, instance(parent, 0), instance(parent, 1)))
    assert found["total"] == "2" and found["busy"] == "0"


def test_what_is_not_known_is_not_0() -> None:
    blank = replace(gpu(0), utilization=None, memory_used=None, temperature=None, power=None)
    found = figures(box(blank))
    assert {found[name] for name in ("utilization", "memory_used", "temperature", "power")} == {UNKNOWN}
    assert figures(box())["utilization"] == UNKNOWN


@each_row("name", BOXES)
def test_every_box_has_every_figure(name: str) -> None:
    snapshot = at(BOXES[name], 12.0, NOW)
    found = figures(snapshot)
    states = sum(int(found[state]) for state in ("free", "busy", "held", "claimed", "unknown", "lost"))
    assert states == int(found["total"]) > 0
    assert all(found.values()) or not int(found["free"])


def test_a_line_is_printed(call: Call) -> None:
    assert call("ls", "--demo=idle", "--format", "{free}/{total} {{free}}").line == "2/2 {free}"


@each_row(
    "text",
    [
        "{nothing}",
        "{}",
        "{free",
        "free}",
        "{free.real}",
        "{free[0]}",
        "{free!r}",
        "{free:9}",
        "{0}",
        "{ free}",
    ],
)
def test_a_wrong_field_is_a_wrong_call_that_lists_the_fields(text: str, call: Call) -> None:
    said = call("ls", "--demo=idle", "--format", text).refused(2)
    assert all(name in said for name in FIELDS)


def test_a_format_goes_with_no_other_form(call: Call) -> None:
    for other in ("--json", "--details"):
        call("ls", "--demo=idle", "--format", "{free}", other).refused(2)


def test_a_host_cannot_steer_the_terminal(tmp_path: Path, call: Call) -> None:
    snapshot = box(gpu(0))
    file = recording(tmp_path, replace(snapshot, host=replace(snapshot.host, name="a\x1b]0;b\x07\n")))
    assert call("ls", "--from", file, "--format", "{host}").line.isprintable()


@given(st.text(alphabet="{}[].!:0aefr_ \x1b"))
@example("{{{free}}}")
def test_any_text_is_refused_or_has_plain_fields(text: str) -> None:
    try:
        fields = fields_of(text)
    except WrongCallError:
        assert re.search("[{}]", text)
        return
    assert fields <= {"free"}
    assert text.format(free="1") == status_line(text, box(gpu(0)), verdicts(box(gpu(0))))


def test_the_page_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    assert all(f"`{{{name}}}`" in page for name in FIELDS)
