"""The plan page plans from the command, again at each key, and puts the plan on the launch line."""

from __future__ import annotations

import functools
import itertools
import json
import shlex
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.choosing.grouping import Grouping
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.planning.devices import PlannedDevices
from gputui.planning.files import FOLDER
from gputui.planning.memory import Bytes
from gputui.planning.model import PlanningError
from gputui.planning.plan import Plan
from gputui.planning.workload import Workload
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.source import named
from gputui.sources.source import Want
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.plan_request import PlanRequest, devices_for, fewest_for, plan_of
from gputui.tui.screens.confirm import ConfirmScreen
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.plan import PlanScreen
from gputui.tui.views import plan as views
from gputui.tui.views.text import width_of
from gputui.tui.widgets.lines import Lines
from table_tests import each_row
from tui.support import Session, box_at
from tui.support import session as moving
from unit.calling import caller
from unit.planning_models import LLAMA3_8B
from unit.test_plan_cli import MODELS

session = functools.partial(moving, interval=1000)
"""Only requested readings happen, so that the pilot finds the application idle."""


@pytest.fixture(autouse=True)
def job_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command; it contains the folder of a model, `llama2`."""
    folder = tmp_path / "work"
    (folder / "llama2").mkdir(parents=True)
    (folder / "llama2" / "config.json").write_text(json.dumps(MODELS["llama-2-7b"]))
    monkeypatch.chdir(folder)
    return folder


TRAIN = ("python", "train.py", "--model", "llama2")


def page(s: Session) -> PlanScreen:
    return next(screen for screen in s.app.screen_stack if isinstance(screen, PlanScreen))


def texts(s: Session) -> list[str]:
    return [text.rstrip() for text in page(s).query_one("#page-body", Lines).texts]


def footer(s: Session) -> list[str]:
    return list(page(s).query_one("#page-footer", Lines).texts)


def strategies(s: Session) -> list[str]:
    """The names of the rows, from the top."""
    return [text[3:].split()[0] for text in texts(s) if text[1:2] in "✓✗!?" and text[2:3] == " "]


def at_cursor(s: Session) -> str:
    return next(text[3:].split()[0] for text in texts(s) if text.startswith("▸"))


def request(s: Session) -> PlanRequest:
    found = s.main.plans.request
    assert found is not None
    return found


async def opened(s: Session) -> PlanScreen:
    await s.press("@plan")
    await s.until(lambda: not s.main.plans.reading)
    await s.settle()
    return page(s)


async def typed(s: Session, key: str, text: str) -> None:
    """Answer the prompt that a key opens."""
    await s.press(key)
    assert isinstance(s.app.screen, LineScreen)
    s.app.screen.query_one(Input).value = text
    await s.press("enter")


async def test_the_command_says_what_is_planned() -> None:
    words = (*TRAIN, "--per_device_train_batch_size", "4", "--gradient_checkpointing", "--bf16")
    async with session("dgx-h100", (*words, "--max_seq_length", "1024")) as s:
        await opened(s)
        assert request(s).workload == Workload(4, 1024, "autocast", "adamw", checkpointing=True)
        model = request(s).model
        assert model is not None
        assert model.parameters == 6_738_415_616
        assert at_cursor(s) == strategies(s)[0]


@pytest.mark.parametrize(
    "command",
    [
        TRAIN,
        ("python", "train.py", "--model_name_or_path", "llama2"),
        (
            "python",
            "train.py",
            "--model_name_or_path",
            "llama2",
            "--gradient_accumulation_steps",
            "8",
            "--bf16",
        ),
    ],
)
async def test_the_page_ranks_as_the_command_line_does(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("plan", "--json", "--demo", "dgx-h100", "--", *command)
    by_line = caller(capsys)(*words).json["strategies"]
    async with session("dgx-h100", command) as s:
        source = named("dgx-h100")
        source.open()
        # The host's memory is read later than the devices.
        s.main.set_app_state(s.main.app_state.with_snapshot(source.read(Want.ALL | Want.HOST)))
        await opened(s)
        made = plan_of(request(s), s.main.app_state, _found(s))
        assert strategies(s) == [row["name"] for row in by_line][: len(strategies(s))]
        assert [(row.name, row.bytes.total) for row in made.rows] == [
            (row["name"], row["bytes"]["total"]) for row in by_line
        ]


def test_the_groups_that_were_asked_for_are_planned_and_those_of_a_command_are_its_own() -> None:
    app_state, _ = AppState({}).with_snapshot(box_at("dgx-h100")).select_best(8, Grouping(tensor=4))
    found = devices_for(app_state, None)
    assert isinstance(found, PlannedDevices)
    asked = PlanRequest(model=LLAMA3_8B)
    assert [row.name for row in plan_of(asked, app_state, found).rows] == ["tp4-fsdp2"]
    command = ("torchrun", "pretrain_gpt.py", "--tensor-model-parallel-size", "4")
    own = replace(app_state, options=replace(app_state.options, command=command))
    assert own.intent.group == Grouping(tensor=4)
    assert len(plan_of(asked, own, found).rows) > 3


def test_a_launch_on_several_machines_is_not_planned() -> None:
    app_state = AppState({}).with_snapshot(box_at("dgx-h100"))
    app_state = replace(app_state, options=replace(app_state.options, nodes=2))
    found = devices_for(app_state, None)
    assert isinstance(found, PlannedDevices)
    with pytest.raises(PlanningError):
        plan_of(PlanRequest(model=_model("1B")), app_state, found)


async def test_the_selected_devices_are_planned_for_else_the_free_ones() -> None:
    async with session("shared", TRAIN) as s:
        free = [key for key, verdict in s.main.app_state.verdicts.items() if verdict.free]
        found = devices_for(s.main.app_state, None)
        assert isinstance(found, PlannedDevices)
        assert {device.key for device in found.devices} == set(free)
        await s.press("5", "4")
        await opened(s)
        assert [row for row in strategies(s) if row == "ddp"]
        found = devices_for(s.main.app_state, None)
        assert isinstance(found, PlannedDevices)
        assert found.devices == s.main.app_state.selected


def test_more_than_are_free_are_planned_as_if_they_were_empty_the_free_ones_first() -> None:
    app_state = AppState({}).with_snapshot(box_at("shared"))
    free = {key for key, verdict in app_state.verdicts.items() if verdict.free}
    found = devices_for(app_state, len(free) + 2)
    assert isinstance(found, PlannedDevices)
    assert free < {device.key for device in found.devices}
    assert len(found.in_use) == 2
    made = plan_of(PlanRequest(model=_model("1B")), app_state, found)
    least = min(device.memory_total or 0 for device in found.devices)
    assert (made.box.memory_free_min or 0) > 0.9 * least


def test_fewer_than_are_selected_are_the_best_of_these() -> None:
    app_state = AppState({}).with_snapshot(box_at("shared"))
    keys = tuple(device.key for device in _devices(app_state)[2:6])
    found = devices_for(app_state.with_devices(keys), 2)
    assert isinstance(found, PlannedDevices)
    assert {device.key for device in found.devices} < set(keys)


def _devices(app_state: AppState) -> tuple[Device, ...]:
    assert app_state.snapshot is not None
    return app_state.snapshot.devices


def _model(name: str) -> Any:
    from gputui.planning.reading import read_model

    return read_model(name, {}, Path())


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        (("plus",), "batch", 2),
        ((":checkpointing",), "checkpointing", True),
        (("colon", *"precision", "down", "enter"), "precision", "fp16"),
        (("colon", *"optimizer", "down", "enter"), "optimizer", "adamw-foreach"),
        (("colon", *"lora", "down", "enter"), "lora", 8),
    ],
)
async def test_a_key_changes_the_training_and_plans_again(
    keys: tuple[str, ...], field: str, value: object
) -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        before = texts(s)
        await s.press(*keys)
        assert getattr(request(s).workload, field) == value
        assert texts(s) != before
        await s.press("x")
        assert texts(s) == before


async def test_minus_halves_the_batch_and_stops_at_one() -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        await s.press("plus", "equals_sign", "minus", "minus", "minus")
        assert request(s).workload.batch == 1


async def test_numbers_are_typed_and_wrong_ones_are_not_taken() -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        await typed(s, ":sequence", "4096")
        await typed(s, ":batch", "3")
        await typed(s, ":accumulation", "2")
        workload = request(s).workload
        assert (workload.sequence, workload.batch, workload.accumulation) == (4096, 3, 2)
        await typed(s, ":sequence", "0")
        assert isinstance(s.app.screen, LineScreen)


async def test_devices_are_stepped_typed_and_found() -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        await opened(s)
        await s.press("left")
        assert request(s).count == 7
        await typed(s, "n", "3")
        assert request(s).count == 3
        await typed(s, "n", "99")
        assert isinstance(s.app.screen, LineScreen)
        await s.press("escape")
        await typed(s, "n", "auto")
        assert request(s).count == fewest_for(request(s), s.main.app_state)
        assert any(text[1:2] == "✓" for text in texts(s))


async def test_devices_that_work_in_groups_are_stepped_by_groups() -> None:
    async with session("gaudi", ("python", "train.py", "--model", "1B")) as s:
        await opened(s)
        before = len(_found(s).devices)
        await s.press("left")
        assert 1 <= len(_found(s).devices) < before


def _found(s: Session) -> PlannedDevices:
    found = devices_for(s.main.app_state, request(s).count)
    assert isinstance(found, PlannedDevices)
    return found


@pytest.mark.parametrize("words", [("--load_in_4bit", "True"), ()])
async def test_weights_in_four_bits_are_said_not_to_be_counted(words: tuple[str, ...]) -> None:
    async with session("dgx-h100", (*TRAIN, *words)) as s:
        await opened(s)
        assert bool(views.doubts(request(s), "", None, "", 80)) is bool(words)
        assert strategies(s)


async def test_without_a_model_it_is_asked_for() -> None:
    async with session("dgx-h100", ("python", "train.py")) as s:
        await opened(s)
        assert not strategies(s)
        await typed(s, "e", "8B")
        await s.until(lambda: strategies(s))
        assert request(s).typed
        # The answer is kept for the next time, also when the command changes.
        await s.press("escape", "@launcher", "down", "enter")
        await opened(s)
        assert strategies(s)


async def test_a_model_that_cannot_be_read_is_said(job_directory: Path) -> None:
    (job_directory / "llama2" / "config.json").write_text('{"model_type": "llama"')
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        assert not strategies(s)
        assert request(s).problem


async def test_what_is_read_slowly_stops_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> object:
        reached.set()
        go_on.wait(60)
        return _model("8B")

    monkeypatch.setattr("gputui.checking.trained_model.trained_model", slow)
    async with session("dgx-h100", TRAIN) as s:
        try:
            await s.press("@plan")
            await s.until(reached.is_set)
            assert not strategies(s)
            await s.press("plus", "question_mark", "escape", "escape")
            assert s.app.screen is s.main
        finally:
            go_on.set()


def reading_held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Hold up the reading of the model 7B: set once that has begun, and what lets it go on."""
    reached, go_on = threading.Event(), threading.Event()

    def slow(name: str, *_: object) -> object:
        if name == "7B":
            reached.set()
            go_on.wait(60)
        return _model(name)

    monkeypatch.setattr("gputui.checking.trained_model.trained_model", slow)
    return reached, go_on


