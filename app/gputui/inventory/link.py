"""Links: what joins two devices, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

SELF = "X"
"""The diagonal of the matrix."""

PCIE_CLASSES: tuple[str, ...] = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""From the weakest to the strongest: across sockets; across host bridges of one NUMA node; through one
host bridge; through several PCIe switches; through one (`nvidia-smi topo -m`, legend)."""

XGMI = "XGMI"
"""AMD's link between GPUs of one hive. The kernel counts no links; how far it leads says
`Snapshot.link_weights`."""

TILES, OVER_TILE = "MDF", "XL*"
"""Intel's links beside XLn, n lanes of Xe Link directly: of tiles of one card, which is the strongest; and
over Xe Link and then another tile, which is the weakest (xpu-smi, `topology -m`)."""

_COUNTED = re.compile(r"(?:NV|XGMI|XL)([1-9][0-9]{0,2})")
_UNCOUNTED = (XGMI, TILES, OVER_TILE)

NumberMatrix = tuple[tuple[int | None, ...], ...]
"""As `LinkMatrix`, of a number for each pair."""

LinkMatrix = tuple[tuple[str | None, ...], ...]
"""Row i, column j: the link between the i-th and the j-th device of a snapshot. None: not known."""


PEER_WORDS: tuple[str, ...] = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
"""Whether a device reads another's memory itself: yes; or what does not support it (chipset, GPU,
topology, switched off in the driver's settings, all of it), or not known (`nvidia-smi topo -p2p r`)."""

PeerMatrix = tuple[tuple[str | None, ...], ...]
"""As `LinkMatrix`, of peer access; the diagonal is X."""


def each_pair(count: int, fact: Callable[[int, int], Any], own: Any = SELF) -> tuple[tuple[Any, ...], ...]:
    """The matrix of a fact of each two of so many devices; `own` is its diagonal."""
    return tuple(tuple(own if i == j else fact(i, j) for j in range(count)) for i in range(count))


@lru_cache(256)
def is_link(word: str) -> bool:
    """Whether `word` is one of the words a link can have: X, SYS … PIX, NVn, XGMI, XGMIn, MDF, XLn, XL*."""
    return word in (SELF, *_UNCOUNTED) or word in PCIE_CLASSES or _COUNTED.fullmatch(word) is not None


def direct_links(word: str | None) -> int:
    """How many NVLinks (XGMI links, lanes of Xe Link) a word counts: 12 for "NV12", 0 for a PCIe class, 1 for
    a direct link that nobody counts ("XGMI")."""
    if word in _UNCOUNTED:
        return 1
    match = _COUNTED.fullmatch(word) if word else None
    return int(match[1]) if match else 0


def is_counted(word: str | None) -> bool:
    """Whether a direct link's word has a number."""
    return direct_links(word) > 0 and word not in _UNCOUNTED


def family(word: str) -> str:
    """What the links of that word are called, for people; a PCIe class is its own, and so is what joins tiles
    inside of a card."""
    if not direct_links(word) or word == TILES:
        return word
    return "NVLink" if word.startswith("NV") else "XGMI" if word.startswith(XGMI) else "Xe Link"


def worth(word: str | None) -> int:
    """What a direct link adds to a sum, in links: of tiles of one card more than of all lanes of Xe Link."""
    return _TILES_WORTH if word == TILES else direct_links(word)


_TILES_WORTH = 32
_BESIDE_COUNTED = {TILES: 1200, OVER_TILE: 100}


def strength(word: str | None) -> int:
    """A rank by which links compare: PCIe classes in order, above them NVLinks by their number.

    Not known ranks below everything: missing data is never the best (ROCm k8s-device-plugin #210).
    """
    if word is None:
        return -1
    if word == SELF:
        return 10_000
    if word in _BESIDE_COUNTED:
        return _BESIDE_COUNTED[word]
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


def joined_groups(nodes: Sequence[int], near: Callable[[int, int], bool]) -> list[list[int]]:
    """The connected components of some nodes, which ascend, each as the nodes in it; in the order of their
    first ones."""
    home = connected_components(len(nodes), lambda i, j: near(nodes[i], nodes[j]))
    return [
        [node for node, at in zip(nodes, home, strict=True) if at == first] for first in sorted(set(home))
    ]
