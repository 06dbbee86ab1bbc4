"""This machine's devices of all vendors, as one source."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputui.inventory.link import LinkMatrix
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import NoSourceError, Source, Want
from gputui.vendors.registry import vendors

if TYPE_CHECKING:
    from gputui.inventory.snapshot import HostLoad
    from gputui.system.host_load import HostLoadReader


def this_box() -> Source:
    """The source of this machine."""
    return BoxSource([vendor.source() for vendor in vendors()])


class BoxSource:
    """Several vendors' sources read as one box: the devices of the first, then those of the next.

    A vendor whose source does not open has no devices here, as long as another one's does. How busy the
    machine itself is, is read here; a vendor's source need not know.
    """

    label = ""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._open: list[Source] = []
        self._load_reader: HostLoadReader | None = None
        self._load: HostLoad | None = None

    def open(self) -> None:
        """Open every vendor's source. Raises the first one's NoSourceError where none opens."""
        if self._open:
            return
        first: NoSourceError | None = None
        for source in self._sources:
            try:
                source.open()
            except NoSourceError as error:
                first = first or error
            else:
                self._open.append(source)
        if first is not None and not self._open:
            raise first

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.open()
        read = [source.read(want, among) for source in self._open]
        box = read[0] if len(read) == 1 else joined(read)
        if Want.HOST in want:
            self._load = self._read_load()
        return replace(box, host=replace(box.host, load=self._load)) if self._load else box

    def _read_load(self) -> HostLoad:
        if self._load_reader is None:
            # Imported here: most calls do not ask.
            from gputui.system.host_load import HostLoadReader

            self._load_reader = HostLoadReader()
        return self._load_reader.read()

    def close(self) -> None:
        with contextlib.ExitStack() as closing:
            while self._open:
                closing.callback(self._open.pop().close)


def joined(boxes: Sequence[Snapshot]) -> Snapshot:
    """Snapshots of one machine as one. What joins devices of two vendors is not known.

    Indices are each vendor's own, so that two devices may have the same one. Rows of network devices are left
    out: each vendor's source tells of its own devices' distance only.
    """
    from gputui.inventory.topology import Locality, Topology

    sizes = [len(box.devices) for box in boxes]
    known = [box.topology for box in boxes]
    near = tuple(
        each
        for box, topology in zip(boxes, known, strict=True)
        for each in (topology.localities if topology else (Locality(),) * len(box.devices))
    )
    return Snapshot(
        host=Host(
            next((box.host.name for box in boxes if box.host.name), None),
            ", ".join(box.host.driver for box in boxes if box.host.driver) or None,
            next((box.host.cuda for box in boxes if box.host.cuda), None),
        ),
        time=max(box.time for box in boxes),
        devices=tuple(device for box in boxes for device in box.devices),
        links=_diagonal([box.links for box in boxes], sizes),
        errors=tuple(error for box in boxes for error in box.errors),
        pcie=_diagonal([box.pcie for box in boxes], sizes),
        peers=_diagonal([box.peers for box in boxes], sizes),
        topology=Topology(near, between_cpus=next((t.between_cpus for t in known if t), None))
        if any(known)
        else None,
    )


def _diagonal(matrices: Sequence[LinkMatrix], sizes: Sequence[int]) -> LinkMatrix:
    """One matrix with these along its diagonal, None for every pair of two boxes; () where none is known."""
    if not any(matrices):
        return ()
    rows: list[tuple[str | None, ...]] = []
    for place, (matrix, size) in enumerate(zip(matrices, sizes, strict=True)):
        before, behind = (None,) * sum(sizes[:place]), (None,) * sum(sizes[place + 1 :])
        for row in range(size):
            rows.append((*before, *(matrix[row] if matrix else (None,) * size), *behind))
    return tuple(rows)