async def test_the_model_that_was_typed_last_is_planned_with_what_was_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        reached, go_on = reading_held_up(monkeypatch)
        try:
            before = texts(s)
            await typed(s, "e", "7B")
            await s.until(reached.is_set)
            assert texts(s) == before
            await typed(s, "e", "1B")
            await s.press("plus")
        finally:
            go_on.set()
        await s.until(lambda: not s.main.plans.reading)
        assert request(s).name == "1B" and request(s).given["batch"] == 2


async def test_a_change_while_a_model_is_read_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        reached, go_on = reading_held_up(monkeypatch)
        try:
            await typed(s, "e", "7B")
            await s.until(reached.is_set)
            await s.press("plus", "left")
        finally:
            go_on.set()
        await s.until(lambda: not s.main.plans.reading)
        assert (request(s).name, request(s).given["batch"], request(s).count) == ("7B", 2, 7)


async def test_selected_devices_that_are_in_use_are_not_called_free_with_those_that_are_added() -> None:
    async with session("shared", TRAIN) as s:
        keys = tuple(s.main.app_state.box.devices[place].key for place in (6, 2))
        s.main.set_app_state(s.main.app_state.with_devices(keys))
        await opened(s)
        assert any("GPUs 6,2: selected" in text for text in texts(s))
        await s.press("right", "right")
        assert any("GPUs 6,2 selected, 4,5 free" in text for text in texts(s))


