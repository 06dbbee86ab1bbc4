"""The file of a box's last twelve hours: one record a minute, at an offset that depends on the minute.

The file has a header (magic, number of devices, checksum of the table), a table of the devices (key, bytes of
memory, power limit), and `MINUTES` records. A record has the minute since the epoch, the mean and the peak of
each figure of each device as floats (NaN: unknown), and a checksum; an incomplete record is ignored. The file
is not trusted: every size, number and name in it is checked.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import isfinite, nan
from zlib import crc32

from gputui.timeline.store import METRICS, Past, Store

MINUTES = 720
MOST_DEVICES = 256
_MAGIC = b"gputui timeline1"
_HEADER = struct.Struct("<16sII")
_DEVICE = struct.Struct("<64sff")
_CRC = struct.Struct("<I")
_FIGURES = 2 * len(METRICS)
_HIGHEST = 1e18
"""The upper limit of any stored figure: bytes, W or percent."""

LARGEST = _HEADER.size + MOST_DEVICES * (_DEVICE.size + MINUTES * (12 + 4 * _FIGURES))
"""The size of the largest file, in bytes."""


class DamagedError(Exception):
    """The bytes are not such a file."""


@lru_cache(maxsize=4)
def _record(devices: int) -> struct.Struct:
    return struct.Struct(f"<q{devices * _FIGURES}f")


def kept_keys(store: Store, minute: int) -> list[str]:
    """Return the devices for which a file that ends with this minute has data."""
    found = {
        key: past.newest
        for key, past in list(store.devices.items())
        if past.newest > minute - MINUTES and key.isprintable() and len(key.encode()) <= 64
    }
    newest = sorted(found, key=lambda key: -found[key])[:MOST_DEVICES]
    return newest if len(newest) < len(found) else list(found)


def head(store: Store, keys: list[str]) -> bytes:
    """Return the header and the table."""
    table = b"".join(
        _DEVICE.pack(key.encode(), past.memory_total or nan, past.power_limit or nan)
        for key in keys
        for past in (store.devices[key],)
    )
    return _HEADER.pack(_MAGIC, len(keys), crc32(table)) + table


def record(store: Store, keys: list[str], minute: int) -> bytes:
    """Return one minute of these devices."""
    figures: list[float] = []
    for key in keys:
        rings = store.devices[key].rings
        for metric in METRICS:
            ring = rings[metric][-1] if metric in rings else None
            for peaks in (False, True):
                figures += ring.window(minute, minute + 1, peaks) if ring else (nan,)
    data = _record(len(keys)).pack(minute, *figures)
    return data + _CRC.pack(crc32(data))


def place(keys: list[str], minute: int) -> int:
    """Return the offset of the record of a minute."""
    return _HEADER.size + len(keys) * _DEVICE.size + minute % MINUTES * _record_size(len(keys))


def size(keys: list[str]) -> int:
    """Return the size of a file of these devices, in bytes."""
    return _HEADER.size + len(keys) * (_DEVICE.size) + MINUTES * _record_size(len(keys))


def _record_size(devices: int) -> int:
    return _record(devices).size + _CRC.size


def whole(store: Store, keys: list[str], minute: int) -> bytes:
    """Return the file as of the end of a minute."""
    records = [b""] * MINUTES
    for each in range(minute - MINUTES + 1, minute + 1):
        records[each % MINUTES] = record(store, keys, each)
    return head(store, keys) + b"".join(records)


def read(data: bytes, minute: int) -> Store:
    """Parse the twelve hours before a minute from a file. Raise DamagedError."""
    store = Store()
    if len(data) < _HEADER.size:
        raise DamagedError
    magic, count, checksum = _HEADER.unpack_from(data)
    table = data[_HEADER.size : _HEADER.size + count * _DEVICE.size]
    expected = _HEADER.size + len(table) + MINUTES * _record_size(min(count, MOST_DEVICES))
    if magic != _MAGIC or not 0 < count <= MOST_DEVICES or len(data) != expected or crc32(table) != checksum:
        raise DamagedError
    pasts = []
    for name, total, limit in _DEVICE.iter_unpack(table):
        try:
            key = name.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise DamagedError from None
        if not key or not key.isprintable() or key in store.devices:
            raise DamagedError
        past = Past(memory_total=_positive(total), power_limit=_positive(limit))
        store.devices[key] = past
        pasts.append(past)
    _read_records(data[_HEADER.size + len(table) :], pasts, minute)
    return store


def _positive(value: float) -> float | None:
    return value if isfinite(value) and 0 < value < _HIGHEST else None


def _read_records(data: bytes, pasts: list[Past], minute: int) -> None:
    layout, size = _record(len(pasts)), _record_size(len(pasts))
    found = []
    for at in range(MINUTES):
        own = data[at * size : at * size + layout.size]
        if _CRC.unpack_from(data, at * size + layout.size)[0] == crc32(own):
            when, *figures = layout.unpack(own)
            if when % MINUTES == at and minute - MINUTES < when <= minute:
                found.append((when, figures))
    for when, figures in sorted(found):
        for place, past in enumerate(pasts):
            for n, metric in enumerate(METRICS):
                mean, peak = figures[(place * len(METRICS) + n) * 2 :][:2]
                if all(isfinite(each) and 0 <= each < _HIGHEST for each in (mean, peak)):
                    (past.rings.get(metric) or past.new(metric))[-1].put(when, mean, peak)
