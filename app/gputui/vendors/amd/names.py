"""The names of AMD's GPUs: from libdrm's table, and from pci.ids.

The product name in sysfs is mostly empty, and the compute driver's name is a codename ("ip discovery").
"""

from __future__ import annotations

import re

from gputui.inventory.formatting import MIB, printable
from gputui.system.pci_ids import name_of
from gputui.system.root import Root

_LIBDRM = "/usr/share/libdrm/amdgpu.ids"
_MOST = 4 * MIB
_MOST_NAME = 80

_LINE = re.compile(r"^([0-9A-Fa-f]{4}),\s*([0-9A-Fa-f]{2}),\s*(.+)$", re.MULTILINE)


class Names:
    """The tables of a machine, each read once, on first use."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._libdrm: dict[tuple[str, str], str] | None = None

    def name(self, pci_id: str, revision: str | None, product: str | None, architecture: str | None) -> str:
        """Return a name for people: the card's own, else by model and revision, else by
        model, else its numbers."""
        device = pci_id.partition(":")[2].lower()
        by_revision = self._by_revision(device, revision.lower()) if revision and not product else None
        found = product or by_revision or name_of(self._root, "1002", device)
        return found[:_MOST_NAME] if found else " ".join(filter(None, ("AMD", pci_id, architecture)))

    def _by_revision(self, device: str, revision: str) -> str | None:
        if self._libdrm is None:
            text = self._root.text(_LIBDRM, _MOST) or ""
            self._libdrm = {(d.lower(), r.lower()): printable(n.strip()) for d, r, n in _LINE.findall(text)}
        return self._libdrm.get((device, revision))
