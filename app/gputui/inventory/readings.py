"""Readings as CSV (`record --every 1s -o run.csv`): a line for each device and reading, and back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from gputui.inventory.document import DEVICE
from gputui.inventory.document_reader import MOST_DEVICES
from gputui.inventory.typed_json import SCHEMA, DocumentError, Json, loads_of_others

_FACTS = tuple(key for _, key, _, _ in DEVICE.rows if key not in ("verdict", "claim", "telemetry"))
_TEXTS = ("uuid", "name", "parent", "pci_id", "runtime", "compute_capability")
"""Facts that may look like a number."""
_LONGEST = 4096
"""The most bytes of a heading."""
_COLUMNS = ("time", "host", *_FACTS, "state")
HEAD = (",".join(_COLUMNS) + "\n").encode()


def is_heading(line: bytes) -> bool:
    """Return whether a table of readings begins with this line: it may have other columns, too."""
    cells = line[:_LONGEST].decode(errors="replace").replace('"', "").strip().split(",")
    return len({*_COLUMNS}.intersection(cells)) > 2


def rows(document: Mapping[str, Any]) -> str:
    """Return a line for each device of a box's document. A list in a cell, or true and false, is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for device in document["devices"]:
        facts = map(device.get, _FACTS)
        cells = [json.dumps(each) if isinstance(each, list | bool) else each for each in facts]
        writer.writerow([document["time"], document["host"], *cells, device["verdict"]["state"]])
    return text.getvalue()


def documents(lines: Iterator[str]) -> Iterator[Json]:
    """Yield the document of each reading of a table, whose first line names the columns. Raise
    DocumentError."""
    box: Json = {"schema": SCHEMA, "driver": None, "cuda": None, "links": [], "errors": []}
    for (when, host), devices in groupby(csv.DictReader(lines), _reading):
        # (One more than a reader takes: it refuses that.)
        found = [
            {name: _value(name, device[name]) for name in _FACTS if name in device}
            for device in islice(devices, MOST_DEVICES + 1)
        ]
        yield {**box, "time": when, "host": host or None, "devices": found}


def _reading(row: Mapping[str, str | None]) -> tuple[str | None, str | None]:
    """Return what the lines of a reading share. Raise DocumentError where a line is cut off: the reading
    before it may not be whole either."""
    if None in row.values():
        raise DocumentError("a line is cut off")
    return row.get("time"), row.get("host")


def _value(name: str, cell: str | None) -> Any:
    if not cell or name in _TEXTS:
        return cell or None
    try:
        return loads_of_others(cell.encode())
    except DocumentError:
        return cell
