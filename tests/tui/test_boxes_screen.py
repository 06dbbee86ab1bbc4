"""Boxes over ssh on the page of nodes."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from pathlib import Path
from time import localtime, strftime

import pytest

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import received
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.sources.hosts.reading import Reading
from gputui.sources.hosts.ssh import Way
from gputui.system.environment import WORDS
from gputui.tui.controllers import box_nodes
from gputui.tui.controllers.box_nodes import BoxNodes
from gputui.tui.screens.nodes import NodesScreen
from gputui.tui.screens.page import Page, page_keys
from gputui.tui.start_launch import Returned
from tui.support import Session, session
from tui.test_people_screen import lit, texts
from unit.builders import box, busy, gpu, job


class Told(Channels):
    """Channels with states that the test sets; they connect to nothing."""

    def __init__(self, *states: BoxState) -> None:
        super().__init__((), Way(1), 1.0)
        self.told = states

    @property
    def states(self) -> tuple[BoxState, ...]:
        return self.told


def live(alias: str, snapshot: Snapshot, **more: object) -> BoxState:
    return BoxState(alias, "live", Reading(alias, snapshot, {}), None, snapshot.time, **more)  # type: ignore[arg-type]


def two() -> Snapshot:
    return box(gpu(0), busy(gpu(1), job(7, user="mira")))


DEAD = BoxState("gone", "dead", None, "connection refused", 1.0)


def clock(state: BoxState) -> str:
    return strftime("%H:%M:%S", localtime(state.since))


def called(page: NodesScreen) -> tuple[str, ...]:
    """The words of the call that the page shows, without the program."""
    return tuple(shlex.split(line_of(page))[1:])


def line_of(page: NodesScreen) -> str:
    """The call that the page shows, "" for none."""
    boxes = boxes_of(page)
    launched = boxes.launched(starts=False)
    return "" if isinstance(launched, str) else boxes.line(launched)


def boxes_of(page: NodesScreen) -> BoxNodes:
    """The boxes of the page."""
    return next(kind for kind in page.kinds if isinstance(kind, BoxNodes))


def opened_with(s: Session, channels: Channels) -> NodesScreen:
    environ = dict(s.main.app_state.environ)
    page = NodesScreen(s.main, [BoxNodes(s.main, s.main.launch, environ, channels)])
    s.main.open(page)
    return page


def opened(s: Session, *states: BoxState) -> NodesScreen:
    return opened_with(s, Told(*states))


async def test_boxes_fold_and_say_what_is_free_and_what_is_wrong() -> None:
    stale = BoxState("quiet", "stale", Reading("quiet", two()), "no recent reading", two().time + 7)
    async with session("idle") as s:
        page = opened(s, live("gpu1", two()), DEAD, stale)
        await s.press()
        page.draw()
        lines = texts(s)
        assert "1 GPU free on 1 of 3 nodes" in lines[0]
        assert "1 of 2 free" in lines[1]
        # A box that is not live shows why and since when.
        assert f"dead: connection refused, since {clock(DEAD)}" in lines[2]
        assert "– of 2" in lines[3] and f"since {clock(stale)}" in lines[3] and not any(lines[4:])
        assert lines[2].index("dead") == lines[3].index("stale") == lines[1].index("2×")
        await s.press("enter")
        assert "mira" in texts(s)[3] and lit(s).startswith("- gpu1")
        await s.press("enter", "down")
        assert lit(s).startswith("+ gone")
        await s.press("slash", *"free", "enter")
        assert [line for line in texts(s)[1:] if line] == [texts(s)[1]] and "gpu1" in texts(s)[1]
        await s.press("q")
        assert s.app.screen is s.main


async def test_what_is_ours_there_is_by_the_name_that_we_have_there() -> None:
    there = BoxState("gpu1", "live", Reading("gpu1", two(), {"user": "mira"}), None, two().time)
    async with session("idle") as s:
        page = opened(s, there, live("gpu2", two()))
        await s.press()
        page.draw()
        assert "1 yours" in texts(s)[1] and "yours" not in texts(s)[2]


async def test_twenty_boxes_are_seen_at_once_at_80_columns() -> None:
    async with session("idle", size=(80, 24)) as s:
        page = opened(s, *(live(f"gpu{n:02}", two()) for n in range(20)))
        await s.press()
        page.draw()
        assert [line[3:8] for line in texts(s)[1:21]] == [f"gpu{n:02}" for n in range(20)]
        assert all(len(line) <= 80 for line in texts(s))


async def test_hostile_text_does_nothing_to_the_terminal() -> None:
    evil = box(busy(gpu(0, name="\x1b]0;x\x07"), job(7, user="\x1b[2J")))
    async with session("idle") as s:
        page = opened(s, live("gpu1", evil))
        await s.press("enter", "down", "space")
        page.draw()
        shown = [*texts(s), *texts(s, "#page-footer")]
        assert called(page) and all(line.isprintable() for line in shown)


def marks(s: Session) -> dict[str, str]:
    """The labels of the selected device rows, by their place in the selection."""
    rows = (line[1:].split() for line in texts(s) if line[1:].strip().startswith("["))
    return {row[0].strip("[]"): row[1] for row in rows}


def four(alias: str) -> BoxState:
    """A box of four devices with UUIDs of its own; the second device is busy."""
    devices = [gpu(n, uuid=f"GPU-{alias}-{n}") for n in range(4)]
    devices[1] = busy(devices[1], job(7, user="mira"))
    return live(alias, box(*devices))


async def test_devices_of_one_box_are_selected_in_order_and_the_line_says_what_would_run() -> None:
    async with session("idle", size=(200, 40)) as s:
        page = opened(s, four("a"), four("b"))
        await s.press("3", "0")
        assert marks(s) == {"1": "3", "2": "0"} and lit(s).split()[1] == "0"
        assert called(page) == (
            *("run", "--on", "a", "--if-free", "--gpus", "GPU-a-3,GPU-a-0", "--", "python", "train.py"),
        )
        assert any(line_of(page) in line for line in texts(s, "#page-footer"))
        await s.press("K")
        assert marks(s) == {"1": "0", "2": "3"}
        await s.press("space")
        assert marks(s) == {"1": "3"}
        # Selecting on another box begins a new selection, and the message says so.
        await s.press("end", "space", "down", "down", "down", "space")
        assert called(page)[2] == "b" and marks(s) == {"1": "2"}
        assert "selection on a" in s.main.message and "(1 GPU) was cleared" in s.main.message
        await s.press("x")
        assert called(page) == () and marks(s) == {}


async def test_the_command_is_edited_and_as_many_as_asked_for_are_selected_on_the_page() -> None:
    async with session("idle", size=(200, 40)) as s:
        page = opened(s, four("a"))
        await s.press("n", "3", "enter")
        assert len(marks(s)) == 3
        await s.press("e", "end", *"xy", "enter")
        assert s.app.screen is page and called(page)[-2:] == ("python", "train.pyxy")


async def test_the_best_of_a_box_are_selected_as_on_the_main_screen() -> None:
    async with session("idle", size=(200, 40)) as s:
        page = opened(s, four("a"), four("b"))
        await s.press("down", "b", "b")
        assert called(page)[2] == "b" and len(marks(s)) == 2 and "1" not in marks(s).values()


@pytest.mark.parametrize(
    "state",
    [
        DEAD,
        BoxState("gone", "stale", Reading("gone", two()), "no recent reading", 1.0),
        BoxState("gone", "live", Reading("gone", two()), None, 1.0),
    ],
    ids=["dead", "stale", "no gputui there"],
)
async def test_nothing_is_selected_where_nothing_can_start(state: BoxState) -> None:
    async with session("idle") as s:
        page = opened(s, state)
        await s.press("b", "0")
        assert called(page) == () and "gone" in s.main.message


@pytest.mark.parametrize("command", [(), ("python", "train.py")], ids=["no command", "a command"])
async def test_a_busy_device_is_selected_with_one_warning_that_stays(command: tuple[str, ...]) -> None:
    async with session("idle", size=(200, 40), command=command) as s:
        page = opened(s, four("a"))
        await s.press("1")
        assert marks(s) == {"1": "1"} and bool(called(page)) == bool(command)
        (told,) = (line for line in (*texts(s, "#page-footer"), s.main.message) if "mira" in line)
        assert told.strip().startswith("!")
        await s.press("J")
        assert texts(s, "#page-footer").count(told) == 1


async def test_devices_that_vanish_are_deselected_and_a_box_that_dies_starts_nothing() -> None:
    async with session("idle", size=(200, 40)) as s:
        page = opened(s, four("a"))
        await s.press("3", "0")
        channels = boxes_of(page)._channels
        assert isinstance(channels, Told)
        channels.told = (live("a", box(gpu(0, uuid="GPU-a-0"))),)
        page.draw()
        assert marks(s) == {"1": "0"} and called(page)[5] == "GPU-a-0"
        channels.told = (BoxState("a", "dead", channels.told[0].reading, "connection refused", 1.0),)
        page.draw()
        await s.press("r")
        assert "connection refused" in s.main.message


async def test_the_terminal_is_lent_to_the_line_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[tuple[Launch, str | None]] = []

    def lend(launch: Launch, line: str | None = None) -> Returned:
        lent.append((launch, line))
        return Returned("gputui done", True)

    async with session("idle", size=(200, 40)) as s:
        asks = BoxState("shy", "dead", None, "permission denied", 1.0, "denied")
        page = opened(s, four("a"), asks)
        monkeypatch.setattr(s.main.launch, "lend_terminal", lend)
        await s.press("3", "enter")
        await s.press("r")
        assert [line for _, line in lent] == [line_of(page)] * 2
        # The command line is for everybody to read.
        words = json.loads(lent[0][0].environment({})[WORDS])
        assert received(words[-1]).words == [*called(page)[3:]] and words[-1] not in lent[0][0].argv
        # ssh may ask for what a box needs, in a terminal where a person sees the question.
        await s.press("end", "enter", ":ssh")
        assert [launch.argv[0] for launch, _ in lent[2:]] == [shutil.which("ssh")] * 2
        argv = lent[2][0].argv
        assert not any("BatchMode" in word for word in argv) and argv[-2:] == ("shy", "true")


async def test_without_boxes_in_the_settings_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with session("idle") as s:
        await s.press("@nodes")
        assert s.app.screen is s.main and s.main.message


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables for settings that name a box, and for an `ssh` that leaves a trace when it is called."""
    folder = tmp_path / "config" / "gputui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[hosts]\nboxes = ["a"]\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(f"#!/bin/sh\n: > {tmp_path}/called\n")
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


