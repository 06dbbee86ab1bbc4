"""The main screen: its content, and the effect of each key."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.widgets import Input, Static

from gputui.allocating.queue import waiters
from gputui.choosing.rules import Rules
from gputui.inventory.device import Fault
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.jobs.store import all_jobs
from gputui.launching.clipboard import osc52
from gputui.launching.history import with_launch
from gputui.launching.history_file import change
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import SimulatedSource
from gputui.sources.source import NoSourceError
from gputui.system.processes import ProcessTable
from gputui.tui.actions import ACTIONS, BY_ID
from gputui.tui.messages import NewReading
from gputui.tui.readings import Reading
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.palette import PaletteScreen
from gputui.tui.screens.processes import ProcessesScreen
from gputui.tui.widgets.lines import Lines
from gputui.vendors.nvidia.source import NvmlSource
from gputui.vendors.nvidia.vendor import VENDOR
from simnvml import SimulatedNvml
from table_tests import quick_first
from tui.support import Session, box_at, release_leases, session, started
from unit.builders import NOW, box, gpu
from unit.jobs_support import Desk

VISIBLE, ORDER = VENDOR.visibility.names


def with_device(snapshot: Snapshot, index: int, **facts: object) -> Snapshot:
    """The snapshot with one device changed."""
    devices = tuple(
        replace(d, **facts) if d.index == index and d.parent is None else d  # type: ignore[arg-type]
        for d in snapshot.devices
    )
    return replace(snapshot, devices=devices)


async def test_sixteen_devices_the_choice_and_the_launch_line_fit_in_80_by_24() -> None:
    async with session("dgx-2") as s:
        await s.press("4", "5")
        table = s.texts("#table")
        assert len(table) == 17
        assert [line[6:8].strip() for line in table[1:]] == [str(n) for n in range(16)]
        assert s.texts("#launch")[-1].strip() != ""
        assert "? help" in s.texts("#keys")[0]
        assert s.main.query_one("#keys").region.bottom == 24


async def test_digits_choose_devices_in_the_order_in_which_they_are_pressed() -> None:
    async with session() as s:
        await s.press("5", "4")
        assert s.selected == ["5", "4"]
        assert f"{ORDER}=PCI_BUS_ID {VISIBLE}=5,4 python train.py" in " ".join(s.texts("#launch"))
        assert "cuda:0 = GPU 5 (C3:00.0) ↔cuda:1 = GPU 4 (9D:00.0)" in s.texts("#selection")[1]
        assert "weakest link NV18" in s.texts("#selection")[1]
        assert s.texts("#table")[6].lstrip().startswith("[1]  5")


async def test_a_digit_pressed_twice_takes_the_device_out_again() -> None:
    async with session() as s:
        await s.press("5", "4", "5")
        assert s.selected == ["4"]


async def test_a_digit_without_a_gpu_says_so_and_chooses_nothing() -> None:
    async with session() as s:
        await s.press("9")
        assert s.selected == []
        assert "GPU 9" in s.main.message


async def test_space_selects_the_device_at_the_cursor_and_again_deselects_it() -> None:
    async with session() as s:
        await s.press("down", "down", "down", "down", "space")
        assert s.selected == ["4"]
        await s.press("space", "down", "space")
        assert s.selected == ["5"]


async def test_nothing_moves_when_devices_are_selected() -> None:
    async with session() as s:
        await s.press("down", "down", "7", "5")
        assert s.main.app_state.current is not None and s.main.app_state.current.index == 5
        table = s.texts("#table")
        assert [line[6:8].strip() for line in table[1:]] == [str(n) for n in range(8)]
        assert table[6].startswith("▸ [2]  5") and "[1]  7" in table[8]


async def test_a_chosen_device_moves_earlier_and_later() -> None:
    async with session() as s:
        await s.press("4", "5", "7", "end", "up", "up", "up", "J")
        assert s.selected == ["5", "4", "7"]
        await s.press("J")
        assert s.selected == ["5", "7", "4"]
        await s.press("J")
        assert s.selected == ["5", "7", "4"]
        await s.press("K", "K")
        assert s.selected == ["4", "5", "7"]


async def test_b_takes_the_devices_that_pick_would_take() -> None:
    async with session() as s:
        await s.press("b", "b", "b")
        assert s.selected == ["4", "5", "7"]
        await s.press("b")
        assert s.selected == ["4", "5", "7"]
        assert "free" in s.main.message


async def test_a_lost_device_and_a_divided_one_cannot_be_chosen() -> None:
    async with session("lost") as s:
        await s.press("6")
        assert s.selected == []
    async with session("a100-mig") as s:
        await s.press("home", "space")
        assert s.selected == []
        await s.press("0")
        assert s.selected == []
        await s.press("space")
        assert s.selected == ["0:1"]
        assert f"{VISIBLE}=MIG-" in " ".join(s.texts("#launch"))


async def test_cpu_only_is_a_decision_of_its_own() -> None:
    async with session() as s:
        await s.press("@cpu")
        assert f"$ {VISIBLE}= python train.py" in s.texts("#launch")[1]
        await s.press("@cpu")
        assert VISIBLE not in s.texts("#launch")[1]


async def test_the_launcher_changes_and_the_line_with_it() -> None:
    async with session() as s:
        await s.press("4", "5", "@launcher", "down", "enter")
        assert "launch: torchrun" in s.texts("#launch")[0]
        assert "torchrun --standalone --nproc-per-node=2 train.py" in " ".join(
            line.strip() for line in s.texts("#launch")
        )
        for launcher in ("accelerate", "deepspeed", "mpirun"):
            await s.press("@launcher", "down", "enter")
            assert f"launch: {launcher}" in s.texts("#launch")[0]


async def test_devices_can_be_named_by_uuid() -> None:
    async with session() as s:
        await s.press("4", "@ids", "down", "enter")
        assert s.main.app_state.launch.environment({})[VISIBLE].startswith("GPU-")
        assert ORDER not in s.main.app_state.launch.environment({})


@pytest.mark.parametrize(
    ("typed", "choices"),
    [
        ("launcher", ("python", "torchrun", "accelerate", "deepspeed", "mpirun")),
        ("uuid", ("index", "uuid")),
        ("order", ("best for the links", "by index", "fastest first", "emptiest first")),
        ("sort", ("index", "utilization")),
    ],
)
async def test_what_has_choices_lists_them_with_the_present_one_marked(
    typed: str, choices: tuple[str, ...]
) -> None:
    async with session() as s:
        await s.press("4", "5", "colon", *typed)
        rows = s.app.screen.query_one("#page-body", Lines).texts
        assert [next(row for row in rows if f"{typed}" in row and each in row) for each in choices]
        assert typed == "order" or sum(row.rstrip().endswith("  now") for row in rows) == 1


async def test_a_chosen_order_is_that_of_the_selected_devices() -> None:
    async with session() as s:
        await s.press("5", "4", "colon", *"by index", "enter")
        assert s.selected == ["4", "5"] and "by index" in s.main.message
        await s.press("escape", "colon", *"by index", "enter")
        assert s.selected == [] and "two" in s.main.message


NAMES = {":": "colon", " ": "space"}
"""Textual's names of keys."""


