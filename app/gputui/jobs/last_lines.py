"""The last lines of a log, quickly: its end as plain text, without a terminal's emulation."""

from __future__ import annotations

import re
from pathlib import Path

from gputui.jobs.ansi_sanitizer import AnsiSanitizer
from gputui.jobs.log_file import end_of

_MOST_BYTES = 4096
_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*[@-~]|\x08")
_LONGEST = 500


def last_lines(log: Path, number: int) -> tuple[str, ...]:
    """The last lines that have any text, the last one last; of a bar what it shows now.

    At most 4 KiB of the log are read. () for a log that is not there.
    """
    start, data = end_of(log, _MOST_BYTES)
    if start:
        # (The first line has lost its beginning, unless it is the only one.)
        data = data.partition(b"\n")[2] or data
    return lines_in(data)[-number:]


def lines_in(data: bytes) -> tuple[str, ...]:
    """The lines of a piece of a log that have any text, without escape sequences."""
    text = _SEQUENCE.sub("", AnsiSanitizer(colours=False).feed(data, final=True))
    lines = (_shown(line) for line in text.split("\n"))
    return tuple(line for line in lines if line)


def _shown(line: str) -> str:
    """What the terminal shows of a line that was written over several times."""
    written = [piece.strip() for piece in line.expandtabs().split("\r")]
    return next((piece[:_LONGEST] for piece in reversed(written) if piece), "")
