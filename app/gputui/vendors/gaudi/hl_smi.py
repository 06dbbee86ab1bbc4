"""Parses the output of `hl-smi -Q … -f csv`, for Gaudi 1, 2 and 3.

It has one line per device, with a comma and a space between values, most of which carry units. A version that
does not know a column prints an error in place of everything, or leaves the column out. An unknown value of a
device is "N/A". The first line has the columns' names, sometimes as "memory.used [MiB]".
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from gputui.inventory.formatting import MIB, printable
from gputui.system.pci_tree import FUNCTION

COLUMNS: tuple[str, ...] = (
    *("index", "module_id", "bus_id", "uuid", "name", "driver_version"),
    *("memory.total", "memory.used", "utilization.aip", "temperature.aip", "power.draw", "power.max"),
)
_MONITORED: tuple[str, ...] = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "memory.free"),
    *("power.draw", "power.max", "temperature.aip", "utilization.aip"),
)
_NEEDED: tuple[str, ...] = ("index", "uuid", "name", "memory.total", "memory.used", "utilization.aip")

QUESTIONS: tuple[tuple[str, ...], ...] = (
    COLUMNS,
    tuple(name for name in COLUMNS if name != "module_id"),
    _MONITORED,
    tuple(name for name in COLUMNS if name not in ("driver_version", "power.max")),
    (*_NEEDED[:2], "bus_id", *_NEEDED[2:]),
    _NEEDED,
)
"""Columns to request, tried in order until a version knows them all: all that gputui shows, then those that
monitors request from every version, then those that decide whether a device is free."""

_MOST_ROWS = 256
_MOST_TEXT = 120
_UNITS = {
    "B": 1,
    "KB": 1024,
    "KIB": 1024,
    "MB": MIB,
    "MIB": MIB,
    "GB": 1024 * MIB,
    "GIB": 1024 * MIB,
}
_AMOUNT = re.compile(r"(-?\d{1,16}(?:\.\d{1,6})?)\s*([A-Za-z%°]{0,4})")

Row = dict[str, str]


def rows(text: str | None, asked: Sequence[str]) -> tuple[Row, ...] | None:
    """Return the lines that are devices, by the columns' names; None where the text is no such table.

    Without a line of names, the columns are those that were requested, if the number of columns matches.
    """
    if text is None:
        return None
    try:
        lines = [
            [cell.strip() for cell in line]
            for line in csv.reader(io.StringIO(text.replace("\0", "")), skipinitialspace=True)
        ]
    except csv.Error:
        return None
    lines = [line for line in lines if any(line)]
    if not lines:
        return None
    names = list(asked)
    for place, line in enumerate(lines[:_MOST_ROWS]):
        # A warning may precede the line of names.
        titles = [cell.partition("[")[0].strip().lower() for cell in line]
        if "index" in titles:
            names, lines = titles, lines[place + 1 :]
            break
    found: list[Row] = []
    for line in lines[:_MOST_ROWS]:
        if len(line) != len(names):
            continue
        row = {
            name: printable(cell)[:_MOST_TEXT]
            for name, cell in zip(names, line, strict=True)
            if cell.upper() not in ("N/A", "NA", "", "NONE", "[N/A]", "[NOT SUPPORTED]")
        }
        if whole(row.get("index")) is not None and _fits(row):
            found.append(row)
    return tuple(found) or None


def _fits(row: Row) -> bool:
    """Return whether values fit their columns: without a line of names, a version could print
    other columns."""
    place = row.get("bus_id")
    sizes = [row[name] for name in row if name.startswith("memory.")]
    return (place is None or FUNCTION.fullmatch(place.lower()) is not None) and None not in map(size, sizes)


def whole(text: str | None) -> int | None:
    """Parse a number without a unit and below ten thousand: an index."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,4}", text, re.ASCII) else None


def amount(text: str | None) -> float | None:
    """Parse a number with any unit: "36 C", "226 W", "0 %", "36"."""
    found = _AMOUNT.fullmatch(text.strip()) if text else None
    return float(found[1]) if found else None


def size(text: str | None) -> int | None:
    """Parse a size into bytes: "131072 MiB"; a number without a unit counts MiB."""
    found = _AMOUNT.fullmatch(text.strip()) if text else None
    scale = _UNITS.get(found[2].upper() or "MIB") if found else None
    return round(float(found[1]) * scale) if found and scale and float(found[1]) >= 0 else None


def percent(text: str | None) -> int | None:
    found = amount(text)
    return round(found) if found is not None and 0 <= found <= 100 else None
