"""GPUs of simulated boxes, in no slot yet, and bridges between them: for tests that describe boxes."""

from __future__ import annotations

from dataclasses import replace

from gputui.inventory.link import LinkMatrix
from gputui.sources.simulated.boxes import BOXES

NO_NUMA = frozenset({"numa_node"})

A100, H100, RTX_3090_GPU, RTX_4090_GPU = (
    replace(BOXES[box].gpus[-1], bus="", numa=None) for box in ("a100-mig", "dgx-h100", "rtx3090", "rtx4090")
)


def bridged(links: LinkMatrix, word: str, *pairs: tuple[int, int]) -> LinkMatrix:
    """The same links, with NVLink bridges between some pairs."""
    cells = [list(row) for row in links]
    for i, j in pairs:
        cells[i][j] = cells[j][i] = word
    return tuple(tuple(row) for row in cells)
