"""Links: the connections between devices, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

SELF = "X"
"""The diagonal of the matrix."""

PCIE_CLASSES: tuple[str, ...] = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""From the weakest to the strongest: across sockets; across host bridges of one NUMA node; through one
host bridge; through several PCIe switches; through one switch (`nvidia-smi topo -m`, legend)."""

PCIE_WORDS: dict[str, str] = {
    "PIX": "behind one PCIe switch",
    "PXB": "behind several PCIe switches",
    "PHB": "on one host bridge",
    "NODE": "on one CPU socket",
    "SYS": "on different CPU sockets",
}
"""Where two devices of a PCIe class are, in plain words."""

XGMI = "XGMI"
"""AMD's link between GPUs of one hive. The kernel does not count these links; `Snapshot.link_weights` has
their distance."""

TILES, OVER_TILE = "MDF", "XL*"
"""Intel's links other than XLn (n lanes of Xe Link directly): between tiles of one card, the strongest; over
Xe Link and then another tile, the weakest (xpu-smi, `topology -m`)."""

_COUNTED = re.compile(r"(?:NV|XGMI|XL)([1-9][0-9]{0,2})")
_UNCOUNTED = (XGMI, TILES, OVER_TILE)

NumberMatrix = tuple[tuple[int | None, ...], ...]
"""Like `LinkMatrix`, with a number for each pair."""

LinkMatrix = tuple[tuple[str | None, ...], ...]
"""Row i, column j: the link between the i-th and the j-th device of a snapshot. None means not known."""


PEER_WORDS: tuple[str, ...] = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
"""Whether a device reads another's memory directly: yes; no, with the part that does not support it (chipset,
GPU, topology, switched off in the driver's settings, all of it); or not known (`nvidia-smi topo -p2p r`)."""

PeerMatrix = LinkMatrix
"""Like `LinkMatrix`, with peer access; the diagonal is X."""


def each_pair(count: int, fact: Callable[[int, int], Any], own: Any = SELF) -> tuple[tuple[Any, ...], ...]:
    """The matrix of a fact about each pair of `count` devices; `own` is its diagonal."""
    return tuple(tuple(own if i == j else fact(i, j) for j in range(count)) for i in range(count))


@lru_cache(256)
def is_link(word: str) -> bool:
    """Whether `word` is a valid word for a link: X, SYS … PIX, NVn, XGMI, XGMIn, MDF, XLn, XL*."""
    return word in (SELF, *_UNCOUNTED) or word in PCIE_CLASSES or _COUNTED.fullmatch(word) is not None


def direct_links(word: str | None) -> int:
    """The number of NVLinks (XGMI links, lanes of Xe Link) in a word: 12 for "NV12", 0 for a PCIe class, 1
    for a direct link without a count ("XGMI")."""
    if word in _UNCOUNTED:
        return 1
    match = _COUNTED.fullmatch(word) if word else None
    return int(match[1]) if match else 0


def is_counted(word: str | None) -> bool:
    """Whether the word of a direct link has a number."""
    return direct_links(word) > 0 and word not in _UNCOUNTED


def family(word: str) -> str:
    """The display name of links with this word; a PCIe class and MDF (tiles of one card) stay as they are."""
    if not direct_links(word) or word == TILES:
        return word
    return "NVLink" if word.startswith("NV") else "XGMI" if word.startswith(XGMI) else "Xe Link"


def in_words(word: str) -> str:
    """A link in plain words: "18 NVLinks", "behind one PCIe switch"."""
    kind, count = family(word), direct_links(word)
    if word == TILES:
        return "tiles of one card"
    if word == OVER_TILE:
        return f"{kind} and another tile"
    if word == XGMI:
        return "AMD's links, directly or over another GPU"
    return PCIE_WORDS.get(word) or f"{count} {kind}{'s' if count > 1 else ''}"


def worth(word: str | None) -> int:
    """The weight of a direct link in a sum, in links: tiles of one card exceed all lanes of Xe Link."""
    return _TILES_WORTH if word == TILES else direct_links(word)


_TILES_WORTH = 32
_BESIDE_COUNTED = {TILES: 1200, OVER_TILE: 100}


def strength(word: str | None) -> int:
    """A rank to compare links: PCIe classes in order, above them NVLinks by their number.

    An unknown link ranks below all others: missing data is never the best (ROCm k8s-device-plugin #210).
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
    """The connected components of `count` nodes; `near` says whether two nodes are joined.

    Returns for each node the lowest number in its component. `near(i, j)` is symmetric; it is called with
    j < i only.
    """
    first = list(range(count))
    for i in range(count):
        for j in range(i):
            if first[i] != first[j] and near(i, j):
                old, new = max(first[i], first[j]), min(first[i], first[j])
                first = [new if each == old else each for each in first]
    return tuple(first)


def joined_groups(nodes: Sequence[int], near: Callable[[int, int], bool]) -> list[list[int]]:
    """The connected components of some ascending nodes, each as the list of its nodes, ordered by their first
    nodes."""
    home = connected_components(len(nodes), lambda i, j: near(nodes[i], nodes[j]))
    return [
        [node for node, at in zip(nodes, home, strict=True) if at == first] for first in sorted(set(home))
    ]
