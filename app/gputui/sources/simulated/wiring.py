"""The wiring of a simulated box: the links, peer access and locality of all its devices. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gputui.inventory.device import Facts
from gputui.inventory.link import LinkMatrix, direct_links, each_pair
from gputui.inventory.topology import Locality, Nic, Topology
from gputui.sources.simulated.spec import Box, Gpu

_CPUS_A_NODE = 32


@lru_cache(maxsize=4)
def wired(box: Box, failed: tuple[int, ...] = ()) -> Facts:
    """Return the wiring part of a snapshot by its fields, with a row for each device.

    Cells of MIG instances are None: the driver reports nothing about them. Nothing is known of GPUs that have
    `failed`, and they have no instances.
    """
    owners: list[int] = []
    rows: list[int | None] = []
    for index, gpu in enumerate(box.gpus):
        parts = 0 if index in failed else len(gpu.mig)
        owners.extend([index] * (1 + parts))
        rows.extend([None if index in failed else index, *[None] * parts])

    def of_gpus(fact: Callable[[int, int], str | None]) -> LinkMatrix:
        def cell(a: int, b: int) -> str | None:
            i, j = rows[a], rows[b]
            return None if i is None or j is None else fact(i, j)

        return each_pair(len(rows), cell)

    nic_rows = [*rows, *range(len(box.gpus), len(box.nic_links))]
    nic_links = tuple(
        tuple(None if row is None else box.nic_links[row][column] for column in range(len(box.nics)))
        for row in nic_rows
    )
    topology = Topology(
        localities=tuple(
            Locality() if owner in failed else _locality(box, box.gpus[owner], owner) for owner in owners
        ),
        nics=tuple(Nic(name) for name in box.nics),
        nic_links=nic_links if box.nics else (),
    )
    return {
        "links": of_gpus(lambda i, j: box.links[i][j]),
        "pcie": of_gpus(lambda i, j: _pcie(box, i, j)),
        "peers": of_gpus(lambda i, j: _peer(box, i, j)),
        "link_weights": box.weights,
        "topology": topology,
    }


def _pcie(box: Box, i: int, j: int) -> str | None:
    """Return the PCIe class of two GPUs of the box."""
    if box.pcie is not None:
        return box.pcie[i][j]
    word = box.links[i][j]
    if direct_links(word):
        return "NODE" if box.gpus[i].numa == box.gpus[j].numa else "SYS"
    return word


def _peer(box: Box, i: int, j: int) -> str | None:
    word = box.links[i][j]
    if word is None or box.peers is None:
        return None
    if direct_links(word):
        return "OK"
    return "OK" if box.peers and word != "SYS" else "CNS"


def _locality(box: Box, gpu: Gpu, index: int) -> Locality:
    if gpu.locality is not None:
        return gpu.locality
    first = (gpu.numa or 0) * _CPUS_A_NODE
    joined = any(direct_links(word) for word in box.links[index])
    return Locality(
        cpus=tuple(range(first, first + _CPUS_A_NODE)),
        memory_nodes=None if gpu.numa is None else (gpu.numa,),
        switched=None if "switched" in gpu.unsupported else box.switched and joined,
        pcie_generation=gpu.generation,
        pcie_width=16,
    )
