"""Read the last lines of a log quickly: as plain text, without emulating a terminal."""

from __future__ import annotations

import re
from pathlib import Path

from gputui.jobs.ansi_sanitizer import AnsiSanitizer
from gputui.jobs.log_file import end_of

_MOST_BYTES = 4096
_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*[@-~]|\x08")
_LONGEST = 500


def last_lines(log: Path, number: int) -> tuple[str, ...]:
    """The last `number` lines that have any text, in their order. A progress bar yields its current text.

    At most 4 KiB of the log are read. () for a log that does not exist.
    """
    start, data = end_of(log, _MOST_BYTES)
    if start:
        # The first line is cut at its beginning: drop it, unless it is the only line.
        data = data.partition(b"\n")[2] or data
    return lines_in(data)[-number:]


def lines_in(data: bytes) -> tuple[str, ...]:
    """The lines of a part of a log that have any text, without escape sequences."""
    text = _SEQUENCE.sub("", AnsiSanitizer(colours=False).feed(data, final=True))
    lines = (_shown(line) for line in text.split("\n"))
    return tuple(line for line in lines if line)


def _shown(line: str) -> str:
    """The text that a terminal shows for a line that was overwritten several times."""
    written = [piece.strip() for piece in line.expandtabs().split("\r")]
    return next((piece[:_LONGEST] for piece in reversed(written) if piece), "")