@pytest.mark.parametrize("typed", ["idle", ":idle", ": idle"])
async def test_a_word_is_found_with_the_colon_that_the_documentation_writes(typed: str) -> None:
    async with session() as s:
        await s.press("colon", *(NAMES.get(key, key) for key in typed))
        assert isinstance(s.app.screen, PaletteScreen)
        assert s.app.screen.item_keys()


async def test_stop_finds_the_jobs_and_not_the_shell() -> None:
    async with session() as s:
        await s.press("colon", *"stop")
        assert s.app.screen.item_keys()[0][1] == BY_ID["jobs"].title  # type: ignore[attr-defined]


async def test_escape_pressed_again_does_nothing_more_and_a_word_restores_what_it_has_cleared() -> None:
    async with session() as s:
        await s.press("@restore")
        assert s.selected == [] and s.main.message
        await s.press("5", "4", "7", "escape")
        assert s.selected == [] and "5,4,7" in s.main.message and ":restore" in s.main.message
        await s.press("escape")
        assert s.selected == [] and ":restore" in s.main.message, "who presses it twice can still read it"
        assert "5,4,7" in s.main.message
        await s.press("escape", "down", "escape")
        assert s.selected == [] and s.main.message == "", "only the key that clears says so"
        await s.press("@restore")
        assert s.selected == ["5", "4", "7"] and s.main.message == ""
        said = [each.text for each in s.main.messages]
        assert sum("5,4,7 cleared" in text for text in said) == 1


async def test_restoring_swaps_the_two_selections_and_says_so() -> None:
    async with session(interval=1000) as s:
        await s.press("5", "escape", "down", "4", "7", "@restore")
        assert s.selected == ["5"]
        assert s.main.message == "restored 5; 4,7 were selected: :restore brings them back"
        await s.press("@restore")
        assert s.selected == ["4", "7"]
        assert s.main.message == "restored 4,7; 5 was selected: :restore brings it back"
        await s.press("escape", "@restore", "@restore")
        assert s.selected == ["4", "7"] and "were selected" not in s.main.message


async def test_a_number_typed_into_the_command_leaves_the_users_devices_in_their_order() -> None:
    async with session() as s:
        await s.press("5", "4", "e", "ctrl+u", *"torchrun --nproc-per-node=2 train.py", "enter")
        await s.until(lambda: not s.main.app_state.command_is_unread)
        assert s.selected == ["5", "4"]


async def test_the_first_digit_replaces_what_the_command_has_proposed() -> None:
    async with session(command=("torchrun", "--nproc-per-node=2", "train.py")) as s:
        assert s.selected == ["4", "5"]
        await s.press("5")
        assert s.selected == ["5"] and "4,5" in s.main.message
        await s.press("4", "7")
        assert s.selected == ["5", "4", "7"], "the same devices as before are the user's own now"


async def test_a_selection_that_came_from_the_command_follows_it() -> None:
    async with session(size=(130, 40)) as s:
        await s.press("e", "ctrl+u", *"torchrun --nproc_per_node 2 t.py", "enter")
        await s.until(lambda: s.selected)
        assert s.selected == ["4", "5"] and "--nproc_per_node 2" in s.texts("#selection")[0]
        await s.press("e", "ctrl+u", *"python t.py", "enter")
        await s.until(lambda: not s.main.app_state.command_is_unread)
        assert s.selected == [] and "--nproc_per_node" not in s.texts("#selection")[0]
        await s.press("7", "e", "ctrl+u", *"torchrun --nproc_per_node 2 t.py", "enter")
        await s.until(lambda: "command says --nproc_per_node 2" in s.texts("#selection")[0])
        await s.press("e", "ctrl+u", *"python t.py", "enter")
        await s.until(lambda: "--nproc_per_node" not in s.texts("#selection")[0])
        assert s.selected == ["7"], "selected by hand: it stays"


async def test_the_keys_below_the_table_follow_each_reading() -> None:
    free = box_at("laptop")
    taken = (Process(4711, "compute", user="eve", memory=2**30, command="python steal.py"),)
    async with session(free) as s:
        assert "b the best free one" in s.texts("#selection")[-1]
        s.source.snapshot = with_device(free, 0, utilization=90, memory_used=5 << 30, processes=taken)
        await s.until(lambda: "w waits in line" in s.texts("#selection")[-1])
        s.source.snapshot = free
        await s.until(lambda: "b the best free one" in s.texts("#selection")[-1])


