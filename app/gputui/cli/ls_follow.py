"""`gputui ls --json --follow`: one JSON document per line, at an interval that standard input may change."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from collections.abc import Callable

from gputui.cli.common import DONE, say
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import SCHEMA
from gputui.sources.sampler import Sampler
from gputui.sources.source import INTERVALS, NoSourceError, Source

INTERVAL = 1.0
"""Default seconds between two documents."""
_LONGEST_LINE = 4096
"""The most bytes of a line of standard input."""


def follow(source: Source, text_of: Callable[[Snapshot], str], interval: float = INTERVAL) -> int:
    """Print each reading of the source as one line, until standard input ends.

    A line of standard input is a number of seconds: the new interval. A failed reading gives a line with the
    key "error", and reading continues. Output is not buffered: the call ends at once when its reader closes
    the pipe, and a slow reader gets fewer lines. Raises NoSourceError where there is no source at the start.
    """
    lines = Lines()

    def tell(news: Snapshot | Exception, _: float) -> None:
        def text() -> str:
            if isinstance(news, NoSourceError) and sampler.age is not None:
                return json.dumps({"schema": SCHEMA, "error": str(news)})
            if isinstance(news, Exception):
                raise news
            return text_of(news)

        lines.write(text)

    # InTime is not needed: a driver that hangs blocks only the sampler's thread.
    sampler = Sampler(source, tell, interval, owners_at_once=True)
    sampler.start()
    try:
        lines.obey(sampler.set_interval)
    finally:
        sampler.stop()
    return DONE


class Lines:
    """Standard output for the sampler's thread: a failure to write ends the call."""

    def __init__(self) -> None:
        self._failed: list[Exception] = []
        self._wake, self._woken = os.pipe()
        sys.stdout.flush()
        self._output = sys.stdout.fileno()

    def write(self, text: Callable[[], str]) -> bool:
        """Write a line, without Python's buffer, whose lock a slow reader would hold. False: it failed."""
        try:
            data = f"{text()}\n".encode()
            while data:
                data = data[os.write(self._output, data) :]
        except Exception as error:  # noqa: BLE001 - raised on the thread of the call
            self._failed.append(error)
            os.write(self._woken, b"x")
        return not self._failed

    def obey(self, set_interval: Callable[[float], None]) -> None:
        """Set the intervals from standard input, until it ends. Raises the error of a failed write."""
        rest = b""
        while sys.stdin is not None:
            stdin = sys.stdin.fileno()
            if self._wake in select.select([stdin, self._wake], [], [])[0]:
                raise self._failed[0]
            data = os.read(stdin, _LONGEST_LINE)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-_LONGEST_LINE:]
            for line in lines:
                _set_pace(line.decode(errors="replace").strip(), set_interval)


def _set_pace(text: str, set_interval: Callable[[float], None]) -> None:
    least, most = INTERVALS
    with contextlib.suppress(ValueError):
        if least <= float(text) <= most:
            set_interval(float(text))
            return
    say(f"not a number of seconds from {least} to {most:.0f}: {text[:40]!r}")
