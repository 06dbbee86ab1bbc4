"""Links: what joins two devices, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

import re

SELF = "X"
"""The diagonal of the matrix."""

PCIE_CLASSES: tuple[str, ...] = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""From the weakest to the strongest: across sockets; across host bridges of one NUMA node; through one
host bridge; through several PCIe switches; through one (`nvidia-smi topo -m`, legend)."""

_NVLINKS = re.compile(r"(?:NV|XGMI)([1-9][0-9]{0,2})")

LinkMatrix = tuple[tuple[str | None, ...], ...]
"""Row i, column j: the link between the i-th and the j-th device of a snapshot. None: not known."""


def is_link(word: str) -> bool:
    """Whether `word` is one of the words a link can have: X, SYS … PIX, NVn, XGMIn."""
    return word == SELF or word in PCIE_CLASSES or _NVLINKS.fullmatch(word) is not None


def strength(word: str | None) -> int:
    """A rank by which links compare: PCIe classes in order, above them NVLinks by their number.

    Not known ranks below everything: missing data is never the best (ROCm k8s-device-plugin #210).
    """
    if word is None:
        return -1
    if word == SELF:
        return 10_000
    match = _NVLINKS.fullmatch(word)
    if match:
        return 100 + int(match[1])
    return PCIE_CLASSES.index(word)
