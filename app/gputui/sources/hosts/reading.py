"""What a box answers to `ls --json`, read as strictly as a stranger's recording."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from gputui.inventory.document_reader import from_document
from gputui.inventory.formatting import printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.untrusted_json import DocumentError
from gputui.sources.hosts.nvidia_smi import snapshot_of
from gputui.sources.hosts.remote_script import Mode

MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class Reading:
    """A box as it was, or why it is not known. `document` is the box's own JSON; None of nvidia-smi."""

    alias: str
    snapshot: Snapshot | None = None
    document: dict[str, Any] | None = None
    error: str | None = None


_STEADY = ("links", "pcie", "peers", "link_weights", "link_bandwidths", "topology")
"""Keys of a document, and facts of a snapshot, that hardly ever change and take half of the time to read."""


def read(alias: str, text: bytes, mode: Mode | None, now: float, last: Reading | None = None) -> Reading:
    """The reading that an answer, or a line of one, is; `now` is seconds since the epoch. What is as it was
    in the `last` one of that box is not read once more."""
    try:
        if mode == "nvidia-smi":
            lines = text.decode(errors="replace").strip().splitlines()
            return Reading(alias, snapshot_of(lines, alias, now))
        document = json.loads(text)
        if isinstance(document, dict) and isinstance(error := document.get("error"), str):
            return Reading(alias, error=printable(error)[:MOST_REASON])
        return Reading(alias, _snapshot(document, last), document)
    except (DocumentError, ValueError, RecursionError) as error:
        return Reading(alias, error=printable(f"its answer cannot be read: {error}")[:MOST_REASON])


def _snapshot(document: Any, last: Reading | None) -> Snapshot:
    """Raises DocumentError."""
    before = last.document if last else None
    same = (
        isinstance(document, dict)
        and before is not None
        and all(key in document and document[key] == before.get(key) for key in _STEADY)
        and isinstance(document.get("devices"), list)
        and len(document["devices"]) == len(before["devices"])
    )
    if not same or last is None or last.snapshot is None:
        return from_document(document)
    left_out: dict[str, Any] = {key: None if key == "topology" else [] for key in _STEADY}
    found = from_document({**document, **left_out})
    return replace(found, **{key: getattr(last.snapshot, key) for key in _STEADY})


def reason(said: str) -> str:
    """The last line of the messages of gputui there, without its name."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return printable(lines[-1].removeprefix("gputui: "))[:MOST_REASON] if lines else "no answer"
