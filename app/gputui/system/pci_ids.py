"""The names of PCI devices: by the machine's pci.ids, else by our own excerpt, as containers have none."""

from __future__ import annotations

import re
from functools import lru_cache

from gputui.inventory.formatting import MIB, printable
from gputui.system.root import Root

_FILES = ("/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids")
_MOST = 4 * MIB
"""The most bytes of pci.ids that are read: it had 1.5 MB in 2025."""


@lru_cache(maxsize=256)
def name_of(root: Root, vendor: str, device: str) -> str | None:
    """Return the name of a model by the four hex digits of its vendor and of its own, None where there is
    none.

    Each model is read once, because the file is large.
    """
    text = next(filter(None, (root.text(path, _MOST) for path in _FILES)), "")
    return _name_in(text, vendor, device) or _name_in(_own_file(), vendor, device)


def _own_file() -> str:
    from pathlib import Path

    return (Path(__file__).parent / "pci.ids").read_text(encoding="utf-8")


def _name_in(text: str, vendor: str, device: str) -> str | None:
    # The vendor's line, and the device's line below it, after a tab.
    start = re.search(rf"^{re.escape(vendor)}\s", text, re.MULTILINE)
    if start is None:
        return None
    end = re.compile(r"^[0-9a-f]{4}\s", re.MULTILINE).search(text, start.end())
    found = re.compile(rf"^\t{re.escape(device)}[ \t]+(.{{1,256}})", re.MULTILINE).search(
        text, start.end(), end.start() if end else len(text)
    )
    return printable(found[1].strip()) if found else None