async def test_one_letter_sorts_the_devices_and_the_processes() -> None:
    async with session() as s:
        await s.press("s", "down", "enter")
        assert s.main.app_state.screen.sort == "utilization"
        await s.press("p", "s")
        assert "by memory" in s.app.screen.query_one("#page-body", Lines).texts[0]


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
async def test_a_filter_says_how_many_selected_devices_it_hides(size: tuple[int, int]) -> None:
    async with session(size=size) as s:
        await s.press("0", "2", "4", "slash", *"free", "enter")
        assert "hides 2 selected" in s.texts("#table")[0]
        await s.press("0", "2")
        assert "hides" not in s.texts("#table")[0]


async def test_the_command_is_edited_in_place() -> None:
    async with session() as s:
        await s.press("4", "e")
        assert isinstance(s.app.screen, LineScreen)
        line = s.app.screen.query_one(Input)
        assert line.value == "python train.py"
        await s.press("end", "space", *"-x", "enter")
        assert s.main.app_state.options.command == ("python", "train.py", "-x")
        assert s.selected == ["4"]


async def test_what_is_typed_is_added_to_the_command_and_one_key_clears_it() -> None:
    lines = (("", " -y", "python x -y"), ("home", "ls", "lspython x"), ("ctrl+u", "ls", "ls"))
    for key, typed, command in lines:
        async with session(command=("python", "x")) as s:
            await s.press("e", *([key] if key else []), *typed)
            assert "ctrl+u clear" in hints(s)
            await s.press("enter")
            assert s.main.app_state.options.command == tuple(command.split())


async def test_up_and_down_recall_the_launches_and_give_back_what_was_typed(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for number, line in enumerate(("old.py", "new.py", "train.py")):
        options = LaunchOptions(("python", line), additions=(("A", "1"),) if line == "old.py" else ())
        change(environ, lambda known, o=options, n=number: with_launch(known, o, 1, float(n)))
    async with session(environ=environ) as s:
        await s.press("e", "ctrl+u", *"mine")
        line = s.app.screen.query_one(Input)
        found = [line.value]
        for key in ("up", "up", "up", "up", "down", "down", "down"):
            await s.press(key)
            found.append(line.value)
        new, old = "python new.py", "A=1 python old.py"
        assert found == ["mine", new, old, old, old, new, "mine", "mine"], "the present one is no recent one"
        await s.press("up", "space", *"-x", "enter")
        assert s.main.app_state.options.command == ("python", "new.py", "-x")


async def test_without_launches_or_where_they_cannot_be_read_up_does_nothing(tmp_path: Path) -> None:
    for content in (None, "damaged"):
        if content:
            (tmp_path / "gputui").mkdir()
            (tmp_path / "gputui" / "launches.json").write_text(content)
        async with session(environ={"XDG_STATE_HOME": str(tmp_path)}) as s:
            await s.press("e", "up", "down", "enter")
            assert s.main.app_state.options.command == ("python", "train.py")


async def test_variables_before_the_command_become_part_of_its_environment() -> None:
    async with session() as s:
        await s.press("4", "e", "home", *"A=1", "space", "enter")
        assert s.main.app_state.launch.environment({})["A"] == "1"
        assert s.main.app_state.launch.argv == ("python", "train.py")


async def test_an_open_quote_keeps_the_editor_open_and_escape_changes_nothing() -> None:
    async with session() as s:
        await s.press("e", "apostrophe", "enter")
        assert isinstance(s.app.screen, LineScreen)
        await s.press("escape")
        assert s.main.app_state.options.command == ("python", "train.py")


async def test_enter_without_a_command_asks_for_one() -> None:
    async with session(command=()) as s:
        await s.press("4", "enter")
        assert isinstance(s.app.screen, LineScreen)


async def offered(s: Session) -> ConfirmScreen:
    """The question that Enter asks while nothing is selected."""
    await s.press("enter")
    assert isinstance(s.app.screen, ConfirmScreen)
    return s.app.screen


def hints(s: Session) -> str:
    """The last line of the terminal, below a question."""
    line = s.app.screen.query_one("#hints", Lines)
    assert line.region.bottom == s.app.size.height and line.region.width == s.app.size.width
    return line.texts[0]


def asked(question: ConfirmScreen) -> str:
    return str(question.query_one(".question", Static).render())


async def test_enter_twice_runs_on_the_best_free_device(environ: dict[str, str]) -> None:
    async with session(command=("true",), environ=environ) as s:
        question = asked(await offered(s))
        (label,) = s.selected
        assert f"GPU {label} (the best free)" in question
        await s.press("enter")
        await s.until(lambda: not s.app.is_running)
        outcome = s.app.return_value
        assert outcome is not None and outcome.launch is not None
        assert [device.index for device in outcome.launch.devices] == [int(label)]


async def test_a_launch_without_a_command_goes_on_once_it_is_typed(environ: dict[str, str]) -> None:
    torchrun = "python -m torch.distributed.run --nproc-per-node=2 t.py"
    for typed, count in (("true", 1), (torchrun, 2)):
        async with session(command=(), environ=environ) as s:
            await s.press("enter")
            assert "⏎ next" in hints(s)
            await s.press(*typed, "enter")
            await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
            assert len(s.selected) == count and "the best" in asked(s.app.screen)  # type: ignore[arg-type]
            await s.press("n")
            assert not s.selected and s.app.screen is s.main
            await s.press("enter")
            await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
            await s.press("enter")
            await s.until(lambda: not s.app.is_running)
            assert s.app.return_value is not None and s.app.return_value.launch is not None
            assert len(s.app.return_value.launch.devices) == count
        release_leases()


@pytest.mark.parametrize(
    ("key", "words"), [("enter", "⏎ run"), ("@detach", "⏎ start the job"), ("@return", "⏎ run and come back")]
)
async def test_on_selected_devices_it_starts_then(
    key: str, words: str, desk: Desk, environ: dict[str, str]
) -> None:
    async with session(command=(), environ=environ) as s:
        await s.press("4", key)
        assert words in hints(s)
        await s.press(*"true", "enter")
        await s.until(lambda: started(s, key, desk))


async def test_a_wait_without_a_command_asks_what_it_waits_for_once_that_is_typed() -> None:
    async with session(command=()) as s:
        await s.press("w")
        assert "⏎ next" in hints(s)
        await s.press(*"true", "enter")
        await s.until(lambda: "⏎ yes" in hints(s))
        assert isinstance(s.app.screen, LineScreen)


async def test_enter_offers_as_many_devices_as_the_command_asks_for(environ: dict[str, str]) -> None:
    async with session(
        command=("python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"), environ=environ
    ) as s:
        await s.press("escape")
        assert not s.selected
        question = asked(await offered(s))
        assert len(s.selected) == 2 and "the best two free" in question


async def test_no_leaves_nothing_selected_and_another_key_starts_a_job(desk: Desk) -> None:
    async with session(command=("true",), environ=desk.environ) as s:
        await offered(s)
        await s.press("escape")
        assert s.app.screen is s.main and not s.selected
        await offered(s)
        await s.press("d")
        await s.until(lambda: started(s, "@detach", desk))


async def test_enter_on_a_full_box_offers_the_line() -> None:
    whole = box_at("shared")
    full = replace(
        whole, devices=tuple(replace(d, processes=whole.devices[0].processes) for d in whole.devices)
    )
    async with session(full, command=("true",)) as s:
        await s.press("enter")
        assert isinstance(s.app.screen, LineScreen)
        said = str(s.app.screen.query_one("#what", Static).render())
        assert "Wait for 1 GPU" in said and "You are 3rd in line" in said and "⏎ yes" in hints(s)
        await s.press("escape")
        assert "w waits in line" in s.texts("#selection")[1]


@pytest.mark.parametrize("keys", ["3", "32"])
async def test_the_question_of_a_wait_for_selected_devices_says_nothing_of_the_others(
    keys: str,
) -> None:
    async with session("full", command=("true",)) as s:
        await s.press(*keys, "w")
        said = str(s.app.screen.query_one("#what", Static).render())
        assert s.main.app_state.is_full and "No GPU is free" not in said
        assert said.startswith(
            "Wait for GPU 3, as a job?" if keys == "3" else "Wait for GPUs 3 and 2, as a job?"
        )


async def test_the_first_enter_on_a_demo_offers_its_best_device_and_rehearses_the_start() -> None:
    example, source = ("python", "train.py"), SimulatedSource(BOXES["empty"])
    async with session(source=source, command=example) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label, example=example))
        await offered(s)
        (label,) = s.selected
        await s.press("enter")
        await s.until(lambda: f"demo1 runs on GPU {label} of the demo" in s.main.message)
        assert s.app.screen is s.main and s.app.is_running


