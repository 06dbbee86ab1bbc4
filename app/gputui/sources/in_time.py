"""A source that gives up on a driver that does not answer: for calls that read once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gputui.inventory.device import Among
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Source, Want

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which a one-shot call gives up on a driver that does not answer (calls can hang for ever)."""


class InTime:
    """A source whose readings come back within `patience` seconds or raise NoSourceError.

    It is read on a daemon thread: a call that hangs in the kernel holds that thread and nothing else. Where
    no thread can start (`ulimit -u`), it is read on the caller's thread, however long that takes.
    """

    def __init__(self, source: Source, patience: float | None = None) -> None:
        self.label = source.label
        self._source = source
        self._patience = PATIENCE if patience is None else patience
        self.hangs = False

    def open(self) -> None:
        self._done(self._source.open)

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        return self._done(lambda: self._source.read(want, among))

    def close(self) -> None:
        # Closing NVML under a running call crashes (nvitop #222).
        if not self.hangs:
            self._source.close()

    def _done(self, work: Callable[[], T]) -> T:
        answers: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again below, on the caller's thread
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            run()
        else:
            thread.join(self._patience)
        if errors:
            raise errors[0]
        if not answers:
            self.hangs = True
            raise NoSourceError(f"the driver has not answered for {self._patience:.0f} seconds; see `dmesg`")
        return answers[0]