async def test_in_a_demo_the_boxes_are_simulated_and_nothing_is_started(
    named: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session("idle", environ=named) as s:
        lent: list[object] = []
        monkeypatch.setattr(s.main.launch, "lend_terminal", lambda *given: lent.append(given))
        s.main.set_app_state(replace(s.main.app_state, label="demo idle"))
        await s.press("@nodes")
        page = s.app.screen
        assert isinstance(page, NodesScreen)
        states = [line.split(":")[0].split()[-1] for line in texts(s)[1:] if " since " in line]
        assert [line[3:7] for line in texts(s)[1:6]] == ["gpu1", "gpu2", "gpu3", "gpu4", "lab "]
        assert sorted(states) == ["dead", "stale"]
        await s.press("b", "r")
        assert called(page) and "demo idle" in s.main.message
        await s.press("y")
        await s.until(lambda: "clipboard" in s.main.message)
        await s.press("d", "end", "k", "left", ":ssh", "enter")
        assert lent == [] and not (tmp_path / "called").exists()


async def test_a_recording_has_no_other_boxes(named: dict[str, str], tmp_path: Path) -> None:
    async with session("idle", environ=named) as s:
        s.main.set_app_state(replace(s.main.app_state, label="box.json"))
        await s.press("@nodes")
        assert s.app.screen is s.main and "box.json" in s.main.message
        assert not (tmp_path / "called").exists()


async def test_the_boxes_of_the_settings_are_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "config" / "gputui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[hosts]\nboxes = ["a"]\n')
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(
        "#!/bin/sh\necho 'ssh: connect to host a: Connection refused' >&2\nexit 255\n"
    )
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    async with session("idle", environ={"XDG_CONFIG_HOME": str(tmp_path / "config")}) as s:
        await s.press("@nodes")
        assert isinstance(s.app.screen, NodesScreen)
        await s.until(lambda: "connection refused" in "".join(texts(s)))


def footer(s: Session) -> list[str]:
    return texts(s, "#page-footer")


def keys(s: Session) -> str:
    return footer(s)[-1]


QUIET = BoxState("quiet", "stale", Reading("quiet", two()), "no recent reading", 1.0)


async def test_devices_of_a_box_that_is_not_live_are_unknown_and_never_free() -> None:
    async with session("idle") as s:
        opened(s, QUIET)
        await s.press("enter")
        assert all("? unknown" in line for line in texts(s)[2:4])
        assert not any("free" in line for line in texts(s)[2:4])


async def test_enter_is_named_where_it_starts_something_and_only_there() -> None:
    async with session("idle", size=(200, 40)) as s:
        opened(s, four("a"))
        await s.press("3")
        assert "⏎ run" in keys(s) and "r run" not in keys(s).replace("⏎ run", "")
        await s.press("home")
        assert "⏎ devices" in keys(s) and "r run" in keys(s) and "⏎ run" not in keys(s)
        await s.press("x")
        assert "run" not in keys(s) and "copy" not in keys(s)


async def test_the_number_that_n_asks_for_selects_nothing_where_n_cannot() -> None:
    async with session("idle", size=(200, 40)) as s:
        page = opened(s, four("a"), QUIET)
        await s.press("3", "end", "n", "0", "enter")
        assert s.app.screen is not page
        await s.press("escape")
        assert s.app.screen is page and called(page)[5] == "GPU-a-3" and called(page)[2] == "a"


async def test_a_folded_box_shows_how_many_of_its_devices_are_selected() -> None:
    async with session("idle", size=(200, 40)) as s:
        opened(s, four("a"), four("b"))
        await s.press("3", "0", "left")
        assert "[2]" in texts(s)[1] and "[" not in texts(s)[2]


async def test_the_call_is_seen_before_anything_is_selected_with_the_launcher_and_what_is_missing() -> None:
    async with session("idle", size=(200, 40)) as s:
        opened(s, four("a"))
        await s.press("l", "down", "enter")
        assert "launch: torchrun" in footer(s)[0] and "select GPUs" in footer(s)[0]
        assert "gputui run --on a --if-free --gpus LIST" in footer(s)[1] and "train.py" in footer(s)[1]


async def test_without_a_command_there_is_no_call_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session("idle", command=(), size=(200, 40)) as s:
        page = opened(s, four("a"))
        copied: list[str] = []
        monkeypatch.setattr(s.main.launch, "copy_text", copied.append)
        await s.press("3", "y")
        assert called(page) == () and copied == [] and "no command" in s.main.message
        assert not any("--" in line for line in footer(s))


@pytest.mark.parametrize("key", ["r", "d", "y"])
async def test_keys_that_need_a_selection_say_so(key: str) -> None:
    async with session("idle") as s:
        opened(s, four("a"))
        await s.press(key)
        assert "select GPUs" in s.main.message


async def test_uuids_are_as_short_as_they_are_unambiguous_and_never_broken() -> None:
    uuids = [f"GPU-1a2b3c4{n}-9d0f-4c1e-8e51-000000000000" for n in range(8)]
    devices = [gpu(n, uuid=uuid) for n, uuid in enumerate(uuids)]
    async with session("idle", size=(80, 40)) as s:
        page = opened(s, live("a", box(*devices)))
        await s.press("n", "8", "enter")
        names = called(page)[5].split(",")
        assert sorted(names) == sorted(uuid[:12] for uuid in uuids)
        shown = " ".join(footer(s))
        assert all(name in shown for name in names)


async def test_the_box_says_how_a_command_there_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session("idle", size=(200, 40)) as s:
        opened(s, four("a"))
        ended = Returned("gputui ended with status 127", how="ended with status 127")
        monkeypatch.setattr(s.main.launch, "lend_terminal", lambda *_: ended)
        await s.press("3", "r")
        assert s.main.message == "a: ended with status 127"


@pytest.mark.parametrize(("meanwhile", "left"), [((), {}), (("2",), {"1": "3", "2": "2"})])
async def test_a_started_job_has_its_devices_so_they_are_deselected_unless_the_selection_has_changed(
    monkeypatch: pytest.MonkeyPatch, meanwhile: tuple[str, ...], left: dict[str, str]
) -> None:
    answers = threading.Event()

    def start(*_: object) -> tuple[str, bool]:
        assert answers.wait(30)
        return "job k3f9 runs on a", True

    monkeypatch.setattr(box_nodes, "start_detached", start)
    async with session("idle", size=(200, 40)) as s:
        opened(s, four("a"))
        await s.press("3", "d", *meanwhile)
        answers.set()
        await s.until(lambda: "k3f9" in s.main.message and marks(s) == left)


async def test_a_job_that_could_not_start_leaves_its_devices_selected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box_nodes, "start_detached", lambda *_: ("GPU 3 is not free any more", False))
    async with session("idle", size=(200, 40)) as s:
        opened(s, four("a"))
        await s.press("3", "d")
        await s.until(lambda: "not free" in s.main.message)
        assert marks(s) == {"1": "3"}