async def test_a_command_for_another_number_of_devices_is_noted_on_the_page() -> None:
    async with session(
        "dgx-h100", ("torchrun", "--nproc_per_node", "4", "train.py", "--model", "llama2")
    ) as s:
        await opened(s)
        assert not any("the command is for" in text for text in texts(s))
        await s.press("right")
        assert any("for 4 GPUs (--nproc_per_node 4), and the plan for 5" in text for text in texts(s))


async def test_a_command_that_would_be_refused_is_noted_on_the_page() -> None:
    sizes = ("--parallelism_config_tp_size", "2", "--parallelism_config_dp_shard_size", "2")
    words = ("accelerate", "launch", "--use_fsdp", "--use_parallelism_config", *sizes, "t.py")
    async with session("dgx-h100", (*words, "--model", "llama2")) as s:
        await opened(s)
        for key, refused in (("right", True), ("left", False)):
            await s.press(key)
            assert any("is refused: parallelism_config" in text for text in texts(s)) is refused
            assert strategies(s)


async def test_the_cursor_is_at_the_best_until_it_is_moved() -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        assert at_cursor(s) == strategies(s)[0]
        await s.press("plus", "plus", "plus", "plus", "plus", "plus")
        assert at_cursor(s) == strategies(s)[0]
        await s.press("down")
        own = at_cursor(s)
        await s.press("minus", "minus", "minus", "minus", "minus", "minus")
        assert at_cursor(s) == own


