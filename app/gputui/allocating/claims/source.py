"""A source that adds the claims and the queue to every snapshot of another source."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gputui.inventory.device import Among
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Source, Want

if TYPE_CHECKING:
    from gputui.allocating.claims.files import Found
    from gputui.allocating.claims.processes import ClaimProcesses
    from gputui.inventory.claim import Claim
    from gputui.system.environment import Environ


_VALID = 0.5
"""Seconds for which claims are not read again while a listing is valid: less than a screen waits between two
readings, so that it shows the end of a claim at once."""


class WithClaims:
    """Another source with the claims of its box, except those of this very process; claims inside which it
    runs are marked as ours. It also adds the queue."""

    def __init__(self, source: Source, environ: Environ) -> None:
        self.label = source.label
        self._source, self._environ = source, environ
        self._records: list[Found] = []
        self._keys = frozenset[str]()
        self._until = 0.0
        self._read: tuple[tuple[Claim, ...], tuple[str, ...]] = (), ()
        self._found: tuple[Claim, ...] = ()
        self._marked: tuple[Claim, ...] = ()
        self._processes: ClaimProcesses | None = None
        self._by_index: bool | None = None

    def open(self) -> None:
        self._source.open()

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        from gputui.allocating.claims.files import is_anything_there, seen

        if Want.WHOLE in want:
            # Claims and the queue are by UUID, which is not read for devices that are wanted by index only.
            # (Also in later readings: a device keeps its key.)
            if self._by_index is None:
                self._by_index = not is_anything_there(self._environ)
            if not self._by_index:
                want &= ~Want.WHOLE
        snapshot = self._source.read(want, among)
        names = seen(self._environ, snapshot.by_key)
        if not any((*names[:3], *names.problems)):
            return snapshot
        # Where listing is expensive, so is reading, and a call reads twice.
        same = names.records is self._records and snapshot.by_key.keys() == self._keys
        if not same or time.monotonic() >= self._until:
            # Imported here: on most boxes nobody has ever claimed anything.
            from gputui.allocating.claims.read import claims

            self._read = claims(self._environ, snapshot.by_key, names)
            self._records, self._keys = names.records, frozenset(snapshot.by_key)
            self._until = time.monotonic() + _VALID
        found, odd = self._read
        if found != self._found:
            from gputui.allocating.claims.own_lease import own_lease

            # (Reading our descriptors and ancestors takes a millisecond, too much for every second.)
            self._found, self._marked = found, own_lease(self._environ, found).marked(found)
        if names.tickets and Want.QUEUE in want:
            from gputui.allocating.queue import waiters

            snapshot = replace(snapshot, waiters=waiters(self._environ, names.tickets, snapshot.by_key))
        claimed = self._marked
        if found and Want.CLAIM_PROCESSES in want:
            if self._processes is None:
                from gputui.allocating.claims.processes import ClaimProcesses

                self._processes = ClaimProcesses()
            claimed = self._processes.of(claimed, snapshot.devices)
        elif self._processes is not None:
            claimed = self._processes.last(claimed)
        return replace(snapshot, claims=claimed, errors=(*snapshot.errors, *odd))

    def close(self) -> None:
        self._source.close()