async def test_what_is_preferred_and_never_taken_here_is_not_so_on_a_box() -> None:
    async with session("idle", size=(200, 40)) as s:
        rules = replace(s.main.app_state.rules, never=("0", "2", "3"))
        s.main.set_app_state(s.main.app_state.with_rules(rules))
        opened(s, four("a"))
        await s.press("b", "b", "b")
        assert {*marks(s).values()} == {"0", "2", "3"}


class Connecting(Told):
    """Channels that note the boxes to which the page connects again."""

    def __init__(self, *states: BoxState) -> None:
        super().__init__(*states)
        self.tried: list[str] = []

    def connect_now(self, alias: str) -> None:
        self.tried.append(alias)


async def test_enter_connects_to_a_dead_box_and_lends_the_terminal_only_where_ssh_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lent: list[str | None] = []

    def lend(_: Launch, line: str | None = None) -> Returned:
        lent.append(line)
        return Returned("ssh ended with status 255", how="ended with status 255")

    async with session("idle") as s:
        monkeypatch.setattr(s.main.launch, "lend_terminal", lend)
        changed = BoxState(
            "new", "dead", None, "its host key has changed; `ssh new` says more", 1.0, "changed key"
        )
        channels = Connecting(
            DEAD, BoxState("shy", "dead", None, "permission denied", 1.0, "denied"), changed
        )
        opened_with(s, channels)
        await s.press("enter")
        assert channels.tried == ["gone"] and lent == []
        await s.press("down", "enter")
        assert channels.tried == ["gone", "shy"] and lent == ["ssh shy true"]
        assert "shy true" in s.main.message and "255" in s.main.message
        # ssh asks no question about a changed key, so the page says what can be done.
        await s.press("down")
        assert any("ssh-keygen -R" in line for line in footer(s))


