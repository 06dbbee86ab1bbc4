"""The list of processes: its order, its filter, its trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.choosing.rules import Rules
from gputui.choosing.verdict import GLYPHS
from gputui.inventory.claim import Claim
from gputui.inventory.process import Ancestor, Process
from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import SORTS, Form, Row, groups, next_step, rows
from gputui.tui.views.processes import listed, processes
from gputui.tui.views.text import Line
from table_tests import each_row
from unit.builders import GIB, NOW, box, busy, gpu, instance, job

SHELL, TMUX = Ancestor(50, "bash"), Ancestor(40, "tmux")
TORCHRUN = Ancestor(60, "torchrun train.py")


def app_state(*processes: Process) -> AppState:
    """A state with one GPU per process."""
    return AppState({}).with_snapshot(box(*(busy(gpu(n), each) for n, each in enumerate(processes))))


def pids(found: tuple[Row, ...]) -> list[str]:
    return [row.pid for row in found]


def drawn(found: tuple[Row, ...]) -> list[tuple[int, str]]:
    return [(row.depth, row.pid) for row in found]


@pytest.fixture
def three() -> AppState:
    return app_state(
        job(3, user="ines", memory=2 * GIB, started=NOW - 10),
        job(1, user="bo", memory=9 * GIB, started=NOW - 99),
        job(2, user="bo", memory=4 * GIB, started=NOW - 50),
    )


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("device", ["3", "1", "2"]),
        ("memory", ["1", "2", "3"]),
        ("age", ["1", "2", "3"]),
        ("user", ["1", "2", "3"]),
    ],
)
def test_each_order(sort: str, order: list[str], three: AppState) -> None:
    assert pids(rows(three, sort)) == order


def test_beside_the_table_come_first_those_who_may_be_asked_then_mine() -> None:
    ana, bo, me = job(1, user="ana"), job(2, user="bo", started=0.0), job(3, user="me", own=True)
    state = AppState({}, rules=Rules(idle=60))
    for now in (NOW, NOW + 90):
        devices = (busy(gpu(0), ana), replace(busy(gpu(1), bo), utilization=0), busy(gpu(2), me))
        state = state.with_snapshot(replace(box(*devices), time=now))
    lines = ["".join(text for text, _ in line) for line in processes(state, 100, 9)[2:]]
    assert [line.split()[:2] for line in lines] == [["1", "bo"], ["2", "you"], ["0", "ana"]]
    # The first to be shown are the last to be counted as hidden.
    assert "bo" in processes(state, 100, 3)[1][2][0]


def test_what_is_not_known_of_a_process_comes_last() -> None:
    found = app_state(job(1, memory=None, started=None), job(2))
    assert pids(rows(found, "memory")) == pids(rows(found, "age")) == ["2", "1"]


def test_memory_that_nobody_is_seen_to_hold_is_in_the_order_of_memory() -> None:
    held = gpu(1, memory_used=22 * GIB, memory_free=58 * GIB)
    snapshot = box(busy(gpu(0), job(1, memory=GIB)), held, busy(gpu(2), job(2, memory=30 * GIB)))
    assert [row.label for row in rows(AppState({}).with_snapshot(snapshot), "memory")] == ["2", "1", "0"]


def test_of_equals_the_order_of_the_devices_counts() -> None:
    many = app_state(*(job(n + 1, memory=GIB) for n in range(12)))
    for sort in SORTS:
        assert [row.label for row in rows(many, sort)] == [str(n) for n in range(12)]


def test_a_device_that_is_held_or_claimed_or_lost_has_a_row_and_a_free_one_has_none() -> None:
    held = gpu(0, memory_used=22 * GIB, memory_free=58 * GIB)
    snapshot = replace(box(held, gpu(1), gpu(2)), claims=(Claim(gpu(1).key, "ana", NOW - 60, "x"),))
    found = rows(AppState({}).with_snapshot(snapshot))
    assert [(row.label, row.user, row.pid, row.process) for row in found] == [
        ("0", "–", "", None),
        ("1", "ana", "", None),
    ]
    assert found[0].memory == "22.0G" and [row.state for row in found] == ["held", "claimed"]


def test_a_device_that_is_cooling_down_has_nothing_on_it_and_no_row() -> None:
    before = app_state(job(1)).with_snapshot(box(busy(gpu(0), job(1)), time=NOW))
    after = before.with_snapshot(box(gpu(0), time=NOW + 1))
    assert after.verdicts[gpu(0).key].state == "cooling"
    assert rows(after) == () and groups(after) == []


# The filter


@each_row(
    ("wanted", "found"),
    [
        ("", ["1", "2", "3"]),
        ("MIRA", ["1"]),
        ("sweep", ["2"]),
        ("docker 3f", ["3"]),
        ("gpu 1", ["2"]),
        ("GPU 2", ["3"]),
        ("nobody", []),
        ("gp", []),
        ("user mira", ["1"]),
        ("user mir", []),
    ],
)
def test_what_is_typed_is_looked_for_everywhere(wanted: str, found: list[str]) -> None:
    those = app_state(
        job(1, user="mira", command="python train.py"),
        job(2, user="olek", command="python -m sweep"),
        job(3, user="bo", command="serve", container="docker 3f2a9c01d4e5"),
    )
    assert pids(rows(those, filter_text=wanted)) == found


def test_a_device_is_that_device_and_not_all_that_begin_like_it() -> None:
    sixteen = app_state(*(job(100 + n) for n in range(12)))
    assert [row.label for row in rows(sixteen, filter_text="gpu 1")] == ["1"]


def test_a_gpu_has_its_instances_with_it() -> None:
    parent = gpu(0, mig=True)
    parts = (replace(instance(parent, n), processes=(job(n + 7),)) for n in (0, 1))
    there = AppState({}).with_snapshot(box(parent, *parts))
    assert pids(rows(there, filter_text="gpu 0")) == ["7", "8"]
    assert pids(rows(there, filter_text="gpu 0:1")) == ["8"]


# Trees


def test_those_of_one_launcher_stand_under_it_and_it_is_drawn_once() -> None:
    ancestors = (TORCHRUN, SHELL)
    found = rows(app_state(job(1, ancestors=ancestors), job(2), job(3, ancestors=ancestors)), form="trees")
    assert drawn(found) == [(0, "50"), (1, "60"), (2, "1"), (2, "3"), (0, "2")]
    assert [row.what for row in found[:2]] == ["bash", "torchrun train.py"]
    assert found[0].process is None and found[2].process is not None


def test_a_shared_ancestor_is_drawn_once_whatever_stands_between() -> None:
    other = Ancestor(61, "torchrun eval.py")
    found = rows(
        app_state(
            job(1, ancestors=(TORCHRUN, SHELL)),
            job(2, ancestors=(other, SHELL)),
            job(3, ancestors=(TORCHRUN, SHELL)),
        ),
        form="trees",
    )
    assert drawn(found) == [(0, "50"), (1, "60"), (2, "1"), (2, "3"), (1, "61"), (2, "2")]


def test_an_ancestor_that_is_on_a_device_itself_is_drawn_there() -> None:
    """This is a training whose loaders use its GPU."""
    loader = job(70, ancestors=(Ancestor(60, "python train.py"), SHELL, TMUX))
    trainer = job(60, ancestors=(SHELL, TMUX))
    for those in ((trainer, loader), (loader, trainer)):
        found = rows(app_state(*those), form="trees")
        assert drawn(found) == [(0, "40"), (1, "50"), (2, "60"), (3, "70")]
        assert found[2].process == trainer


def test_relatives_at_different_depths_have_one_tree() -> None:
    far = Ancestor(30, "systemd --user")
    shallow = job(1, ancestors=(TORCHRUN, SHELL, TMUX, far))
    deep = job(2, ancestors=(Ancestor(1, "x"), TORCHRUN, SHELL, TMUX, far))
    found = rows(app_state(shallow, deep), form="trees")
    assert drawn(found) == [(0, "40"), (1, "50"), (2, "60"), (3, "1"), (4, "2")]


def test_only_the_nearest_that_started_it_are_drawn() -> None:
    ancestors = tuple(Ancestor(90 - n, f"a{n}") for n in range(8))
    assert pids(rows(app_state(job(1, ancestors=ancestors)), form="trees")) == ["88", "89", "90", "1"]


def test_a_process_on_two_devices_is_told_on_each() -> None:
    both = job(1, ancestors=(SHELL,))
    found = rows(app_state(both, both), form="trees")
    assert [(row.label, row.depth) for row in found] == [("", 0), ("0", 1), ("1", 1)]


def test_the_filter_leaves_of_a_tree_what_leads_to_what_was_found() -> None:
    found = rows(
        app_state(
            job(1, user="bo", ancestors=(TORCHRUN, SHELL)), job(2, user="ana", ancestors=(TORCHRUN, SHELL))
        ),
        filter_text="ana",
        form="trees",
    )
    assert drawn(found) == [(0, "50"), (1, "60"), (2, "2")]


def test_trees_stand_in_the_order_of_their_first() -> None:
    found = rows(
        app_state(
            job(1, memory=GIB, ancestors=(SHELL,)),
            job(2, memory=2 * GIB),
            job(3, memory=3 * GIB, ancestors=(SHELL,)),
        ),
        "memory",
        form="trees",
    )
    assert drawn(found) == [(0, "50"), (1, "3"), (1, "1"), (0, "2")]


def test_a_recording_in_which_a_process_started_itself_ends() -> None:
    loop = job(1, ancestors=(Ancestor(1, "x"), Ancestor(2, "y"), Ancestor(1, "x")))
    assert rows(app_state(loop, loop), form="trees")


@st.composite
def families(draw: st.DrawFn) -> Snapshot:
    """Processes with few different parents: each pid has one parent, a lower pid."""
    parents = [draw(st.integers(0, n)) for n in range(12)]

    def above(pid: int) -> Iterator[int]:
        while pid:
            pid = parents[pid - 1]
            if pid:
                yield pid

    devices = []
    for place in range(draw(st.integers(1, 6))):
        on = draw(st.lists(st.integers(1, 12), max_size=4, unique=True))
        there = tuple(job(p, ancestors=tuple(Ancestor(a, f"a{a}") for a in above(p))) for p in on)
        devices.append(busy(gpu(place), *there) if there else gpu(place))
    return box(*devices)


@given(families(), st.sampled_from(SORTS), st.sampled_from(["", "gpu 0"]))
@settings(max_examples=50, deadline=None)
def test_a_tree_has_every_process_of_the_list_and_no_ancestor_twice(
    snapshot: Snapshot, sort: str, wanted: str
) -> None:
    there = AppState({}).with_snapshot(snapshot)
    flat, tree = rows(there, sort, wanted), rows(there, sort, wanted, form="trees")
    on_devices = [row for row in tree if row.process]
    assert sorted((r.label, r.pid) for r in on_devices) == sorted((r.label, r.pid) for r in flat)
    above = [row.pid for row in tree if not row.process]
    assert len(above) == len(set(above)) and not set(above) & {row.pid for row in on_devices}
    path: list[str] = []
    for row in tree:
        assert row.depth <= len(path)
        path = [*path[: row.depth], row.pid]
        if row.process:
            known = [str(each.pid) for each in reversed(row.process.ancestors)]
            assert path[:-1] == [pid for pid in known if pid in path]
            assert row.process.ancestors[:1] == () or path[-2] == known[-1]


def test_hostile_text_is_harmless_in_every_column() -> None:
    evil = "\x1b]0;x\x07\x9b31m\u202e\n"
    process = job(1, user=evil, command=evil, container=evil, ancestors=(Ancestor(2, evil),))
    noted = job(3, user=None, command=None, note=evil)
    claimed = replace(
        box(busy(gpu(0), process), busy(gpu(1), noted), gpu(2)), claims=(Claim(gpu(2).key, evil),)
    )
    found = rows(AppState({}).with_snapshot(claimed), form="trees")
    for line in listed(found, 200).lines(0, 99):
        assert all(piece.isprintable() for piece, _ in line)


# Facts of the host, and little room


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


@each_row("sort", ["load", "CPU", "RAM"])
def test_by_what_they_use_the_most_comes_first_and_the_unknown_last(sort: str) -> None:
    found = app_state(
        job(1), job(2, sm=5, host_cpu=5.0, host_memory=5), job(3, sm=90, host_cpu=90.0, host_memory=90)
    )
    assert pids(rows(found, sort)) == ["3", "2", "1"]


@each_row(("width", "columns"), [(60, []), (80, ["LOAD", "CPU"]), (130, ["LOAD", "CPU", "RAM"])])
def test_what_processes_use_has_columns_where_the_command_keeps_its_room(
    width: int, columns: list[str]
) -> None:
    found = rows(app_state(job(10001, user="somebody", sm=None, host_cpu=104.2, host_memory=9 * GIB)))
    listing = listed(found, width)
    heading = texts([listing.heading])[0].split()
    assert [name for name in heading if name in ("LOAD", "CPU", "RAM")] == columns
    shown = texts(listing.lines(0, 1))[0]
    assert ("104%" in shown, "9.0G" in shown) == ("CPU" in columns, "RAM" in columns)
    assert ("–" in shown) == ("LOAD" in columns)


def test_commands_are_wrapped_where_all_fit_and_cut_where_not() -> None:
    found = rows(app_state(job(1, command="python " + "word " * 40)))
    assert set(listed(found, 80, 20).items) == {0} and len(listed(found, 80, 20).items) > 1
    assert listed(found, 80, 3).items == (0,)


def test_where_the_container_has_no_column_it_stands_behind_the_command() -> None:
    found = rows(app_state(job(1, container="docker 3f2a9c01d4e5")))
    assert "WHERE" in texts([listed(found, 130).heading])[0]
    assert "WHERE" not in texts([listed(found, 80).heading])[0]
    assert "(docker 3f2a9c01d4e5)" in " ".join(" ".join(texts(listed(found, 80, 9).lines(0, 9))).split())


def test_one_job_on_several_devices_is_one_row_beside_the_table() -> None:
    workers = [job(n, command="torchrun train.py", memory=66 * GIB) for n in range(1, 5)]
    lines = texts(processes(app_state(*workers, job(9, user="ines")), 76, 10))
    _, _, *found = lines
    assert len(found) == 2 and found[0].split()[:4] == ["0–3", "mira", "4", "×"] and "66.0G" in found[0]
    assert found[1].split()[:2] == ["4", "ines"]


def test_jobs_of_one_command_and_several_users_or_on_one_device_are_not_one() -> None:
    two_users = app_state(job(1, user="a"), job(2, user="b"))
    assert len(processes(two_users, 76, 10)) == 4
    one_device = AppState({}).with_snapshot(box(busy(gpu(0), job(1), job(2))))
    assert len(processes(one_device, 76, 10)) == 4


@each_row(
    ("second", "together"),
    [
        (job(1), True),
        (job(2), True),
        (job(2, started=NOW - 3595), True),
        (job(2, started=NOW - 60), False),
        (job(2, ancestors=(TMUX,)), False),
        (job(2, ancestors=(SHELL, TMUX)), True),
        (job(2, started=NOW - 60, ancestors=(Ancestor(1, "python train.py"), SHELL)), True),
    ],
)
def test_processes_of_one_command_are_one_row_only_where_one_start_made_them(
    second: Process, together: bool
) -> None:
    """A user may run the same command several times, from the same shell too."""
    first = job(1, ancestors=(SHELL,))
    second = second if second.ancestors else replace(second, ancestors=(SHELL,))
    for both in ((first, second), (second, first)):
        assert len(processes(app_state(*both), 76, 10)) == (3 if together else 4)


def test_no_row_stands_for_a_device_in_use_and_for_an_idle_one() -> None:
    state = AppState({}, rules=Rules(idle=60))
    used, idle = busy(gpu(0), job(1)), replace(busy(gpu(1), job(2)), utilization=0)
    for seconds in (0, 30, 60, 90):
        state = state.with_snapshot(box(used, idle, time=NOW + seconds))
    _, _, *found = texts(processes(state, 76, 10))
    assert [line.split()[0] for line in found] == ["1", "0"]
    assert [GLYPHS["idle"] in line for line in found] == [True, False]


def test_no_row_stands_for_much_memory_and_for_little() -> None:
    """Two jobs that one script has started: the mean was nobody's."""
    state = app_state(job(1, memory=68 * GIB), job(2, memory=29 * GIB), job(3, memory=67 * GIB))
    _, _, *found = texts(processes(state, 76, 10))
    assert [line.split()[0] for line in found] == ["0,2", "1"] and "29.0G" in found[1]