@pytest.mark.parametrize(
    ("box", "labels", "asks"), [("shared", "54", False), ("shared", "30", True), ("empty", "20", False)]
)
@pytest.mark.parametrize("key", quick_first(["@launch", "@detach", "@return"]))
async def test_the_example_of_a_demo_is_rehearsed_on_exactly_the_selected_devices(
    box: str, labels: str, asks: bool, key: str, environ: dict[str, str]
) -> None:
    example, source = ("python", "train.py"), SimulatedSource(BOXES[box])
    async with session(source=source, command=example, environ=environ) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label, example=example))
        await s.press(*labels, key)
        if asks:
            await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
            assert not any(job.id == "demo1" for job in s.main.app_state.box.jobs)
            await s.press("f")
        await s.until(lambda: "demo1 runs on" in s.main.message and "demo only" in s.main.message)
        assert s.selected == []
        keys = tuple(source.box.key(label) for label in labels)
        await s.until(lambda: any(job.id == "demo1" for job in s.main.app_state.box.jobs))
        job = next(job for job in s.main.app_state.box.jobs if job.id == "demo1")
        assert (job.state, job.keys, job.argv) == ("running", keys, example)
        assert {*keys} <= s.main.app_state.own_jobs.keys()
        assert not any(s.main.app_state.verdicts[each].free for each in keys)
        await s.press("D", "S", "S")
        await s.until(lambda: not {*keys} & s.main.app_state.own_jobs.keys())
    assert all_jobs(environ) == []


@pytest.mark.parametrize("window", [10.0, 0.0])
async def test_the_question_of_a_wait_says_how_long_free_devices_are_watched(window: float) -> None:
    async with session("idle", command=("true",), rules=Rules(window=window)) as s:
        await s.press("0", "w")
        said = str(s.app.screen.query_one("#what", Static).render())
        assert "GPU 0" in said and ("10 s" in said) == bool(window) and ("now" in said) == (not window)


@pytest.mark.parametrize("key", ["enter", "w"])
async def test_on_a_full_demo_waiting_in_line_is_rehearsed(key: str, environ: dict[str, str]) -> None:
    example = ("python", "train.py")
    source = SimulatedSource(BOXES["full"])
    async with session(source=source, command=example, environ=environ, size=(130, 40)) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label, example=example))
        await s.press(key)
        said = str(s.app.screen.query_one("#what", Static).render())
        assert (
            said.startswith("Wait for 1 GPU, as a job")
            and "You are 2nd in line, behind lee" in said
            and "⏎ yes" in hints(s)
        )
        await s.press("enter")
        assert "demo1 is 2nd in line" in s.main.message
        await s.until(lambda: any("2 in line" in text for text in s.texts("#lists")))
        (job,) = s.main.app_state.box.jobs
        assert (job.id, job.state, job.argv) == ("demo1", "waiting", example)
        await s.press("w")
        assert "3rd in line" in str(s.app.screen.query_one("#what", Static).render())
        await s.press("escape", "@queue", "down", "S", "S")
        await s.until(lambda: s.main.app_state.box.jobs[0].state == "stopped")
        assert [waiter.user for waiter in s.main.app_state.box.waiters] == ["lee"]
    assert all_jobs(environ) == [] and waiters(os.environ) == ()


