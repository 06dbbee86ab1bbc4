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
    failed: list[Exception] = []
    wake, woken = os.pipe()
    sys.stdout.flush()
    output = sys.stdout.fileno()

    def tell(news: Snapshot | Exception, _: float) -> None:
        try:
            if isinstance(news, NoSourceError) and sampler.age is not None:
                line = json.dumps({"schema": SCHEMA, "error": str(news)})
            elif isinstance(news, Exception):
                raise news
            else:
                line = text_of(news)
            write_line(output, line)
        except Exception as error:  # noqa: BLE001 - raised on the thread of the call
            failed.append(error)
            os.write(woken, b"x")

    # (Not through InTime: a driver that hangs holds up the sampler's thread, and no other.)
    sampler = Sampler(source, tell, interval, owners_at_once=True)
    sampler.start()
    try:
        obey(wake, sampler.set_interval)
    finally:
        sampler.stop()
    if failed:
        raise failed[0]
    return DONE


def obey(wake: int, set_interval: Callable[[float], None]) -> None:
    """Set the pace that standard input asks for, until it ends or `wake` can be read."""
    if sys.stdin is None:
        return
    stdin, rest = sys.stdin.fileno(), b""
    while True:
        ready, _, _ = select.select([stdin, wake], [], [])
        if wake in ready:
            return
        data = os.read(stdin, _LONGEST_LINE)
        if not data:
            return
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


def write_line(output: int, line: str) -> None:
    """Write it at once, past Python's buffer, whose lock a slow reader would hold. Raises OSError."""
    data = f"{line}\n".encode()
    while data:
        data = data[os.write(output, data) :]
