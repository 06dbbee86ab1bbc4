"""The source that replays a recording (`gputui record`), or a matrix printed by `nvidia-smi topo -m`.

A recording of several readings (`record --every`) is replayed at its own pace: each reading is shown when as
much time has passed since the first one as when it was recorded. Lines are read when they are due, so that a
recording may be of any length.
"""

from __future__ import annotations

import csv
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from gputui.inventory.device import Among, Device
from gputui.inventory.document_reader import from_document, from_json
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.matrix_text import MOST_BYTES as MOST_MATRIX
from gputui.inventory.matrix_text import MatrixError, looks_like_one, read
from gputui.inventory.others_files import MOST_JSON, SECONDS, NotReadError, go_on, one_reading
from gputui.inventory.readings import documents, is_heading
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.typed_json import DocumentError, loads_of_others
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.source import Clock, NoSourceError, Want
from gputui.system.files import open_given

_MOST_ROW = 1 << 20
_MOST_VALUES = 1_000_000
"""The most bytes of a device's line in a CSV file."""


class RecordedSource:
    """A recorded snapshot, unchanged, or a recording of several; "-" reads it from standard input."""

    def __init__(self, file: str, clock: Clock = time.monotonic) -> None:
        self.file, self.label = file, f"recorded {Path(file).name}"
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._later: Iterator[Snapshot] = iter(())
        self._next: Snapshot | None = None
        self._began = 0.0
        self._trouble: NoSourceError | None = None

    def open(self) -> None:
        if self._snapshot is not None:
            return
        try:
            stream = sys.stdin.buffer if self.file == "-" else open_given(self.file)
            # (One byte more than is parsed, of all lines together.)
            text = stream.readline(MOST_JSON + 1).removeprefix(BOM_UTF8)
            if is_heading(text):
                lines = chain((text,), _lines(stream, _MOST_ROW))
                self._replay(documents(line.decode(errors="replace") for line in lines))
                return
            beginning = stream.readline(MOST_JSON + 1 - len(text))
            if text.lstrip().startswith(b"{") and beginning.startswith(b"{"):
                self._replay(_documents((text, beginning), stream))
                return
            text += beginning
            text += stream.read(MOST_JSON + 1 - len(text))
            if stream is not sys.stdin.buffer:
                stream.close()
        except OSError as error:
            raise NoSourceError(f"cannot read {self.file!r}: {error.strerror}") from None
        if len(text) <= MOST_MATRIX and not text.lstrip().startswith(b"{"):
            printed = text.decode(errors="replace")
            if looks_like_one(printed):
                self._snapshot = self._wiring_only(printed)
                return
        if not text.lstrip().startswith(b"{"):
            wanted = "a table or JSON as `gputui record` writes it"
            raise NoSourceError(f"{self.file!r} is not a recording: it is not {wanted}")
        try:
            self._snapshot = from_json(text)
        except DocumentError as error:
            raise NoSourceError(f"{self.file!r} is not a recording: {error}") from None

    def _replay(self, documents: Iterator[Any]) -> None:
        """Begin with the first reading of a recording of several. Raise NoSourceError."""
        self._later = self._snapshots(documents)
        self._snapshot = self._following()
        if self._snapshot is None:
            raise NoSourceError(f"{self.file!r} is not a recording: it has no reading")
        self._next, self._began = self._snapshot, self._clock() - self._snapshot.time

    def _snapshots(self, documents: Iterator[Any]) -> Iterator[Snapshot]:
        """Yield the readings. Raise NoSourceError at the first line that is not one."""
        place = 1
        try:
            for document in documents:
                yield from_document(document)
                place += 1
        except (DocumentError, NotReadError, csv.Error) as error:
            raise NoSourceError(
                f"{self.file!r} is not a recording from its reading {place} on: {error}"
            ) from None

    def _following(self) -> Snapshot | None:
        """Return the reading after the last one. Raise NoSourceError."""
        with one_reading():
            return next(self._later, None)

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

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        self.open()
        assert self._snapshot is not None
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        # After a long pause many readings are due: the next call goes on with them.
        now, end = self._clock() - self._began, time.thread_time() + SECONDS / 2
        try:
            while self._next is not None and self._next.time <= now and time.thread_time() < end:
                self._snapshot, self._next = self._next, None
                self._next = self._following()
        except NoSourceError as error:
            self._trouble = error
        return self._snapshot

    def film(self) -> Iterator[Snapshot]:
        """Yield all readings of the opened recording at once. Raise NoSourceError at a line that is none."""
        following = self._snapshot
        while following is not None:
            yield following
            following = self._following()

    def close(self) -> None:
        self._snapshot = self._next = None
        self._later = iter(())


def _documents(first: Collection[bytes], stream: BinaryIO) -> Iterator[Any]:
    """Yield the documents, one a line. Raise DocumentError."""
    for line in chain(first, _lines(stream, MOST_JSON)):
        yield loads_of_others(line, _MOST_VALUES, 4 * MOST_JSON)


def _lines(stream: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield the lines. Raise DocumentError for one that is too long, and NotReadError."""
    with stream:
        while line := stream.readline(most + 1):
            go_on()
            if len(line) > most:
                raise DocumentError(f"a line has more than {most} bytes")
            yield line