async def test_a_demo_s_job_runs_when_devices_are_free_and_ends_when_it_is_stopped(
    environ: dict[str, str],
) -> None:
    source = SimulatedSource(BOXES["empty"])
    async with session(source=source, command=("python", "train.py"), environ=environ) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label))
        await s.press("7", "w", "2")
        said = str(s.app.screen.query_one("#what", Static).render())
        assert "now on 2 free GPUs" in said and "Wait" not in said
        await s.press("enter")
        assert "demo1 starts now" in s.main.message
        assert s.selected == []
        await s.until(lambda: len(s.main.app_state.own_jobs) == 2)
        assert not s.main.app_state.box.waiters
        await s.press("D", "S", "S")
        await s.until(lambda: not s.main.app_state.own_jobs)
        assert s.main.app_state.box.jobs[0].state == "stopped"
        assert all(device.processes == () for device in s.main.app_state.box.devices)
    assert all_jobs(environ) == []


@pytest.mark.parametrize("count", quick_first([2, 1]))
@pytest.mark.parametrize("name", ["mixed", "rtx3090", "mixed-vendors"])
async def test_a_demo_s_job_gets_the_devices_that_are_chosen_for_a_selection(
    name: str, count: int, environ: dict[str, str]
) -> None:
    source = SimulatedSource(BOXES[name])
    async with session(source=source, command=("python", "train.py"), environ=environ) as s:
        s.main.set_app_state(replace(s.main.app_state, label=source.label))
        chosen = s.main.app_state.select_best(count)[0].selection.keys
        assert len(chosen) == count
        await s.press("w", str(count), "enter")
        await s.until(lambda: bool(s.main.app_state.box.jobs and s.main.app_state.box.jobs[-1].keys))
        assert s.main.app_state.box.jobs[-1].keys == chosen


async def test_the_reason_of_a_selection_goes_when_it_is_no_longer_true() -> None:
    free = box_at("laptop")
    async with session(free) as s:
        await s.press("b")
        assert s.main.message
        s.source.snapshot = replace(free, time=free.time + 1)
        await s.until(lambda: s.main.app_state.box.time > free.time)
        assert s.main.message, "it stays as long as it is true"
        taken = (Process(4711, "compute", user="eve", memory=2**30, command="python steal.py"),)
        s.source.snapshot = with_device(free, 0, utilization=90, memory_used=5 << 30, processes=taken)
        await s.until(lambda: not s.main.message)
        assert s.selected == ["0"]


async def test_unlike_devices_are_told_with_the_selection() -> None:
    async with session("mixed", size=(130, 40)) as s:
        await s.press("0")
        assert not any("unlike" in text for text in s.texts("#launch"))
        await s.press("1")
        (text,) = (text for text in s.texts("#launch") if "unlike devices" in text)
        assert "GTX 1080" in text and "8.0G" in text


async def test_warnings_that_are_cut_on_80_columns_say_the_main_thing_first() -> None:
    async with session("mixed", ("python", "train.py", "--with", *"a" * 40)) as s:
        await s.press("0", "1")
        (text,) = (text for text in s.texts("#launch") if "unlike" in text)
        assert "the slowest sets the pace, 8.0G memory the limit" in text


async def test_a_box_that_cannot_be_read_is_not_called_busy() -> None:
    async with session(box_at("wsl"), command=("true",)) as s:
        assert not s.main.app_state.is_full and "w waits" not in s.texts("#selection")[1]


async def test_enter_reads_again_and_ends_with_the_launch_that_is_shown() -> None:
    async with session() as s:
        await s.press("5", "4")
        shown = s.main.app_state.launch
        await s.press("enter")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None
        assert s.app.return_value.launch == shown


async def test_a_device_that_was_taken_meanwhile_is_asked_about() -> None:
    async with session() as s:
        await s.press("4")
        taken = (Process(4711, "compute", user="eve", memory=2**30, command="python steal.py"),)
        s.source.snapshot = with_device(box_at("shared"), 4, processes=taken)
        await s.press("enter")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        (reason,) = s.app.screen.reasons
        assert "GPU 4 (cuda:0) is busy (was free): eve" in reason
        await s.press("enter")
        assert isinstance(s.app.screen, ConfirmScreen), "a second Enter must start nothing unread"
        await s.press("n")
        assert s.app.is_running
        await s.press("enter")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        await s.press("f")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None
        assert s.app.return_value.launch is not None


@pytest.mark.parametrize("key", ["enter", "@return", "@detach"])
async def test_a_device_that_was_lost_meanwhile_is_refused(key: str, desk: Desk) -> None:
    async with session(command=("true",), environ=desk.environ) as s:
        await s.press("4")
        s.source.snapshot = with_device(box_at("shared"), 4, fault=Fault("lost", "GPU is lost"))
        await s.press(key)
        await s.until(lambda: "GPU 4 (cuda:0) is lost" in s.main.message)
        assert s.app.screen is s.main and not started(s, key, desk)
        assert s.main.launch.pending is None


async def test_a_device_that_is_lost_while_it_is_asked_about_is_refused(
    environ: dict[str, str], own_claims: Path
) -> None:
    async with session(command=("true",), environ=environ) as s:
        await s.press("0", "enter")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        s.source.snapshot = with_device(box_at("shared"), 0, fault=Fault("lost", "GPU is lost"))
        await s.until(lambda: s.main.app_state.verdicts[box_at("shared").devices[0].key].state == "lost")
        await s.press("f")
        assert s.app.is_running and s.app.screen is s.main and "GPU 0 (cuda:0) is lost" in s.main.message
        assert list(own_claims.glob("*.claim")) == []


