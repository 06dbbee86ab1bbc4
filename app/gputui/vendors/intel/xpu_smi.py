"""Parses the output of xpu-smi, versions 1.x and 2.x: identity, load and processes of devices, and Xe links.

Its JSON has numbers as texts in some versions, leaves out what it does not know, and may be followed or
replaced by an error in the same form. Every function parses the text of one answer and ignores what it does
not understand. Every version answers `-j` in JSON; `topology -m` is a table. The output of each version is in
its sources (github.com/intel/xpumanager, branches v1.3.x and v2.x).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gputui.inventory.formatting import MIB, printable
from gputui.inventory.light_dataclasses import field, frozen
from gputui.inventory.link import LinkMatrix
from gputui.system.pci_tree import FUNCTION

_MOST_DEVICES = 256
_MOST_ROWS = 65_536
_MOST_TILES = 16
_MOST_NAME = 80
_OWN = "xpu-smi"
_LABEL = re.compile(r"GPU (\d{1,4})(?:/(\d{1,2}))?")
_NODE = re.compile(rf"{_LABEL.pattern}|NIC ?\d{{1,4}}")
_WORD = re.compile(r"S|MDF|XL[1-9]\d{0,2}|XL\*|PIX|PXB|PHB|NODE|SYS")
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,12})?")


@frozen
class Found:
    """A device of `discovery`: its number, name, PCI function ("0000:4d:00.0"), and the UUID from xpu-smi."""

    number: int | None = None
    name: str | None = None
    function: str | None = None
    uuid: str | None = None


@frozen
class Load:
    """The load of a card in `stats`: bytes, percent, °C, W, MHz. `tiles`: the load of each tile.

    "Nothing in use" means "not known": the driver gives that answer to callers without permission (`memory`).
    """

    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power: float | None = None
    sm_clock: int | None = None
    tiles: Mapping[int, Load] = field(default_factory=dict)

    def of(self, tile: int | None) -> Load | None:
        """Return the load of a tile, where it is reported; None: the card's."""
        return self if tile is None else self.tiles.get(tile)


@frozen
class Wires:
    """The matrix of `topology -m`: rows and columns are (device, tile), tile None where a row
    is a whole card."""

    labels: tuple[tuple[int, int | None], ...]
    words: LinkMatrix


Used = dict[int, dict[int, int | None]]
"""By device, the bytes of each process there; None where they are not known."""


def document(text: str | None) -> Any:
    """Return the JSON of an answer; None where it is not JSON, or is an error."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return None if isinstance(found, dict) and found.get("error") else found


def _rows(root: Any, key: str) -> list[dict[str, Any]] | None:
    """Return the objects of a list; None where there is no list."""
    rows = root.get(key) if isinstance(root, dict) else None
    return [row for row in rows[:_MOST_ROWS] if isinstance(row, dict)] if isinstance(rows, list) else None


def devices(text: str | None) -> tuple[Found, ...]:
    """Return the devices of `discovery -j`; () where it is no such list."""
    found: dict[int, Found] = {}
    for row in (_rows(document(text), "device_list") or ())[:_MOST_DEVICES]:
        number = _whole(row.get("device_id"))
        if number is None or not 0 <= number < _MOST_DEVICES:
            continue
        function = str(row.get("pci_bdf_address", "")).strip().lower()
        uuid = str(row.get("uuid", "")).strip()
        found[number] = Found(
            number=number,
            name=_text(row.get("device_name")),
            function=function if FUNCTION.fullmatch(function) else None,
            uuid=uuid
            if re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", uuid)
            else None,
        )
    return tuple(found.values())


def memory_total(text: str | None) -> int | None:
    """Return the bytes of a card's memory from `discovery -d N -j`."""
    root = document(text)
    facts = next(iter(_rows(root, "device_list") or ()), root)
    found = _whole(facts.get("memory_physical_size_byte")) if isinstance(facts, dict) else None
    return found if found is not None and found > 0 else None


def load(text: str | None, total: int | None) -> Load:
    """Return the load from `stats -d N -j`.

    `total` is the size of the card's memory in bytes. It separates bytes from MiB, because versions differ.
    """
    root = document(text)
    if isinstance(root, list) and len(root) == 1:
        root = root[0]
    if isinstance(root, dict) and "device_index" in root:
        return _joined({}, _tiles_of_version_2(root))
    parts: dict[int, dict[str, float]] = {}
    for row in _rows(root, "tile_level") or ():
        number = _whole(row.get("tile_id"))
        if number is not None and 0 <= number < _MOST_TILES:
            parts[number] = _metrics(_rows(row, "data_list"), total)
    return _joined(_metrics(_rows(root, "device_level"), total), parts)


_METRICS: tuple[tuple[str, tuple[str, str]], ...] = (
    ("MEMORY_USED", ("memory", "used_mib")),
    ("GPU_UTILIZATION", ("utilization", "gpu_percent")),
    ("POWER", ("power", "gpu_power_w")),
    ("GPU_FREQUENCY", ("frequency", "gpu_frequency_mhz")),
    ("GPU_CORE_TEMPERATURE", ("temperature", "gpu_core_celsius")),
)
"""The names in version 1 (XPUM_STATS_…) and in version 2."""

_ADDED_UP = ("MEMORY_USED", "POWER")


