"""`gputui topo`: the matrix of links, as `nvidia-smi topo -m` prints it, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gputui.choosing.bandwidth import bandwidth, generation
from gputui.choosing.tree import lines, links_in_words
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    add_json_option,
    add_source_options,
    print_json,
    print_lines,
    read,
    say,
)
from gputui.inventory.device import Device
from gputui.inventory.document import TOPOLOGY
from gputui.inventory.formatting import UNKNOWN, printable, short_name
from gputui.inventory.link import LinkMatrix, direct_links, family, is_counted
from gputui.inventory.matrix_text import write, write_peers
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Document, Json, View
from gputui.sources.source import Want

_DEVICE = View(
    Device, "vendor index uuid name pci_bus_id numa_node parent", index=int | None, parent=str | None
)
_PAIR = View(
    None,
    "devices labels link kind count generation gb_per_s weight peer_access",
    devices=tuple[int, int],
    labels=tuple[str, str],
    link=str | None,
    kind=str | None,
    count=int | None,
    generation=int | None,
    gb_per_s=float | None,
    weight=int | None,
    peer_access=str | None,
)
TOPO = Document(
    "host=host.name devices matrix=links links=pairs topology",
    Snapshot,
    devices=_DEVICE.list,
    matrix=LinkMatrix,
    pairs=_PAIR.list,
    topology=TOPOLOGY.one | None,
)


def parser() -> Parser:
    made = Parser(
        "topo",
        "Show the links between devices: the matrix and legend of `nvidia-smi topo -m`, computed from NVML\n"
        "and the kernel.",
        example="gputui topo --json | jq '.links[] | select(.kind == \"NVLink\")'",
    )
    form = made.add_mutually_exclusive_group()
    add_json_option(form, "print every pair with kind, count, generation and GB/s as JSON")
    form.add_argument("--tree", action="store_true", help="show a tree of NUMA nodes, switches and NVLinks")
    form.add_argument(
        "--p2p", action="store_true", help="show which devices can access each other's memory (peer access)"
    )
    add_source_options(made)
    return made


def main(args: Call) -> int:
    snapshot = read(args, Want.NAMES | Want.TOPOLOGY)
    for device in snapshot.devices:
        if device.fault and device.fault.kind in ("lost", "reset"):
            say(f"GPU {snapshot.label(device)}: {device.fault.message}; its links are not known")
    if args.json:
        print_json(_document(snapshot))
    elif args.tree:
        print_lines(_tree(snapshot))
    else:
        print_lines([(write_peers if args.p2p else write)(snapshot).rstrip("\n")])
    return DONE


def _tree(snapshot: Snapshot) -> Iterator[str]:
    for before, thing in lines(snapshot):
        if isinstance(thing, Device):
            yield f"{before}GPU {snapshot.label(thing)}  {short_name(thing.name or UNKNOWN)}"
        else:
            yield before + (f"network {printable(thing.name)}" if thing else "")
    for name, told in links_in_words(snapshot):
        yield f"{name}  {told}"


def _document(snapshot: Snapshot) -> Json:
    return TOPO.write(
        snapshot,
        devices=[
            _DEVICE.write(
                device,
                index=None if device.index < 0 else device.index,
                parent=device.parent or device.board,
            )
            for device in snapshot.devices
        ],
        pairs=[_pair(snapshot, one, other) for one, other in combinations(snapshot.numbered, 2)],
    )


def _pair(snapshot: Snapshot, one: Device, other: Device) -> Json:
    """Return a pair by its indices. `gb_per_s` is in one direction, from the kernel or by NCCL's model;
    `weight` is the kernel's distance. Null where the value cannot be computed."""
    word = snapshot.link(one, other)
    count = direct_links(word)
    return _PAIR.write(
        devices=[one.index, other.index],
        labels=[snapshot.label(one), snapshot.label(other)],
        link=word,
        kind=None if word is None else family(word),
        # Some links have no count: XGMI, MDF.
        count=count if is_counted(word) else None,
        generation=None if word is None else generation(snapshot, one, other),
        gb_per_s=bandwidth(snapshot, one, other),
        weight=snapshot.link_weight(one, other),
        peer_access=snapshot.peer(one, other),
    )
