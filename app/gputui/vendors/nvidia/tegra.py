"""The facts about a Jetson's GPU that NVML does not report: load and clock from the frequency governor
(devfreq), memory from NvMap, which allocates the buffers of the GPU, the cameras and the displays.

The formats are those of NVIDIA's nvmap_dev.c. Only root can read NvMap's files, which are in debugfs.
"""

from __future__ import annotations

import re
from collections import Counter

from gputui.inventory.process import Process
from gputui.system.root import Root

_GOVERNED = "/sys/class/devfreq"

_NAMES = ("gv11b", "gp10b", "ga10b", "gpu")
"""The GPU's name in the device tree: of Xavier, TX2, Orin, and newer."""

_CLIENTS = "/sys/kernel/debug/nvmap/iovmm/clients"


def read_tegra(root: Root) -> tuple[int | None, int | None]:
    """Return percent of utilization, and MHz; None for what is not known."""
    for entry in sorted(root.names(_GOVERNED)):
        folder = f"{_GOVERNED}/{entry}"
        if root.text(f"{folder}/device/of_node/name") in _NAMES:
            load, clock = root.number(f"{folder}/device/load"), root.number(f"{folder}/cur_freq")
            # In thousandths, and in Hz.
            return (
                None if load is None or not 0 <= load <= 1000 else round(load / 10),
                None if clock is None else clock // 1_000_000,
            )
    return None, None


def read_nvmap(root: Root) -> tuple[int | None, tuple[Process, ...] | None]:
    """Return the bytes of all buffers, and the processes with their buffers; None for what is not known.

    A buffer that processes share is counted for each of them, but once in all. NvMap does not know what a
    process does with its buffers: it may compute.
    """
    text = root.text(_CLIENTS) or ""
    # The last line, without which the list is not complete.
    total = re.search(r"\ntotal +(\d{1,12})K\Z", text)
    if total is None:
        return None, None
    sizes = Counter[int]()
    for pid, size in re.findall(r"(?m) (\d{1,8}) +(\d{1,12})K$", text):
        sizes[int(pid)] += 1024 * int(size)
    found = (Process(pid, "compute+graphics", memory=size) for pid, size in sizes.items() if pid and size)
    return 1024 * int(total[1]), tuple(found)