def test_unequal_and_unknown_memory_of_a_folded_job() -> None:
    unequal = app_state(job(1, memory=60 * GIB), job(2, memory=62 * GIB))
    assert "2 × ~61.0G" in texts(processes(unequal, 76, 10))[2]
    unknown = app_state(job(1, memory=None), job(2, memory=62 * GIB))
    assert "~" not in texts(processes(unknown, 76, 10))[2] and "–" in texts(processes(unknown, 76, 10))[2]


def test_what_has_no_line_beside_the_table_is_counted() -> None:
    many = app_state(*(job(n + 1, command=f"python {n}.py") for n in range(20)))
    lines = texts(processes(many, 76, 9))
    assert len(lines) == 9 and "13 more: p" in lines[0] and "6.py" in lines[-1]
    assert len(processes(many, 76, 22)) == 22


def test_a_list_names_a_program_without_its_path_and_finds_it_by_that() -> None:
    path = "/root/.pyenv/versions/3.11.7/bin/python3"
    state = app_state(job(1, command=f"{path} train.py --lr 3e-4"), job(2, command=f"{path} -c \x1b[2J"))
    panel = texts(processes(state, 120, 20))
    assert not any(".pyenv" in line for line in panel) and any("python3 train.py --lr" in x for x in panel)
    narrow, wide = (texts(listed(rows(state), width).lines(0, 2)) for width in (80, 160))
    assert all(" python3 " in line for line in (*narrow, *wide))
    assert "\x1b" not in "".join((*panel, *narrow, *wide))
    assert pids(rows(state, filter_text=".pyenv")) == ["1", "2"]


