"""Parses the output of xpu-smi, versions 1.x and 2.x: identity, load and processes of devices, and Xe links.

Its JSON has numbers as texts in some versions, leaves out what it does not know, and may be followed or
replaced by an error in the same form. Every function parses the text of one answer and ignores what it does
not understand. Tables for people are parsed where an answer is not JSON (`topology -m` never is). The output
of each version is in its sources (github.com/intel/xpumanager, branches v1.3.x and v2.x).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gputui.inventory.formatting import MIB, printable
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.system.pci_tree import FUNCTION

_MOST_DEVICES = 256
_MOST_ROWS = 65_536
_MOST_TILES = 16
_MOST_NAME = 80
_WIDEST = 250
_OWN = "xpu-smi"
_LABEL = re.compile(r"GPU (\d{1,4})(?:/(\d{1,2}))?")
_NODE = re.compile(rf"{_LABEL.pattern}|NIC ?\d{{1,4}}")
_WORD = re.compile(r"S|MDF|XL[1-9]\d{0,2}|XL\*|PIX|PXB|PHB|NODE|SYS")
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,12})?")


@dataclass(frozen=True, slots=True)
class Found:
    """A device of `discovery`: its number, name, PCI function ("0000:4d:00.0"), and the UUID from xpu-smi."""

    number: int | None = None
    name: str | None = None
    function: str | None = None
    uuid: str | None = None
    pci_id: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a card in `stats`: bytes, percent, °C, W, MHz. `tiles`: the load of each tile.

    "Nothing in use" means "not known": the driver gives that answer to callers without permission (`memory`).
    """

    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    clock: int | None = None
    tiles: Mapping[int, Load] = field(default_factory=dict)

    def of(self, tile: int | None) -> Load | None:
        """Return the load of a tile, where it is reported; None: the card's."""
        return self if tile is None else self.tiles.get(tile)


@dataclass(frozen=True, slots=True)
class Wires:
    """The matrix of `topology -m`: rows and columns are (device, tile), tile None where a row
    is a whole card."""

    labels: tuple[tuple[int, int | None], ...]
    words: tuple[tuple[str | None, ...], ...]


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


def devices(text: str | None) -> tuple[Found, ...] | None:
    """Return the devices of `discovery -j`; None where it is no such list."""
    root = document(text)
    rows = _rows(root, "device_list")
    if rows is None:
        return None
    found: dict[int, Found] = {}
    for row in rows[:_MOST_DEVICES]:
        number = _whole(row.get("device_id"))
        if number is None or not 0 <= number < _MOST_DEVICES:
            continue
        function = str(row.get("pci_bdf_address", "")).strip().lower()
        uuid = str(row.get("uuid", "")).strip()
        model = str(row.get("pci_device_id", "")).strip().lower().removeprefix("0x")
        found[number] = Found(
            number=number,
            name=_text(row.get("device_name")),
            function=function if FUNCTION.fullmatch(function) else None,
            uuid=uuid
            if re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", uuid)
            else None,
            pci_id=f"8086:{model:>04}" if re.fullmatch(r"[0-9a-f]{1,4}", model) else None,
        )
    return tuple(found.values())


def properties(text: str | None) -> dict[str, str]:
    """Return the facts of `discovery -d N -j`, or of the table of `discovery -d N`, by the
    keys of the JSON."""
    root = document(text)
    if isinstance(root, dict):
        root = next(iter(_rows(root, "device_list") or ()), root)
        return {str(key): str(value) for key, value in root.items() if isinstance(value, str | int | float)}
    found: dict[str, str] = {}
    for line in (text or "").splitlines()[:4096]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        key, colon, value = cells[-1].partition(":")
        if colon and len(cells) == 2:
            found.setdefault(_KEYS.get(key.strip(), key.strip()), value.strip())
    return found


_KEYS = {
    "Memory Physical Size": "memory_physical_size",
    "Number of Tiles": "number_of_tiles",
}