async def test_nothing_starts_where_a_selected_device_has_vanished() -> None:
    # The box is read once, and again when Enter asks: a reading in between would deselect the device earlier.
    async with session(interval=1000) as s:
        await s.press("4", "5")
        snapshot = box_at("shared")
        keep = [place for place, d in enumerate(snapshot.devices) if d.index != 4]
        s.source.snapshot = replace(
            snapshot,
            devices=tuple(snapshot.devices[i] for i in keep),
            links=tuple(tuple(snapshot.links[i][j] for j in keep) for i in keep),
        )
        await s.press("enter")
        await s.until(lambda: box_at("shared").devices[4].key in s.main.message)
        assert s.app.is_running and s.app.screen is s.main and s.selected == ["5"]


async def test_inherited_devices_are_shown_and_chosen_inside_of() -> None:
    async with session(environ={VISIBLE: "4,7", ORDER: "PCI_BUS_ID"}) as s:
        assert f"inside {VISIBLE}=4,7" in s.texts("#selection")[0]
        assert "not yours" in s.texts("#table")[6]
        await s.press("5")
        assert s.selected == []
        await s.press("b", "b", "b")
        assert s.selected == ["4", "7"]


async def test_no_driver_is_told_on_the_screen_and_can_heal() -> None:
    async with session(NoSourceError("the driver is not loaded; modprobe")) as s:
        assert str(s.source.snapshot) in " ".join(s.texts("#table"))
        s.source.snapshot = box_at("idle")
        await s.until(lambda: "○ free" in " ".join(s.texts("#table")))


async def test_a_box_without_devices_says_so_and_can_run_on_the_cpu() -> None:
    async with session(replace(box_at("idle"), devices=(), links=())) as s:
        assert "no GPUs" in " ".join(s.texts("#table"))
        await s.press("b", "space", "0", "down", "J", "@cpu", "enter")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None
        assert s.app.return_value.launch is not None
        assert s.app.return_value.launch.environment({}) == {VISIBLE: ""}


@pytest.mark.parametrize(("key", "screen"), [("question_mark", HelpScreen), ("p", ProcessesScreen)])
async def test_help_and_processes_open_and_close(key: str, screen: type) -> None:
    async with session() as s:
        await s.press(key)
        assert isinstance(s.app.screen, screen)
        await s.press("escape")
        assert s.app.screen is s.main


async def test_every_action_has_a_handler_and_every_handler_an_action() -> None:
    async with session() as s:
        assert set(s.main.handlers) == {action.id for action in ACTIONS}


async def test_the_keys_that_a_page_names_are_those_that_do_something_now() -> None:
    async with session() as s:
        await s.press("t")
        last = s.app.screen.query_one("#page-footer", Lines).texts
        assert "tab tree" in last[-1] and "tab matrix" not in last[-1]
        await s.press("tab")
        last = s.app.screen.query_one("#page-footer", Lines).texts
        assert "tab matrix" in last[-1] and "tab tree" not in last[-1]


async def test_the_palette_lists_the_actions_and_does_them() -> None:
    async with session() as s:
        await s.press("ctrl+p")
        await s.press(*"cpu only", "enter")
        assert s.main.app_state.selection.cpu_only


@pytest.mark.parametrize("word", ["color", "colour", "colors", "colours"])
async def test_the_themes_are_found_as_colours(word: str) -> None:
    async with session() as s:
        await s.press("colon", *word)
        found = [keys for keys, _ in s.app.screen.item_keys()]  # type: ignore[attr-defined]
        assert sorted(found[:3]) == [":theme ansi", ":theme dark", ":theme light"]
        await s.press("space", *"light", "enter")
        await s.until(lambda: s.app.theme == "light")


async def test_the_themes_follow_each_other() -> None:
    async with session() as s:
        table = s.main.query_one("#table", Lines)

        def look() -> tuple[str, object, object]:
            style = next(
                seg.style
                for seg in table.render_lines(Region(0, 3, 80, 1))[0]
                if seg.text.strip() and seg.style
            )
            return s.app.theme, style.color, style.bgcolor

        seen = [look()]
        for _ in range(3):
            # The list is opened at the present one.
            await s.press("@theme", *(["up"] * 2 if s.app.theme == "ansi" else ["down"]), "enter")
            await s.until(lambda: look()[1:] != seen[-1][1:])
            seen.append(look())
        assert [theme for theme, *_ in seen] == ["dark", "light", "ansi", "dark"]
        assert seen[0] == seen[3]


async def test_a_click_on_a_row_chooses_it_and_a_click_on_a_key_does_it(tmp_path: Path) -> None:
    async with session(environ={"PATH": str(tmp_path)}) as s:
        for selected in (["5"], [], ["5"]):
            await s.pilot.click("#table", offset=(10, 6))
            await s.settle()
            assert s.selected == selected
        place = s.main.query_one("#keys", expect_type=None).texts[0].index("y copy")  # type: ignore[union-attr]
        await s.pilot.click("#keys", offset=(place, 0))
        await s.until(lambda: s.written == [osc52(s.main.app_state.launch.line)])


async def test_copying_says_what_was_done_and_the_line_is_printed_when_nobody_knows(tmp_path: Path) -> None:
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("4", "y")
        await s.until(lambda: s.main.message)
        line = s.main.app_state.launch.line
        assert s.written == [osc52(line)]
        await s.press("q")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None
        assert s.app.return_value.text == line


async def test_copying_with_a_tool_gives_it_the_line_that_is_shown(tmp_path: Path) -> None:
    tool = tmp_path / "xclip"
    tool.write_text(f"#!/bin/sh\nexec /bin/cat > {tmp_path}/taken\n")
    tool.chmod(0o755)
    async with session(environ={"PATH": str(tmp_path), "DISPLAY": ":9"}) as s:
        await s.press("4", "y")
        await s.until(lambda: s.main.message)
        assert (tmp_path / "taken").read_text() == s.main.app_state.launch.line
        await s.press("q")
        await s.until(lambda: not s.app.is_running)
        assert s.app.return_value is not None
        assert s.app.return_value.text is None