def test_processes_that_the_driver_does_not_list_are_not_said_to_be_none() -> None:
    unlisted, empty = gpu(0, processes=None), gpu(1, processes=())
    for devices, told in (((unlisted,), "does not list"), ((unlisted, empty), "none"), ((), "none")):
        assert told in texts(processes(AppState({}).with_snapshot(box(*devices)), 80, 20))[1]


def test_held_memory_is_told_by_the_table_and_has_its_advice_on_the_pages() -> None:
    held = gpu(0, memory_used=22 * GIB, memory_free=58 * GIB)
    state = AppState({}).with_snapshot(box(held))
    assert texts(processes(state, 80, 20))[1:] == [" none"]
    assert (
        "sudo fuser" in rows(state)[0].what and "sudo fuser" in texts(listed(rows(state), 160).lines(0, 1))[0]
    )


@pytest.mark.parametrize("form", ["list", "people"])
def test_from_the_first_minute_an_idle_holder_can_be_asked_in_both_groupings(form: Form) -> None:
    state = AppState({}, rules=Rules(idle=600))
    for seconds, asked in ((0, False), (30, False), (70, True)):
        device = replace(busy(gpu(1), job(2, user="bo", started=0.0)), utilization=0)
        state = state.with_snapshot(replace(box(device), time=NOW + seconds))
        steps = [next_step(state, row) for row in rows(state, form=form)]
        assert [bool(step) for step in steps] == [asked] * len(steps), seconds
