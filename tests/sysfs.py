"""A simulated /sys: the PCI tree of the GPUs and RDMA devices, made from a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gputui.inventory.link import PCIE_CLASSES, LinkMatrix
from gputui.sources.simulated.spec import Box

_NEAREST_FIRST = PCIE_CLASSES[::-1]


def make(root: Path, box: Box) -> Path:
    """Make the folder to pass as `sysfs`: the box's GPUs and network devices, at the places that its
    `nic_links` require."""
    count = len(box.gpus)
    words = _words(box)
    clusters = {word: _clusters(words, word) for word in _NEAREST_FIRST}
    buses = [f"0000:{gpu.bus}".lower() for gpu in box.gpus]
    buses += [f"0000:{0xA0 + n:02x}:00.0" for n in range(len(box.nics))]
    for place, bus in enumerate(buses):
        host, port, switch = (clusters[word][place] for word in ("PHB", "PXB", "PIX"))
        folder = root / "devices" / f"pci0000:{host:02x}" / f"0000:{host:02x}:{port:02x}.0"
        folder /= f"0000:c{switch % 16:x}:00.{switch // 16}"
        folder = folder / f"0000:d{place % 16:x}:{place // 16:02x}.0" / bus
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{clusters['NODE'][place]}\n")
        _link(root / "bus" / "pci" / "devices" / bus, folder)
        if place >= count:
            _link(root / "class" / "infiniband" / box.nics[place - count] / "device", folder)
    for node in set(clusters["NODE"]):
        (root / "devices" / "system" / "node" / f"node{node}").mkdir(parents=True)
    return root


def add_software_nic(root: Path, name: str) -> None:
    """Add an RDMA device without hardware (rxe over a bridge): it has no PCI parent."""
    folder = root / "devices" / "virtual" / "net" / name
    folder.mkdir(parents=True)
    _link(root / "class" / "infiniband" / name / "device", folder)


def _link(where: Path, to: Path) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    where.symlink_to(to)


def _words(box: Box) -> LinkMatrix:
    """The link of each pair of GPUs and network devices: their PCIe class, or the NVLink that hides it
    between GPUs."""
    count = len(box.gpus)
    rows = []
    for i in range(count + len(box.nics)):
        row = []
        for j in range(count + len(box.nics)):
            if i < count and j < count:
                row.append(box.links[i][j])
            else:
                row.append(box.nic_links[i][j - count] if j >= count else box.nic_links[j][i - count])
        rows.append(tuple(row))
    return tuple(rows)


def _clusters(words: LinkMatrix, word: str) -> Sequence[int]:
    """The cluster of each device: devices that are joined by `word` or closer have the same number."""
    near = _NEAREST_FIRST[: _NEAREST_FIRST.index(word) + 1]
    cluster = list(range(len(words)))
    for i, row in enumerate(words):
        for j, cell in enumerate(row):
            if cell in near and cluster[i] != cluster[j]:
                old, new = max(cluster[i], cluster[j]), min(cluster[i], cluster[j])
                cluster = [new if each == old else each for each in cluster]
    return cluster
