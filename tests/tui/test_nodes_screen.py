"""The page of nodes as a whole: boxes over ssh and a Slurm cluster in one list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gputui.inventory.light_dataclasses import replace
from gputui.tui.screens.box_jobs import BoxJobsScreen
from gputui.tui.screens.nodes import NodesScreen
from tui.support import Session, session
from tui.test_boxes_screen import line_of
from tui.test_frame import footer
from tui.test_people_screen import lit, texts


@asynccontextmanager
async def demo(size: tuple[int, int] = (130, 40)) -> AsyncIterator[Session]:
    """The page of a demo, with simulated nodes of both kinds."""
    async with session("idle", size=size) as s:
        s.main.set_app_state(replace(s.main.app_state, label="demo idle"))
        await s.press("@nodes")
        yield s


def page_of(s: Session) -> NodesScreen:
    page = s.app.screen
    assert isinstance(page, NodesScreen)
    return page


async def test_boxes_come_before_the_places_of_slurm_and_the_rule_counts_both() -> None:
    async with demo() as s:
        rows = [line[3:].split("  ")[0] for line in texts(s)[1:] if line.strip()]
        assert rows[:6] == ["gpu1", "gpu2", "gpu3", "gpu4", "lab", "any node of train"]
        # Five boxes and six nodes of Slurm; a partition is no node.
        assert " of 11 " in texts(s)[0]


async def test_a_key_does_what_the_kind_at_the_cursor_does() -> None:
    async with demo() as s:
        await s.press("4")
        assert line_of(page_of(s)) and "--on gpu1" in " ".join(footer(s))
        await s.press("end")
        await s.press("up", "up", "3")
        assert "srun" in " ".join(footer(s)) and "3 GPUs" in footer(s)[0]
        # Slurm selects the devices itself: nothing is selected there, and the selection of the box stays.
        await s.press("b")
        assert "no action" in s.main.message
        await s.press("home", "y")
        assert "--on gpu1" in " ".join(footer(s))


async def test_the_jobs_of_slurm_are_shown_where_the_cursor_is_on_one_of_its_places() -> None:
    async with demo() as s:
        assert not any("your Slurm jobs" in line for line in texts(s))
        await s.press("end")
        assert any("your Slurm jobs" in line for line in texts(s))
        await s.press("D")
        assert isinstance(s.app.screen, BoxJobsScreen)


async def test_only_nodes_with_free_devices_are_listed_if_asked_for() -> None:
    async with demo() as s:
        await s.press("slash", *"free", "enter")
        page_of(s).draw()
        rows = "\n".join(texts(s))
        assert "gpu1" in rows and "dgx-3" in rows and "gpu4" not in rows and "dgx-2" not in rows


async def test_a_cursor_on_a_box_stays_there_when_slurm_answers() -> None:
    async with demo() as s:
        await s.press("down")
        assert lit(s).startswith("+ gpu2")


@pytest.mark.parametrize(
    ("label", "boxes", "slurm", "offered"),
    [
        ("", (), False, False),
        ("", ("gpu1",), False, True),
        ("", (), True, True),
        ("demo idle", (), False, True),
        ("box.json", ("gpu1",), True, False),
    ],
)
async def test_the_page_is_offered_where_there_are_nodes_and_else_its_word_says_how_to_name_some(
    label: str,
    boxes: tuple[str, ...],
    slurm: bool,
    offered: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputui.sources.slurm.slurm_is_here", lambda: slurm)
    (tmp_path / "gputui").mkdir()
    (tmp_path / "gputui" / "config.toml").write_text(f"[hosts]\nboxes = {list(boxes)}\n")
    async with session("idle", size=(200, 60), environ={"XDG_CONFIG_HOME": str(tmp_path)}) as s:
        s.main.set_app_state(replace(s.main.app_state, label=label))
        await s.press("colon")
        assert any("Show other nodes" in line for line in texts(s)) == offered
        await s.press("escape")
        if not offered:
            await s.press(":nodes")
            assert ("a recording has no other nodes" if label else "[hosts]") in s.main.message
