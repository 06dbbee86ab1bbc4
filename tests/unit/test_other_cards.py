"""Graphics devices that no vendor reads: listed apart, never offered, free of cost for other calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import simtrees
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.source import NoSourceError, Want
from gputui.vendors.box import box_below
from tui.support import session


def card(root: Path, number: int, bus: str, driver: str, pci_id: str, render: int | None = None) -> None:
    own = root / f"sys/devices/pci0000:00/0000:00:1c.0/{bus}"
    own.mkdir(parents=True)
    (own / "uevent").write_text(f"DRIVER={driver}\nPCI_ID={pci_id}\nPCI_SLOT_NAME={bus}\n")
    if render is not None:
        (own / "drm" / f"renderD{render}").mkdir(parents=True)
    link = root / f"sys/class/drm/card{number}"
    link.mkdir(parents=True)
    (link / "device").symlink_to(os.path.relpath(own, link))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Eight GPUs, the adapter of the management controller, and a card on nouveau."""
    simtrees.write(tmp_path, BOXES["amd"])
    card(tmp_path, 50, "0000:02:00.0", "ast", "1A03:2000")
    card(tmp_path, 51, "0000:03:00.0", "nouveau", "10DE:1CB1", 250)
    return tmp_path


def read(root: Path, want: Want = Want.ALL) -> Snapshot:
    source = box_below(str(root))
    source.open()
    return source.read(want)


def test_they_are_listed_apart_with_their_names_and_drivers(server: Path) -> None:
    snapshot = read(server)
    assert [d.apart for d in snapshot.devices] == [None] * 8 + ["display", "no runtime"]
    bmc, nouveau = snapshot.devices[8:]
    assert bmc.name is not None and "ASPEED" in bmc.name and "ast" in bmc.name
    assert nouveau.name is not None and "10de:1cb1" in nouveau.name and "nouveau" in nouveau.name
    assert bmc.pci_bus_id == "00000000:02:00.0" and bmc.key != nouveau.key and bmc.index < 0


def test_they_change_nothing_of_the_others(server: Path) -> None:
    snapshot = read(server)
    assert [snapshot.label(device) for device in snapshot.devices[:8]] == [str(n) for n in range(8)]
    assert len(snapshot.links) == 10 and {row[8] for row in snapshot.links[:8]} == {None}
    judged = verdicts(snapshot)
    assert {judged[device.key].state for device in snapshot.devices[8:]} == {"unknown"}
    assert len(pick(snapshot, judged, Constraints(8)).devices) <= 8
    assert all(d.apart is None for d in pick(snapshot, judged, Constraints(10)).devices)


def test_who_only_picks_does_not_read_them(server: Path) -> None:
    assert len(read(server, Want.VERDICT | Want.LINKS).devices) == 8


def test_a_card_without_a_pci_function_or_of_a_vendors_driver_is_none(tmp_path: Path) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    own = tmp_path / "sys/devices/platform/simple-framebuffer.0"
    own.mkdir(parents=True)
    (own / "uevent").write_text("DRIVER=simple-framebuffer\n")
    link = tmp_path / "sys/class/drm/card60"
    link.mkdir()
    (link / "device").symlink_to(os.path.relpath(own, link))
    card(tmp_path, 61, "0000:41:00.0", "nvidia", "10DE:2330")
    assert len(read(tmp_path).devices) == 8


def test_where_there_is_nothing_else_there_is_nothing(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:02:00.0", "ast", "1A03:2000")
    with pytest.raises(NoSourceError):
        read(tmp_path)


def test_ls_shows_them_below_the_others_and_in_json(server: Path) -> None:
    def ls(*words: str) -> str:
        call = [sys.executable, "-m", "gputui", "ls", "--root", str(server), *words]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout

    rows = ls().splitlines()
    apart = next(n for n, row in enumerate(rows) if "ASPEED" in row)
    assert "MI300X" not in "".join(rows[apart:]) and "ast" in rows[apart]
    listed = json.loads(ls("--json"))["devices"]
    assert [each["apart"] for each in listed[8:]] == ["display", "no runtime"]


async def test_the_screen_lists_them_and_selects_none(server: Path) -> None:
    async with session(read(server)) as s:
        assert "ASPEED" in "\n".join(s.texts("#table"))
        await s.press("b")
        assert s.selected and not any("–" in each for each in s.selected)


async def test_they_take_no_line_of_the_panels(server: Path) -> None:
    async with session(read(server), size=(130, 40)) as s:
        assert "ASPEED" in "\n".join(s.texts("#table"))
        listed = [*s.texts("#lists"), *s.texts("#history")]
        assert any("processes" in line for line in listed)
        assert not any("display" in line or "ASPEED" in line for line in listed)