# Enter


async def go_to(s: Session, name: str) -> None:
    await s.press("home")
    for _ in range(20):
        if at_cursor(s) == name:
            return
        await s.press("down")
    raise AssertionError(f"no {name} in {texts(s)}")


async def test_enter_writes_the_files_and_changes_the_launch(job_directory: Path) -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        await opened(s)
        await s.press("left", "left", "left", "left")
        planned = _found(s).devices
        await go_to(s, "fsdp2")
        await s.press("enter", "enter")
        app_state = s.main.app_state
        assert s.app.screen is s.main
        assert app_state.launcher == "accelerate"
        assert app_state.selected == planned
        config = job_directory / FOLDER / "accelerate.yaml"
        assert "num_processes: 4" in config.read_text()
        assert str(config.relative_to(job_directory)) in app_state.launch.argv
        # The command now asks for these devices, and nothing selects others.
        assert not app_state.command_is_unread
        assert app_state.contradiction is None


async def test_a_strategy_without_a_file_only_changes_the_launch(job_directory: Path) -> None:
    async with session("dgx-h100", ("python", "train.py", "--model", "100M")) as s:
        await opened(s)
        await go_to(s, "ddp")
        await s.press("enter", "enter")
        assert s.main.app_state.launcher == "torchrun"
        assert not (job_directory / FOLDER).exists()


async def test_of_several_devices_one_is_the_first_as_on_the_command_line() -> None:
    async with session("dgx-h100", ("python", "train.py", "--model", "100M")) as s:
        await s.press("6", "2")
        await opened(s)
        await go_to(s, "single")
        await s.press("enter", "enter")
        assert s.selected == ["6"]
        assert s.main.app_state.launcher == "python"


async def asked(s: Session, *keys: str) -> ConfirmScreen:
    """The question that Enter leads to. What it warns of must have been read before a yes."""
    await s.press("enter", *keys)
    question = s.app.screen
    assert isinstance(question, ConfirmScreen)
    return question