def _joined(whole: Mapping[str, float], parts: Mapping[int, Mapping[str, float]]) -> Load:
    """Return the load of a card from its own metrics, or from those of its tiles where every tile has one."""
    facts = dict(whole)
    for name, _ in _METRICS:
        values = [part[name] for part in parts.values() if name in part]
        if name not in facts and values and len(values) == len(parts):
            facts[name] = sum(values) if name in _ADDED_UP else max(values)
    heat, power = facts.get("GPU_CORE_TEMPERATURE"), facts.get("POWER")
    used, clock = facts.get("MEMORY_USED"), facts.get("GPU_FREQUENCY")
    return Load(
        memory_used=round(used) if used else None,
        utilization=_percent(facts.get("GPU_UTILIZATION")),
        temperature=None if heat is None or not 0 < heat < 200 else round(heat),
        power=None if power is None or power < 0 else round(power, 3),
        sm_clock=None if clock is None or clock < 0 else round(clock),
        tiles={number: _joined(part, {}) for number, part in parts.items()},
    )


def _tiles_of_version_2(root: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return the metrics by tile from the form of version 2.

    {"memory": {"used_mib": {"tile_0": {"current": 239.0, …}}}, "utilization": {"gpu_percent": …}, …}
    """
    found: dict[int, dict[str, float]] = {}
    for metric, (group, name) in _METRICS:
        node = root.get(group)
        rows = node.get(name) if isinstance(node, dict) else None
        for key, row in list(rows.items())[:_MOST_TILES] if isinstance(rows, dict) else ():
            tile = _whole(key.removeprefix("tile_"))
            value = _number(row.get("current") if isinstance(row, dict) else row)
            if tile is not None and 0 <= tile < _MOST_TILES and value is not None:
                scale = MIB if metric == "MEMORY_USED" else 1
                found.setdefault(tile, {})[metric] = max(0.0, value * scale)
    return found


def _metrics(rows: list[dict[str, Any]] | None, total: int | None) -> dict[str, float]:
    """Return the metrics of version 1, memory in bytes."""
    found: dict[str, float] = {}
    for row in (rows or ())[:512]:
        value = _number(row.get("value"))
        if value is not None:
            found[str(row.get("metrics_type")).removeprefix("XPUM_STATS_")] = value
    used = _bytes(found.pop("MEMORY_USED", None), total)
    return found if used is None else {**found, "MEMORY_USED": used}


def _bytes(amount: float | None, total: int | None) -> int | None:
    if amount is None or amount <= 0:
        return None
    most = total if total else 1 << 44
    return round(amount * MIB) if amount * MIB <= most else round(amount) if amount <= most else None


def processes(text: str | None) -> Used | None:
    """Return, by device, each process's bytes there in `ps -j`, which counts in KiB, without xpu-smi itself;
    None where it is no such list."""
    rows = _rows(document(text), "device_util_by_proc_list")
    if rows is None:
        return None
    found: Used = {}
    for row in rows:
        pid, device = _whole(row.get("process_id")), _whole(row.get("device_id"))
        kibibytes = _number(row.get("mem_size"))
        command = str(row.get("process_name", "")).rpartition("/")[2].split(" ")[0]
        if pid is not None and device is not None and pid > 0 and command != _OWN:
            amount = None if kibibytes is None or kibibytes < 0 else round(kibibytes * 1024)
            found.setdefault(device, {})[pid] = amount
    return found


def wires(text: str | None) -> Wires | None:
    """Parse the table of `topology -m`: "GPU 0/1" is tile 1 of card 0. None where it is no such table.

    Version 1 has bars between its columns. Version 2 also has bars around its cells, or none at all, and
    continues with network devices.
    """
    lines = [line.strip().strip("|").strip() for line in (text or "").splitlines()[:1024]]
    lines = [line for line in lines if line.strip("+-=| ")]
    if not lines:
        return None
    columns = [found[0] for found in _NODE.finditer(lines[0])]
    labels = [_place(found) for name in columns if (found := _LABEL.fullmatch(name))]
    rows: dict[tuple[int, int | None], tuple[str | None, ...]] = {}
    for line in lines[1:]:
        row = _LABEL.match(line)
        if row is None:
            continue
        rest = line[row.end() :].strip()
        cells = [cell.strip() for cell in rest.removeprefix("|").split("|")] if "|" in rest else rest.split()
        told = dict(zip(columns, cells, strict=False))
        words = (told.get(name, "") for name in columns if _LABEL.fullmatch(name))
        if len(cells) >= len(columns):
            rows[_place(row)] = tuple(
                "X" if word == "S" else word if _WORD.fullmatch(word) else None for word in words
            )
    if not labels or len(set(labels)) != len(labels) or any(label not in rows for label in labels):
        return None
    return Wires(tuple(labels), tuple(rows[label] for label in labels))


def _place(found: re.Match[str]) -> tuple[int, int | None]:
    return int(found[1]), None if found[2] is None else int(found[2])


def _text(value: Any) -> str | None:
    return printable(value.strip())[:_MOST_NAME] or None if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    return float(text) if _NUMBER.fullmatch(text) else None


def _whole(value: Any) -> int | None:
    found = _number(value)
    return int(str(value).strip()) if found is not None and "." not in str(value) else None


def _percent(value: float | None) -> int | None:
    return round(value) if value is not None and 0 <= value <= 100 else None
