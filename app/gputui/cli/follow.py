"""`gputui ls --json --follow`: a JSON document a line, at a pace that standard input may change."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from collections.abc import Callable

from gputui.cli.common import DONE, say
from gputui.inventory.document import SCHEMA
from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import Sampler
from gputui.sources.source import INTERVALS, NoSourceError, Source

INTERVAL = 1.0
"""Seconds from one document to the next unless told otherwise."""
_LONGEST_LINE = 4096
"""Bytes of standard input that may make one line."""


def follow(source: Source, text_of: Callable[[Snapshot], str], interval: float = INTERVAL) -> int:
    """Print each reading of the source as one line, until standard input ends.

    A line of standard input is a number of seconds: the pace from then on. A reading that fails is a line
    with the key "error", and reading goes on. Nothing is buffered: a reader that has gone ends the call at
    once, and one that is slow gets fewer lines. Raises NoSourceError where there is nothing to read from at
    the start.
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

    # (Not through InTime: a driver that hangs holds up the sampler's thread, and no other.)
    sampler = Sampler(source, tell, interval, owners_at_once=True)
    sampler.start()
    try:
        lines.obey(sampler.set_interval)
    finally:
        sampler.stop()
    return DONE


class Lines:
    """Standard output, for the thread that has a line now and then: what fails there ends the call."""

    def __init__(self) -> None:
        self._failed: list[Exception] = []
        self._wake, self._woken = os.pipe()
        sys.stdout.flush()
        self._output = sys.stdout.fileno()

    def write(self, text: Callable[[], str]) -> bool:
        """Write a line, past Python's buffer, whose lock a slow reader would hold. False where it fails."""
        try:
            data = f"{text()}\n".encode()
            while data:
                data = data[os.write(self._output, data) :]
        except Exception as error:  # noqa: BLE001 - raised on the thread of the call
            self._failed.append(error)
            os.write(self._woken, b"x")
        return not self._failed

    def obey(self, set_interval: Callable[[float], None]) -> None:
        """Set the pace that standard input asks for, until it ends. Raises what has failed meanwhile."""
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
