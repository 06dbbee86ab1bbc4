"""A simulated box made from a matrix printed by `nvidia-smi topo -m`.

Its links, affinities and network devices are those of the text; its GPUs are idle and of no known model.
"""

from __future__ import annotations

from gputui.inventory.link import direct_links
from gputui.inventory.matrix_text import Printed
from gputui.sources.simulated.spec import Box, Gpu

MOST_DIRECT = 18
"""The most NVLinks of a GPU (Hopper, Blackwell): if its links to all peers add up to more,
switches join them."""


_UNTOLD = frozenset(
    ("fan", "memory_temperature", "retired_pages", "sm_active", "sm_occupancy", "tensor_active")
)
"""Facts of the device page that differ between models."""


def box_of(printed: Printed, name: str) -> Box:
    """Return the box that the matrix describes, with idle GPUs of 80 GiB, numbered from 0."""
    count = len(printed.gpus)
    switched = any(sum(map(direct_links, row)) > MOST_DIRECT for row in printed.links)
    return Box(
        name=name,
        about=f"{count} GPUs, wired as in {name}",
        host=name,
        driver="550.54.15",
        cuda="12.4",
        gpus=tuple(
            Gpu(
                name="recorded GPU",
                memory=81920,
                bus=f"{16 + index // 8:02X}:{index % 8:02X}.0",
                capability="",
                power_limit=400,
                clock=1980,
                numa=near.memory_nodes[0] if near.memory_nodes else None,
                unsupported=_UNTOLD if near.memory_nodes else _UNTOLD | {"numa_node"},
                locality=near,
            )
            for index, near in enumerate(printed.localities)
        ),
        links=printed.links,
        switched=switched,
        peers=None,
        nics=printed.nics,
        nic_links=printed.nic_links,
    )
