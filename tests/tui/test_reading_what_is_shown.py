"""The screen reads only what it shows: its calls, as the simulated driver counts them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gputui.allocating.settings import ScreenSettings
from gputui.sources.simulated.boxes import BOXES
from gputui.system.processes import ProcessTable
from gputui.tui.screens import main
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from tui.support import Session, session

OF_PAGES = (
    "nvmlDeviceGetFieldValues",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
    "nvmlDeviceGetProcessUtilization",
    "nvmlEventSetWait_v2",
)
"""Calls for values that only the pages of a device and of processes show."""
OF_COLUMNS = {
    "pcie": "nvmlDeviceGetCurrPcieLinkWidth",
    "encoder": "nvmlDeviceGetEncoderUtilization",
}


@asynccontextmanager
async def on_driver(driver: SimulatedNvml, column: str) -> AsyncIterator[Session]:
    """The screen with this column on a box of Hoppers, after its second reading."""
    driver.show_box(BOXES["dgx-h100"])
    source, columns = NvmlSource(ProcessTable(host_pids=False)), ScreenSettings(columns=("memory", column))
    async with session(source=source, size=(200, 60), interval=0.05, screen=columns) as s:
        await s.until(lambda: driver.counts().get(OF_COLUMNS[column]))
        yield s


async def counts_of(driver: SimulatedNvml, s: Session, readings: int = 10) -> dict[str, int]:
    """The calls of some readings, without those of a reading that may still be under way."""

    def read(times: int) -> bool:
        return driver.counts().get("nvmlDeviceGetUtilizationRates", 0) >= 8 * times

    driver.reset_counts()
    await s.until(lambda: read(1))
    driver.reset_counts()
    await s.until(lambda: read(readings))
    return {name: count for name, count in driver.counts().items() if count}


@pytest.mark.parametrize("column", OF_COLUMNS)
async def test_a_column_reads_what_it_shows_and_no_more(nvml_here: SimulatedNvml, column: str) -> None:
    async with on_driver(nvml_here, column) as s:
        assert not (await counts_of(nvml_here, s)).keys() & {*OF_PAGES}


@pytest.mark.thorough
@pytest.mark.parametrize("column", OF_COLUMNS)
async def test_a_page_over_the_table_stops_what_its_columns_read(
    nvml_here: SimulatedNvml, column: str
) -> None:
    async with on_driver(nvml_here, column) as s:
        await s.press("question_mark")
        assert s.app.screen is not s.main
        # This is longer than the interval of the values that are not read every second.
        counts = await counts_of(nvml_here, s, readings=40)
        assert not counts.keys() & {*OF_PAGES, *OF_COLUMNS.values()}
        await s.press("q")
        await s.until(lambda: nvml_here.counts().get(OF_COLUMNS[column]))


async def test_the_page_of_a_device_reads_all_of_it_and_the_table_then_no_more(
    nvml_here: SimulatedNvml,
) -> None:
    async with on_driver(nvml_here, "pcie") as s:
        await s.press("right")
        await s.until(lambda: {*OF_PAGES} <= {name for name, count in nvml_here.counts().items() if count})
        await s.press("escape")
        assert s.app.screen is s.main
        assert not (await counts_of(nvml_here, s)).keys() & {*OF_PAGES}
        assert all(d.telemetry and d.telemetry.pcie_width for d in s.main.app_state.rows)


async def test_the_facts_of_the_device_at_the_cursor_are_known_at_once_after_another_page(
    nvml_here: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate needs two readings: after a page, the first one would have none."""
    monkeypatch.setattr(main, "GLANCE_EVERY", 0.1)
    nvml_here.show_box(BOXES["dgx-h100"])
    source = NvmlSource(ProcessTable(host_pids=False))
    async with session(source=source, size=(160, 40), interval=0.05) as s:

        def known() -> bool:
            device = s.main.app_state.current
            return bool(device and device.telemetry and device.telemetry.sm_active is not None)

        await s.until(known)
        for page in ("question_mark", "t", "p"):
            await s.press(page)
            for _ in range(6):
                before = s.main.app_state.snapshot
                await s.until(lambda before=before: s.main.app_state.snapshot is not before)
            await s.press("q")
            assert s.app.screen is s.main and known(), page
