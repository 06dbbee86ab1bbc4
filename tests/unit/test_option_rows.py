"""The rows of the launch page: the value that each shows, and the effect of a change on the options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gputui.launching.environment_hints import THREADS, hints
from gputui.launching.launch_options import LaunchOptions, OptionError
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.tui.app_state import AppState
from gputui.tui.option_rows import NEW, Row, changed, rows
from gputui.tui.views.launch_page import settings
from table_tests import each_row


def app_state(options: LaunchOptions | None = None, box: str | None = "dgx-1", chosen: int = 0) -> AppState:
    """An app state on a box, with the best `chosen` devices selected."""
    made = AppState(environ={}, options=options or LaunchOptions(("python", "train.py")))
    if box is not None:
        made = made.with_snapshot(at(BOXES[box], 0.0, 1_700_000_000.0))
    return made.select_best(chosen)[0] if chosen else made


def row(app_state: AppState, name: str) -> Row:
    """The row of a setting, or of a variable."""
    return next(each for each in rows(app_state) if each.id in (name, f"env {name}"))


def pressed(app_state: AppState, row: Row) -> AppState:
    """The app state after space on a row."""
    return changed(app_state, row, row.pressed)


def names(app_state: AppState) -> list[str]:
    return [each.label for each in rows(app_state) if each.box]


def test_without_anything_there_are_rows_and_none_is_given() -> None:
    for each in rows(app_state(LaunchOptions(), box=None)):
        assert not each.given, each
        assert each.kind == "text" or pressed(app_state(LaunchOptions(), box=None), each) is not None


@each_row(
    ("command", "processes"), [("python train.py", "1"), ("torchrun train.py", "2"), ("bash train.sh", "1")]
)
def test_the_page_says_how_many_processes_are_started(command: str, processes: str) -> None:
    state = app_state(LaunchOptions(tuple(command.split())), chosen=2)
    assert row(state, "processes").value == processes
    assert ("torchrun" in row(state, "processes").about) == (processes == "1")


def test_every_setting_of_a_plan_but_its_words_has_a_row() -> None:
    shown = {each.id for each in rows(app_state(LaunchOptions(nodes=2)))}
    assert {*LaunchOptions.__dataclass_fields__} - {"command", "additions"} <= shown


@each_row(
    ("name", "text", "value"),
    [
        ("processes", "4", 4),
        ("processes", " 4 ", 4),
        ("python", "/opt/py/bin/python", "/opt/py/bin/python"),
        ("python", "./bin/python", "./bin/python"),
        ("directory", "/data/my runs", "/data/my runs"),
        ("logs", "logs", "logs"),
        ("nodes", "2", 2),
    ],
)
def test_what_is_typed_becomes_part_of_the_plan_and_can_be_cleared(
    name: str, text: str, value: object
) -> None:
    before = app_state()
    after = changed(before, row(before, name), text)
    assert getattr(after.options, name) == value
    assert row(after, name).given
    assert row(after, name).typed == str(value)
    assert changed(after, row(after, name), None).options == before.options


@each_row(
    ("name", "text"),
    [
        *(("processes", text) for text in ("0", "-1", "x", "1.5", "²", "٣", "1 2", "10001", "1" * 5000)),
        *(("processes", text) for text in ("00010000001",)),
        ("nodes", "many"),
        ("rendezvous", "two words"),
        ("rendezvous", "host:port"),
        ("rendezvous", "host:0"),
        ("rendezvous", "host:65536"),
        ("rendezvous", ":29400"),
        ("rendezvous", "::1:x"),
        ("directory", "~nobody-of-that-name/x"),
        *((NEW, text) for text in ("A", "=1", "1A=2", "A B=1", "A-B=1", "Ä=1")),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(name: str, text: str) -> None:
    before = app_state(LaunchOptions(("python", "t.py"), nodes=2))
    with pytest.raises(OptionError) as refused:
        changed(before, row(before, name), text)
    assert str(refused.value).isprintable()


@each_row("text", ["head", "head:29400", "10.0.0.1:1", "[fe80::1%eth0]:29400", "::1", "fe80::1"])
def test_a_first_machine_is_a_host_with_a_port_or_without(text: str) -> None:
    before = app_state(LaunchOptions(("torchrun", "t.py"), nodes=2))
    assert changed(before, row(before, "rendezvous"), text).options.rendezvous == text


def test_the_first_machine_is_asked_for_where_there_are_several() -> None:
    assert "rendezvous" not in {each.id for each in rows(app_state())}
    assert "rendezvous" in {each.id for each in rows(app_state(LaunchOptions(nodes=2)))}


def test_a_tilde_is_the_home_folder() -> None:
    before = app_state()
    after = changed(before, row(before, "directory"), "~/runs")
    assert after.options.directory == str(Path.home() / "runs")


def test_choices_and_switches_go_round() -> None:
    now = app_state()
    for name, value in (("ids", "uuid"), ("ids", "index"), ("numa", True), ("numa", False)):
        now = pressed(now, row(now, name))
        assert getattr(now.options, name) == value
    seen = []
    for _ in range(5):
        now = pressed(now, row(now, "launcher"))
        seen.append(now.launcher)
    assert sorted(seen) == ["accelerate", "deepspeed", "mpirun", "python", "torchrun"]
    assert changed(now, row(now, "launcher"), None).options.launcher == "auto"


def test_processes_are_one_a_device_unless_they_are_said() -> None:
    options = LaunchOptions(("torchrun", "train.py"))
    assert row(app_state(options, chosen=4), "processes").value == "4"
    assert row(app_state(), "processes").value == "1"
    assert row(app_state(LaunchOptions(processes=3), chosen=4), "processes").value == "3"


# Variables


def test_an_offered_variable_goes_on_and_off() -> None:
    before = app_state()
    after = pressed(before, row(before, "NCCL_DEBUG"))
    assert after.options.additions == (("NCCL_DEBUG", "INFO"),)
    assert row(after, "NCCL_DEBUG").given
    assert pressed(after, row(after, "NCCL_DEBUG")).options == before.options
    assert changed(after, row(after, "NCCL_DEBUG"), None).options == before.options


def test_an_offered_variable_takes_another_value_and_its_row_shows_it() -> None:
    before = app_state()
    after = changed(before, row(before, "NCCL_DEBUG"), "WARN")
    assert after.options.additions == (("NCCL_DEBUG", "WARN"),)
    assert row(after, "NCCL_DEBUG").value == "WARN"
    assert names(after) == names(before)


def test_a_variable_of_ones_own_is_added_changed_and_taken_out() -> None:
    now = app_state()
    now = changed(now, row(now, NEW), "lower_case= a b =c ")
    assert now.options.additions == (("lower_case", " a b =c "),)
    assert names(now)[0] == "lower_case"
    now = changed(now, row(now, "lower_case"), "2")
    now = changed(now, row(now, NEW), "B=")
    assert now.options.additions == (("lower_case", "2"), ("B", ""))
    now = changed(now, row(now, "lower_case"), None)
    assert now.options.additions == (("B", ""),)
    assert pressed(now, row(now, "B")).options.additions == ()


def test_nothing_typed_for_a_variable_takes_it_out_as_the_prompt_says() -> None:
    now = app_state()
    now = changed(now, row(now, NEW), "A=1")
    assert changed(now, row(now, "A"), None).options.additions == ()
    assert changed(now, row(now, NEW), None).options == now.options


def test_a_variable_typed_twice_has_the_last_value_only() -> None:
    now = app_state()
    for text in ("A=1", "B=2", "A=3"):
        now = changed(now, row(now, NEW), text)
    assert now.options.additions == (("A", "3"), ("B", "2"))


def test_threads_are_offered_where_the_cpus_near_the_devices_are_known() -> None:
    known = app_state(chosen=2)
    threads = next(offer for offer in hints(known.snapshot, known.selected) if offer.name == THREADS)
    assert row(known, THREADS).value == threads.value
    assert int(threads.value) >= 1
    assert THREADS not in names(app_state())
    snapshot = known.snapshot
    assert snapshot is not None
    assert THREADS not in names(known.with_snapshot(replace(snapshot, topology=None)))
    assert THREADS not in names(app_state(box=None))


def test_a_variable_with_an_empty_value_is_shown_as_one_that_is_set() -> None:
    now = app_state()
    now = changed(now, row(now, NEW), "lower=")
    lines, places = settings(rows(now), 80)
    shown = {rows(now)[place].label: line for line, place in zip(lines, places, strict=True) if place}
    assert "".join(text for text, _ in shown["lower"]).startswith(" [x] lower=")
    assert "[" not in "".join(text for text, _ in shown["another …"])


@each_row("width", [20, 40, 80, 130, 200])
def test_no_row_is_wider_than_the_screen(width: int) -> None:
    now = app_state(
        LaunchOptions(("python",), directory="/" + "d" * 300, additions=(("A", "ä" * 300),), nodes=2),
        chosen=2,
    )
    lines, places = settings(rows(now), width)
    assert len(lines) == len(places)
    assert all(sum(len(text) for text, _ in line) <= width for line in lines)


def test_a_wide_screen_shows_long_values_whole() -> None:
    now = app_state(chosen=2)
    lines, _ = settings(rows(now), 130)
    shown = "\n".join("".join(text for text, _ in line) for line in lines)
    assert "…\n" not in shown
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " in shown
