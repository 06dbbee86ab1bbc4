"""The source that replays a recording (`gputui record`), or a matrix printed by `nvidia-smi topo -m`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from gputui.inventory.device import Device
from gputui.inventory.document_reader import MOST_BYTES, from_json
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.matrix_text import MOST_BYTES as MOST_MATRIX
from gputui.inventory.matrix_text import MatrixError, looks_like_one, read
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.typed_json import DocumentError
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.source import NoSourceError, Want


class RecordedSource:
    """One recorded snapshot, unchanged; "-" reads it from standard input."""

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
        if len(text) <= MOST_MATRIX and not text.lstrip().startswith(b"{"):
            printed = text.decode(errors="replace")
            if looks_like_one(printed):
                self._snapshot = self._wiring_only(printed)
                return
        try:
            self._snapshot = from_json(text)
        except DocumentError as error:
            raise NoSourceError(f"{self.file!r} is not a recording: {error}") from None

    def _wiring_only(self, text: str) -> Snapshot:
        """Return a box from a printed matrix, which holds its wiring and nothing about its load."""
        try:
            printed = read(text)
            box = box_of(printed, printable(Path(self.file).stem))
        except MatrixError as error:
            raise NoSourceError(
                f"{self.file!r} is neither a recording nor a matrix of `nvidia-smi topo -m`: {error}"
            ) from None
        # The device numbers are those of the text, which may have gaps.
        numbers = [int(name.removeprefix("GPU")) for name in printed.gpus]
        devices = tuple(
            Device(index=number, uuid="", numa_node=gpu.numa)
            for number, gpu in zip(numbers, box.gpus, strict=True)
        )
        return replace(at(box, 0.0, 0.0), host=Host(box.host), devices=devices, peers=())

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.open()
        assert self._snapshot is not None
        return self._snapshot

    def close(self) -> None:
        self._snapshot = None
