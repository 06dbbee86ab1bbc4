"""Parses a box's answer to `ls --json`, as strictly as an untrusted recording."""

from __future__ import annotations

import json

from gputui.inventory.document_reader import MOST_READING, MOST_VALUES, from_document
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Json, loads_of_others
from gputui.sources.hosts.nvidia_smi import snapshot_of
from gputui.sources.hosts.remote_script import Mode
from gputui.sources.hosts.session import MOST_REASON

_SMALL = 64 * 1024
"""Bytes: a box of eight devices sends 11,000."""


def unreadable(error: Exception) -> str:
    """Return the sentence for an answer that cannot be read (a ValueError or a RecursionError)."""
    return printable(f"its answer cannot be read: {error}")[:MOST_REASON]


@frozen
class Reading:
    """A box as it was, or why it is not known. `document` is the box's own JSON; None for nvidia-smi."""

    alias: str
    snapshot: Snapshot | None = None
    document: Json | None = None
    error: str | None = None


def read(alias: str, text: bytes, mode: Mode | None, now: float, last: Reading | None = None) -> Reading:
    """Return the reading in an answer, or in a line of one; `now` is seconds since the epoch.

    Unchanged parts are reused from the `last` reading of that box.
    """
    try:
        if mode == "nvidia-smi":
            lines = text.decode(errors="replace").strip().splitlines()
            return Reading(alias, snapshot_of(lines, alias, now))
        # Small answers come every second from each box, and json.loads takes half the time.
        document = (
            json.loads(text) if len(text) <= _SMALL else loads_of_others(text, MOST_VALUES, 2 * MOST_READING)
        )
        if isinstance(document, dict) and isinstance(error := document.get("error"), str):
            return Reading(alias, error=printable(error)[:MOST_REASON])
        before = (last.document, last.snapshot) if last and last.document and last.snapshot else None
        return Reading(alias, from_document(document, before), document)
    except (ValueError, RecursionError) as error:
        return Reading(alias, error=unreadable(error))
