"""The names of AMD's GPUs: from libdrm's table, and from pci.ids.

The product name in sysfs is mostly empty, and the compute driver's name is a codename ("ip discovery").
"""

from __future__ import annotations

import re
from functools import lru_cache

from gputui.inventory.formatting import MIB, printable
from gputui.system.pci_ids import name_of
from gputui.system.root import Root

_LIBDRM = "/usr/share/libdrm/amdgpu.ids"
_MOST = 4 * MIB
_MOST_NAME = 80

_LINE = re.compile(r"^([0-9A-Fa-f]{4}),\s*([0-9A-Fa-f]{2}),\s*(.+)$", re.MULTILINE)


def name(root: Root, pci_id: str, revision: str | None, product: str | None, architecture: str | None) -> str:
    """Return a name for people: the card's own, else by model and revision, else by model, else its
    numbers."""
    device = pci_id.partition(":")[2].lower()
    by_revision = _libdrm(root).get((device, revision.lower())) if revision and not product else None
    found = product or by_revision or name_of(root, "1002", device)
    return found[:_MOST_NAME] if found else " ".join(filter(None, ("AMD", pci_id, architecture)))


@lru_cache(maxsize=1)
def _libdrm(root: Root) -> dict[tuple[str, str], str]:
    """Return the names in libdrm's table, by model and revision."""
    text = root.text(_LIBDRM, _MOST) or ""
    return {(d.lower(), r.lower()): printable(n.strip()) for d, r, n in _LINE.findall(text)}