async def test_enter_shows_what_changes_and_changes_nothing_before_a_yes(job_directory: Path) -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        before = s.main.app_state.options, s.main.app_state.selection
        await opened(s)
        await go_to(s, "fsdp2")
        config = job_directory / FOLDER / "accelerate.yaml"
        told = "\n".join((await asked(s)).reasons)
        assert shlex.join((*TRAIN, "--bf16")) in told and "accelerate launch" in told and str(config) in told
        await s.press("escape")
        assert s.app.screen is page(s)
        assert not config.exists()
        assert (s.main.app_state.options, s.main.app_state.selection) == before


async def test_one_action_brings_back_the_command_and_the_devices_of_before() -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16"), size=(80, 24)) as s:
        await s.press("6", "2")
        before = s.main.app_state.options, s.main.app_state.selection
        await opened(s)
        await go_to(s, "fsdp2")
        await s.press("enter", "enter")
        assert (s.main.app_state.options, s.main.app_state.selection) != before
        (told,) = s.main.query_one("#message", Lines).texts
        assert key_of("restore", {}) in told and "…" not in told
        await s.press("@restore")
        assert (s.main.app_state.options, s.main.app_state.selection) == before
        assert not s.main.app_state.command_is_unread


async def test_a_selection_that_is_cleared_after_a_plan_comes_back_without_the_old_command() -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        await opened(s)
        await go_to(s, "fsdp2")
        await s.press("enter", "enter")
        planned = s.main.app_state.options, s.main.app_state.selection
        await s.press("escape", "@restore")
        assert (s.main.app_state.options, s.main.app_state.selection) == planned


async def test_other_files_are_replaced_only_after_a_warning(
    job_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.tui.screens.confirm._UNREAD", 0)
    config = job_directory / FOLDER / "accelerate.yaml"
    config.parent.mkdir()
    config.write_text("mine: true\n")
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        await opened(s)
        await go_to(s, "fsdp2")
        assert any(each.startswith("! ") and str(config) in each for each in (await asked(s)).reasons)
        await s.press("escape")
        assert config.read_text() == "mine: true\n"
        assert s.main.app_state.options.command == (*TRAIN, "--bf16")
        # What appears behind the question is asked about, too.
        config.unlink()
        assert not any(each.startswith("! ") for each in (await asked(s)).reasons)
        config.write_text("another: true\n")
        await s.press("enter")
        assert isinstance(s.app.screen, ConfirmScreen)
        assert config.read_text() == "another: true\n"
        await s.press("enter")
        assert "fsdp_config" in config.read_text()
        assert s.app.screen is s.main
        # Writing the same text again loses nothing.
        await opened(s)
        await go_to(s, "fsdp2")
        assert not any(each.startswith("! ") for each in (await asked(s)).reasons)


async def test_what_does_not_fit_is_used_only_after_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.tui.screens.confirm._UNREAD", 0)
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        await opened(s)
        await go_to(s, "ddp")
        assert any("does not fit" in each for each in (await asked(s)).reasons)
        await s.press("enter")
        assert s.main.app_state.launcher == "torchrun"


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (60, 7)])
async def test_a_question_names_the_keys_that_answer_it_at_any_width(size: tuple[int, int]) -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16"), size=size) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo"))
        (await opened(s)).ask("use", "write " + "a long name " * 20, lambda: None)
        await s.settle()
        assert any(line.startswith(" ⏎ yes  esc no") for line in footer(s))
        # A message that comes meanwhile does not take its place: Enter still answers it.
        s.main.show_message("a job has ended")
        page(s).draw()
        assert any("⏎ yes" in line for line in footer(s))
        await s.press("escape")
        assert not any("⏎ yes" in line for line in footer(s))