def memory_total(facts: Mapping[str, str]) -> int | None:
    """Return the bytes of a card's memory."""
    exact = _whole(facts.get("memory_physical_size_byte"))
    if exact is not None:
        return exact if exact > 0 else None
    number, _, unit = facts.get("memory_physical_size", "").partition(" ")
    amount = _number(number)
    scale = {"": MIB, "MiB": MIB, "GiB": 1024 * MIB, "KiB": 1024, "B": 1}.get(unit.strip())
    return round(amount * scale) if amount is not None and amount > 0 and scale else None


def tiles(facts: Mapping[str, str]) -> int | None:
    """Return the number of tiles of a card."""
    found = _whole(facts.get("number_of_tiles"))
    return found if found is not None and 1 <= found <= 16 else None


def load(text: str | None, total: int | None) -> Load:
    """Return the load from `stats -d N -j`, or from the table of `stats -d N`.

    `total` is the size of the card's memory in bytes. It separates bytes from MiB, because versions differ.
    """
    root = document(text)
    if isinstance(root, list) and len(root) == 1:
        root = root[0]
    if not isinstance(root, dict):
        return _load_of_table(text or "")
    if "device_index" in root:
        return _joined({}, _tiles_of_version_2(root))
    parts: dict[int, dict[str, float]] = {}
    for row in _rows(root, "tile_level") or ():
        number = _whole(row.get("tile_id"))
        if number is not None and 0 <= number < _MOST_TILES:
            parts[number] = _metrics(_rows(row, "data_list"), total)
    return _joined(_metrics(_rows(root, "device_level"), total), parts)


_METRICS: tuple[tuple[str, tuple[str, str], str], ...] = (
    ("MEMORY_USED", ("memory", "used_mib"), "GPU Memory Used (MiB)"),
    ("GPU_UTILIZATION", ("utilization", "gpu_percent"), "Average % utilization of"),
    ("POWER", ("power", "gpu_power_w"), "GPU Power (W)"),
    ("GPU_FREQUENCY", ("frequency", "gpu_frequency_mhz"), "GPU Frequency (MHz)"),
    ("GPU_CORE_TEMPERATURE", ("temperature", "gpu_core_celsius"), "GPU Core Temperature (C)"),
)
"""The names in version 1 (XPUM_STATS_…), in version 2, and in the table for people."""

_ADDED_UP = ("MEMORY_USED", "POWER")


def _joined(whole: Mapping[str, float], parts: Mapping[int, Mapping[str, float]]) -> Load:
    """Return the load of a card from its own metrics, or from those of its tiles where every tile has one."""
    facts = dict(whole)
    for name, *_ in _METRICS:
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
        clock=None if clock is None or clock < 0 else round(clock),
        tiles={number: _joined(part, {}) for number, part in parts.items()},
    )


