"""The launch as JSON, for programs: what `export --as json` and `run --dry-run --json` print."""

from __future__ import annotations

from typing import Any

from gputui.inventory.device import Device
from gputui.inventory.typed_json import Document, View, Words
from gputui.launching.launch import Launch

_DEVICE = View(Device, "index uuid name")
LAUNCH = Document(
    "argv environment directory devices launcher warnings remarks line",
    Launch,
    argv=tuple[Words, ...],
    environment=dict[str, Words | None],
    directory=Words | None,
    devices=_DEVICE.list,
    line=Words,
)


def launch_document(launch: Launch, **more: Any) -> dict[str, Any]:
    """argv, environment changes (null: unset), directory, devices in order, launcher, warnings, remarks, and
    the line to paste. Bytes that are no text are lone surrogates, as Python's `os.fsdecode` has them."""
    return LAUNCH.write(launch, environment=dict(launch.changes), **more)


def to_json(launch: Launch) -> str:
    """The document as one line."""
    import json

    return json.dumps(launch_document(launch))
