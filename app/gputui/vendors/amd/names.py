"""The names of AMD's GPUs: from libdrm's table, from pci.ids, and from our own short table of training GPUs.

A container often has neither file. The product name in sysfs is mostly empty, and the compute driver's name
is a codename ("ip discovery").
"""

from __future__ import annotations

import re

from gputui.inventory.formatting import MIB, printable
from gputui.system.pci_ids import name_of
from gputui.system.root import Root

_LIBDRM = "/usr/share/libdrm/amdgpu.ids"
_MOST = 4 * MIB
_MOST_NAME = 80

KNOWN: dict[str, str] = {
    "66a0": "Vega 20 [Radeon Pro/Radeon Instinct]",
    "66a1": "Vega 20 [Radeon Pro VII/Radeon Instinct MI50 32GB]",
    "66af": "Vega 20 [Radeon VII]",
    "67df": "Ellesmere [Radeon RX 470/480/570/570X/580/580X/590]",
    "6860": "Vega 10 [Instinct MI25/MI25x2/V340/V320]",
    "687f": "Vega 10 XL/XT [Radeon RX Vega 56/64]",
    "7388": "Arcturus GL-XL",
    "738c": "Arcturus GL-XL [Instinct MI100]",
    "738e": "Arcturus GL-XL [Instinct MI100]",
    "73bf": "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]",
    "7408": "Aldebaran/MI200 [Instinct MI250X]",
    "740c": "Aldebaran/MI200 [Instinct MI250X/MI250]",
    "740f": "Aldebaran/MI200 [Instinct MI210]",
    "744c": "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]",
    "7448": "Navi 31 [Radeon Pro W7900]",
    "745e": "Navi 31 [Radeon Pro W7800]",
    "74a0": "Aqua Vanjaram [Instinct MI300A]",
    "74a1": "Aqua Vanjaram [Instinct MI300X]",
    "74a2": "Aqua Vanjaram [Instinct MI308X]",
    "74a5": "Aqua Vanjaram [Instinct MI325X]",
    "74a9": "Aqua Vanjaram [Instinct MI300X HF]",
    "74b5": "Aqua Vanjaram [Instinct MI300X VF]",
    "74bd": "Aqua Vanjaram [Instinct MI300X HF]",
    "75a0": "Instinct MI350X",
    "75a3": "Instinct MI355X",
    "7550": "Navi 48 [Radeon RX 9070/9070 XT/9070 GRE]",
    "1586": "Strix Halo [Radeon Graphics / Radeon 8050S Graphics / Radeon 8060S Graphics]",
    "15bf": "Phoenix1",
    "164e": "Raphael",
    "1681": "Rembrandt [Radeon 680M]",
    "1638": "Cezanne [Radeon Vega Series / Radeon Vega Mobile Series]",
    "1636": "Renoir [Radeon Vega Series / Radeon Vega Mobile Series]",
}
"""Names by device id, as in pci.ids (pci-ids.ucw.cz): the GPUs that are used for training,
and other frequent ones."""

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
        found = product or by_revision or name_of(self._root, "1002", device) or KNOWN.get(device)
        return found[:_MOST_NAME] if found else " ".join(filter(None, ("AMD", pci_id, architecture)))

    def _by_revision(self, device: str, revision: str) -> str | None:
        if self._libdrm is None:
            text = self._root.text(_LIBDRM, _MOST) or ""
            self._libdrm = {(d.lower(), r.lower()): printable(n.strip()) for d, r, n in _LINE.findall(text)}
        return self._libdrm.get((device, revision))
