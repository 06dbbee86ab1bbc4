"""A Slurm cluster on the page of nodes: what the cluster has, and how a command gets there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gputui.cli.dispatch import dispatch
from gputui.launching.history_file import load
from gputui.tui.screens.nodes import NodesScreen
from tui.support import Session, session
from tui.test_frame import footer
from tui.test_people_screen import lit, texts
from unit.test_run_slurm import programs, submits

__all__ = ["programs"]

pytestmark = pytest.mark.usefixtures("programs")


async def cluster_is_read(s: Session) -> None:
    page = s.app.screen
    assert isinstance(page, NodesScreen)
    await s.until(lambda: page.key is not None and "asking" not in "\n".join(texts(s)))


@asynccontextmanager
async def opened(
    folder: Path, command: tuple[str, ...] = ("python", "train.py"), size: tuple[int, int] = (110, 30)
) -> AsyncIterator[Session]:
    """The session with the page open, once the cluster has been read."""
    environ = {"PATH": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    async with session("idle", command=command, environ=environ, size=size) as s:
        await s.press("@nodes")
        await cluster_is_read(s)
        yield s


def launch_line(s: Session) -> str:
    """The command line at the bottom, unwrapped."""
    lines = footer(s)
    begin = next(place for place, line in enumerate(lines) if line.startswith(" $ "))
    wrapped = []
    for line in lines[begin:]:
        if line.startswith(" Slurm decides"):
            break
        wrapped.append(line.strip())
    return " ".join(wrapped).removeprefix("$ ")


async def to(s: Session, place: str) -> None:
    """Move the cursor to a place."""
    for _ in range(30):
        if lit(s).startswith(place):
            return
        await s.press("down")
    raise AssertionError(f"no {place}: {texts(s)}")


async def test_places_are_partitions_and_the_types_of_each_node(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        shown = "\n".join(texts(s))
        assert "8 GPUs free on 1 of 4 nodes" in shown
        for place in ("any node of small", "any node of big", "a1:a100", "m1:a100", "m1:h100"):
            assert place in shown
        # A node without devices cannot be selected; a drained node shows the reason.
        assert "c1" not in shown and "drained" in shown and "fan" in shown
        await s.press("slash", *"free", "enter")
        assert not any("a1:a100" in line for line in texts(s)) and any("h1:h100" in line for line in texts(s))


@pytest.mark.parametrize(
    ("place", "keys", "option"),
    [
        ("h1:h100", "2", "h1:h100"),
        ("any node of big", "8", "big"),
        ("m1:a100", "2", "m1:a100"),
        ("any node of small", "4", "small"),
    ],
)
async def test_the_line_is_the_one_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, keys: str, option: str
) -> None:
    async with opened(tmp_path) as s:
        await to(s, place)
        await s.press(*keys)
        line = launch_line(s)
    words = ["run", f"--slurm={option}", "-n", keys, "--dry-run", "--", "python", "train.py"]
    assert dispatch(words) == 0
    assert line == capsys.readouterr().out.strip()


async def test_there_are_as_many_devices_as_a_node_has(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await to(s, "m1:h100")
        await s.press("5")
        assert "--gpus-per-node=h100:2" in launch_line(s) and "2" in s.main.message
        await s.press("minus", "minus", "minus")
        assert "--gpus-per-node=h100:1" in launch_line(s)
        await s.press("plus")
        assert "--gpus-per-node=h100:2" in launch_line(s)


async def test_the_order_inside_is_typed_and_belongs_to_its_number_of_devices(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await to(s, "h1:h100")
        await s.press("2", "o", *"1,1", "enter")
        # Each place may be named only once, so this answer is not accepted.
        assert s.app.screen is not s.main and not isinstance(s.app.screen, NodesScreen)
        await s.press("ctrl+u", *"1,0", "enter")
        assert "CUDA_VISIBLE_DEVICES=${d[1]},${d[0]}" in launch_line(s)
        assert "in the order 1,0" in "\n".join(footer(s))
        await s.press("2")
        assert "in the order 1,0" in "\n".join(footer(s))
        await s.press("3")
        assert "order" in s.main.message and "d[1]" not in launch_line(s)


async def test_tab_shows_the_line_of_sbatch_and_enter_then_submits_it(tmp_path: Path) -> None:
    submits(tmp_path, f'echo "$@" >{tmp_path}/asked; echo 4712')
    async with opened(tmp_path) as s:
        await to(s, "h1:h100")
        await s.press("tab")
        assert " sbatch " in launch_line(s)
        await s.press("enter")
        await s.until(lambda: "4712" in s.main.message)
    assert "--gpus-per-node=h100:1" in (tmp_path / "asked").read_text()


async def test_what_is_short_is_said_of_a_partition_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await to(s, "any node of small")
        await s.press("4")
        assert "queue" in "\n".join(footer(s)) and "a100, h100" in "\n".join(footer(s))


async def test_as_many_devices_as_are_selected_on_this_machine_are_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await s.press("escape", "1", "0", "@nodes")
        await s.until(lambda: "--gpus-per-node" in "\n".join(footer(s)))
        assert s.selected == ["1", "0"]
        # The line asks for as many devices as are selected on this machine.
        assert ":2" in launch_line(s) or "=2" in launch_line(s)


async def test_a_variable_that_selects_devices_is_not_passed_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await s.press("e", "ctrl+u", *"CUDA_VISIBLE_DEVICES=2 python t.py", "enter")
        assert launch_line(s).endswith("python t.py") and "CUDA_VISIBLE" not in launch_line(s)
        assert any("CUDA_VISIBLE_DEVICES is left out" in line for line in footer(s))


async def test_the_request_is_still_there_when_the_page_opens_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await to(s, "h1:h100")
        await s.press("3", "tab", "escape", "@nodes")
        await s.until(lambda: lit(s).startswith("h1:h100"))
        assert "sbatch" in launch_line(s) and "--gpus-per-node=h100:3" in launch_line(s)


async def test_enter_becomes_srun_and_the_launch_is_remembered(tmp_path: Path) -> None:
    async with opened(tmp_path) as s:
        await to(s, "h1:h100")
        await s.press("2", "enter")
        await s.until(lambda: not s.app.is_running)
        outcome = s.app.return_value
    assert outcome is not None and outcome.launch is not None and outcome.allocation is None
    assert outcome.launch.argv[0] == "srun" and "--nodelist=h1" in outcome.launch.argv
    kept = load({"XDG_STATE_HOME": str(tmp_path / "state")})
    assert [each.options.command for each in kept] == [("python", "train.py")]


async def test_a_batch_job_is_submitted_and_its_id_is_shown(tmp_path: Path) -> None:
    submits(tmp_path, f'echo "$@" >{tmp_path}/asked; echo 4711')
    async with opened(tmp_path) as s:
        await to(s, "h1:h100")
        await s.press("3", "d")
        await s.until(lambda: "4711" in s.main.message)
        assert s.app.is_running
    asked = (tmp_path / "asked").read_text()
    assert "--gpus-per-node=h100:3" in asked and "train.py" in asked


async def test_a_submission_that_fails_says_why_and_paints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    submits(tmp_path, "echo sbatch: error: no such account >&2; exit 1")
    async with opened(tmp_path) as s:
        await s.press("d")
        await s.until(lambda: "no such account" in s.main.message)
        assert s.app.is_running
    assert "account" not in capfd.readouterr().err


async def test_while_sbatch_works_nothing_is_submitted_again(tmp_path: Path) -> None:
    submits(tmp_path, f"echo >>{tmp_path}/calls; read -r go <{tmp_path}/gate; echo 4713")
    os.mkfifo(tmp_path / "gate")
    async with opened(tmp_path) as s:
        await s.press("d", "d")
        await s.until(lambda: (tmp_path / "calls").exists())
        await s.press("d")
        assert "not answered" in s.main.message
        (tmp_path / "gate").write_text("go\n")
        await s.until(lambda: "4713" in s.main.message)
    assert (tmp_path / "calls").read_text() == "\n"


async def test_without_a_command_one_is_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path, command=()) as s:
        await s.press("enter")
        assert s.app.is_running and not isinstance(s.app.screen, NodesScreen)


async def test_where_slurm_does_not_answer_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / "nodes").unlink()
    async with opened(tmp_path) as s:
        await s.until(lambda: "does not answer" in "\n".join(texts(s)))
        # The whole reason stands below the list.
        assert "scontrol ping" in " ".join(footer(s))
        await s.press("enter", "d", "y", "4", "escape")
        assert s.app.screen is s.main


async def test_slurm_that_is_not_set_up_is_told_as_such_and_so_is_how_to_name_a_box(tmp_path: Path) -> None:
    fails = "#!/bin/sh\necho 'scontrol: fatal: Could not establish a configuration source' >&2\nexit 1\n"
    (tmp_path / "scontrol").write_text(fails)
    async with opened(tmp_path) as s:
        await s.until(lambda: "not set up here" in "\n".join(texts(s)))
        shown = " ".join([*texts(s), *footer(s)])
        assert "fatal" not in shown and "slurm.conf" in shown and "[hosts]" in shown


async def test_where_there_is_no_node_a_message_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    async with session("idle") as s:
        await s.press("@nodes")
        assert s.app.screen is s.main and "[hosts]" in s.main.message


async def test_hostile_text_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text(
        "NodeName=e1 Gres=gpu:h100:2 GresUsed=gpu:0 State=IDLE+DRAIN Partitions=small"
        " Reason=\x1b]0;owned\x07\x1b[2J [root@x]\n"
    )
    async with opened(tmp_path) as s:
        assert not any("\x1b" in line or "\x07" in line for line in texts(s))