async def test_the_help_lists_each_key_of_the_page_once() -> None:
    rows = page_keys(NodesScreen.BINDINGS)
    keys = [key for row, _ in rows for key in row.split()]
    assert sorted(keys) == sorted(set(keys))


async def test_a_box_that_answers_is_shown_before_the_page_is_painted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Page, "on_mount", lambda _: None)
    async with session("idle") as s:
        page = opened(s, BoxState("gpu1"), BoxState("gpu2"))
        await s.press()
        page.draw()
        assert "connecting" in texts(s)[1]
        assert isinstance(boxes_of(page)._channels, Told)
        boxes_of(page)._channels.told = (live("gpu1", two()), DEAD)
        await s.until(lambda: "1 of 2 free" in texts(s)[1] and "dead" in texts(s)[2])


async def test_a_list_below_another_page_is_not_read_until_that_page_closes() -> None:
    async with session("idle") as s:
        page = opened(s, live("gpu1", two()))
        await s.press()
        page.draw()
        await s.press("?")
        assert s.app.screen is not page and isinstance(boxes_of(page)._channels, Told)
        boxes_of(page)._channels.told = (DEAD,)
        page.draw()
        assert boxes_of(page).state_of("gpu1") is not None
        await s.press("escape")
        assert s.app.screen is page and "dead" in texts(s)[1]


async def test_only_what_is_selected_has_the_background_of_a_selection() -> None:
    async with session("idle") as s:
        page = opened(s, four("a"))
        await s.press("enter", "3")
        page.draw()
        lines = [line for line, _ in page.body._shown]
        slots = ["".join(text for text, style in line if style == "slot") for line in lines]
        assert [slot.strip() for slot in slots if slot] == ["[1]"]


async def test_slurm_is_a_word_for_the_page_of_nodes_where_there_are_any(named: dict[str, str]) -> None:
    async with session("idle", environ=named) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo idle"))
        await s.press(":slurm")
        assert isinstance(s.app.screen, NodesScreen)
