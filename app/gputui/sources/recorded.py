"""The source that replays a recording made by `gputui record`."""

from __future__ import annotations

import sys
from pathlib import Path

from gputui.inventory.reading import MOST_BYTES, DocumentError, from_json
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Want


class RecordedSource:
    """One recorded snapshot, as it was; "-" reads it from standard input."""

    def __init__(self, file: str) -> None:
        self.file, self.label = file, f"recorded {Path(file).name}"
        self._snapshot: Snapshot | None = None

    def open(self) -> None:
        if self._snapshot is not None:
            return
        try:
            if self.file == "-":
                text = sys.stdin.buffer.read(MOST_BYTES + 1)
            else:
                with Path(self.file).open("rb") as stream:
                    text = stream.read(MOST_BYTES + 1)
        except OSError as error:
            raise NoSourceError(f"cannot read {self.file!r}: {error.strerror}") from None
        try:
            self._snapshot = from_json(text)
        except DocumentError as error:
            raise NoSourceError(f"{self.file!r} is not a recording: {error}") from None

    def read(self, want: Want = Want.ALL) -> Snapshot:
        self.open()
        assert self._snapshot is not None
        return self._snapshot

    def close(self) -> None:
        self._snapshot = None
