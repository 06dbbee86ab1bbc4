"""Links: what joins two devices, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Callable

SELF = "X"
"""The diagonal of the matrix."""

PCIE_CLASSES: tuple[str, ...] = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""From the weakest to the strongest: across sockets; across host bridges of one NUMA node; through one
host bridge; through several PCIe switches; through one (`nvidia-smi topo -m`, legend)."""

XGMI = "XGMI"
"""AMD's link between GPUs of one hive. The kernel counts no links; how far it leads says
`Snapshot.link_weights`."""

_COUNTED = re.compile(r"(?:NV|XGMI)([1-9][0-9]{0,2})")

NumberMatrix = tuple[tuple[int | None, ...], ...]
"""As `LinkMatrix`, of a number for each pair."""

LinkMatrix = tuple[tuple[str | None, ...], ...]
"""Row i, column j: the link between the i-th and the j-th device of a snapshot. None: not known."""


PEER_WORDS: tuple[str, ...] = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
"""Whether a device reads another's memory itself: yes; or what does not support it (chipset, GPU,
topology, switched off in the driver's settings, all of it), or not known (`nvidia-smi topo -p2p r`)."""

PeerMatrix = tuple[tuple[str | None, ...], ...]
"""As `LinkMatrix`, of peer access; the diagonal is X."""


def is_link(word: str) -> bool:
    """Whether `word` is one of the words a link can have: X, SYS … PIX, NVn, XGMI, XGMIn."""
    return word in (SELF, XGMI) or word in PCIE_CLASSES or _COUNTED.fullmatch(word) is not None


def direct_links(word: str | None) -> int:
    """How many NVLinks (or XGMI links) a word counts: 12 for "NV12", 1 for "XGMI", 0 for a PCIe class."""
    if word == XGMI:
        return 1
    match = _COUNTED.fullmatch(word) if word else None
    return int(match[1]) if match else 0


def strength(word: str | None) -> int:
    """A rank by which links compare: PCIe classes in order, above them NVLinks by their number.

    Not known ranks below everything: missing data is never the best (ROCm k8s-device-plugin #210).
    """
    if word is None:
        return -1
    if word == SELF:
        return 10_000
    count = direct_links(word)
    return 100 + count if count else PCIE_CLASSES.index(word)


def connected_components(count: int, near: Callable[[int, int], bool]) -> tuple[int, ...]:
    """The connected components of `count` nodes, of which `near` says which two are joined.

    For each node the lowest number of its component. `near(i, j)` is symmetric, and asked with j < i only.
    """
    first = list(range(count))
    for i in range(count):
        for j in range(i):
            if first[i] != first[j] and near(i, j):
                old, new = max(first[i], first[j]), min(first[i], first[j])
                first = [new if each == old else each for each in first]
    return tuple(first)
