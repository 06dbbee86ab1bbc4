"""This machine's devices of all vendors, as one source."""

from __future__ import annotations

# ruff: noqa: PTH112,PTH119 - quick: pathlib alone takes milliseconds
import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import Among
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.link import LinkMatrix, NumberMatrix
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import Clock, NoHardwareError, NoSourceError, Source, Want
from gputui.system.root import HERE, Root
from gputui.vendors.registry import vendors_maybe_on

if TYPE_CHECKING:
    from gputui.inventory.device import Device
    from gputui.inventory.snapshot import HostLoad
    from gputui.inventory.topology import Nic, Topology
    from gputui.system.host_load import HostLoadReader


def this_box() -> Source:
    """Return the source of this machine."""
    return BoxSource(sources_of(HERE))


def root_below(folder: str) -> Root:
    """Return the files of a machine that a folder has. Raise NoSourceError where that is no folder."""
    if not os.path.isdir(folder):
        raise NoSourceError(f"there is no folder {folder!r}")
    return Root(folder)


def box_below(folder: str) -> Source:
    """Return the source of the machine whose files a folder has. Raise NoSourceError if it is no folder."""
    root = root_below(folder)
    sources = sources_of(root)
    name = os.path.basename(os.path.realpath(folder))
    return BoxSource(
        sources, root, f"root {printable(name)}", f"no device of a known vendor below {folder!r}"
    )


def sources_of(root: Root) -> list[Source]:
    """Return the sources of the vendors whose devices the machine may have.

    This machine has at least the first vendor's source, which reports what is missing.
    """
    return [vendor.source(root) for vendor in vendors_maybe_on(root)]


class BoxSource:
    """Several vendors' sources read as one box: the devices of the first, then those of the next.

    A vendor whose source does not open has no devices here, as long as another vendor's source opens.
    Graphics devices that belong to no vendor follow them, apart, once names have been read. This class reads
    the load of the machine itself; a vendor's source need not. `nothing`: the message where no source of a
    machine other than this one opens. `ticks` returns seconds of a clock that cannot be set.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        root: Root = HERE,
        label: str = "",
        nothing: str | None = None,
        ticks: Clock = time.monotonic,
    ) -> None:
        self._sources, self._root, self.label, self._nothing = tuple(sources), root, label, nothing
        self._ticks = ticks
        self._open: list[Source] = []
        self._missing: NoSourceError | None = None
        self._load_reader: HostLoadReader | None = None
        self._load: HostLoad | None = None
        self._others: tuple[Device, ...] | None = None

    def open(self) -> None:
        """Open every vendor's source. Raise NoSourceError where none opens.

        It is the first error of a vendor whose devices the machine may have, else the message `nothing` or
        the last error.
        """
        if self._open:
            return
        failed: list[NoSourceError] = []
        for source in self._sources:
            try:
                source.open()
            except NoSourceError as error:
                failed.append(error)
            else:
                self._open.append(source)
        missing = next((error for error in failed if not isinstance(error, NoHardwareError)), None)
        if self._nothing is not None and not self._open:
            raise missing or NoSourceError(self._nothing)
        if failed and not self._open:
            raise missing or failed[-1]
        self._missing = missing

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        self.open()
        read = [source.read(want, among) for source in self._open]
        ticks = self._ticks()
        box = read[0] if len(read) == 1 else joined(read)
        if self._others is None and Want.NAMES in want:
            # The cards that no source reads. `pick` never offers them, and does not ask for names.
            from gputui.vendors.other_cards import other_cards

            known = {device.pci_bus_id for device in box.devices if device.pci_bus_id}
            self._others = other_cards(self._root, known)
        if self._others:
            box = joined([box, Snapshot(Host(), box.time, self._others)])
        if self._missing is not None and all(device.apart is not None for device in box.devices):
            # An integrated GPU does not explain why another vendor's card is missing.
            why = str(self._missing)
            box = replace(box, errors=(*box.errors, why), missing=why)
        if Want.HOST in want:
            if self._load_reader is None:
                # Imported here: most calls do not need it.
                from gputui.system.host_load import HostLoadReader

                self._load_reader = HostLoadReader(self._root)
            self._load = self._load_reader.read()
        host = replace(box.host, load=self._load) if self._load else box.host
        return replace(box, host=host, ticks=ticks)

    def close(self) -> None:
        self._others = None
        with contextlib.ExitStack() as closing:
            while self._open:
                closing.callback(self._open.pop().close)


def joined(boxes: Sequence[Snapshot]) -> Snapshot:
    """Return snapshots of one machine as one. The links between devices of two vendors are not known.

    Indices are each vendor's own, so two devices may have the same index. Network devices belong to the
    machine: each appears once, with the links of every source that reports it.
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
        link_weights=_diagonal([box.link_weights for box in boxes], sizes),
        link_bandwidths=_diagonal([box.link_bandwidths for box in boxes], sizes),
        topology=Topology(near, *_nics(known, sizes), next((t.between_cpus for t in known if t), None))
        if any(known)
        else None,
    )


def _nics(known: Sequence[Topology | None], sizes: Sequence[int]) -> tuple[tuple[Nic, ...], LinkMatrix]:
    """Return the network devices of all, each once, by name; and their links in the form of `Topology`."""
    nics: dict[str, Nic] = {}
    rows: list[dict[str, str | None]] = []
    between: dict[str, dict[str, str | None]] = {}
    for topology, size in zip(known, sizes, strict=True):
        if topology is None or not topology.nics:
            rows += [{}] * size
            continue
        names = [nic.name for nic in topology.nics]
        links = [dict(zip(names, row, strict=True)) for row in topology.nic_links]
        rows += links[:size]
        for nic, row in zip(topology.nics, links[size:], strict=True):
            nics.setdefault(nic.name, nic)
            between[nic.name] = row | between.get(nic.name, {})
    rows += [between[name] for name in nics]
    return tuple(nics.values()), tuple(tuple(map(row.get, nics)) for row in rows) if nics else ()


def _diagonal(matrices: Sequence[LinkMatrix] | Sequence[NumberMatrix], sizes: Sequence[int]) -> Any:
    """Return one matrix with these along its diagonal, None for pairs across boxes; () if none is known."""
    if not any(matrices):
        return ()
    rows: list[tuple[Any, ...]] = []
    for place, (matrix, size) in enumerate(zip(matrices, sizes, strict=True)):
        before, behind = (None,) * sum(sizes[:place]), (None,) * sum(sizes[place + 1 :])
        for row in range(size):
            rows.append((*before, *(matrix[row] if matrix else (None,) * size), *behind))
    return tuple(rows)
