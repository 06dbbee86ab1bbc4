"""A source that adds the claims to every snapshot of another source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gputui.allocating.claims.folder import shared_folder
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Source, Want


class WithClaims:
    """Another source with the claims of its box, without those of this very process."""

    def __init__(self, source: Source, environ: Mapping[str, str]) -> None:
        self.label = source.label
        self._source, self._environ = source, environ

    def open(self) -> None:
        self._source.open()

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        if shared_folder(self._environ) is None:
            return self._source.read(want, among)
        # Imported here: nobody on this box may have claimed anything ever.
        from gputui.allocating.claims.read import any_waiting, claims

        found, problems = claims(self._environ)
        if Want.WHOLE in want and (found or any_waiting(self._environ)):
            # Claims and the queue are by UUID, which are not read of devices that are wanted by index only.
            want &= ~Want.WHOLE
        snapshot = self._source.read(want, among)
        if not found and not problems:
            return snapshot
        return replace(snapshot, claims=found, errors=(*snapshot.errors, *problems))

    def close(self) -> None:
        self._source.close()