def _tiles_of_version_2(root: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return the metrics by tile from the form of version 2.

    {"memory": {"used_mib": {"tile_0": {"current": 239.0, …}}}, "utilization": {"gpu_percent": …}, …}
    """
    found: dict[int, dict[str, float]] = {}
    for metric, (group, name), _ in _METRICS:
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


def _load_of_table(text: str) -> Load:
    cells: dict[str, float] = {}
    for line in text.splitlines()[:4096]:
        key, bar, value = line.strip().strip("|").partition("|")
        number = _number(value.strip().partition(";")[0])
        if bar and number is not None:
            cells.setdefault(key.strip(), number)
    facts = {metric: cells[label] for metric, _, label in _METRICS if label in cells}
    if "MEMORY_USED" in facts:
        facts["MEMORY_USED"] = max(0.0, facts["MEMORY_USED"] * MIB)
    return _joined(facts, {})


def _bytes(amount: float | None, total: int | None) -> int | None:
    if amount is None or amount <= 0:
        return None
    most = total if total else 1 << 44
    return round(amount * MIB) if amount * MIB <= most else round(amount) if amount <= most else None


def processes(text: str | None) -> Used | None:
    """Return, by device, each process's bytes there, without xpu-smi itself; None where it is no such list.

    The text is `ps -j`, or the table of `ps`; both count in KiB.
    """
    root = document(text)
    found: Used = {}
    if isinstance(root, dict):
        rows = _rows(root, "device_util_by_proc_list")
        if rows is None:
            return None
        for row in rows:
            pid, device = _whole(row.get("process_id")), _whole(row.get("device_id"))
            _add(found, pid, str(row.get("process_name", "")), device, _number(row.get("mem_size")))
        return found
    lines = (text or "").splitlines()
    if not lines or lines[0].split()[:1] != ["PID"]:
        return None
    for line in lines[1:65_536]:
        words = line.split()
        if len(words) >= 5:
            _add(found, _whole(words[0]), " ".join(words[1:-3]), _whole(words[-3]), _number(words[-1]))
    return found


def _add(
    found: Used,
    pid: int | None,
    command: str,
    device: int | None,
    kibibytes: float | None,
) -> None:
    if pid is None or device is None or pid <= 0 or command.rpartition("/")[2].split(" ")[0] == _OWN:
        return
    found.setdefault(device, {})[pid] = (
        None if kibibytes is None or kibibytes < 0 else round(kibibytes * 1024)
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A device of the table that version 2 prints without a command; `total` is in bytes."""

    found: Found
    total: int | None
    load: Load


_IDENTITY = re.compile(r"\|\s*(\d{1,3})\s+(\S.*?)(?:\s{2,}\S+)?\s*\|\s*([0-9a-fA-F:.]+)\s.*\|.*\|")
_FACTS = re.compile(
    r"\|(.*?)\|\s*(?:(\d{1,9})MiB|N/A)\s*/\s*(?:(\d{1,9})MiB|N/A)\s*\|\s*(?:(\d{1,3})%|N/A)?.*\|"
)
_LISTED = re.compile(r"\|\s*(\d{1,3})\s+(\d{1,10})\s+\S+\s+(\S.*?)\s+(?:(\d{1,9}) ?MiB|N/A)\s*\|")


def _lines(text: str | None) -> list[str]:
    """Return the lines of a table that are no wider than its version prints it."""
    lines = (line.strip() for line in (text or "").splitlines()[:65_536])
    return [line for line in lines if len(line) <= _WIDEST]


def overview(text: str | None) -> tuple[Row, ...] | None:
    """Return the devices of a bare `xpu-smi` of version 2, two lines each; None where it is no such table."""
    found: list[Row] = []
    who: Found | None = None
    for line in _lines(text):
        identity, facts = _IDENTITY.fullmatch(line), _FACTS.fullmatch(line)
        if identity is not None:
            function = identity[3].lower()
            known = FUNCTION.fullmatch(function) is not None
            who = Found(int(identity[1]), _text(identity[2]), function if known else None, None)
        elif facts is not None and who is not None:
            heat, power, limit = (
                _number(told[1]) if (told := re.search(pattern, facts[1])) else None
                for pattern in (
                    r"(\d{1,3})C\b",
                    r"(\d{1,5}(?:\.\d+)?)W\s*/",
                    r"/\s*(\d{1,5}(?:\.\d+)?)W",
                )
            )
            used, total = (int(amount) * MIB if amount else None for amount in facts.group(2, 3))
            load = Load(
                memory_used=used or None,
                utilization=_percent(_number(facts[4])),
                temperature=round(heat) if heat else None,
                power=power,
                power_limit=limit or None,
            )
            found.append(Row(who, total or None, load))
            who = None
    return tuple(found[:_MOST_DEVICES]) or None


def overview_processes(text: str | None) -> Used:
    """Return the processes below that table, in the form of `processes`."""
    found: Used = {}
    for line in _lines(text):
        row = _LISTED.fullmatch(line)
        if row is not None:
            _add(found, int(row[2]), row[3], int(row[1]), int(row[4]) * 1024.0 if row[4] else None)
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
