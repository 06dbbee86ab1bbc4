"""A list of numbers that CUDA counts in its own order, and a machine without a driver, on the screen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from gputui.cli import main as command_line
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Want
from tui.support import StillSource, session, started
from tui.test_confirm import asked
from unit.jobs_support import Desk
from unit.unlike_boxes import CLEAR, TWINS, UNCLEAR, seen

LIST = "CUDA_VISIBLE_DEVICES"


async def test_the_devices_that_the_numbers_mean_are_shown_and_selected() -> None:
    async with session(seen(CLEAR), environ={LIST: "0"}) as s:
        assert s.texts("#selection")[0].rstrip("─ ").endswith(f"{LIST}=0: GPU 1")
        await s.press("0")
        assert s.selected == []
        await s.press("b")
        assert s.selected == ["1"]


async def test_where_nobody_knows_them_a_person_selects_and_is_asked(environ: dict[str, str]) -> None:
    async with session(seen(UNCLEAR), ("true",), environ={**environ, LIST: "0"}, interval=1000) as s:
        assert f"{LIST}=0: " in s.texts("#selection")[0] and "unknown" in s.texts("#selection")[0]
        await s.press("b")
        assert s.selected == [] and f"{LIST}=0" in s.main.message
        await s.press("2", "enter")
        assert s.selected == ["2"]
        words = await asked(s)
        assert f"{LIST}=0" in words and "PCI_BUS_ID" in words
        await s.press("f")
        await s.until(lambda: not s.app.is_running)
        outcome = s.app.return_value
        assert outcome is not None and outcome.launch is not None
        assert outcome.launch.environment({})[LIST] == "2"


async def test_all_devices_may_be_meant_by_numbers_in_any_order(environ: dict[str, str]) -> None:
    async with session(seen(TWINS), environ={**environ, LIST: "3,2,1,0"}) as s:
        await s.press("b", "b")
        assert sorted(s.selected) == ["1", "2"]


class Asked(StillSource):
    """A box whose CUDA order is known once a reading has asked for it."""

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        found = super().read(want, among)
        if not any(Want.ORDER in each for each in self.wanted):
            return found
        order = {device.key: place for place, device in enumerate(reversed(found.devices))}
        return replace(found, devices=tuple(replace(d, ordinal=order[d.key]) for d in found.devices))


@pytest.mark.parametrize("order", [Want.ORDER, None])
async def test_the_driver_is_asked_once_after_the_first_picture(order: Want | None) -> None:
    source = Asked(seen(UNCLEAR))
    async with session(source=source, environ={LIST: "0"}, once=order) as s:
        if order is not None:
            await s.until(lambda: s.texts("#selection")[0].rstrip("─ ").endswith(f"{LIST}=0: GPU 2"))
        await s.until(lambda: len(source.wanted) > 4)
        assert [Want.ORDER in want for want in source.wanted].count(True) == (order is not None)
        assert Want.ORDER not in source.wanted[0]


# Without a driver.


@pytest.mark.parametrize("key", ["enter", "@return", "@detach"])
async def test_the_cpu_is_there_while_no_driver_answers(
    key: str, desk: Desk, environ: dict[str, str]
) -> None:
    async with session(NoSourceError("the driver is not loaded"), ("true",), environ=environ) as s:
        await s.press("@cpu")
        assert "CPU only" in " ".join(s.texts("#selection"))
        assert s.main.app_state.launch.line == f"{LIST}= true"
        await s.press(key)
        await s.until(lambda: started(s, key, desk))


async def test_a_command_that_names_a_device_is_not_started_there_either(environ: dict[str, str]) -> None:
    command = ("sh", "-c", f"{LIST}=1 env")
    async with session(NoSourceError("no driver"), command, environ=environ, interval=1000) as s:
        await s.press("@cpu", "enter")
        assert f"{LIST}=1" in s.main.message and s.app.is_running


async def test_without_devices_a_list_that_nobody_knows_does_not_matter(environ: dict[str, str]) -> None:
    async with session(seen(UNCLEAR), ("true",), environ={**environ, LIST: "0"}) as s:
        await s.press("@cpu", "enter")
        await s.until(lambda: not s.app.is_running)


def test_where_the_screen_does_not_open_it_says_how_to_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gputui.cli import screen
    from gputui.tui import run

    def nothing(*_: object) -> None:
        raise NoSourceError("no driver here")

    monkeypatch.setattr(screen, "_no_screen", lambda: None)
    monkeypatch.setattr(run, "run_screen", nothing)
    assert command_line.main(("--", "python", "my train.py")) == 3
    assert "gputui run --gpus none -- python 'my train.py'" in capsys.readouterr().err
    assert command_line.main(()) == 3
    assert "--gpus none" not in capsys.readouterr().err
