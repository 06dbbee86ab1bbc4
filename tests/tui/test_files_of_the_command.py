"""The thread that answers keys never reads the files that a command names, however long a read takes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fuzz.hostile_files import EVERY
from gputui.launching.host_environment import READING, ThisHost
from tui.support import session


class Disk:
    """Files whose reads on other threads block until the test permits them; records the reading threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: set[threading.Thread] = set()
        self.answers = threading.Event()
        self.asked = threading.Event()
        real = ThisHost.beginning

        def beginning(host: ThisHost, path: str, most: int) -> tuple[str, bool] | None:
            self.threads.add(threading.current_thread())
            self.asked.set()
            assert threading.current_thread() is threading.main_thread() or self.answers.wait(60)
            return real(host, path, most)

        monkeypatch.setattr(ThisHost, "beginning", beginning)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_keys_are_answered_while_a_file_is_read(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("python a.py\n")
    async with session("rtx4090", ("bash", str(tmp_path / "x.sh")), interval=1000) as s:
        await s.until(disk.asked.is_set)
        for key in ("0", "1", "0", "2"):
            await s.press(key)
        assert s.selected == ["1", "2"]
        await s.press("y")
        assert not s.written
        disk.answers.set()
        await s.until(lambda: s.written)
        assert threading.main_thread() not in disk.threads


@pytest.mark.parametrize("slow", [False, True])
async def test_only_a_slow_reading_is_told(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slow: bool
) -> None:
    monkeypatch.setattr("gputui.tui.screens.main._SLOW", 0.01 if slow else 1000.0)
    (tmp_path / "x.sh").write_text("python a.py\n")

    def told() -> bool:
        return READING in " ".join(" ".join(s.texts("#launch")).split())

    async with session("rtx4090", ("bash", str(tmp_path / "x.sh")), interval=1000, size=(160, 40)) as s:
        await s.until(disk.asked.is_set)
        await s.press("0", "y")
        if slow:
            await s.until(told)
        assert told() is slow and (READING in s.main.message) is slow
        disk.answers.set()
        await s.until(lambda: s.written)
        assert not told()


async def test_a_launch_waits_for_the_files_that_it_is_made_of(disk: Disk, tmp_path: Path) -> None:
    """The script names its device: that is known before anything starts."""
    script = tmp_path / "x.sh"
    script.write_text("CUDA_VISIBLE_DEVICES=3 python a.py\n")
    async with session("rtx4090", ("bash", str(script)), interval=1000) as s:
        await s.until(disk.asked.is_set)
        await s.press("0")
        await s.press("enter")
        assert s.main.launch.pending is None and s.app.is_running
        disk.answers.set()
        await s.until(lambda: s.selected == ["3"])
        assert s.main.launch.pending is None and s.app.is_running
        assert threading.main_thread() not in disk.threads


async def test_a_file_that_changes_is_read_again(disk: Disk, tmp_path: Path) -> None:
    disk.answers.set()
    script = tmp_path / "x.sh"
    script.write_text("python a.py\n")
    async with session("rtx4090", ("bash", str(script)), interval=0.05) as s:
        await s.press("0")
        await s.until(lambda: s.main.app_state.launch.argv and not s.main.app_state.command_is_unread)
        assert s.main.app_state.launch.refused is None
        script.write_text("unset CUDA_VISIBLE_DEVICES; python a.py\n")
        await s.until(lambda: s.main.app_state.launch.refused)
        assert threading.main_thread() not in disk.threads


@pytest.mark.parametrize("file", ["bytes: NUL bytes", "bytes: openers (", "shell: doubled arguments"])
async def test_a_hostile_file_is_said_not_to_be_read(disk: Disk, tmp_path: Path, file: str) -> None:
    disk.answers.set()
    script = tmp_path / "x.sh"
    script.write_bytes(EVERY[file](1 << 16))
    async with session("rtx4090", ("bash", str(script))) as s:
        await s.press("0")
        await s.until(lambda: any("x.sh" in each for each in s.main.app_state.launch.warnings))
        await s.press("1")
        assert s.selected == ["0", "1"]
        assert threading.main_thread() not in disk.threads
