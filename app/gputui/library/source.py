"""The source of a library call: read by one thread at a time, and aware of this process's own claims."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gputui.allocating.named_source import named_source, opened_in_time
from gputui.inventory.claim import Claim
from gputui.inventory.device import Among
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Source, Want
from gputui.system.users import own_name

if TYPE_CHECKING:
    from gputui.library.request import File

reading = threading.RLock()
"""Sources are not thread-safe, and the whole process shares one instance of a vendor's library."""

_held: dict[str, Claim] = {}
"""The claims that `hold` and `launch` hold now in this process, by `Device.key`."""


@contextmanager
def shown_as_held(keys: Collection[str], purpose: str) -> Iterator[None]:
    """Show these devices as claimed to this process, too."""
    since = time.time()
    for key in keys:
        _held[key] = Claim(key, own_name(), since, purpose, os.getpid(), own=True)
    try:
        yield
    finally:
        for key in keys:
            _held.pop(key, None)


class _ForThreads:
    """Another source, read by one thread at a time.

    A snapshot leaves out the claims of the process that reads it, as `gputui run` is about to become its
    command. A process that uses the library continues, and its next `pick` must not get devices that its last
    `hold` still has.
    """

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self._source = source

    def open(self) -> None:
        with reading:
            self._source.open()

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        with reading:
            snapshot = self._source.read(want, among)
        if self.label or not _held:
            return snapshot
        known = {claim.key for claim in snapshot.claims}
        ours = tuple(
            claim for key, claim in _held.copy().items() if key in snapshot.by_key and key not in known
        )
        return replace(snapshot, claims=(*snapshot.claims, *ours)) if ours else snapshot

    def close(self) -> None:
        with reading:
            self._source.close()


@contextmanager
def opened(demo: str | None, recording: File | None, cpu_only: bool = False) -> Iterator[Source]:
    """Open the source that a caller names, and close it at the end. Raises NoSourceError."""
    file = None if recording is None else os.fspath(recording)
    with opened_in_time(_ForThreads(named_source(demo, file)), cpu_only) as source:
        yield source