async def test_hostile_text_of_others_does_not_reach_the_screen() -> None:
    evil = "\x1b[31m[red]\u202eevil\nuser"
    snapshot = with_device(
        box_at("idle"), 0, processes=(Process(7, "compute", user=evil, command=evil),), name=evil
    )
    async with session(snapshot, size=(130, 40)) as s:
        await s.press("p")
        shown = "\n".join([*s.texts("#table"), *s.texts("#lists"), *s.texts("#header")])
        assert "[red]" in shown
        assert not set("\x1b\u202e") & set(shown)


async def test_the_environment_of_this_process_never_changes(tmp_path: Path) -> None:
    # The test uses a stand-in, because accelerate itself may not be installed.
    (tmp_path / "accelerate").write_text("#!/bin/sh\n")
    (tmp_path / "accelerate").chmod(0o755)
    before = dict(os.environ)
    async with session(environ={"PATH": str(tmp_path)}) as s:
        await s.press("4", "5", "@launcher", "down", "down", "enter", "enter")
        await s.until(lambda: not s.app.is_running)
    assert dict(os.environ) == before


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(80, 24), (200, 60), (20, 5)])
async def test_every_size_is_painted_without_an_error(size: tuple[int, int]) -> None:
    async with session("shared", size=size) as s:
        await s.press("4", "5", "down", "J", "p", "escape", "question_mark", "escape", "e", "escape")
        assert s.selected == ["4", "5"]
        for widget in ("#header", "#selection", "#launch"):
            assert all(len(text) <= size[0] for text in s.texts(widget))


async def test_a_key_after_enter_takes_the_launch_back() -> None:
    async with session(interval=1000) as s:
        await s.press("4")
        # The test holds back the reading that Enter asks for until it has pressed the other key.
        s.app.sampler.ask = lambda: None  # type: ignore[method-assign]
        await s.press("enter", "5")
        s.main.post_message(NewReading(Reading(box_at("shared"), time.monotonic())))
        await s.settle()
        assert s.app.is_running
        assert s.selected == ["4", "5"]


@pytest.mark.parametrize("key", ["e", "question_mark", "p"])
async def test_nothing_starts_underneath_another_screen(key: str) -> None:
    async with session(interval=1000) as s:
        await s.press("4")
        s.app.sampler.ask = lambda: None  # type: ignore[method-assign]
        await s.press("enter", key)
        s.main.post_message(NewReading(Reading(box_at("shared"), time.monotonic())))
        await s.settle()
        assert s.app.is_running


async def test_yes_to_a_question_starts_nothing_else_than_was_asked_about() -> None:
    async with session() as s:
        await s.press("0", "4", "enter")
        await s.until(lambda: isinstance(s.app.screen, ConfirmScreen))
        whole = box_at("shared")
        s.source.snapshot = replace(
            whole, devices=whole.devices[:4], links=tuple(row[:4] for row in whole.links[:4])
        )
        await s.until(lambda: s.main.app_state.selection.keys == (whole.devices[0].key,))
        await s.press("f")
        assert s.app.is_running
        assert whole.devices[4].key in s.main.message


async def test_a_program_that_is_not_there_is_said_before_the_screen_is_left() -> None:
    async with session(command=("pythn", "train.py")) as s:
        await s.press("4", "enter")
        assert s.app.is_running
        assert "'pythn'" in s.main.message
        assert s.selected == ["4"]


async def test_reordering_without_a_chosen_device_at_the_cursor_moves_the_last_one() -> None:
    async with session() as s:
        await s.press("4", "5", "K")
        assert s.selected == ["5", "4"]
        await s.press("J")
        assert s.selected == ["4", "5"]


async def test_starting_on_a_device_that_is_not_free_is_said_for_as_long_as_it_is_chosen() -> None:
    async with session() as s:
        await s.press("0", "down")
        assert any("! GPU 0 is busy" in line for line in s.texts("#launch"))
        await s.press("0")
        assert not any("! GPU 0" in line for line in s.texts("#launch"))


async def test_a_message_stands_until_the_next_key_and_covers_no_section() -> None:
    async with session() as s:
        await s.press("9")
        assert s.main.message in s.texts("#message")[0] and "GPU 9" in s.main.message
        assert "? help" in s.texts("#keys")[0]
        await s.press("down")
        assert "? help" in s.texts("#keys")[0]


async def test_why_a_device_without_a_process_is_not_free_is_told_once() -> None:
    async with session(size=(80, 30)) as s:
        told = [
            line for part in ("#table", "#lists") for line in s.texts(part) if "no visible process" in line
        ]
        assert len(told) == 1


async def test_foreign_variables_do_not_reach_the_terminal() -> None:
    async with session(environ={VISIBLE: "4,5,\x1b]0;pwn\x07", "PET_X": "a\x1b[2J"}) as s:
        await s.press("@launcher", "down", "enter", "4")
        assert s.selected == ["4"]
        for widget in s.main.query(Lines):
            for y in range(widget.size.height):
                assert "\x1b" not in widget.render_line(y).text


@pytest.mark.parametrize(
    "command",
    [
        "srun python x.py",
        "deepspeed --exclude worker:1 x.py",
    ],
)
async def test_a_warning_says_in_80_columns_that_the_command_does_not_see_the_selection(command: str) -> None:
    async with session("dgx-1", command=tuple(command.split()), size=(80, 50)) as running:
        await running.press("2", "4")
        lines = [text for name in ("#launch",) for text in running.texts(name)]
        shown = " ".join(" ".join(lines).split())
        said = "ignores the selected devices", "asks for other devices than gputui would claim"
        assert sum(shown.count(words) for words in said) == 1


