"""The names of PCI devices from a file of another machine (`--root`)."""

from __future__ import annotations

from pathlib import Path

from gputui.system.pci_ids import name_of
from gputui.system.root import Root


def test_a_name_has_an_end_and_is_in_its_line(tmp_path: Path) -> None:
    file = tmp_path / "usr/share/misc/pci.ids"
    file.parent.mkdir(parents=True)
    file.write_text("9999  V\n\t0001  " + "x\t" * 100_000 + "\n\t0002  \n\t0003  B\x1b[2J\n")
    root = Root(str(tmp_path))
    assert len(name_of(root, "9999", "0001") or "") < 1000
    assert name_of(root, "9999", "0002") is None
    assert name_of(root, "9999", "0003") == "B·[2J"
