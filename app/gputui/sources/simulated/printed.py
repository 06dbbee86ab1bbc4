"""A simulated box out of a printed matrix (`nvidia-smi topo -m`): its links, affinities and network devices
are those of the text; its GPUs are idle, and of no particular model."""

from __future__ import annotations

from gputui.inventory.link import connected_components, direct_links
from gputui.inventory.matrix_text import Printed
from gputui.sources.simulated.spec import Box, Gpu

MOST_DIRECT = 18
"""NVLinks of a GPU at most (Hopper, Blackwell): more than that in sum over its peers go through switches."""


def box_of(printed: Printed, name: str) -> Box:
    """The box that the matrix describes, with idle GPUs of 80 GiB, numbered from 0."""
    count = len(printed.gpus)
    switched = any(sum(map(direct_links, row)) > MOST_DIRECT for row in printed.links)
    return Box(
        name=name,
        about=f"{count} GPUs, wired as {name} says",
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
                numa=place.memory_nodes[0] if place.memory_nodes else None,
                unsupported=frozenset() if place.memory_nodes else frozenset({"numa_node"}),
                place=place,
            )
            for index, place in enumerate(printed.places)
        ),
        links=printed.links,
        switched=switched,
        peers=None,
        fabrics=_fabrics(printed) if switched else None,
        nics=printed.nics,
        nic_links=printed.nic_links,
    )


def _fabrics(printed: Printed) -> tuple[int, ...]:
    """Which GPUs are joined by NVLinks, over others too: a number for each."""
    return connected_components(len(printed.gpus), lambda i, j: direct_links(printed.links[i][j]) > 0)