async def test_a_signal_from_a_terminal_that_is_gone_restores_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writes to the terminal fail, and a normal exit would wait for the thread that makes them."""
    ends: list[str] = []
    async with session() as s:
        monkeypatch.setattr(s.app, "leave", lambda status: ends.append(f"left with {status}"))
        monkeypatch.setattr(s.app, "end_without_terminal", lambda: ends.append("ended"))
        s.app._leave_at_signal(signal.SIGTERM)
        monkeypatch.setattr(s.app, "_has_terminal", lambda: False)
        s.app._leave_at_signal(signal.SIGHUP)
    assert ends[:2] == [f"left with {128 + signal.SIGTERM}", "ended"]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (130, 40), (200, 60)])
async def test_a_message_too_long_for_its_line_leaves_the_keys_and_names_the_key_that_shows_it(
    size: tuple[int, int],
) -> None:
    async with session("idle", command=("true",), size=size) as running:
        before = running.texts("#keys")
        running.main.show_message("word " * 60)
        await running.pilot.pause()
        assert running.texts("#keys") == before
        (line,) = running.texts("#message")
        assert line.rstrip().endswith(":messages for all")


async def test_what_is_seen_anyway_is_no_message_to_keep() -> None:
    async with session("idle", command=("true",), interval=1000) as running:
        await running.press("@sort", "down", "enter", "@theme", "down", "enter", "0", "@detach")
        await running.until(lambda: "started" in running.main.message)
        assert [each.text for each in running.main.messages] == [running.main.message]


async def test_b_again_goes_on_to_the_other_mig_instances_that_are_free() -> None:
    async with session("a100-mig") as running:
        chosen = set()
        for _ in range(4):
            await running.press("b")
            chosen.add(running.main.app_state.selection.keys)
        assert len(chosen) > 1 and all(len(keys) == 1 for keys in chosen)


async def test_so_it_does_on_a_driver_and_offers_each_kind_of_free_device_in_a_round(
    nvml_here: SimulatedNvml,
) -> None:
    nvml_here.show_box(BOXES["a100-mig"])
    async with session(source=NvmlSource(ProcessTable(host_pids=False)), interval=1000) as running:
        judged, snapshot = running.main.app_state.verdicts_now, running.main.app_state.snapshot
        assert snapshot is not None
        free = {snapshot.label(device): device.name for device in snapshot.devices if judged[device.key].free}
        assert len({name for label, name in free.items() if ":" in label}) > 1, "of several sizes"
        offered = []
        for _ in free:
            await running.press("b")
            offered += running.selected
        # The first of several equal instances represents them all.
        assert len(offered) == len(free) and {free[label] for label in offered} == set(free.values())


async def test_a_busy_device_is_told_once_beside_its_state() -> None:
    for command in ((), ("python", "train.py")):
        async with session(command=command, interval=1000, size=(130, 40)) as s:
            await s.press("0")
            lines = [*s.texts("#launch"), s.main.message]
            assert s.selected == ["0"] and sum("mira" in line for line in lines) == 1


@pytest.mark.parametrize("size", [(80, 24), (60, 15), (130, 40)])
async def test_a_refused_launch_leaves_the_line_of_keys(size: tuple[int, int]) -> None:
    command = ("sh", "-c", "CUDA_VISIBLE_DEVICES=1 python train.py --and " + "many words " * 30)
    async with session("idle", command=command, interval=1000, size=size) as s:
        await s.press("@clear", "0")
        (keys,) = s.texts("#keys")
        await s.press("enter")
        assert s.app.is_running and "CUDA_VISIBLE_DEVICES=1" in s.main.message
        assert s.texts("#keys") == [keys] and "help" in keys


@pytest.mark.parametrize("typed", ["2", "2 tp=2"])
async def test_a_number_typed_as_a_command_is_the_number_of_the_best_devices(typed: str) -> None:
    async with session() as s:
        await s.press(
            "colon", *("space" if each == " " else "equals_sign" if each == "=" else each for each in typed)
        )
        await s.press("enter")
        assert s.app.screen is s.main and s.selected == ["4", "5"]


async def test_copying_with_nothing_selected_offers_the_best_free_device() -> None:
    async with session(command=("true",), interval=1000) as s:
        await s.press("y")
        assert isinstance(s.app.screen, ConfirmScreen) and s.selected and s.main.message == ""
        await s.press("escape")
        assert s.app.screen is s.main and s.selected == []
        await s.press("y", "y")
        await s.until(lambda: s.main.message != "")
        assert len(s.selected) == 1


async def test_how_to_bring_the_selection_back_is_said_until_another_key_than_escape() -> None:
    async with session(interval=1000) as s:
        await s.press("4", "D", "escape", *["escape"] * 5)
        assert s.selected == [] and ":restore" in s.main.message
        await s.press("down")
        assert s.main.message == ""


async def test_w_says_that_it_waits_for_the_number_asked_for_and_not_for_the_selected() -> None:
    async with session(command=("true",)) as s:
        await s.press("b", "b", "@ask", "4", "enter")
        assert "w waits in line for 4" in s.main.message
        await s.press("w")
        assert isinstance(s.app.screen, LineScreen)
        assert "4 GPUs" in s.app.screen.prompt and "selected GPUs 4 and 5" in s.app.screen.prompt


async def test_where_waiting_is_in_vain_yes_is_not_offered() -> None:
    async with session("idle", command=("true",)) as s:
        await s.press("@ask", "9", "enter", "w")
        keys = s.app.screen.query_one("#hints", Lines).texts[0]
        assert "yes" not in keys and "another number" in keys and "esc no" in keys


async def test_nobody_knows_that_a_device_was_free_while_the_terminal_was_lent() -> None:
    """The command may have used it, or others."""
    async with session(box(gpu(0), time=NOW), interval=1000) as s:

        async def read(second: float) -> float:
            s.source.snapshot = box(gpu(0), time=NOW + second)
            s.main._sampler.ask()
            await s.until(lambda: s.main.app_state.box.time == NOW + second)
            return s.main.app_state.seconds_in_state(gpu(0).key)

        assert await read(60) == 60
        s.app.app_resume_signal.publish(s.app)
        await s.settle()
        assert (await read(75), await read(80)) == (0, 5)
        assert s.main.app_state.verdicts[gpu(0).key].free
