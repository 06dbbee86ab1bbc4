"""The launch as JSON, for programs: what `export --as json` and `run --dry-run --json` print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.typed_json import Document, Json, View, WordList, Words
from gputui.launching.launch import Launch

_DEVICE = View(Device, "index uuid name")
_KEYS = "argv environment directory devices launcher warnings remarks line time_limit"
_KINDS: dict[str, Any] = {
    "argv": WordList,
    "environment": dict[str, Words | None],
    "directory": Words | None,
    "devices": _DEVICE.list,
    "line": Words,
}
LAUNCH = Document(_KEYS, Launch, **_KINDS)
_LABELLED = View(Launch, f"label {_KEYS}", label=str, **_KINDS)
DRY_RUN = Document("launches", launches=_LABELLED.list)
"""The document that `compare` and `each` print with `--dry-run --json`."""


def dry_run_document(launches: Iterable[tuple[str, Launch]]) -> Json:
    """The launch of each variant, by its label."""
    found = [_LABELLED.write(each, label=label, environment=dict(each.changes)) for label, each in launches]
    return DRY_RUN.write(launches=found)


def launch_document(launch: Launch) -> Json:
    """Return argv, environment changes (null: unset), directory, devices in order, launcher, warnings,
    remarks, and the line to paste. Bytes that are not UTF-8 become lone surrogates, as in Python's
    `os.fsdecode`."""
    return LAUNCH.write(launch, environment=dict(launch.changes))


def to_json(launch: Launch) -> str:
    """Return the document as one line."""
    import json

    return json.dumps(launch_document(launch))