async def test_a_demos_files_are_written_only_after_a_warning(
    job_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.tui.screens.confirm._UNREAD", 0)
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo"))
        await opened(s)
        await go_to(s, "fsdp2")
        assert any(each.startswith("! ") for each in (await asked(s)).reasons)
        assert not (job_directory / FOLDER).exists()
        await s.press("enter")
        assert (job_directory / FOLDER / "accelerate.yaml").exists()


@pytest.mark.parametrize("mode", [0o700, 0o777])
async def test_where_the_folder_cannot_be_made_another_is_asked_for(
    job_directory: Path, tmp_path: Path, mode: int
) -> None:
    """This includes the case that others can change the place of the folder that would be offered."""
    (job_directory / FOLDER).write_text("a file")
    state = tmp_path / "shared"
    state.mkdir()
    state.chmod(mode)
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        environ = {**s.main.app_state.environ, "XDG_STATE_HOME": str(state)}
        s.main.set_app_state(replace(s.main.app_state, environ=environ))
        await opened(s)
        await go_to(s, "fsdp2")
        await s.press("enter", "enter")
        assert isinstance(s.app.screen, LineScreen)
        s.app.screen.query_one(Input).value = "elsewhere"
        await s.press("enter")
        assert (job_directory / "elsewhere" / "accelerate.yaml").exists()
        assert "elsewhere/accelerate.yaml" in s.main.app_state.launch.argv


async def test_what_no_launcher_starts_changes_nothing() -> None:
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        await go_to(s, "pp8")
        await s.press("enter")
        assert s.app.screen is page(s)
        assert s.main.message
        assert s.main.app_state.options.command == TRAIN


async def test_a_launcher_that_was_chosen_gives_way_to_the_plans() -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        options = replace(s.main.app_state.options, launcher="torchrun")
        s.main.set_app_state(replace(s.main.app_state, options=options))
        await opened(s)
        await go_to(s, "fsdp2")
        await s.press("enter", "enter")
        assert s.main.app_state.launcher == "accelerate"


async def test_without_a_command_nothing_is_put_anywhere(job_directory: Path) -> None:
    async with session("dgx-h100", ()) as s:
        await opened(s)
        await typed(s, "e", "8B")
        await s.until(lambda: strategies(s))
        await s.press("enter")
        assert s.app.screen is page(s)
        assert not (job_directory / FOLDER).exists()


async def test_escape_changes_nothing() -> None:
    async with session("dgx-h100", TRAIN) as s:
        before = s.main.app_state.options, s.main.app_state.selection
        await opened(s)
        await s.press("plus", "left", "escape")
        assert s.app.screen is s.main
        assert (s.main.app_state.options, s.main.app_state.selection) == before


# As many devices as the model needs


async def test_auto_selects_the_fewest_devices_that_hold_the_model() -> None:
    async with session("dgx-h100", (*TRAIN, "--bf16")) as s:
        await typed(s, "@ask", "auto")
        await s.until(lambda: s.selected)
        assert len(s.selected) == 2
        assert s.app.screen is s.main


async def test_auto_without_a_model_or_enough_devices_selects_nothing() -> None:
    async with session("dgx-h100", ("python", "train.py")) as s:
        await typed(s, "@ask", "auto")
        await s.until(lambda: s.main.message_shown and s.main.message_shown.style == "warn")
        assert not s.selected
    async with session("rtx4090", ("python", "train.py", "--model", "400B")) as s:
        await typed(s, "@ask", "auto")
        await s.until(lambda: s.main.message_shown and s.main.message_shown.style == "warn")
        assert not s.selected


# Boxes and sizes


def _views(box: Snapshot, model: str, width: int) -> list[tuple[int, str]]:
    """Every line of the page for a box, with its width in cells."""
    app_state = AppState({}).with_snapshot(box)
    asked = PlanRequest(name=model, model=_model(model))
    found = devices_for(app_state, None)
    lines = [views.heading(asked, width), *views.settings(asked, found, width)]
    if isinstance(found, str):
        lines += views.missing(asked, found, "", "", width)
    else:
        made = plan_of(asked, app_state, found)
        columns = views.columns_of(made, width)
        lines.append(views.where(app_state, made, found, width))
        lines += [*views.answered(made, found, width), views.table_heading(made, columns, width)]
        lines += views.rows(made, columns, width)
        lines += views.detail(made.rows[0], made, 2, width, 12)
    return [(width_of(line), "".join(text for text, _ in line)) for line in lines]


@each_row("name", [*BOXES])
@each_row("width", [60, 200])
def test_every_box_has_lines_that_fit(name: str, width: int) -> None:
    for model in ("100M", "8B", "1T"):
        for cells, text in _views(box_at(name), model, width):
            assert cells <= width, text


@pytest.mark.parametrize(("width", "reasons"), [(80, False), (130, True), (200, True)])
async def test_the_table_has_few_columns_and_a_wide_one_the_reasons(width: int, reasons: bool) -> None:
    async with session("dgx-h100", (*TRAIN, "--torch_dtype", "bfloat16"), size=(width, 40)) as s:
        await opened(s)
        (heading,) = (text for text in texts(s) if "STRATEGY" in text)
        assert (
            "SENT" not in heading
            and "LINKS" in heading
            and "LEFT" in heading
            and ("WHY" in heading) == reasons
        )
        told = [text for text in texts(s) if "one device)" in text]
        assert len(told) == reasons and all("single" in text for text in told)
        for name in strategies(s)[:3]:
            sent = any(" sent " in text for text in texts(s))
            assert at_cursor(s) == name and sent == (name != "single"), "of the one at the cursor"
            await s.press("down")


@pytest.mark.thorough
@pytest.mark.parametrize("size", [(80, 24), (200, 60), (20, 5)])
async def test_every_size_shows_the_best_strategy(size: tuple[int, int]) -> None:
    async with session("dgx-h100", TRAIN, size=size) as s:
        await opened(s)
        await s.press("plus", ":checkpointing", "down", "up", "end", "home")
        if size[1] >= 15:
            assert at_cursor(s) == strategies(s)[0]


def test_a_box_without_devices_and_one_that_does_not_answer_have_no_plan() -> None:
    empty = AppState({}).with_snapshot(replace(box_at("idle"), devices=(), links=()))
    for app_state in (empty, AppState({}).with_problem("no driver")):
        assert isinstance(devices_for(app_state, None), str)
        assert isinstance(devices_for(app_state, 4), str)


def test_of_unknown_memory_nothing_is_said_to_fit() -> None:
    box = box_at("idle")
    unknown = replace(box, devices=tuple(map(_without_memory, box.devices)))
    app_state = AppState({}).with_snapshot(unknown)
    keys = tuple(device.key for device in unknown.devices)
    found = devices_for(app_state.with_devices(keys), None)
    assert isinstance(found, PlannedDevices)
    made = plan_of(PlanRequest(model=_model("1B")), app_state, found)
    assert {views.verdict_of(row)[0] for row in made.rows} == {"?"}
    columns = views.columns_of(made, 80)
    assert all(width_of(line) <= 80 for line in views.rows(made, columns, 80))


def _without_memory(device: Device) -> Device:
    return replace(device, memory_total=None, memory_used=None, memory_free=None)


def test_of_mig_instances_one_is_planned_for() -> None:
    app_state = AppState({}).with_snapshot(box_at("a100-mig"))
    instances = [device for device in _devices(app_state) if device.parent]
    found = devices_for(app_state.with_devices((instances[-1].key,)), None)
    assert isinstance(found, PlannedDevices)
    assert len(found.devices) == 1


# The bars


def test_a_bar_is_as_long_as_what_is_needed() -> None:
    parts = Bytes(weights=40, gradients=20, optimizer=20, buffers=0, activations=10, fixed=10)
    full = views.stacked(parts, 100, 20)
    cells = "".join(text for text, _ in full)
    assert cells == "█" * 8 + "▓" * 4 + "▒" * 4 + "▆" * 2 + "▂" * 2
    half = "".join(text for text, _ in views.stacked(parts, 200, 20))
    assert len(half) == 20
    assert half.count("░") == 10
    over = "".join(text for text, _ in views.stacked(parts, 10, 20))
    assert len(over) == 20
    assert over[-1] == "»"


def test_a_key_is_answered_within_fifty_milliseconds() -> None:
    """Time everything that a key press computes, for fifteen devices."""
    app_state = AppState({}).with_snapshot(box_at("dgx-2"))
    asked = PlanRequest(model=_model("70B"))
    batches = itertools.count(1)

    def computed() -> None:
        found = devices_for(app_state, 15)
        assert isinstance(found, PlannedDevices)
        made: Plan = plan_of(asked.having(batch=next(batches)), app_state, found)
        views.rows(made, views.columns_of(made, 200), 200)

    computed()
    assert_costs(0.05, lambda: cpu_seconds(computed))


async def test_a_command_that_serves_is_planned_as_a_server() -> None:
    """Its row tells the requests; `:sequence` types the context; Enter selects its devices."""
    async with session("rtx3090", ("vllm", "serve", "llama2", "--max-model-len", "4096")) as s:
        await opened(s)
        assert request(s).training.serving is not None
        assert set(strategies(s)) >= {"single", "tp2", "tp4"}
        shown = " ".join(" ".join(texts(s)).split())
        assert "vLLM 92% of each device context 4096" in shown and "requests of 4,096 tokens" in shown
        assert "DeepSpeed" not in shown and "checkpointing" not in shown
        await typed(s, ":sequence", "2048")
        await s.settle()
        assert "requests of 2,048 tokens" in " ".join(" ".join(texts(s)).split())
        await s.press("enter")
        await s.settle()
        assert len(s.main.app_state.selection.keys) == 1


async def test_a_server_that_does_not_fit_shows_what_would_and_has_no_batch() -> None:
    command = ("vllm", "serve", "llama2", "--max-model-len", "4096", "--gpu-memory-utilization", "0.6")
    async with session("rtx3090", command, size=(190, 40)) as s:
        await opened(s)
        row = next(text for text in texts(s) if text.startswith(" ✗ single"))
        assert "at most 2,768 tokens" in row, "what it would fit with"
        before = strategies(s)
        await s.press("plus")
        assert "for trainings only" in str(s.main.message)
        assert strategies(s) == before


async def test_what_cannot_be_served_is_a_sentence_at_every_key(job_directory: Path) -> None:
    (job_directory / "llama2" / "config.json").write_text('{"model_type": "bert"}')
    async with session("rtx3090", ("vllm", "serve", "llama2")) as s:
        await opened(s)
        assert "does not generate text" in " ".join(" ".join(texts(s)).split())
        await typed(s, "n", "auto")
        await s.settle()
        assert fewest_for(request(s), s.main.app_state) is None


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
@pytest.mark.parametrize(("model", "words"), [("1B", ("Use ",)), ("70B", ("Nothing fits", "would fit with"))])
async def test_the_answer_is_on_top(size: tuple[int, int], model: str, words: tuple[str, ...]) -> None:
    command = ("python", "train.py", "--model", model, "--bf16", "--gradient_checkpointing")
    async with session("rtx3090", command, size=size) as s:
        await opened(s)
        answer = " ".join(" ".join(texts(s)[1:3]).split())
        assert all(word in answer for word in words)
        if words == ("Use ",):
            assert answer.startswith(f"Use {at_cursor(s)} on 4 GPUs: fits with ")


async def test_a_plan_without_a_model_asks_for_one_at_once_and_at_enter() -> None:
    async with session("dgx-h100", ("python", "train.py")) as s:
        await opened(s)
        assert isinstance(s.app.screen, LineScreen)
        await s.press("escape")
        assert s.app.screen is s.main, "nothing is left to show"
        await s.press("@plan")
        for name in ("no-such-model", "llama2"):
            assert isinstance(s.app.screen, LineScreen)
            s.app.screen.query_one(Input).value = name
            await s.press("enter")
            await s.until(lambda: not s.main.plans.reading)
            await s.press("enter")
        await s.until(lambda: bool(strategies(s)))


@pytest.mark.parametrize("installed", [False, True])
async def test_a_strategy_whose_launcher_is_not_installed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """On the plan page, and below the launch line that has it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", *(("accelerate", "torchrun", "deepspeed") if installed else ())):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    async with session("dgx-h100", TRAIN) as s:
        await opened(s)
        names = strategies(s)
        for _ in range(names.index("fsdp2")):
            await s.press("down")
        assert at_cursor(s) == "fsdp2"
        assert any("'accelerate'" in text for text in texts(s)) is not installed
        await s.press("enter", "y")
        await s.until(lambda: "accelerate" in s.main.app_state.options.command)
        assert any("'accelerate'" in text for text in s.main.app_state.warnings) is not installed
