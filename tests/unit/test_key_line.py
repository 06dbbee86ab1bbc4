"""The last line: the keys that it names in each state, and the positions of clicks on them."""

from __future__ import annotations

from dataclasses import replace

from gputui.allocating.settings import ScreenSettings
from gputui.inventory.job import Job
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.tui.actions import BY_ID
from gputui.tui.app_state import AppState
from gputui.tui.views.keys import keys, next_actions

COMMAND = LaunchOptions(("python", "train.py"))
BOX = at(BOXES["shared"], 0.0, 1_700_000_000.0)


def state(*selected: int, options: LaunchOptions = COMMAND) -> AppState:
    app_state = AppState({}, options).with_snapshot(BOX)
    for index in selected:
        app_state = app_state.toggle(next(device for device in BOX.devices if device.index == index))[0]
    return app_state


def text(app_state: AppState, width: int = 80) -> str:
    line, places = keys(app_state, width)
    words = "".join(part for part, _ in line)
    assert len(words) <= width or width < 16
    for begin, end, name in places:
        assert words[begin:end].endswith(BY_ID[name].hint) or name in ("edit", "cpu")
    return words


def test_without_a_selection_the_first_keys_select() -> None:
    assert text(state()).startswith(" space/0-9 select  b best  ")


def test_without_a_command_the_first_key_types_one() -> None:
    assert text(state(options=LaunchOptions())).startswith(" e type a command  space/0-9 select")
    assert text(state(4, options=LaunchOptions())).startswith(" e type a command  y copy  x clear")


def test_with_both_the_first_keys_start_it() -> None:
    assert text(state(4)).startswith(" ⏎ run  y copy  r run & return  d detach  x clear")
    assert "J/K reorder" in text(state(4, 5)) and "J/K" not in text(state(4))
    assert "c not CPU only" in text(state().cpu_only())


def test_a_busy_device_can_be_waited_for() -> None:
    assert text(state(0)).startswith(" w wait in line  ⏎ run")
    assert "wait" not in text(replace(state(0), label="demo"))


def test_jobs_are_named_while_one_runs() -> None:
    for job_state, named in (("running", True), ("waiting", True), ("done", False)):
        jobs = (Job(id="m6u5", name="x", state=job_state),)
        assert ("jobs" in next_actions(replace(state(), snapshot=replace(BOX, jobs=jobs)))) is named


def test_help_and_quit_stay_at_the_end_however_narrow_it_is() -> None:
    for width in (20, 40, 80, 200):
        for app_state in (AppState({}), state(), state(4, 5), state(0, options=LaunchOptions())):
            assert text(app_state, width).endswith("? help  q quit")


def test_the_keys_are_those_of_the_users_keymap() -> None:
    own = ScreenSettings(keymap={"copy": "c", "later": "ctrl+j", "help": "f1", "select": "s"})
    assert " c copy  " in text(replace(state(4), screen=own)) and "f1 help" in text(
        replace(state(4), screen=own)
    )
    assert "ctrl+j/K reorder" in text(replace(state(4, 5), screen=own), 120)
    assert text(replace(state(), screen=own)).startswith(" s/0-9 select")


def test_the_demos_example_is_edited_and_not_run() -> None:
    example = replace(state(4), example=COMMAND.command)
    assert not {"launch", "return", "detach", "wait"} & {*next_actions(example)}
    assert text(example).startswith(" e edit  y copy  ")
