"""AppState: what a reading keeps, what can be selected, and the effect of each change of the selection."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from gputui.allocating.allocation import Queue
from gputui.allocating.settings import ScreenSettings
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.rules import Rules
from gputui.choosing.selection import not_free
from gputui.choosing.verdict_text import not_free_lines
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, Fault
from gputui.inventory.job import Job, JobDevice
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.shell_words import assignments, split
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.timeline.store import Store, Timelines
from gputui.tui.app_state import AppState
from gputui.tui.views.jobs_and_queue import rows
from gputui.tui.views.selection import selection_lines
from gputui.tui.wait_request import read_wait_request
from gputui.vendors.nvidia.vendor import VENDOR
from messages import numbers
from table_tests import each_row
from unit.builders import NOW, box, busy, gpu, job
from unit.host_environments import Told

FOUR = tuple(map(gpu, range(4)))
SHARED = at(BOXES["shared"], 0.0, NOW)
"""Eight GPUs; 4, 5 and 7 are free."""


def app_state(*devices: Device, **facts: object) -> AppState:
    """An app state that has seen these devices, or four idle ones."""
    return AppState(**{"environ": {}, **facts}).with_snapshot(box(*(devices or FOUR)))  # type: ignore[arg-type]


def with_selected(state: AppState, *indices: int) -> AppState:
    for index in indices:
        (device,) = state.gpus_with_index(index)
        state, _ = state.toggle(device)
    return state


def selected(state: AppState) -> list[int]:
    return [device.index for device in state.selected]


# A new reading


def test_a_reading_changes_only_what_follows_from_it() -> None:
    before = replace(
        with_selected(app_state(options=LaunchOptions(("true",)), rules=Rules(mine=True)), 2),
        label="demo",
        measured={(FOUR[0].key, FOUR[1].key): 42.0},
        order="fastest",
    )
    before = replace(before, suggestion=before.select_best(2)[0].suggestion)
    after = before.with_snapshot(box(*FOUR, time=NOW + 1))
    for name in {field.name for field in fields(AppState)} - {"snapshot", "watch"}:
        assert getattr(after, name) == getattr(before, name), name
    assert after.snapshot is not None and after.snapshot.time == NOW + 1


def test_the_rules_judge_every_reading() -> None:
    ignoring = app_state(busy(FOUR[0], job(user="ana")), rules=Rules(ignore=frozenset(("ana",))))
    again = ignoring.with_snapshot(box(busy(FOUR[0], job(user="ana")), time=NOW + 1))
    assert [v.state for state in (ignoring, again) for v in state.verdicts.values()] == ["free", "free"]


def test_a_reading_ends_a_problem_and_a_problem_keeps_the_reading() -> None:
    state = app_state().with_problem("no driver")
    assert (state.problem, len(state.rows)) == ("no driver", 4)
    assert state.with_snapshot(box(*FOUR)).problem is None


def test_a_device_that_has_vanished_is_deselected_and_its_verdict_forgotten() -> None:
    state = with_selected(app_state(), 2, 1).with_snapshot(box(*FOUR[:2]))
    assert selected(state) == [1]
    assert set(state.verdicts_when_selected) == {FOUR[1].key}


def test_the_cursor_stays_on_its_device_and_goes_to_the_first_row_when_that_has_vanished() -> None:
    state = app_state().move_cursor(2)
    assert state.with_snapshot(box(*FOUR)).cursor == FOUR[2].key
    assert state.with_snapshot(box(*FOUR[:2])).cursor == FOUR[0].key


@pytest.mark.parametrize("command", [(), ("python", "train.py")])
def test_the_cursor_of_a_demo_begins_on_a_free_device(command: tuple[str, ...]) -> None:
    demo = AppState({}, LaunchOptions(command), label="demo lost")
    assert demo.with_snapshot(box(busy(FOUR[0]), *FOUR[1:])).cursor == FOUR[1].key
    assert demo.with_snapshot(box(*map(busy, FOUR))).cursor == FOUR[0].key
    assert demo.with_snapshot(box()).cursor is None


def test_without_a_reading_there_is_nothing_to_select() -> None:
    state = AppState({})
    assert (state.rows, state.selected, state.verdicts, state.limits) == ((), (), {}, None)
    assert state.current is None and state.gpus_with_index(0) == ()
    assert state.move_cursor(1) is state and state.reorder(1)[0] is state
    for unchanged, reason in (state.add_best(), state.in_order("best")):
        assert unchanged is state and reason


# The listed devices


def listed(state: AppState, sort: str | None = None, filter: str = "") -> list[int]:
    return [d.index for d in state.with_screen(ScreenSettings(sort=sort, filter=filter)).rows]


def test_rows_are_sorted_and_filtered_only_where_a_person_asks() -> None:
    mira = busy(FOUR[1], job())
    warm = replace(FOUR[2], temperature=80, utilization=None)
    state = app_state(FOUR[0], mira, warm, busy(FOUR[3], job(user="ana")))
    assert listed(state) == [0, 1, 2, 3]
    assert listed(state, "utilization") == [1, 3, 0, 2], "what is not known comes last"
    assert listed(state, "temperature")[0] == 2
    assert listed(state, "user") == [3, 1, 0, 2]
    assert listed(state, filter="free") == [0]
    assert listed(state, filter="MIRA") == [1]
    assert listed(state, filter="busy h100") == [1, 3]
    assert listed(state, "user", "busy") == [3, 1]


def test_the_filter_finds_each_state_by_the_word_that_is_shown_for_it() -> None:
    own = job(pid=2, user="me", own=True)
    claims = (Claim(FOUR[2].key, "ana", None, "x"), Claim(FOUR[3].key, "me", None, "x", own=True))
    bo, me = replace(busy(FOUR[0], job(user="bo")), utilization=0), busy(FOUR[1], own)
    taken = (bo, me, *FOUR[2:])
    first = app_state(*taken, rules=Rules(idle=60.0))
    state = first.with_snapshot(replace(box(*taken), claims=claims, time=NOW + 80))
    assert listed(state, filter="idle") == [0] and listed(state, filter="claimed") == [2, 3]
    assert listed(state, filter="busy") == [0, 1]
    for word in ("you", "yours", "mine"):
        assert listed(state, filter=word) == [1, 3], word


def test_the_cursor_leaves_a_device_that_a_filter_hides_unless_it_is_selected() -> None:
    state = replace(app_state(FOUR[0], busy(FOUR[1]), FOUR[2]), cursor=FOUR[1].key)
    assert state.with_screen(ScreenSettings(filter="free")).cursor == FOUR[2].key
    assert state.with_screen(ScreenSettings(filter="nobody")).current is None
    kept = with_selected(state, 1).with_screen(ScreenSettings(filter="free"))
    assert kept.cursor == FOUR[1].key and kept.move_cursor(1).cursor == FOUR[0].key
    # The cursor was on a device that was free a moment ago.
    state = replace(app_state(), cursor=FOUR[1].key).with_screen(ScreenSettings(filter="free"))
    assert state.with_snapshot(box(FOUR[0], busy(FOUR[1]), *FOUR[2:], time=NOW + 1)).cursor == FOUR[2].key


# Selecting by hand


def test_selecting_moves_neither_rows_nor_the_cursor() -> None:
    state = with_selected(replace(app_state(), cursor=FOUR[1].key), 2, 0)
    assert [device.index for device in state.rows] == [0, 1, 2, 3]
    assert state.cursor == FOUR[1].key
    assert selected(state) == [2, 0]


def test_the_verdict_at_the_moment_of_selecting_stays() -> None:
    state = with_selected(app_state(), 0).with_snapshot(box(busy(FOUR[0]), *FOUR[1:], time=NOW + 1))
    state = with_selected(state, 1)
    assert state.verdicts_when_selected[FOUR[0].key].state == "free"
    assert state.verdicts[FOUR[0].key].state == "busy"


def test_a_busy_device_can_be_selected_and_the_warning_of_it_stays() -> None:
    state, message = app_state(busy(FOUR[0]), *FOUR[1:]).toggle(busy(FOUR[0]))
    assert selected(state) == [0] and message is None
    assert any("GPU 0 is busy" in warning for warning in state.warnings)


@each_row(
    ("device", "environ"),
    [
        (replace(FOUR[0], mig=True), {}),
        (replace(FOUR[0], fault=Fault("lost", "GPU is lost")), {}),
        (FOUR[0], {VENDOR.visibility.variable: "1,2"}),
    ],
)
def test_what_cannot_be_used_cannot_be_selected(device: Device, environ: dict[str, str]) -> None:
    state = app_state(device, *FOUR[1:], environ=environ)
    unchanged, message = state.toggle(device)
    assert unchanged is state and message


def test_cpu_only_and_clear() -> None:
    state = with_selected(app_state(), 0).cpu_only()
    assert state.selection.cpu_only and selected(state) == []
    assert state.launch.environment({})[VENDOR.visibility.variable] == ""
    assert not state.cpu_only().selection.decided
    assert not with_selected(app_state(), 0).clear().selection.decided


# The best devices


def test_the_best_are_added_to_those_selected_by_hand() -> None:
    state = with_selected(AppState({}).with_snapshot(SHARED), 7)
    state, _ = state.add_best()
    assert selected(state)[0] == 7 and len(selected(state)) == 2
    state, _ = state.add_best()
    assert selected(state)[0] == 7 and sorted(selected(state)) == [4, 5, 7]
    unchanged, message = state.add_best()
    assert unchanged is state and message


def taken(*indices: int) -> Snapshot:
    """The box whose GPUs 4, 5 and 7 were free, after others have claimed some of them."""
    keys = {SHARED.label(device): device.key for device in SHARED.devices}
    claims = tuple(Claim(keys[str(index)], "ana", None, "python x.py") for index in indices)
    return replace(SHARED, claims=(*SHARED.claims, *claims), time=NOW + 1)


def test_the_best_come_in_place_of_those_that_are_no_longer_free() -> None:
    state = AppState({}).with_snapshot(SHARED).select_best(1)[0]
    (lost,) = selected(state)
    others = {4, 5, 7} - {lost}
    state, message = state.with_snapshot(taken(lost)).add_best()
    assert len(selected(state)) == 1 and set(selected(state)) < others
    assert message is not None and numbers(message)[0] == lost
    state, _ = state.add_best()
    assert set(selected(state)) == others
    assert state.add_best()[0] is state


def test_what_was_selected_by_hand_and_is_free_stays_when_others_are_replaced() -> None:
    state = with_selected(AppState({}).with_snapshot(SHARED), 7, 4)
    state, _ = state.with_snapshot(taken(4)).add_best()
    assert selected(state) == [7, 5]


def test_a_device_that_was_not_free_when_it_was_selected_stays_selected() -> None:
    state, _ = with_selected(app_state(busy(FOUR[0]), *FOUR[1:]), 0).add_best()
    assert selected(state)[0] == 0 and len(selected(state)) == 2


def test_no_other_set_has_a_device_that_is_no_longer_free() -> None:
    state, _ = AppState({}).with_snapshot(at(BOXES["dgx-1"], 0.0, NOW)).select_best(2)
    (gone,) = set(selected(state.next_best()[0])) - set(selected(state))
    claim = Claim(state.gpus_with_index(gone)[0].key, "ana", None, "python x.py")
    state = state.with_snapshot(replace(state.box, claims=(claim,), time=NOW + 1))
    seen = set()
    for _ in range(6):
        state, _ = state.next_best()
        seen.update(selected(state))
    assert gone not in seen


def test_where_too_few_are_free_in_place_of_those_that_are_not_the_number_is_kept() -> None:
    state = with_selected(app_state(*FOUR[:2]), 0, 1)
    claim = Claim(FOUR[0].key, "ana", None, "python x.py")
    later = replace(box(*FOUR[:2], time=NOW + 1), claims=(claim,))
    state, message = state.with_snapshot(later).add_best()
    assert state.short_of == 2 and message is not None and message.startswith("1 GPU is free")


def test_the_next_best_sets_come_round_to_the_first() -> None:
    state, _ = AppState({}).with_snapshot(at(BOXES["dgx-1"], 0.0, NOW)).select_best(2)
    assert state.suggested is not None
    sets = [selected(state)]
    for _ in range(len(state.suggested.alternatives)):
        state, _ = state.next_best()
        sets.append(selected(state))
    assert sets[0] == sets[-1] and len({tuple(each) for each in sets}) == len(sets) - 1 > 1


def test_a_change_by_hand_ends_the_suggestion() -> None:
    state, _ = AppState({}).with_snapshot(SHARED).select_best(2)
    assert state.suggested is not None
    assert with_selected(state, 7).suggested is None


def test_the_grouping_lasts_as_long_as_it_fits() -> None:
    pairs = Grouping(tensor=2)
    state, _ = AppState({}).with_snapshot(at(BOXES["idle"], 0.0, NOW)).select_best(2, pairs)
    assert state.grouping == pairs
    assert with_selected(state, selected(state)[0]).grouping == ALL_REDUCE


def test_a_device_that_was_selected_by_hand_stays_and_the_message_says_so() -> None:
    state = with_selected(app_state(*FOUR[:3], busy(FOUR[3])), 3)
    best, message = state.add_best()
    assert selected(best)[0] == 3 and len(selected(best)) == 2 and "(3 stays)" in message
    assert "stay" not in app_state(*FOUR).add_best()[1]


def test_inherited_devices_are_the_only_ones_to_be_had() -> None:
    state, _ = AppState({VENDOR.visibility.variable: "1,2"}).with_snapshot(box(*FOUR)).select_best(2)
    assert sorted(selected(state)) == [1, 2]
    unchanged, message = state.select_best(3)
    assert unchanged.selection == state.selection
    assert message == "2 GPUs are free in this session, 3 asked for"


def test_who_asks_for_more_than_are_free_is_told_how_many_are_and_the_number_is_kept() -> None:
    state, message = app_state(*FOUR[:2], busy(FOUR[2])).select_best(3)
    assert (message, state.short_of) == ("2 GPUs are free, 3 asked for", 3)
    assert with_selected(state, 0).short_of is None


def test_who_asked_for_more_than_are_free_waits_for_that_number_and_not_for_the_selected() -> None:
    selected = with_selected(app_state(*FOUR[:2], busy(FOUR[2])), 0)
    short, _ = selected.select_best(3)
    assert read_wait_request("", selected).names == FOUR[0].key
    assert (read_wait_request("", short).count, read_wait_request("", short).names) == (3, None)


def test_who_asks_for_a_number_that_no_group_has_is_told_so_and_not_that_none_is_free() -> None:
    gaudi = AppState({}).with_snapshot(at(BOXES["gaudi"], 0.0, NOW))
    state, message = gaudi.select_best(3)
    assert state.short_of == 3 and message is not None and message.startswith("6 GPUs are free")


def test_who_asks_for_more_than_one_vendor_has_is_told_that_it_is_the_vendor() -> None:
    state, message = AppState({}).with_snapshot(at(BOXES["mixed-vendors"], 0.0, NOW)).select_best(3)
    assert state.short_of == 3 and message is not None and "one vendor" in message


# The owners of the devices


def test_ones_own_job_is_told_as_such_before_its_processes_are_seen_and_then() -> None:
    claim = Claim(FOUR[0].key, "root", NOW - 2, "python t.py", job="c2j7", own=True)
    mine = Job(
        id="c2j7", name="x", state="running", devices=(JobDevice(0, FOUR[0].key, None),), started=NOW - 2
    )
    for first in (FOUR[0], busy(FOUR[0], job(user="root"))):
        snapshot = replace(box(first, *FOUR[1:]), claims=(claim,), jobs=(mine,))
        state = with_selected(AppState({}, LaunchOptions(("true",))).with_snapshot(snapshot), 0)
        assert state.warnings == ("GPU 0 is in use by your job c2j7, 2s",)
        assert rows(state) == ([mine], ())
        asked = not_free_lines(not_free(state.selection, {}, snapshot, state.verdicts), snapshot)
        assert asked[FOUR[0].key] == "GPU 0 (cuda:0) is in use by your job c2j7, 2s"
    other = replace(box(*FOUR), claims=(replace(claim, own=False, user="ana", job=None),))
    assert rows(AppState({}).with_snapshot(other)) == ([], ()), "the table tells it"


def test_the_launch_line_says_who_waits_for_the_selected_devices() -> None:
    wanted = frozenset({FOUR[1].key})
    line = (
        Waiter((1, ""), "ana", 1, devices=wanted),
        Waiter((2, ""), "root", 2, devices=wanted | {FOUR[2].key}, job="x3f1", ours=True),
    )
    # A waiter that can never start, and one that has lost its place, block nobody.
    others = (
        Waiter((3, ""), "bo", 2, devices=wanted),
        Waiter((4, ""), "cy", 1, devices=wanted, silent=True),
    )
    state = AppState({}, LaunchOptions(("true",))).with_snapshot(
        replace(box(*FOUR), waiters=(*line, *others))
    )
    assert with_selected(state, 0).warnings == ()
    assert with_selected(state, 1).warnings == (Queue(line).text(),)
    assert Queue(line).text() == (
        "1 person is ahead of you in line: ana (1 GPU); your own job waits ahead (x3f1, 2 GPUs)"
    )


# Their order


def test_the_device_at_the_cursor_moves_and_the_cursor_with_it() -> None:
    state, _ = replace(with_selected(app_state(), 0, 1, 2), cursor=FOUR[0].key).reorder(1)
    state, _ = state.reorder(1)
    assert (selected(state), state.cursor) == ([1, 2, 0], FOUR[0].key)
    state, message = state.reorder(1)
    assert selected(state) == [1, 2, 0] and message == "GPU 0 is already the last one"


def test_a_device_is_dropped_at_a_place_of_the_order() -> None:
    state = with_selected(app_state(), 0, 1, 2, 3).move_to(FOUR[3].key, 1)
    assert (selected(state), state.cursor) == ([0, 3, 1, 2], FOUR[3].key)
    assert selected(state.move_to(FOUR[0].key, 3)) == [3, 1, 2, 0]
    assert selected(with_selected(app_state(), 0).move_to(FOUR[2].key, 0)) == [0]


def test_without_a_selected_device_at_the_cursor_the_last_one_moves() -> None:
    state, _ = replace(with_selected(app_state(), 0, 1), cursor=FOUR[3].key).reorder(-1)
    assert (selected(state), state.cursor) == ([1, 0], FOUR[1].key)


def test_an_order_is_that_of_the_selected_devices_until_another_is_selected() -> None:
    full, empty = replace(FOUR[0], memory_used=2**34, memory_free=2**34), FOUR[1]
    state, message = with_selected(app_state(full, empty), 0, 1).in_order("emptiest")
    assert selected(state) == [1, 0] and state.order == "emptiest" and message
    assert with_selected(state, 0).order is None


# The launch


def test_nothing_is_set_until_the_devices_are_decided() -> None:
    state = app_state(options=LaunchOptions(("true",)))
    assert state.launch.environment({}) == {}
    assert with_selected(state, 1).launch.environment({})[VENDOR.visibility.variable] == "1"


def test_warnings_name_devices_that_are_not_free_and_a_box_that_is_not_real() -> None:
    state = app_state(busy(FOUR[0]), *FOUR[1:], options=LaunchOptions(("true",)), label="demo: shared")
    assert state.warnings == ()
    not_free, not_real = with_selected(state, 0, 1).warnings
    assert "GPU 0" in not_free and "busy" in not_free
    assert "demo: shared" in not_real


# Inside a lease of one's own


def test_the_best_are_of_our_own_lease_and_any_other_can_be_selected_by_hand() -> None:
    claims = tuple(Claim(device.key, "ana", ours=True) for device in FOUR[2:])
    state = AppState({}).with_snapshot(replace(box(*FOUR), claims=claims))
    assert selected(state.select_best(2)[0]) == [2, 3]
    assert selected(state.select_best(3)[0]) == []
    assert selected(with_selected(state, 0)) == [0]


# The devices that the command names


def unread(line: str, *devices: Device, **files: str) -> AppState:
    """A state with a command that has not been read yet, and the files next to it (`c_yaml` is "c.yaml")."""
    additions, command = assignments(split(line))
    host = Told({name.replace("_", "."): text for name, text in files.items()})
    state = app_state(*devices, options=LaunchOptions(command, additions=additions), host_environment=host)
    assert state.command_is_unread
    return state


def with_command(line: str, *devices: Device, **files: str) -> AppState:
    """A state with a command that has been read."""
    return unread(line, *devices, **files).with_command_read()[0]


@each_row(
    ("line", "indices", "words"),
    [
        ("CUDA_VISIBLE_DEVICES=3,1 torchrun t.py", [3, 1], "CUDA_VISIBLE_DEVICES=3,1"),
        ("env CUDA_VISIBLE_DEVICES=3 python t.py", [3], "CUDA_VISIBLE_DEVICES=3"),
        ("accelerate launch --gpu_ids 2,0 t.py", [2, 0], "--gpu_ids 2,0"),
        ("deepspeed --num_gpus 2 t.py", [0, 1], "--num_gpus 2"),
        ("python t.py", [], ""),
    ],
)
def test_the_commands_own_choice_is_selected_and_marked(line: str, indices: list[int], words: str) -> None:
    state = with_command(line)
    assert selected(state) == indices
    assert state.command_choice is not None and state.command_choice.words == words
    assert not state.command_is_unread and state.contradiction is None
    assert not words or state.command_choice.selection == state.selection


def test_a_command_for_the_cpu_selects_that() -> None:
    assert with_command("CUDA_VISIBLE_DEVICES= python t.py").selection.cpu_only


def test_a_command_is_read_once_and_the_hand_is_free_afterwards() -> None:
    state = with_selected(with_command("deepspeed --num_gpus 2 t.py").clear(), 3)
    assert not state.with_snapshot(box(*FOUR)).command_is_unread
    # With another script and the same device options, the selection stays.
    edited = replace(state, options=LaunchOptions(("deepspeed", "--num_gpus", "2", "other.py")))
    assert edited.command_is_unread and selected(edited.with_command_read()[0]) == [3]
    assert selected(edited.with_command_read(again=True)[0]) == [0, 1]
    other = replace(state, options=LaunchOptions(("deepspeed", "--num_gpus", "3", "t.py")))
    assert selected(other.with_command_read()[0]) == [3]
    assert selected(other.clear().with_command_read()[0]) == [0, 1, 2]


@each_row(("indices", "warned"), [((3, 1), False), ((1,), True), ((), False)])
def test_a_number_does_not_replace_what_the_user_has_selected(indices: tuple[int, ...], warned: bool) -> None:
    """Only the user knows which devices, and in which order; () is CPU only."""
    state = app_state(*FOUR, options=LaunchOptions(("torchrun", "--nproc-per-node", "2", "t.py")))
    state = with_selected(state, *indices) if indices else state.cpu_only()
    after, message = state.with_command_read()
    assert after.selection == state.selection
    assert (message is not None and "--nproc-per-node 2" in message) == warned
    assert not after.command_is_unread


def test_a_proposal_follows_the_number_until_the_user_touches_it() -> None:
    state = with_command("torchrun --nproc-per-node 2 t.py")
    three = LaunchOptions(("torchrun", "--nproc-per-node", "3", "t.py"))
    assert selected(replace(state, options=three).with_command_read()[0]) == [0, 1, 2]
    moved = state.reorder(1)[0]
    assert selected(replace(moved, options=three).with_command_read()[0]) == [1, 0]


def test_a_proposal_goes_with_the_command_that_made_it() -> None:
    state = with_command("torchrun --nproc-per-node 2 t.py")
    for line, indices in (
        ("python t.py", []),
        ("torchrun --nproc-per-node 9 t.py", []),
        ("torchrun --nproc-per-node 2 other.py", [0, 1]),
    ):
        edited = replace(state, options=LaunchOptions(tuple(line.split())))
        assert selected(edited.with_command_read()[0]) == indices, line
        by_hand = edited.reorder(1)[0].with_command_read()[0]
        assert selected(by_hand) == [1, 0], line
        assert by_hand.command_choice is not None
        assert by_hand.command_choice.words in line


def test_the_first_device_selected_by_hand_replaces_a_proposal() -> None:
    proposed = with_command("torchrun --nproc-per-node 2 t.py", *FOUR[:3], replace(FOUR[3], mig=True))
    refused, message = proposed.toggle(proposed.box.devices[3])
    assert selected(refused) == [0, 1] and message
    own, message = proposed.toggle(FOUR[1])
    assert selected(own) == [1] and message and "0,1" in message
    assert selected(with_selected(own, 0, 2)) == [1, 0, 2]


def test_what_cannot_be_selected_is_said_and_nothing_is_selected() -> None:
    for line, devices in (
        ("CUDA_VISIBLE_DEVICES=0,9 python t.py", FOUR),
        ("torchrun --nproc-per-node 3 t.py", (FOUR[0], busy(FOUR[1], job()), busy(FOUR[2], job()))),
    ):
        additions, command = assignments(split(line))
        state = app_state(*devices, options=LaunchOptions(command, additions=additions))
        after, message = state.with_command_read()
        assert message is not None and not after.selection.decided


@pytest.mark.parametrize("line", ["torchrun --nproc-per-node 3 t.py", "CUDA_VISIBLE_DEVICES=0,9 python t.py"])
def test_where_it_cannot_be_selected_the_hands_selection_stays_and_is_not_called_the_commands(
    line: str,
) -> None:
    devices = (FOUR[0], busy(FOUR[1], job()), FOUR[2], busy(FOUR[3], job()))
    additions, command = assignments(split(line))
    chosen = with_selected(app_state(*devices, options=LaunchOptions(("python", "t.py"))), 0, 2)
    edited = replace(chosen, options=LaunchOptions(command, additions=additions))
    after, message = edited.with_command_read()
    assert message is not None and selected(after) == [0, 2]
    head = "".join(text for text, _ in selection_lines(after, 120)[0])
    assert not re.search(r"\bas .* says", head), head


@pytest.mark.parametrize("cpu_only", [False, True])
def test_what_is_said_of_the_selection_names_a_persons_own_keys(cpu_only: bool) -> None:
    own = ScreenSettings(keymap={"cpu": "z", "copy": "c", "select": "S", "best": "ctrl+b"})
    state = app_state(FOUR[0]).with_screen(own)
    if cpu_only:
        state = state.cpu_only()
    words = "".join(text for text, _ in selection_lines(state, 120)[1]).split()
    assert ("z" if cpu_only else "ctrl+b") in words and not {"c", "space", "b"} & {*words}


def test_a_number_that_cannot_be_rewritten_contradicts_another_number_of_devices() -> None:
    state = with_command("torchrun --nproc-per-node 2 t.py")
    assert state.contradiction is None
    more = with_selected(state, 3)
    assert more.contradiction is not None and "--nproc-per-node 2" in more.contradiction
    # Devices that can be rewritten contradict nothing.
    assert with_selected(with_command("CUDA_VISIBLE_DEVICES=1 python t.py"), 3).contradiction is None
    assert (
        with_selected(with_command("sh -c 'CUDA_VISIBLE_DEVICES=1 x'").clear(), 3).contradiction is not None
    )


def test_the_screen_selects_what_a_call_without_options_would_take() -> None:
    file = "distributed_type: MULTI_GPU\ngpu_ids: 3,1\nnum_processes: 2\n"
    # With a list in the file and the same number on the line, the list counts. With another number, the best
    # devices are selected.
    two = with_command("accelerate launch --config_file c.yaml --num_processes 2 t.py", c_yaml=file)
    assert selected(two) == [3, 1] and two.command_choice is not None and "3,1" in two.command_choice.words
    three = with_command("accelerate launch --config_file c.yaml --num_processes 3 t.py", c_yaml=file)
    assert selected(three) == [0, 1, 2]
    assert three.command_choice is not None and "--num_processes 3" in three.command_choice.words


@each_row("indices", [(2, 1), (1, 2), (1,)])
def test_a_list_that_stays_contradicts_every_other_selection(indices: tuple[int, ...]) -> None:
    own = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '2'\nimport torch\n"
    state = with_command("python t.py", t_py=own)
    assert selected(state) == [2] and state.contradiction is None
    other = with_selected(state.clear(), *indices)
    # If more devices were selected than the script names, some would be claimed for nothing.
    assert other.contradiction is not None and "CUDA_VISIBLE_DEVICES" in other.contradiction
    two = with_command("python t.py", t_py=own.replace("'2'", "'1,2'"))
    assert two.contradiction is None
    assert (with_selected(two.clear(), *indices).contradiction is None) == (indices == (1, 2))


def test_a_problem_with_a_list_names_it_once() -> None:
    for line in ("CUDA_VISIBLE_DEVICES=0,9 python t.py", "accelerate launch --gpu_ids 0,9 t.py"):
        words = line.removeprefix("accelerate launch ").rpartition(" t.py")[0].removesuffix(" python")
        _, message = unread(line).with_command_read()
        assert message is not None and message.count(words) == 1 and "'9'" in message
        assert ("VISIBLE" in message) == ("VISIBLE" in line)


def test_the_list_of_a_vendors_variable_means_its_devices_whichever_vendor_comes_first() -> None:
    options = LaunchOptions(("python", "t.py"), additions=(("ZE_AFFINITY_MASK", "1"),))
    box = AppState({}, options).with_snapshot(at(BOXES["mixed-vendors"], 0.0, NOW))
    state, problem = box.with_command_read()
    assert problem is None
    assert [(device.vendor, device.index) for device in state.selected] == [("intel", 1)]
    other = box.with_devices((box.box.devices[0].key,)).with_command_read()[0]
    assert [(device.vendor, device.index) for device in other.selected] == [("intel", 1)]


def test_a_command_that_needs_no_device_here_says_where_its_devices_come_from() -> None:
    state = with_command("srun --gpus 2 python t.py")
    assert state.selection.cpu_only and state.command_choice is not None
    head = "".join(text for text, _ in selection_lines(state, 120)[0])
    assert "no GPU needed" in head and "Slurm" in head and not re.search(r"\bas Slurm|says", head)
    assert "says" in "".join(
        text for text, _ in selection_lines(with_command("torchrun --nproc-per-node 2 t.py"), 120)[0]
    )


def test_of_instances_it_is_said_that_a_process_uses_one() -> None:
    app_state = AppState(environ={}).with_snapshot(at(BOXES["a100-mig"], 0.0, 1_750_000_000.0))
    after, message = app_state.select_best(2)
    assert not after.selected and "MIG instance" in message


@each_row(("label", "known"), [("", False), ("from box.json", False), ("demo shared", True)])
def test_of_the_time_before_it_looked_only_the_past_of_a_demo_says_that_a_device_was_free(
    label: str, known: bool
) -> None:
    """A file of minutes ends before this program begins, and a claim leaves no trace in it."""
    store, first = Store(), int(NOW // 60 - 5) * 60
    for second in range(first, int(NOW) + 1):
        store.add(second, [gpu(0)])
    seconds = known * (NOW - first)
    state = replace(AppState({}, label=label).with_snapshot(box(gpu(0))), timelines=Timelines(store, NOW))
    assert state.seconds_in_state(gpu(0).key) == seconds
    later = state.with_snapshot(box(gpu(0), time=NOW + 60))
    assert later.seconds_in_state(gpu(0).key) == seconds + 60
