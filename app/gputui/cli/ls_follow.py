"""`gputui ls --follow`: what changes, a line at a time; with --json the box, a document a line."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import state_and_reason
from gputui.cli.common import DONE, say
from gputui.cli.ls_text import document_text
from gputui.inventory.formatting import printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import SCHEMA
from gputui.sources.sampler import Sampler
from gputui.sources.source import INTERVALS, NoSourceError, Source

INTERVAL = 1.0
"""Default seconds between two documents."""
_LONGEST_LINE = 4096
"""The most bytes of a line of standard input."""


class Texts(Protocol):
    """The text that is printed for a reading, and for one that failed; "" for nothing."""

    def of(self, snapshot: Snapshot) -> str:
        """Return the line or lines of a reading."""

    def failed(self, why: str) -> str:
        """Return the line of a reading that failed."""


class Documents:
    """The box as a JSON document; a failed reading as one with the key "error"."""

    def __init__(self, rules: Rules) -> None:
        from gputui.system.users import own_name

        self._rules = rules
        # A user who follows from another machine may have another name there.
        self._more = {"user": own_name()}

    def of(self, snapshot: Snapshot) -> str:
        return document_text(snapshot, verdicts(snapshot, self._rules), more=self._more)

    def failed(self, why: str) -> str:
        return json.dumps({"schema": SCHEMA, "error": why})


class Changes:
    """A line for each device at first, then for each whose state or processes have changed."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._before: dict[str, tuple[object, ...]] = {}
        self._trouble = ""

    def of(self, snapshot: Snapshot) -> str:
        judged, now = verdicts(snapshot, self._rules), snapshot.time
        self._trouble, lines, there = "", list[str](), dict[str, tuple[object, ...]]()
        for device in snapshot.devices:
            verdict, label = judged[device.key], snapshot.label(device)
            pids = [process.pid for process in device.processes or ()]
            there[device.key] = label, verdict.state, *pids
            if self._before.get(device.key) != there[device.key]:
                lines.append(f"GPU {label} {printable(state_and_reason(verdict, now))}")
        gone = [str(facts[0]) for key, facts in self._before.items() if key not in there]
        self._before = there
        return _timed([*lines, *(f"GPU {label} is no longer present" for label in gone)])

    def failed(self, why: str) -> str:
        before, self._trouble = self._trouble, why
        return "" if why == before else _timed([printable(why)])


def _timed(lines: Sequence[str]) -> str:
    clock = time.strftime("%H:%M:%S")
    return "\n".join(f"{clock} {line}" for line in lines)


def follow(source: Source, texts: Texts, interval: float = INTERVAL) -> int:
    """Print the text of each reading of the source, until standard input ends.

    A line of standard input is a number of seconds: the new interval. A failed reading has a text too, and
    reading continues. Output is not buffered: the call ends at once when its reader closes the pipe, and a
    slow reader gets fewer lines. Raises NoSourceError where there is no source at the start.
    """
    lines = Lines()

    def tell(news: Snapshot | Exception, _: float) -> None:
        def text() -> str:
            if isinstance(news, NoSourceError) and sampler.age is not None:
                return texts.failed(str(news))
            if isinstance(news, Exception):
                raise news
            return texts.of(news)

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
        """Write a text, without Python's buffer, whose lock a slow reader would hold. False: it failed."""
        try:
            found = text()
            data = f"{found}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict") if found else b""
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
